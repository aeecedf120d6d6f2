/**
 * Writes `hybrid.json`: what was sealed in the second version, with every secret that made it, so
 * that a client in any language can run it both ways. Nothing here comes from the code under test:
 * X-Wing is that of another part of its package, HKDF that of the runtime, and CBOR and texts are
 * put together here. Run it by hand: `bun test/vectors/sealed/generate-hybrid.ts`. Its output is
 * the same every time.
 */
import { createHash, createHmac, createPrivateKey, sign } from "node:crypto";
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { ml_kem768_x25519 as xwing } from "@noble/post-quantum/hybrid.js";
import canonicalize from "canonicalize";
import type { JsonObject, JsonValue } from "../../../src/core/codec/json.ts";
import { cbor } from "./generate.ts";

type Texts = Readonly<Record<string, string>>;
type Envelope = JsonObject & { readonly payload: Record<string, string> };

export type HybridVector = {
  readonly name: string;
  /** The recipient's secret: of the first key. */
  readonly seed: string;
  /** 64 bytes of one encapsulation. */
  readonly randomness: string;
  readonly shared_secret: string;
  /** Canonical JSON of the envelope without `payload` and `sender_signature`. */
  readonly envelope_jcs: string;
  readonly info: string;
  readonly key: string;
  readonly nonce: string;
  readonly record_cbor: string;
  /** What was sealed, and how many bytes its padding might have had at most. */
  readonly padded: string;
  readonly padded_bytes_max: number;
  /** The signature inside: the seed of its key, and the text that it covers. */
  readonly signer: null | {
    readonly seed: string;
    readonly public_key: string;
    readonly from: string;
    readonly from_key: string;
    readonly proof_sha256: string;
    readonly text: string;
    readonly signature: string;
  };
  readonly envelope: Envelope;
  /** `null`: not to be opened; then `code` and `why` say how it fails. */
  readonly opens: null | {
    readonly name: string;
    readonly media_type: string;
    readonly size_bytes: number;
    readonly sha256: string;
    readonly data: string;
  };
  readonly code: string | null;
  readonly why: string | null;
};

type PaddingVector = {
  readonly bytes: number;
  readonly bytes_max: number;
  readonly padded: number;
};
type KeyVector = { readonly seed: string; readonly public_key: string; readonly key_id: string };

const profile = "svc:sealed:xwing-hkdf-sha256-chacha20poly1305:v2";
const to = "did:svc:1111111111111111111111";
const from = "did:svc:2222222222222222222222";
const group = "7f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b";
const empty = new Uint8Array(0);
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const filled = (length: number, byte: number) => new Uint8Array(length).fill(byte);
const concat = (...parts: readonly Uint8Array[]) => new Uint8Array(Buffer.concat(parts));
const sha256 = (bytes: Uint8Array) => new Uint8Array(createHash("sha256").update(bytes).digest());
const hmac = (key: Uint8Array, ...parts: readonly Uint8Array[]) =>
  new Uint8Array(
    createHmac("sha256", key)
      .update(concat(...parts))
      .digest(),
  );

// -------------------------------------------------------------------------------------------- HPKE

const suite = concat(utf8("HPKE"), Uint8Array.of(0x64, 0x7a, 0, 1, 0, 3));
const extract = (salt: Uint8Array, label: string, input: Uint8Array) =>
  hmac(salt.length === 0 ? filled(32, 0) : salt, utf8("HPKE-v1"), suite, utf8(label), input);
/** Up to 32 bytes need one block only. */
const expand = (secret: Uint8Array, label: string, context: Uint8Array, length: number) =>
  hmac(
    secret,
    Uint8Array.of(0, length),
    utf8("HPKE-v1"),
    suite,
    utf8(label),
    context,
    Uint8Array.of(1),
  ).slice(0, length);

function scheduleOf(shared: Uint8Array, info: Uint8Array) {
  const context = concat(
    Uint8Array.of(0),
    extract(empty, "psk_id_hash", empty),
    extract(empty, "info_hash", info),
  );
  const secret = extract(shared, "secret", empty);
  return {
    key: expand(secret, "key", context, 32),
    nonce: expand(secret, "base_nonce", context, 12),
  };
}

// ----------------------------------------------------------------------------------------- padding

