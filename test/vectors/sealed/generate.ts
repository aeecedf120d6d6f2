/**
 * Writes `payloads.json`: sealed payloads with every key and nonce that made them, so that a client
 * in any language can run them both ways. The CBOR is put together byte by byte here, not by the
 * codec under test. Run it by hand: `bun test/vectors/sealed/generate.ts`. Its output is the same
 * every time.
 */
import { createHash } from "node:crypto";
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concatBytes, utf8 } from "../../../src/core/codec/bytes.ts";

export type SealedVector = {
  readonly name: string;
  readonly recipient_secret: string;
  readonly recipient_public: string;
  readonly ephemeral_secret: string;
  readonly message_id: string;
  readonly to: string;
  readonly message_group_id: string | null;
  readonly sequence_number: number;
  readonly total_chunks: number;
  readonly additional_data: string;
  readonly shared_secret: string;
  readonly content_key: string;
  readonly record_cbor: string;
  readonly payload: Readonly<Record<string, string>>;
  /** `null`: not to be opened; then `why` names the member at fault. */
  readonly opens: null | {
    readonly name: string;
    readonly media_type: string;
    readonly size_bytes: number;
    readonly sha256: string;
    readonly data: string;
  };
  readonly why: string | null;
};

const profile = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1";
const to = "did:svc:1111111111111111111111";
const group = "7f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b";
const recipientSecret = new Uint8Array(32).fill(3);

// -------------------------------------------------------------------------------------------- CBOR

function head(major: number, value: number): Uint8Array {
  const first = major << 5;
  if (value < 24) return Uint8Array.of(first | value);
  if (value < 0x100) return Uint8Array.of(first | 24, value);
  if (value < 0x1_0000) return Uint8Array.of(first | 25, value >> 8, value & 0xff);
  return Uint8Array.of(
    first | 26,
    value >>> 24,
    (value >> 16) & 0xff,
    (value >> 8) & 0xff,
    value & 0xff,
  );
}

export const cbor = {
  unsigned: (value: number) => head(0, value),
  negative: (value: number) => head(1, -1 - value),
  bytes: (value: Uint8Array) => concatBytes(head(2, value.length), value),
  text: (value: string) => concatBytes(head(3, utf8(value).length), utf8(value)),
  /** Keys in the order of RFC 8949 section 4.2.1: by their encoded bytes. */
  map: (members: ReadonlyMap<string, Uint8Array>) => {
    const entries = [...members].map(([name, value]) => ({ key: cbor.text(name), value }));
    entries.sort((a, b) => Buffer.compare(a.key, b.key));
    return concatBytes(
      head(5, entries.length),
      ...entries.flatMap(({ key, value }) => [key, value]),
    );
  },
};

// ----------------------------------------------------------------------------------------- vectors

type Place = { readonly groupId: string | null; readonly sequence: number; readonly total: number };
type Draft = {
  readonly name: string;
  readonly place: Place;
  readonly whole: Uint8Array;
  readonly data: Uint8Array;
  /** Members that differ from what a sender should write; `null` leaves one out. */
  readonly changed?: Readonly<Record<string, Uint8Array | null>>;
  readonly why?: string;
};

function vectorOf(draft: Draft, index: number): SealedVector {
  const { place, whole, data } = draft;
  const digest = new Uint8Array(createHash("sha256").update(whole).digest());
  const members = new Map<string, Uint8Array>([
    ["format", cbor.text("svc:binary-chunk:v1")],
    ["name", cbor.text("note.txt")],
    ["media_type", cbor.text("text/plain")],
    ["size_bytes", cbor.unsigned(whole.length)],
    ["sha256", cbor.bytes(digest)],
    ["message_group_id", cbor.text(place.groupId ?? "")],
    ["sequence_number", cbor.unsigned(place.sequence)],
    ["total_chunks", cbor.unsigned(place.total)],
    ["data", cbor.bytes(data)],
  ]);
  for (const [name, value] of Object.entries(draft.changed ?? {})) {
    if (value === null) members.delete(name);
    else members.set(name, value);
  }
  const plaintext = cbor.map(members);
  const messageId = `6f1c1f1e-8a54-4a0c-9d0e-${String(index).padStart(12, "0")}`;
  const ephemeral = new Uint8Array(32).fill(100 + index);
  const nonce = new Uint8Array(12).fill(200 - index);
  const additional = [
    profile,
    messageId,
    to,
    place.groupId ?? "",
    place.sequence,
    place.total,
  ].join("|");
  const shared = x25519.getSharedSecret(ephemeral, x25519.getPublicKey(recipientSecret));
  const key = hkdf(sha256, shared, sha256(utf8(additional)), utf8(profile), 32);
  const ciphertext = chacha20poly1305(key, nonce, utf8(additional)).encrypt(plaintext);
  return {
    name: draft.name,
    recipient_secret: recipientSecret.toHex(),
    recipient_public: x25519.getPublicKey(recipientSecret).toHex(),
    ephemeral_secret: ephemeral.toHex(),
    message_id: messageId,
    to,
    message_group_id: place.groupId,
    sequence_number: place.sequence,
    total_chunks: place.total,
    additional_data: additional,
    shared_secret: shared.toHex(),
    content_key: key.toHex(),
    record_cbor: plaintext.toHex(),
    payload: {
      profile,
      key_id: `${to}#x25519-1`,
      ephemeral_x25519_b64: x25519.getPublicKey(ephemeral).toBase64(),
      nonce_b64: nonce.toBase64(),
      ciphertext_b64: ciphertext.toBase64(),
    },
    opens:
      draft.why === undefined
        ? {
            name: "note.txt",
            media_type: "text/plain",
            size_bytes: whole.length,
            sha256: digest.toHex(),
            data: data.toHex(),
          }
        : null,
    why: draft.why ?? null,
  };
}

