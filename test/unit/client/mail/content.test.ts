/**
 * The media type of a sealed message: the author in it, and relations that other parameters never
 * touch.
 */
import { expect, test } from "bun:test";
import { x25519 } from "@noble/curves/ed25519.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { sourceOf, withAfter, withAuthor } from "../../../../src/client/mail/content.ts";
import { openEnvelope } from "../../../../src/client/mail/retrieve.ts";
import { sealPayload } from "../../../../src/client/mail/seal.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { clientCode } from "../../../support/client-code.ts";

const did = "did:svc:1111111111111111111111" as Did;
const relations = {
  replyTo: "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b",
  group: null,
  wantsReceipt: true,
};
const secret = new Uint8Array(32).fill(3);

/** What the recipient reads of a media type. */
async function received(mediaType: string) {
  const messageId = "6f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3c";
  const data = new Uint8Array(0);
  const payload = await sealPayload({
    binding: { messageId, to: did, chunk: null },
    file: { name: "", mediaType, sizeBytes: 0, sha256: sha256(data) },
    data,
    recipient: { keyId: `${did}#x25519-1`, publicKey: x25519.getPublicKey(secret) },
    entropy: { ephemeralSecret: new Uint8Array(32).fill(5), nonce: new Uint8Array(12).fill(6) },
  });
  const recipient = { did, secretsOf: () => [secret], senderOf: async () => null };
  const opened = await openEnvelope({ message_id: messageId, to: did, payload }, recipient);
  expect(opened.file.mediaType).toBe(opened.type.plain);
  return opened.type;
}

test("an author is read back, and the sender's own media type is without it", async () => {
  for (const plain of ["text/plain;charset=utf-8", "", "image/png"]) {
    for (const author of [did, null]) {
      const sealed = await received(withAuthor(plain, author));
      expect([sealed.author, sealed.plain]).toEqual([author ?? "none", plain]);
    }
    expect(await received(plain)).toMatchObject({ author: null, plain });
  }
});

test("an author leaves the relations and the sender's own media type as they are", async () => {
  const id = "0b2f2f4e-7c8d-4a10-8e1a-1f4a3b2c5d6e";
  const remarks = { mentions: [did], isForwarded: true, lastsSeconds: 60 };
  const named = { ...relations, ...remarks, id, replyFrom: did, state: "0f" };
  const { file } = await sourceOf("text", {}, named);
  const expected = {
    essence: "text/plain",
    plain: "text/plain;charset=utf-8",
    ...named,
    author: did,
    pass: null,
    after: null,
    home: null,
  };
  expect(await received(withAuthor(file.mediaType, did))).toEqual(expected);
  const before = "5a3c1c9e-2d0f-4b6a-9c3d-7e8f90a1b2c3";
  const behind = withAfter(withAuthor(file.mediaType, did), before);
  expect(await received(behind)).toEqual({ ...expected, after: before });
});

test("a parameter in front of the marker names no author", async () => {
  expect((await received(`text/plain;from=${did};waypost=1;receipt=1`)).author).toBeNull();
});

test.each([
  ["a promise that nothing awaited", Promise.resolve("text")],
  ["an error", { reason: new Error("gone") }],
  ["a pattern", [/x/]],
  ["a weak map", new WeakMap()],
])("%s is not sent as {}", async (_name, value: unknown) => {
  expect(await clientCode(() => sourceOf(value as string, {}, relations))).toBe("invalid_argument");
});

test("a stream, which has no size so far, is not sent as JSON", async () => {
  const stream: unknown = new Blob(["text"]).stream();
  expect(await clientCode(() => sourceOf(stream as string, {}, relations))).toBe(
    "invalid_argument",
  );
});
