/**
 * Sealing and opening: what was sealed opens to the same, for the right reader and place only;
 * every changed member is refused; and what a stranger sealed is checked member by member.
 */
import { describe, expect, test } from "bun:test";
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { x25519 } from "@noble/curves/ed25519.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { decode, encode, rfc8949EncodeOptions } from "cborg";
import { type SealBinding, type SealInput, sealPayload } from "../../../../src/client/mail/seal.ts";
import { openPayload } from "../../../../src/client/mail/unseal.ts";
import {
  concatBytes,
  decodeBase64,
  encodeBase58,
  encodeBase64,
  parseAgreementKey,
  renderAgreementKey,
  utf8,
} from "../../../../src/core/codec/bytes.ts";
import { clientCode } from "../../../support/client-code.ts";

const profile = "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1";

const secret = new Uint8Array(32).fill(3);
const keyId = "did:svc:1111111111111111111111#x25519-1";
const data = utf8("Meet me at noon.\n");
const binding: SealBinding = {
  messageId: "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b",
  to: "did:svc:1111111111111111111111",
  chunk: null,
};
const chunked: SealBinding = {
  ...binding,
  chunk: { groupId: "7f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b", sequence: 1, total: 3 },
};
const input: SealInput = {
  binding,
  file: { name: "note.txt", mediaType: "text/plain", sizeBytes: data.length, sha256: sha256(data) },
  data,
  recipient: { keyId, publicKey: x25519.getPublicKey(secret) },
  entropy: { ephemeralSecret: new Uint8Array(32).fill(5), nonce: new Uint8Array(12).fill(6) },
};
const secretsOf = (id: string) => (id === keyId ? [secret] : []);

describe("sealing", () => {
  test("opens to what was sealed, whole or as a chunk", async () => {
    for (const place of [binding, chunked]) {
      const opened = await openPayload(
        await sealPayload({ ...input, binding: place }),
        place,
        secretsOf,
      );
      expect(opened).toEqual({ file: input.file, data });
    }
  });

  test("is exactly the construction that other clients of the family know", async () => {
    const sealed = await sealPayload({ ...input, binding: chunked });
    const { messageId, to, chunk } = chunked;
    const additional = utf8(
      [profile, messageId, to, chunk?.groupId, chunk?.sequence, chunk?.total].join("|"),
    );
    const shared = x25519.getSharedSecret(
      secret,
      decodeBase64(sealed.ephemeral_x25519_b64) ?? new Uint8Array(32),
    );
    const key = hkdf(sha256, shared, sha256(additional), utf8(profile), 32);
    const cipher = chacha20poly1305(
      key,
      decodeBase64(sealed.nonce_b64) ?? new Uint8Array(12),
      additional,
    );
    const plaintext = cipher.decrypt(decodeBase64(sealed.ciphertext_b64) ?? new Uint8Array(0));
    const record = decode(plaintext, { strict: true }) as Record<string, unknown>;
    expect(record).toEqual({
      format: "svc:binary-chunk:v1",
      name: "note.txt",
      media_type: "text/plain",
      size_bytes: data.length,
      sha256: sha256(data),
      message_group_id: chunk?.groupId,
      sequence_number: 1,
      total_chunks: 3,
      data,
    });
    expect(encode(record, rfc8949EncodeOptions)).toEqual(plaintext);
  });

  test("tries every secret of the id, so that a message to a replaced key still opens", async () => {
    const held = (id: string) => (id === keyId ? [new Uint8Array(32).fill(9), secret] : []);
    expect((await openPayload(await sealPayload(input), binding, held)).data).toEqual(data);
  });
});

const sealed = await sealPayload(input);

describe("what is refused", () => {
  const otherKey = encodeBase64(x25519.getPublicKey(new Uint8Array(32).fill(8)));
  const rows: [name: string, payload: unknown, place: SealBinding, code: string][] = [
    [
      "another profile",
      { ...sealed, profile: "svc:plaintext-cbor:v1" },
      binding,
      "unknown_profile",
    ],
    ["no payload", null, binding, "unknown_profile"],
    ["a key that is not held", { ...sealed, key_id: `${keyId}0` }, binding, "unknown_key"],
    [
      "another ephemeral key",
      { ...sealed, ephemeral_x25519_b64: otherKey },
      binding,
      "not_authentic",
    ],
    [
      "an ephemeral key of small order",
      { ...sealed, ephemeral_x25519_b64: encodeBase64(new Uint8Array(32)) },
      binding,
      "not_authentic",
    ],
    [
      "a short ephemeral key",
      { ...sealed, ephemeral_x25519_b64: encodeBase64(new Uint8Array(31)) },
      binding,
      "not_authentic",
    ],
    [
      "another nonce",
      { ...sealed, nonce_b64: encodeBase64(new Uint8Array(12)) },
      binding,
      "not_authentic",
    ],
    [
      "a long nonce",
      { ...sealed, nonce_b64: encodeBase64(new Uint8Array(24)) },
      binding,
      "not_authentic",
    ],
    ["no ciphertext", { ...sealed, ciphertext_b64: "" }, binding, "not_authentic"],
    [
      "ciphertext that is not Base64",
      { ...sealed, ciphertext_b64: `${sealed.ciphertext_b64.slice(0, -1)}*` },
      binding,
      "not_authentic",
    ],
    ["a member that does not belong there", { ...sealed, extra: 1 }, binding, "not_authentic"],
    [
      "another message id",
      sealed,
      { ...binding, messageId: binding.messageId.replace("6", "7") },
      "not_authentic",
    ],
    [
      "another recipient",
      sealed,
      { ...binding, to: "did:svc:2222222222222222222222" },
      "not_authentic",
    ],
    ["a place in a chunk set", sealed, chunked, "not_authentic"],
  ];
  for (const [name, payload, place, code] of rows) {
    test(`${name}: ${code}`, async () =>
      expect(await clientCode(async () => openPayload(payload, place, secretsOf))).toBe(code));
  }

  test("every single flipped bit of the ciphertext", async () => {
    const bytes = decodeBase64(sealed.ciphertext_b64) ?? new Uint8Array(0);
    for (let bit = 0; bit < bytes.length * 8; bit += 7) {
      const changed = bytes.slice();
      changed[bit >> 3] = (changed[bit >> 3] as number) ^ (1 << (bit & 7));
      const payload = { ...sealed, ciphertext_b64: encodeBase64(changed) };
      expect(await clientCode(async () => openPayload(payload, binding, secretsOf))).toBe(
        "not_authentic",
      );
    }
  });
});