/** Nikitin et al., algorithm 1, by shifts. */
function padme(length: number): number {
  const e = 31 - Math.clz32(length);
  const s = e === 0 ? 1 : 32 - Math.clz32(e);
  const mask = e - s <= 0 ? 0 : (1 << (e - s)) - 1;
  return (length + mask) & ~mask;
}

function padded(record: Uint8Array, bytesMax: number): Uint8Array {
  const length = Math.max(record.length + 1, Math.min(padme(record.length + 1), bytesMax));
  return concat(record, Uint8Array.of(0x80), filled(length - record.length - 1, 0));
}

// ----------------------------------------------------------------------------------------- vectors

type Draft = {
  readonly name: string;
  readonly data: Uint8Array;
  readonly whole?: Uint8Array;
  /** Members of the envelope apart from those that all have; `null` leaves one out. */
  readonly outer?: JsonObject;
  /** Members of the record that differ; `null` leaves one out. */
  readonly record?: Readonly<Record<string, Uint8Array | null>>;
  readonly paddedBytesMax?: number;
  readonly isSigned?: boolean;
  /** What is sealed in the place of the padded record. */
  readonly plain?: (record: Uint8Array) => Uint8Array;
  /** What somebody did to the envelope afterwards. */
  readonly changed?: (envelope: Envelope) => Envelope;
  readonly code?: string;
  readonly why?: string;
};

const ed25519 = (seed: Uint8Array) =>
  createPrivateKey({
    key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]),
    format: "der",
    type: "pkcs8",
  });

function vectorOf(draft: Draft, index: number): HybridVector {
  const { data, whole = data, outer: more = {}, paddedBytesMax = 1_000_000 } = draft;
  const seed = filled(32, 3);
  const { publicKey } = xwing.keygen(seed);
  const randomness = concat(filled(32, 100 + index), filled(32, 50 + index));
  const wanted = new Map<string, JsonValue>(
    Object.entries({
      message_id: `8f1c1f1e-8a54-4a0c-9d0e-${String(index).padStart(12, "0")}`,
      to,
      timestamp: "2026-11-28T12:00:00.000Z",
      ttl: "24h",
      delivery_hint: more["message_group_id"] === undefined ? "standard" : "chunked",
      ...more,
    }),
  );
  const outer = Object.fromEntries([...wanted].filter(([, value]) => value !== null));
  const named = Object.fromEntries(
    Object.entries(outer).map(([name, value]) => [usualNames[name] ?? name, value]),
  );
  const jcs = canonicalize(named) as string;
  const digests = {
    key: sha256(publicKey).toHex(),
    envelope: sha256(utf8(jcs)).toHex(),
  };
  const place = [`to=${to}`, `key_sha256=${digests.key}`, `envelope_sha256=${digests.envelope}`];
  const members = new Map<string, Uint8Array>([
    ["format", cbor.text("svc:binary-chunk:v1")],
    ["name", cbor.text("note.txt")],
    ["media_type", cbor.text("text/plain")],
    ["size_bytes", cbor.unsigned(whole.length)],
    ["sha256", cbor.bytes(sha256(whole))],
    ["message_group_id", cbor.text(String(more["message_group_id"] ?? ""))],
    ["sequence_number", cbor.unsigned(Number(more["sequence_number"] ?? 0))],
    ["total_chunks", cbor.unsigned(Number(more["total_chunks"] ?? 1))],
    ["data", cbor.bytes(data)],
  ]);
  const signer = draft.isSigned === true ? signInside(members, place) : null;
  for (const [name, value] of Object.entries(draft.record ?? {})) {
    if (value === null) members.delete(name);
    else members.set(name, value);
  }
  const record = cbor.map(members);
  const plain = (draft.plain ?? ((one: Uint8Array) => padded(one, paddedBytesMax)))(record);
  const info = [profile, ...place].join("\n");
  const { cipherText: enc, sharedSecret } = xwing.encapsulate(publicKey, randomness);
  const { key, nonce } = scheduleOf(sharedSecret, utf8(info));
  const payload = {
    profile,
    key_id: digests.key.slice(0, 32),
    enc_b64: enc.toBase64(),
    ciphertext_b64: chacha20poly1305(key, nonce).encrypt(plain).toBase64(),
  };
  const envelope = { ...outer, payload };
  return {
    name: draft.name,
    seed: seed.toHex(),
    randomness: randomness.toHex(),
    shared_secret: sharedSecret.toHex(),
    envelope_jcs: jcs,
    info,
    key: key.toHex(),
    nonce: nonce.toHex(),
    record_cbor: record.toHex(),
    padded: plain.toHex(),
    padded_bytes_max: paddedBytesMax,
    signer,
    envelope: draft.changed?.(envelope) ?? envelope,
    opens:
      draft.code === undefined
        ? {
            name: "note.txt",
            media_type: "text/plain",
            size_bytes: whole.length,
            sha256: sha256(whole).toHex(),
            data: data.toHex(),
          }
        : null,
    code: draft.code ?? null,
    why: draft.why ?? null,
  };
}

