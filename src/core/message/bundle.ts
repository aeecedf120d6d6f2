/**
 * Key bundles: the X-Wing key that others seal to in this week, signed by its owner. Caches
 * keep one for each mailbox, nodes hand it to senders, and no one on the way can change,
 * mix or invent one: senders check it by the document.
 * Source: docs/interface.md "Key bundles".
 */
import { sha256 } from "#sha256";
import {
  decodeBase64,
  encodeBase64,
  encodeHex,
  signatureBytes,
  type VerifySignature,
} from "../codec/bytes.ts";
import { type Did, isDid, parseDidUrl } from "../codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../codec/json.ts";
import { parseTimestamp, renderTimestamp, weekMs } from "../codec/time.ts";
import { badInput, type Fault } from "../fault.ts";
import type { DidDocument } from "../ledger/account.ts";
import { keyFor } from "../ledger/document.ts";
import { signedTextOf } from "./proof.ts";

/** Of ML-KEM-768 1,184 bytes, then 32 of X25519. */
export const bundleKeyBytes = 1_216;
const bundleLifeMsMax = weekMs;
/** A bundle as JSON, with generous white space. */
export const bundleBytesMax = 4_096;

export type KeyBundle = {
  readonly did: Did;
  /** 16 bytes of the key's SHA-256 in hex. */
  readonly keyId: string;
  readonly publicKey: Uint8Array;
  readonly issuedAtMs: number;
  readonly notAfterMs: number;
  /** Id of the method whose key has signed. */
  readonly signer: string;
  readonly signature: Uint8Array;
};

const memberNames = [
  "did",
  "key_id",
  "public_key_b64",
  "issued_at",
  "not_after",
  "signer",
  "signature_b64",
] as const;
type BundleMember = (typeof memberNames)[number];

// -------------------------------------------------------------------------------------------- form

export function bundleKeyId(publicKey: Uint8Array): string {
  return encodeHex(sha256(publicKey).subarray(0, 16));
}

/**
 * Refuses with `invalid_request` and the member at fault. Signature and present time are
 * not checked.
 */
export function parseBundle(value: JsonValue): KeyBundle | Fault {
  const read = readBundle(value);
  if (typeof read !== "string") return read;
  return badInput("invalid_request", read && `/${read}`, forms[read]);
}

/** What each member must be, and (`""`) the whole. */
const forms: Readonly<Record<BundleMember | "", string>> = {
  "": `must be a JSON object with these members and no others: ${memberNames.join(", ")}`,
  did: "must be a DID",
  key_id: "must be 16 bytes of the key's SHA-256 in hex",
  public_key_b64: "must be an X-Wing public key, Base64 of 1,216 bytes",
  issued_at: "must be ISO-8601 UTC with milliseconds",
  not_after: "must be ISO-8601 UTC with milliseconds, at most 7 days after issued_at",
  signer: "must be the id of a method of the DID",
  signature_b64: "must be Base64 of 64 bytes",
};

/**
 * The same, or the member at fault: codes and texts of nodes would be 2 KB of what a page
 * loads.
 */
export function readBundle(value: JsonValue): KeyBundle | BundleMember | "" {
  const texts = textsOf(value);
  if (typeof texts === "string") return texts;
  const { did, signer } = texts;
  if (!isDid(did)) return "did";
  const publicKey = decodeExactly(texts.public_key_b64, bundleKeyBytes);
  if (publicKey === null || !isEncapsulationKey(publicKey)) return "public_key_b64";
  const keyId = bundleKeyId(publicKey);
  if (texts.key_id !== keyId) return "key_id";
  const [issuedAtMs, notAfterMs] = [parseExact(texts.issued_at), parseExact(texts.not_after)];
  if (issuedAtMs === null) return "issued_at";
  if (notAfterMs === null || notAfterMs <= issuedAtMs) return "not_after";
  if (notAfterMs - issuedAtMs > bundleLifeMsMax) return "not_after";
  if (!signer.startsWith(did) || parseDidUrl(signer, did) === null) return "signer";
  const signature = decodeExactly(texts.signature_b64, signatureBytes);
  if (signature === null) return "signature_b64";
  return { did, keyId, publicKey, issuedAtMs, notAfterMs, signer, signature };
}