describe("a record that a stranger sealed", () => {
  const record = {
    format: "svc:binary-chunk:v1",
    name: "note.txt",
    media_type: "text/plain",
    size_bytes: data.length,
    sha256: sha256(data),
    message_group_id: "",
    sequence_number: 0,
    total_chunks: 1,
    data,
  };
  /** Seals any bytes at all with the right keys. */
  async function sealBytes(plaintext: Uint8Array) {
    const { ephemeralSecret, nonce } = input.entropy;
    const additional = utf8([profile, binding.messageId, binding.to, "", "0", "1"].join("|"));
    const shared = x25519.getSharedSecret(ephemeralSecret, input.recipient.publicKey);
    const key = hkdf(sha256, shared, sha256(additional), utf8(profile), 32);
    const ciphertext = chacha20poly1305(key, nonce, additional).encrypt(plaintext);
    return { ...(await sealPayload(input)), ciphertext_b64: encodeBase64(ciphertext) };
  }
  const { data: _, ...withoutData } = record;
  const rows: [name: string, plaintext: Uint8Array][] = [
    ["is not CBOR", utf8("{}")],
    ["is empty", new Uint8Array(0)],
    ["is a list", encode([record])],
    ["has bytes left over", concatBytes(encode(record), new Uint8Array(1))],
    ["has another format", encode({ ...record, format: "svc:binary-chunk:v2" })],
    ["lacks a member", encode(withoutData)],
    ["has a member too many", encode({ ...record, path: "/etc" })],
    ["has a name that is not text", encode({ ...record, name: 7 })],
    ["has data that are not bytes", encode({ ...record, data: "text" })],
    [
      "has a digest in upper case",
      encode({ ...record, sha256: record.sha256.toHex().toUpperCase() }),
    ],
    ["has a digest of 31 bytes", encode({ ...record, sha256: record.sha256.subarray(1) })],
    ["has a size smaller than its data", encode({ ...record, size_bytes: data.length - 1 })],
    ["has a negative size", encode({ ...record, size_bytes: -1 })],
    ["has a fractional size", encode({ ...record, size_bytes: 17.5 })],
    ["says another sequence number than its envelope", encode({ ...record, sequence_number: 1 })],
    ["says another total than its envelope", encode({ ...record, total_chunks: 2 })],
    ["names a group that its envelope does not", encode({ ...record, message_group_id: "x" })],
  ];
  test("opens when it is valid", async () => {
    expect((await openPayload(await sealBytes(encode(record)), binding, secretsOf)).data).toEqual(
      data,
    );
  });
  test("names the invalid member", async () => {
    const sealed = await sealBytes(encode({ ...record, sha256: new Uint8Array(31) }));
    expect(openPayload(sealed, binding, secretsOf)).rejects.toThrow(
      "sha256 must be a byte string of 32 bytes",
    );
  });
  test("is called a record, and no answer, when it is no map", async () => {
    for (const plaintext of [utf8("{}"), concatBytes(encode(record), new Uint8Array(1))])
      expect(openPayload(await sealBytes(plaintext), binding, secretsOf)).rejects.toThrow(
        "its sealed record can't be read: it must be one map of CBOR in its deterministic form",
      );
  });
  for (const [name, plaintext] of rows) {
    test(`is unreadable, not tampered with, when it ${name}`, async () => {
      expect(
        await clientCode(async () => openPayload(await sealBytes(plaintext), binding, secretsOf)),
      ).toBe("record_unreadable");
    });
  }
});

test("agreement keys are read bare or with their prefix, and written with it", async () => {
  const key = x25519.getPublicKey(secret);
  expect(parseAgreementKey(renderAgreementKey(key))).toEqual(key);
  expect(parseAgreementKey(`z${encodeBase58(key)}`)).toEqual(key);
  expect(renderAgreementKey(key)).toStartWith("z6LS");
  const ed25519Prefixed = `z${encodeBase58(Uint8Array.of(0xed, 1, ...key))}`;
  for (const text of ["", "z", encodeBase58(key), ed25519Prefixed, `z${"1".repeat(100_000)}`]) {
    expect(parseAgreementKey(text)).toBeNull();
  }
});