const usualNames: Texts = { recipient: "to", created_at: "timestamp" };

/** Adds the four members to a record. */
function signInside(members: Map<string, Uint8Array>, place: readonly string[]) {
  const seed = filled(32, 7);
  const key = ed25519(seed);
  const jwk = key.export({ format: "jwk" });
  const proof = sha256(utf8("a proof"));
  const fromKey = `${from}#root`;
  members.set("from", cbor.text(from));
  members.set("from_key", cbor.text(fromKey));
  members.set("proof_sha256", cbor.bytes(proof));
  const digest = sha256(cbor.map(members)).toHex();
  const head = ["svc:sealed-sender:v2", `from=${from}`, `key_id=${fromKey}`];
  const text = [...head, ...place, `record_sha256=${digest}`].join("\n");
  const signature = new Uint8Array(sign(null, utf8(text), key));
  members.set("signature", cbor.bytes(signature));
  return {
    seed: seed.toHex(),
    public_key: Buffer.from(String(jwk.x), "base64url").toHex(),
    from,
    from_key: fromKey,
    proof_sha256: proof.toHex(),
    text,
    signature: signature.toHex(),
  };
}

const data = utf8("Meet me at noon.\n");
const long = Uint8Array.from({ length: 300 }, (_, i) => i & 0xff);
const signed = { from, sender_key_id: `${from}#root` };
const chunk = (sequence: number) => ({
  message_group_id: group,
  sequence_number: sequence,
  total_chunks: 3,
});
const forged = (member: string, value: JsonValue) => ({
  changed: (envelope: Envelope) => ({ ...envelope, [member]: value }),
  code: "not_authentic",
});
const inPayload = (members: (payload: Texts) => Record<string, string>) => ({
  changed: (envelope: Envelope) => ({ ...envelope, payload: members(envelope.payload) }),
  code: "not_authentic",
});
const flip = (base64: string | undefined, at: number) => {
  const bytes = Uint8Array.fromBase64(base64 ?? "");
  return bytes.with(at, (bytes[at] as number) ^ 1).toBase64();
};
const wrongRecord = { code: "record_unreadable" };

