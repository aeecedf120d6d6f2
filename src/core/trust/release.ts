/**
 * What a release is verified by: a list of sums, and the signature of minisign over it.
 * Source: jedisct1.github.io/minisign, "Signature format" and "Public key format".
 */
import { blake2b } from "@noble/hashes/blake2.js";
import { verifyEd25519 } from "#crypto";
import { concatBytes, decodeBase64, equalBytes, utf8 } from "../codec/bytes.ts";

export type ReleaseKey = { readonly id: Uint8Array; readonly publicKey: Uint8Array };

type ReleaseSignature = {
  readonly keyId: Uint8Array;
  /** Over BLAKE2b-512 of the file. */
  readonly ofFile: Uint8Array;
  /** What `ofComment` covers behind the signature of the file: version and commit. */
  readonly comment: string;
  readonly ofComment: Uint8Array;
};

const keyIdBytes = 8;

/**
 * Of a public key: its Base64, or the file with a line of comment before it. 42 bytes:
 * `Ed`, id, Ed25519 key. `null` for anything else.
 */
export function parseReleaseKey(text: string): ReleaseKey | null {
  const bytes = decodeBase64(text.trim().split("\n").at(-1)?.trim() ?? "");
  if (bytes === null || bytes.length !== 2 + keyIdBytes + 32 || !beginsWith(bytes, "Ed"))
    return null;
  return { id: bytes.slice(2, 2 + keyIdBytes), publicKey: bytes.slice(2 + keyIdBytes) };
}

/**
 * One a line; lines that begin with `#` say what they are for. `null` when another line is
 * no key.
 */
export function parseReleaseKeys(text: string): readonly ReleaseKey[] | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("#"));
  const keys = lines.map(parseReleaseKey).filter((key) => key !== null);
  return keys.length === lines.length ? keys : null;
}

/**
 * Four lines: a comment that nothing covers, Base64 of `ED`, key id and signature of the
 * file, the trusted comment, Base64 of its signature. `null` for anything else, also for
 * the older form `Ed`, which covers the file unhashed.
 */
export function parseReleaseSignature(text: string): ReleaseSignature | null {
  const [, ofFileText = "", commentLine = "", ofCommentText = "", ...rest] = text
    .trimEnd()
    .split("\n");
  const prefix = "trusted comment: ";
  const file = decodeBase64(ofFileText);
  const ofComment = decodeBase64(ofCommentText);
  if (rest.length > 0 || !commentLine.startsWith(prefix)) return null;
  if (file === null || file.length !== 2 + keyIdBytes + 64 || !beginsWith(file, "ED")) return null;
  if (ofComment === null || ofComment.length !== 64) return null;
  return {
    keyId: file.slice(2, 2 + keyIdBytes),
    ofFile: file.slice(2 + keyIdBytes),
    comment: commentLine.slice(prefix.length),
    ofComment,
  };
}

function beginsWith(bytes: Uint8Array, algorithm: string): boolean {
  return equalBytes(bytes.subarray(0, 2), utf8(algorithm));
}

/** Whether both signatures hold, that of the file and that of the comment. */
export function isSignedBy(
  { publicKey }: ReleaseKey,
  { ofFile, comment, ofComment }: ReleaseSignature,
  file: Uint8Array,
): boolean {
  const digest = blake2b(file);
  const commented = concatBytes(ofFile, utf8(comment));
  return verifyEd25519(ofFile, digest, publicKey) && verifyEd25519(ofComment, commented, publicKey);
}

/**
 * Sums in hex by name, from lines as `sha256sum` prints them; `null` for anything else, and
 * for paths.
 */
export function parseSums(text: string): Map<string, string> | null {
  const sums = new Map<string, string>();
  for (const line of text.trimEnd().split("\n")) {
    const [, sum = "", name = ""] = /^([0-9a-f]{64}) [ *]([^/\\]+)$/.exec(line) ?? [];
    if (name === "" || sums.has(name)) return null;
    sums.set(name, sum);
  }
  return sums;
}
