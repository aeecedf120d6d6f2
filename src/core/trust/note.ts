/**
 * Signed notes, the checkpoints of logs in them, and the cosignatures of witnesses, as C2SP
 * has them: parsing, rendering, and the bytes that each signature covers. Who signs or
 * verifies them does so elsewhere.
 * Source: c2sp.org/signed-note, c2sp.org/tlog-checkpoint, c2sp.org/tlog-cosignature.
 */
import { sha256 } from "#sha256";
import {
  concatBytes,
  decodeBase64,
  decodeHex,
  encodeBase64,
  encodeHex,
  utf8,
} from "../codec/bytes.ts";
import { hashBytes } from "./tree.ts";

/** Type bytes of keys: a log signs notes, a witness cosigns checkpoints. */
const types = { log: 1, witness: 4 } as const;
type KeyType = keyof typeof types;

/** A key with its name, as a `vkey` has it. */
export type NoteKey = {
  readonly name: string;
  readonly type: KeyType;
  /** Four bytes in hex. */
  readonly id: string;
  readonly publicKey: Uint8Array;
};

const nameForm = "[^\\s+\\x00-\\x1f]{1,255}";
const vkeyForm = new RegExp(`^(${nameForm})\\+([0-9a-f]{8})\\+([A-Za-z0-9+/]{44})$`, "u");
const skeyForm = new RegExp(
  `^PRIVATE\\+KEY\\+(${nameForm})\\+([0-9a-f]{8})\\+([A-Za-z0-9+/]{44})$`,
  "u",
);

/** `null` for a name that no key may have. */
export function noteKey(name: string, type: KeyType, publicKey: Uint8Array): NoteKey | null {
  if (!new RegExp(`^${nameForm}$`, "u").test(name)) return null;
  const digest = sha256(concatBytes(utf8(`${name}\n`), Uint8Array.of(types[type]), publicKey));
  return { name, type, id: encodeHex(digest.subarray(0, 4)), publicKey };
}

/** The form of Go's `note` package: `name+id+base64`. */
export function renderVerifierKey({ name, id, type, publicKey }: NoteKey): string {
  return `${name}+${id}+${encodeBase64(concatBytes(Uint8Array.of(types[type]), publicKey))}`;
}

/** `null` for anything but the text of a key whose id is its own. */
export function parseVerifierKey(text: string): NoteKey | null {
  const parts = parseKeyText(vkeyForm, text);
  const key = parts === null ? null : noteKey(parts.name, parts.type, parts.bytes);
  return key?.id === parts?.id ? key : null;
}

/**
 * A `vkey` and the address of its log or witness, with a space between; `null` for anything
 * else.
 */
