/**
 * The documentation of sealing: how a payload is encrypted for its recipient, and one example with every key that
 * made it. The recipient is the identity of the examples. Nodes never open a payload, so the example is written down
 * here; a test compares it with the first vector of `test/vectors/sealed/`, which the SDK opens.
 * Source: docs/protocol.md "Sealing"; RFC 7748, RFC 5869, RFC 8439, RFC 8949 section 4.2.1.
 */
import { exampleAgreement, exampleDid } from "./schema.ts";

const profile = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1";

/** The message that the examples send, store and retrieve. */
export const exampleMessageId = "6f1c1f1e-8a54-4a0c-9d0e-000000000000";

export const sealingSteps: readonly string[] = [
  "GET /delivery-resolution/{did} names the key: recipient_key_id, and recipient_public_key_multibase, which is z and base58btc of ec 01 and the 32 bytes of an X25519 key.",
  "Generate an X25519 key pair and a nonce of 12 bytes, for this payload only.",
  `profile = ${profile}`,
  "aad = profile|message_id|to|message_group_id|sequence_number|total_chunks, as in the envelope; without chunks an empty group, 0 and 1.",
  "key = HKDF-SHA256(input: the X25519 shared secret, salt: SHA-256 of aad, info: profile, 32 bytes).",
  "ciphertext = ChaCha20-Poly1305(key, nonce, aad) of the record below, with the tag at its end.",
  "payload = profile, key_id, ephemeral_x25519_b64 (the new public key), nonce_b64, ciphertext_b64.",
];

/** The record inside a payload, which is CBOR: what a recipient finds after opening an envelope. */
export const sealedMembers: readonly (readonly [name: string, type: string, meaning: string])[] = [
  ["format", "text", "svc:binary-chunk:v1"],
  ["name", "text", "name of the file, or empty"],
  [
    "media_type",
    "text",
    "media type of the file; text/plain;charset=utf-8 for a text; ;waypost=1;from=<DID> after it names the author",
  ],
  ["size_bytes", "unsigned integer", "size of the whole file"],
  ["sha256", "byte string of 32 bytes", "SHA-256 of the whole file"],
  ["message_group_id", "text", "id of the group of chunks; empty without chunks"],
  ["sequence_number", "unsigned integer", "place of this chunk, from 0"],
  ["total_chunks", "unsigned integer", "number of chunks; 1 without chunks"],
  ["data", "byte string", "the bytes of this chunk"],
];

/** The payload of the example, as the envelopes of all examples carry it. */
export const examplePayload = {
  profile,
  key_id: exampleAgreement.id,
  ephemeral_x25519_b64: "az1Xdi+LrbaUM/nG0GD4X15ca2gDqBbRQcB19jVBrRA=",
  nonce_b64: "yMjIyMjIyMjIyMjI",
  ciphertext_b64: [
    "YUmMm99iBxGmGWNEhwt9Wtbk4pI2YvohhcSl5c/WvFC8CIQ9sFwcTelfPVBC7FRUGmcFyzsvbYO6DRxi5PhGMqKv8f",
    "41KIyP6KK6xkm1UNK3a78zfB8oJJjpzY/LiEfXTfAe4KDPWLpfAz/E8I7RKfxTB674dIZhOk33mqrisj9hOVM0ftNh",
    "wh9pI7FwTIeFvY59lsMOomhe2SxY4HBm9MzOS5AE4KlrsDeGILvWtGgx135my43OMN0K/ot8H33D8oUYk3C810TTGH",
    "7slg==",
  ].join(""),
};

/** One sealed payload with every key that made it: the file note.txt with the text "Meet me at noon." and a line feed. */
export const sealingExample = {
  recipient_secret: "0303030303030303030303030303030303030303030303030303030303030303",
  recipient_public: "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22",
  ephemeral_secret: "6464646464646464646464646464646464646464646464646464646464646464",
  message_id: exampleMessageId,
  to: exampleDid,
  aad: `${profile}|${exampleMessageId}|${exampleDid}||0|1`,
  shared_secret: "45300b5536c1957b5fd5e1978d2b685d12b422dc111a5daf4a810c6ce1cde067",
  key: "2df8b29f199b7a616a8f3b3de0ce5c4f8e8d7cf2ee2ff5546f7240c5d548d142",
  record_cbor: [
    "a96464617461514d656574206d65206174206e6f6f6e2e0a646e616d65686e6f74652e74787466666f726d6174",
    "737376633a62696e6172792d6368756e6b3a76316673686132353658209b51b116631a7e4c3c02e69229c48080",
    "3b6c567b349f0c5c17048f8f1d9bc7006a6d656469615f747970656a746578742f706c61696e6a73697a655f62",
    "79746573116c746f74616c5f6368756e6b73016f73657175656e63655f6e756d62657200706d6573736167655f",
    "67726f75705f696460",
  ].join(""),
  payload: examplePayload,
};