const drafts: readonly Draft[] = [
  { name: "a whole message", data },
  { name: "an empty file", data: empty },
  ...[0, 1, 2].map((sequence) => ({
    name: `chunk ${sequence} of 3`,
    data: long.slice(sequence * 100, sequence * 100 + 100),
    whole: long,
    outer: chunk(sequence),
    paddedBytesMax: sequence < 2 ? 0 : 1_000_000,
  })),
  { name: "padding that the limit cuts", data: long, paddedBytesMax: 515 },
  { name: "signed outside", data, outer: signed },
  {
    name: "a tag, a hint, a header, other names",
    data,
    outer: {
      to: null,
      timestamp: null,
      recipient: to,
      created_at: "2026-11-28T12:00:00.000Z",
      delivery_hint: "direct",
      tag: "bücher\n",
      encrypted_header: "AAAA",
      header_nonce: "AAAAAAAAAAAAAAAA",
      header_key_id: "1",
      schema_version: "1",
    },
  },
  { name: "the sender inside", data, isSigned: true },
  { name: "the sender inside and outside", data, isSigned: true, outer: signed },
  { name: "another tag", data, outer: { tag: "one" }, ...forged("tag", "two") },
  { name: "another hint", data, ...forged("delivery_hint", "direct") },
  { name: "another time", data, ...forged("timestamp", "2026-11-28T12:00:00.001Z") },
  { name: "another life", data, ...forged("ttl", "48h") },
  { name: "another id", data, ...forged("message_id", group) },
  { name: "a member more", data, ...forged("tag", "one") },
  { name: "another sender", data, outer: signed, ...forged("from", to) },
  { name: "another place in its file", data, outer: chunk(0), ...forged("sequence_number", 1) },
  {
    name: "a changed encapsulation of ML-KEM",
    data,
    ...inPayload((one) => ({ ...one, enc_b64: flip(one["enc_b64"], 0) })),
  },
  {
    name: "a changed encapsulation of X25519",
    data,
    ...inPayload((one) => ({ ...one, enc_b64: flip(one["enc_b64"], 1_100) })),
  },
  {
    name: "a point of small order",
    data,
    ...inPayload((one) => ({
      ...one,
      enc_b64: Uint8Array.fromBase64(one["enc_b64"] ?? "")
        .fill(0, 1_088)
        .toBase64(),
    })),
  },
  {
    name: "an encapsulation that is too short",
    data,
    ...inPayload((one) => ({
      ...one,
      enc_b64: Uint8Array.fromBase64(one["enc_b64"] ?? "")
        .slice(1)
        .toBase64(),
    })),
  },
  {
    name: "a changed ciphertext",
    data,
    ...inPayload((one) => ({ ...one, ciphertext_b64: flip(one["ciphertext_b64"], 5) })),
  },
  { name: "no ciphertext", data, ...inPayload((one) => ({ ...one, ciphertext_b64: "" })) },
  {
    name: "a member of the payload too many",
    data,
    ...inPayload((one) => ({ ...one, nonce_b64: "AAAA" })),
  },
  {
    name: "another profile",
    data,
    ...inPayload((one) => ({ ...one, profile: "svc:sealed:xwing:v3" })),
    code: "unknown_profile",
  },
  {
    name: "a key that is not held",
    data,
    ...inPayload((one) => ({ ...one, key_id: "00".repeat(16) })),
    code: "unknown_key",
  },
  { name: "no end before its padding", data, plain: () => filled(64, 0), ...wrongRecord },
  { name: "nothing sealed", data, plain: () => empty, ...wrongRecord },
  {
    name: "a record without an end",
    data,
    plain: (record) => record,
    ...wrongRecord,
  },
  { name: "a record that is not CBOR", data, plain: () => utf8("{}\u0080"), ...wrongRecord },
  {
    name: "another format",
    data,
    record: { format: cbor.text("svc:binary-chunk:v9") },
    ...wrongRecord,
    why: "format",
  },
  { name: "without data", data, record: { data: null }, ...wrongRecord, why: "data" },
  {
    name: "with a member too many",
    data,
    record: { path: cbor.text("/etc") },
    ...wrongRecord,
    why: "members",
  },
  {
    name: "message_group_id of another group",
    data,
    record: { message_group_id: cbor.text(group) },
    ...wrongRecord,
    why: "message_group_id",
  },
  ...["from", "from_key", "proof_sha256", "signature"].map((name) => ({
    name: `the sender inside, without ${name}`,
    data,
    isSigned: true,
    record: { [name]: null },
    ...wrongRecord,
    why: "stand together",
  })),
  {
    name: "a signature of 63 bytes",
    data,
    isSigned: true,
    record: { signature: cbor.bytes(filled(63, 1)) },
    ...wrongRecord,
    why: "signature",
  },
];

const seeds = [3, 9].map((byte) => filled(32, byte));
const sizes = [1, 2, 8, 9, 17, 33, 100, 255, 256, 257, 1_000, 4_097, 65_537, 1_000_001, 1_048_900];

export const hybrid = {
  keys: seeds.map((seed): KeyVector => {
    const { publicKey } = xwing.keygen(seed);
    const id = sha256(publicKey).slice(0, 16).toHex();
    return { seed: seed.toHex(), public_key: publicKey.toHex(), key_id: id };
  }),
  padding: sizes.flatMap((bytes): PaddingVector[] =>
    [Number.MAX_SAFE_INTEGER, bytes + 3, 0].map((bytesMax) => ({
      bytes,
      bytes_max: bytesMax,
      padded: Math.max(bytes + 1, Math.min(padme(bytes + 1), bytesMax)),
    })),
  ),
  envelopes: drafts.map(vectorOf),
};

if (import.meta.main) {
  await Bun.write(`${import.meta.dir}/hybrid.json`, `${JSON.stringify(hybrid, null, 1)}\n`);
}
