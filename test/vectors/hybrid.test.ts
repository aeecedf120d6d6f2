/**
 * Sealing of the second version with fixed secrets: what the SDK writes is what the vectors hold,
 * byte for byte; what it reads is what they say; and what should not open does not, with its code.
 * Source: docs/protocol.md "Sealing, second version".
 */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { ClientError } from "../../src/client/base/failure.ts";
import { ed25519PublicKey, verifySignature } from "../../src/client/keys/crypto.ts";
import { hpkeKeys } from "../../src/client/keys/hpke.ts";
import { encapsulate, expandSeed } from "../../src/client/keys/xwing.ts";
import type { SealBinding } from "../../src/client/mail/seal.ts";
import { sealHybrid } from "../../src/client/mail/seal-hybrid.ts";
import { recordReader } from "../../src/client/mail/unseal.ts";
import { openHybrid } from "../../src/client/mail/unseal-hybrid.ts";
import { chunkPlaceOf } from "../../src/client/net/caches.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import {
  digestEnvelope,
  encodeSealInfo,
  padRecord,
  unpadRecord,
} from "../../src/core/message/sealed.ts";
import { hybrid as generated, type HybridVector } from "./sealed/generate-hybrid.ts";

const hybrid: typeof generated = JSON.parse(
  readFileSync(new URL("sealed/hybrid.json", import.meta.url), "utf8"),
);
const bytes = (hex: string) => Uint8Array.fromHex(hex);
const keyId = hybrid.keys[0]?.key_id;
const publicKey = bytes(hybrid.keys[0]?.public_key ?? "");

/** As the reader of an envelope knows it. */
function bindingOf({ envelope }: HybridVector): SealBinding {
  const { message_id: messageId, to, recipient } = envelope;
  const chunk = chunkPlaceOf(envelope);
  return { messageId: String(messageId), to: String(to ?? recipient), chunk };
}

const open = (v: HybridVector) =>
  openHybrid(v.envelope, {
    binding: bindingOf(v),
    seedsOf: (id) => (id === keyId ? [bytes(v.seed)] : []),
    reader: recordReader,
  });

test("the file holds what the generator writes", () => {
  expect(hybrid).toEqual(JSON.parse(JSON.stringify(generated)));
  expect(hybrid.envelopes.filter(({ opens }) => opens !== null).length).toBe(10);
});

test.each(hybrid.keys)("the key of the seed $seed", async ({ seed, public_key: key }) => {
  expect((await expandSeed(bytes(seed))).publicKey.toHex()).toBe(key);
});

test.each(hybrid.padding)("$bytes bytes, at most $bytes_max: $padded", (v) => {
  const record = new Uint8Array(v.bytes).fill(0x80);
  const padded = padRecord(record, v.bytes_max);
  expect(padded.length).toBe(v.padded);
  expect(unpadRecord(padded)).toEqual(record);
});

for (const v of hybrid.envelopes) {
  const { opens, signer } = v;
  if (opens === null) {
    test(`${v.name}: ${v.code}`, async () => {
      const refused = await open(v).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ClientError);
      if (!(refused instanceof ClientError)) return;
      expect(refused.code).toBe(v.code as string);
      expect(refused.message).toContain(v.why ?? "");
    });
    continue;
  }
  describe(v.name, () => {
    test("opens", async () => {
      const { file, data, inner } = await open(v);
      expect(data.toHex()).toBe(opens.data);
      expect({ ...file, sha256: file.sha256.toHex() }).toEqual({
        name: opens.name,
        mediaType: opens.media_type,
        sizeBytes: opens.size_bytes,
        sha256: opens.sha256,
      });
      expect(inner?.from).toBe(signer?.from);
      if (signer === null || inner === null) return;
      expect(inner.signedBytes).toEqual(utf8(signer.text));
      expect([inner.keyId, inner.proofSha256.toHex()]).toEqual([
        signer.from_key,
        signer.proof_sha256,
      ]);
      const key = await ed25519PublicKey(bytes(signer.seed));
      expect(await verifySignature(inner.signature, inner.signedBytes, key)).toBe(true);
    });

    test("is sealed to the same bytes", async () => {
      const { payload, ...outer } = v.envelope;
      const sealed = await sealHybrid({
        binding: bindingOf(v),
        file: {
          name: opens.name,
          mediaType: opens.media_type,
          sizeBytes: opens.size_bytes,
          sha256: bytes(opens.sha256),
        },
        data: bytes(opens.data),
        outer: outer,
        recipient: { keyId: payload["key_id"] as string, publicKey },
        randomness: bytes(v.randomness),
        payloadBytesMax: v.padded_bytes_max + 16,
        signer:
          signer === null
            ? null
            : {
                did: signer.from,
                keyId: signer.from_key,
                seed: bytes(signer.seed),
                proofSha256: bytes(signer.proof_sha256),
              },
      });
      expect(sealed).toEqual({ ...sealed, ...payload });
    });

    test("has the texts and secrets on the way there", async () => {
      const envelopeSha256 = digestEnvelope(v.envelope);
      const keySha256 = new Bun.CryptoHasher("sha256").update(publicKey).digest("hex");
      expect(envelopeSha256).toBe(
        new Bun.CryptoHasher("sha256").update(v.envelope_jcs).digest("hex"),
      );
      const info = encodeSealInfo({ to: bindingOf(v).to, keySha256, envelopeSha256 });
      expect(info).toEqual(utf8(v.info));
      const { shared } = await encapsulate(publicKey, bytes(v.randomness));
      expect(shared.toHex()).toBe(v.shared_secret);
      const { key, nonce } = hpkeKeys(shared, info);
      expect([key.toHex(), nonce.toHex()]).toEqual([v.key, v.nonce]);
      expect(padRecord(bytes(v.record_cbor), v.padded_bytes_max).toHex()).toBe(v.padded);
    });
  });
}
