/**
 * The hot paths of a node, each beside its reference: what the same work costs done bare or by the
 * library that a reader would reach for. Only work that both sides do alike is timed; inputs are
 * made before. A ratio below 1 means that ours is faster than the reference.
 */
import { createPublicKey, verify } from "node:crypto";
import { ed25519 } from "@noble/curves/ed25519.js";
import { verifyEd25519 } from "../src/core/codec/crypto.ts";
import { type Decoded, decodeWith, encodeWith } from "../src/core/codec/scale.ts";
import { isFault } from "../src/core/fault.ts";
import { payloadCodecs } from "../src/core/ledger/structures.ts";
import { decodeEnvelope, type EnvelopeLimits } from "../src/core/message/envelope.ts";
import { oracle, oracleEncode, oracleReencode } from "../test/oracles/scale.ts";

export type Contender = { readonly name: string; readonly run: () => unknown };
export type HotPath = {
  readonly name: string;
  /** Bytes that one run works on, for the throughput column. */
  readonly bytes: number;
  readonly ours: Contender;
  readonly references: readonly Contender[];
};

const did = "did:svc:1111111111111111111111";
const limits: EnvelopeLimits = {
  body_bytes_max: 25 * 1_048_576,
  unchunked_bytes_max: 16 * 1_048_576,
  chunk_bytes_max: 2 * 1_048_576,
  header_bytes_max: 4_096,
  ttl_max: 172_800_000,
  ttl_default: 86_400_000,
  clock_skew: 300_000,
};

function envelopeBytes(payloadBytes: number): Uint8Array {
  const ciphertext = new Uint8Array(payloadBytes).map((_, i) => (i * 131 + 17) & 0xff);
  const json = JSON.stringify({
    message_id: "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b",
    to: did,
    timestamp: "2026-07-16T12:00:00.000Z",
    ttl: "24h",
    delivery_hint: "standard",
    payload: {
      profile: "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1",
      key_id: `${did}#x25519-1`,
      ephemeral_x25519_b64: new Uint8Array(32).fill(1).toBase64(),
      nonce_b64: new Uint8Array(12).fill(2).toBase64(),
      ciphertext_b64: ciphertext.toBase64(),
    },
  });
  return new TextEncoder().encode(json);
}

function envelopePath(name: string, payloadBytes: number): HotPath {
  const bytes = envelopeBytes(payloadBytes);
  const decoder = new TextDecoder("utf-8", { fatal: true });
  if (isFault(decodeEnvelope(bytes, limits)))
    throw new Error("the envelope of the benchmark is refused");
  return {
    name: `envelope decode, ${name}`,
    bytes: bytes.length,
    ours: { name: "decodeEnvelope", run: () => decodeEnvelope(bytes, limits) },
    references: [{ name: "bare JSON.parse", run: () => JSON.parse(decoder.decode(bytes)) }],
  };
}

const payload: Decoded<typeof payloadCodecs.document> = {
  did,
  action: "UpdateVerificationMethod",
  verificationMethod: {
    id: `${did}#k1`,
    type: "Multikey",
    controller: did,
    publicKeyMultibase: "z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z",
  },
  keyAgreement: null,
  service: null,
  id: null,
  nonce: 5n,
  validUntilMs: 1_893_456_000_000n,
  signerKeyId: "root",
};

function scalePaths(): HotPath[] {
  const oracleForm = oracle.documentPayload(payload);
  const bytes = encodeWith(payloadCodecs.document, payload);
  return [
    {
      name: "SCALE payload encode",
      bytes: bytes.length,
      ours: {
        name: "encodeDocumentPayload",
        run: () => encodeWith(payloadCodecs.document, payload),
      },
      references: [{ name: "@polkadot codec", run: () => oracleEncode(oracleForm) }],
    },
    {
      name: "SCALE payload decode and re-encode",
      bytes: bytes.length,
      ours: {
        name: "decode and encode",
        run: () =>
          encodeWith(payloadCodecs.document, decodeWith(payloadCodecs.document, bytes) ?? payload),
      },
      references: [{ name: "@polkadot codec", run: () => oracleReencode(oracleForm[0], bytes) }],
    },
  ];
}

function signaturePath(): HotPath {
  const seed = new Uint8Array(32).fill(7);
  const publicKey = ed25519.getPublicKey(seed);
  const message = encodeWith(payloadCodecs.document, payload);
  const signature = ed25519.sign(message, seed);
  const der = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), publicKey]);
  const key = createPublicKey({ key: der, format: "der", type: "spki" });
  return {
    name: "Ed25519 verify",
    bytes: message.length,
    ours: { name: "verifyEd25519", run: () => verifyEd25519(signature, message, publicKey) },
    references: [
      { name: "bare native verify", run: () => verify(null, message, key, signature) },
      { name: "@noble/curves", run: () => ed25519.verify(signature, message, publicKey) },
    ],
  };
}

export function hotPaths(): HotPath[] {
  return [
    envelopePath("1 KiB payload", 1_024),
    envelopePath("64 KiB payload", 65_536),
    envelopePath("1 MiB payload", 1_048_576),
    ...scalePaths(),
    signaturePath(),
  ];
}