const text = utf8("Meet me at noon.\n");
const alone: Place = { groupId: null, sequence: 0, total: 1 };
const long = Uint8Array.from({ length: 300 }, (_, i) => i & 0xff);
const whole = { place: alone, whole: text, data: text };

const drafts: readonly Draft[] = [
  { name: "a whole message", ...whole },
  { name: "an empty file", place: alone, whole: new Uint8Array(0), data: new Uint8Array(0) },
  ...[0, 1, 2].map((sequence) => ({
    name: `chunk ${sequence} of 3`,
    place: { groupId: group, sequence, total: 3 },
    whole: long,
    data: long.slice(sequence * 100, sequence * 100 + 100),
  })),
  {
    name: "format as bytes",
    ...whole,
    changed: { format: cbor.bytes(utf8("svc:binary-chunk:v1")) },
    why: "format",
  },
  {
    name: "another format",
    ...whole,
    changed: { format: cbor.text("svc:binary-chunk:v2") },
    why: "format",
  },
  { name: "name as bytes", ...whole, changed: { name: cbor.bytes(utf8("note.txt")) }, why: "name" },
  {
    name: "media_type as bytes",
    ...whole,
    changed: { media_type: cbor.bytes(text) },
    why: "media_type",
  },
  {
    name: "size_bytes as text",
    ...whole,
    changed: { size_bytes: cbor.text("17") },
    why: "size_bytes",
  },
  {
    name: "size_bytes negative",
    ...whole,
    changed: { size_bytes: cbor.negative(-17) },
    why: "size_bytes",
  },
  {
    name: "size_bytes too small",
    ...whole,
    changed: { size_bytes: cbor.unsigned(16) },
    why: "size_bytes",
  },
  {
    name: "sha256 of 31 bytes",
    ...whole,
    changed: { sha256: cbor.bytes(new Uint8Array(31)) },
    why: "sha256",
  },
  { name: "sha256 as an integer", ...whole, changed: { sha256: cbor.unsigned(1) }, why: "sha256" },
  {
    name: "message_group_id as bytes",
    ...whole,
    changed: { message_group_id: cbor.bytes(new Uint8Array(0)) },
    why: "message_group_id",
  },
  {
    name: "message_group_id of another group",
    ...whole,
    changed: { message_group_id: cbor.text(group) },
    why: "message_group_id",
  },
  {
    name: "sequence_number as text",
    ...whole,
    changed: { sequence_number: cbor.text("0") },
    why: "sequence_number",
  },
  {
    name: "total_chunks as text",
    ...whole,
    changed: { total_chunks: cbor.text("1") },
    why: "total_chunks",
  },
  {
    name: "data as text",
    ...whole,
    changed: { data: cbor.text("Meet me at noon.\n") },
    why: "data",
  },
  { name: "without data", ...whole, changed: { data: null }, why: "data" },
  {
    name: "with a member too many",
    ...whole,
    changed: { path: cbor.text("/etc") },
    why: "members",
  },
];

export const vectors: readonly SealedVector[] = drafts.map(vectorOf);

if (import.meta.main) {
  await Bun.write(`${import.meta.dir}/payloads.json`, `${JSON.stringify(vectors, null, 1)}\n`);
}