/** Each member is there, is text, and there are no others. */
function textsOf(value: JsonValue): Record<BundleMember, string> | BundleMember | "" {
  if (!isJsonObject(value)) return "";
  const texts: Partial<Record<BundleMember, string>> = {};
  for (const name of memberNames) {
    const text = value[name];
    if (typeof text !== "string") return name;
    texts[name] = text;
  }
  const isMore = Object.keys(value).length > memberNames.length;
  return isMore ? "" : (texts as Record<BundleMember, string>);
}

/** A longer text is not decoded. */
function decodeExactly(text: string, bytes: number): Uint8Array | null {
  if (text.length !== 4 * Math.ceil(bytes / 3)) return null;
  const decoded = decodeBase64(text);
  return decoded?.length === bytes ? decoded : null;
}

/** The text is signed, so a moment has one form. */
function parseExact(text: string): number | null {
  const ms = parseTimestamp(text);
  return ms !== null && renderTimestamp(ms) === text ? ms : null;
}

/** Three polynomials of 256 coefficients, 12 bits each, before a seed and the X25519 key. */
const coefficientBytes = 3 * 384;
const modulus = 3_329;

/** The check of FIPS 203, section 7.2: each coefficient is below the modulus. */
function isEncapsulationKey(publicKey: Uint8Array): boolean {
  for (let at = 0; at < coefficientBytes; at += 3) {
    const [a = 0, b = 0, c = 0] = publicKey.subarray(at, at + 3);
    if ((a | ((b & 15) << 8)) >= modulus || ((b >> 4) | (c << 4)) >= modulus) return false;
  }
  return true;
}

export function renderBundle({ publicKey, signer, signature, ...bundle }: KeyBundle): JsonObject {
  return {
    did: bundle.did,
    key_id: bundle.keyId,
    public_key_b64: encodeBase64(publicKey),
    issued_at: renderTimestamp(bundle.issuedAtMs),
    not_after: renderTimestamp(bundle.notAfterMs),
    signer,
    signature_b64: encodeBase64(signature),
  };
}

// --------------------------------------------------------------------------------- text and checks

const bundleText = signedTextOf(
  "svc:key-bundle:v2",
  ...(["did", "keyId", "issuedAt", "notAfter", "keySha256"] as const),
);

/** What a bundle is signed with. */
export function encodeBundleText({
  did,
  keyId,
  publicKey,
  issuedAtMs,
  notAfterMs,
}: Omit<KeyBundle, "signer" | "signature">): Uint8Array {
  return bundleText({
    did,
    keyId,
    issuedAt: renderTimestamp(issuedAtMs),
    notAfter: renderTimestamp(notAfterMs),
    keySha256: encodeHex(sha256(publicKey)),
  });
}

/** By it a sender says which bundle it knows: lower hex of SHA-256 over the signed text. */
export function bundleDigest(bundle: KeyBundle): string {
  return encodeHex(sha256(encodeBundleText(bundle)));
}

/**
 * Whether a method that `authentication` of this document lists has signed the bundle of
 * its DID.
 */
export async function verifyBundle(
  bundle: KeyBundle,
  document: DidDocument,
  verify: VerifySignature,
): Promise<boolean> {
  if (bundle.did !== document.id) return false;
  const key = keyFor({ document }, bundle.signer, "send");
  return key !== null && verify(bundle.signature, encodeBundleText(bundle), key);
}

/** Whether it counts now; `null` when it does. A clock may be `skewMs` behind its maker's. */
export function bundleTimeProblem(
  { issuedAtMs, notAfterMs }: Pick<KeyBundle, "issuedAtMs" | "notAfterMs">,
  nowMs: number,
  skewMs: number,
): "expired" | "future" | null {
  if (nowMs >= notAfterMs) return "expired";
  return issuedAtMs > nowMs + skewMs ? "future" : null;
}