export function parseNamedAddress(
  text: string,
): { readonly key: NoteKey; readonly url: string } | null {
  const [vkey = "", url = "", ...rest] = text.split(" ");
  const key = parseVerifierKey(vkey);
  const isUrl = /^https?:\/\/[^?#\s]+$/.test(url) && URL.canParse(url);
  return key === null || !isUrl || rest.length > 0 ? null : { key, url: url.replace(/\/+$/, "") };
}

/** A secret key as Go's `note` package writes it. */
export function renderSignerKey({ name, id, type }: NoteKey, seed: Uint8Array): string {
  return `PRIVATE+KEY+${name}+${id}+${encodeBase64(concatBytes(Uint8Array.of(types[type]), seed))}`;
}

type SignerKey = {
  readonly name: string;
  readonly type: KeyType;
  readonly id: string;
  readonly bytes: Uint8Array;
};

/** `bytes` is the seed, whose public key the caller derives: its id must be the same. */
export function parseSignerKey(text: string): SignerKey | null {
  return parseKeyText(skeyForm, text);
}

function parseKeyText(form: RegExp, text: string): SignerKey | null {
  const [, name = "", id = "", base64 = ""] = form.exec(text) ?? [];
  const bytes = decodeBase64(base64);
  const type = (["log", "witness"] as const).find((one) => types[one] === bytes?.[0]);
  return bytes?.length === 1 + hashBytes && type !== undefined
    ? { name, id, type, bytes: bytes.slice(1) }
    : null;
}

// ------------------------------------------------------------------------------------------- notes

type NoteSignature = { readonly name: string; readonly id: string; readonly bytes: Uint8Array };
/** `text` ends with a line feed. */
export type SignedNote = { readonly text: string; readonly signatures: readonly NoteSignature[] };

export const noteBytesMax = 16_384;
const signaturesMax = 64;
const lineForm = new RegExp(`^— (${nameForm}) ([A-Za-z0-9+/]+={0,2})$`, "u");

/** `null` for anything but a note with signatures. */
export function parseNote(note: string): SignedNote | null {
  const split = note.lastIndexOf("\n\n");
  if (
    note.length > noteBytesMax ||
    split < 0 ||
    !note.isWellFormed() ||
    /[\x00-\x09\x0b-\x1f]/.test(note)
  )
    return null;
  const signatures = parseSignatures(note.slice(split + 2));
  return signatures === null || signatures.length === 0
    ? null
    : { text: note.slice(0, split + 1), signatures };
}

/** Lines of signatures, each with its line feed. */
export function parseSignatures(lines: string): NoteSignature[] | null {
  if (!lines.endsWith("\n")) return null;
  const signatures = lines
    .slice(0, -1)
    .split("\n")
    .map((line) => {
      const [, name = "", base64 = ""] = lineForm.exec(line) ?? [];
      const bytes = decodeBase64(base64);
      return bytes === null || bytes.length < 5
        ? null
        : { name, id: encodeHex(bytes.subarray(0, 4)), bytes: bytes.slice(4) };
    });
  return signatures.length > signaturesMax || signatures.includes(null)
    ? null
    : (signatures as NoteSignature[]);
}

export function renderSignature({ name, id, bytes }: NoteSignature): string {
  return `— ${name} ${encodeBase64(concatBytes(decodeHex(id) as Uint8Array, bytes))}\n`;
}

/** A note with its signatures, each on a line of its own. */
export function renderNote({ text, signatures }: SignedNote): string {
  return `${text}\n${signatures.map(renderSignature).join("")}`;
}

type SignedBy = {
  readonly signature: Uint8Array;
  readonly message: Uint8Array;
  readonly publicKey: Uint8Array;
  /** When a witness says that it signed; 0 for a log. */
  readonly timeMs: number;
};

const timeBytes = 8;

/** What a key has to verify of a note, or `null` when the note doesn't name it. */
export function signedBy({ text, signatures }: SignedNote, key: NoteKey): SignedBy | null {
  const line = signatures.find(({ name, id }) => name === key.name && id === key.id);
  if (line === undefined) return null;
  const { publicKey } = key;
  if (key.type === "log")
    return { signature: line.bytes, message: utf8(text), publicKey, timeMs: 0 };
  const seconds =
    line.bytes.length < timeBytes
      ? 0n
      : new DataView(line.bytes.slice(0, timeBytes).buffer).getBigUint64(0);
  const timeMs = Number(seconds) * 1_000;
  return {
    signature: line.bytes.slice(timeBytes),
    message: cosignedText(text, seconds),
    publicKey,
    timeMs,
  };
}

function cosignedText(text: string, seconds: bigint): Uint8Array {
  return utf8(`cosignature/v1\ntime ${seconds}\n${text}`);
}

type Sign = (message: Uint8Array) => Uint8Array;

/** The signature of a log. */
export function signNote(text: string, { name, id }: NoteKey, sign: Sign): NoteSignature {
  return { name, id, bytes: sign(utf8(text)) };
}

/** The cosignature of a witness. */
export function cosign(
  text: string,
  { name, id }: NoteKey,
  { sign, nowMs }: { sign: Sign; nowMs: number },
): NoteSignature {
  const seconds = BigInt(Math.floor(nowMs / 1_000));
  const time = new Uint8Array(timeBytes);
  new DataView(time.buffer).setBigUint64(0, seconds);
  return { name, id, bytes: concatBytes(time, sign(cosignedText(text, seconds))) };
}

// ------------------------------------------------------------------------------------- checkpoints

export type Checkpoint = {
  readonly origin: string;
  readonly size: number;
  readonly root: Uint8Array;
};

/** The text that a log signs: origin, size and root, a line each (c2sp.org/tlog-checkpoint). */
export function renderCheckpoint({ origin, size, root }: Checkpoint): string {
  return `${origin}\n${size}\n${encodeBase64(root)}\n`;
}

/** `null` for any other text, extension lines included: witnesses make no statement about them. */
export function parseCheckpoint(text: string): Checkpoint | null {
  const [origin = "", size = "", base64 = "", ...rest] = text.split("\n");
  const root = decodeBase64(base64);
  if (origin === "" || rest.join() !== "" || rest.length !== 1 || root?.length !== hashBytes)
    return null;
  return /^(0|[1-9]\d{0,15})$/.test(size) && Number.isSafeInteger(Number(size))
    ? { origin, size: Number(size), root }
    : null;
}
