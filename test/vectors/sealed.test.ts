/**
 * Sealed payloads with fixed keys: what the SDK writes is what the vectors hold, byte for byte;
 * what it reads is what they say; and an unreadable record names the member at fault.
 * Source: docs/protocol.md, "The record".
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { ClientError } from "../../src/client/base/failure.ts";
import { type SealBinding, sealPayload } from "../../src/client/mail/seal.ts";
import { openPayload } from "../../src/client/mail/unseal.ts";
import { vectors as generated, type SealedVector } from "./sealed/generate.ts";

const vectors: SealedVector[] = JSON.parse(
  readFileSync(new URL("sealed/payloads.json", import.meta.url), "utf8"),
);
const bytes = (hex: string) => Uint8Array.fromHex(hex);

function bindingOf(v: SealedVector): SealBinding {
  const chunk =
    v.message_group_id === null
      ? null
      : { groupId: v.message_group_id, sequence: v.sequence_number, total: v.total_chunks };
  return { messageId: v.message_id, to: v.to, chunk };
}

const open = (v: SealedVector) =>
  openPayload(v.payload, bindingOf(v), () => [bytes(v.recipient_secret)]);

test("the file holds what the generator writes", () => {
  expect(vectors).toEqual([...generated]);
  expect(vectors.filter(({ opens }) => opens !== null).length).toBe(5);
});

for (const v of vectors) {
  const { opens } = v;
  if (opens === null) {
    test(`${v.name}: unreadable, and says why`, async () => {
      const refused = await open(v).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ClientError);
      if (!(refused instanceof ClientError)) return;
      expect(refused.code).toBe("record_unreadable");
      expect(refused.message).toContain(v.why as string);
    });
    continue;
  }
  test(`${v.name}: opens`, async () => {
    const { file, data } = await open(v);
    expect(data.toHex()).toBe(opens.data);
    expect({ ...file, sha256: file.sha256.toHex() }).toEqual({
      name: opens.name,
      mediaType: opens.media_type,
      sizeBytes: opens.size_bytes,
      sha256: opens.sha256,
    });
  });
  test(`${v.name}: is sealed to the same bytes`, async () => {
    const nonce = Uint8Array.fromBase64(v.payload["nonce_b64"] as string);
    const sealed = await sealPayload({
      binding: bindingOf(v),
      file: {
        name: opens.name,
        mediaType: opens.media_type,
        sizeBytes: opens.size_bytes,
        sha256: bytes(opens.sha256),
      },
      data: bytes(opens.data),
      recipient: { keyId: v.payload["key_id"] as string, publicKey: bytes(v.recipient_public) },
      entropy: { ephemeralSecret: bytes(v.ephemeral_secret), nonce },
    });
    expect(sealed).toEqual({ ...sealed, ...v.payload });
  });
}
