/**
 * Content of files between own devices: sealed blocks, opened in parts of any size, by the other
 * device alone.
 */
import { expect, test } from "bun:test";
import {
  ContentOpener,
  contentKey,
  sealedContent,
  sealedSize,
} from "../../../../src/client/devices/content.ts";
import { bytesSource } from "../../../../src/client/mail/content.ts";
import { identityOf } from "../../../support/identity.ts";

const [phone, laptop] = [identityOf("phone").did, identityOf("laptop").did];
const seed = new Uint8Array(32).fill(3);
const message = { id: crypto.randomUUID(), digest: "ab".repeat(32) };
const key = contentKey(seed, { from: phone, to: laptop }, message);

const contentOf = (sizeBytes: number): Uint8Array =>
  Uint8Array.from({ length: sizeBytes }, (_, i) => (i * 7 + (i >> 8)) & 255);

function opened(sealed: Uint8Array, partBytes: number, by = key) {
  const opener = new ContentOpener(by);
  const parts: Uint8Array[] = [];
  for (let from = 0; from < sealed.length; from += partBytes)
    parts.push(opener.push(sealed.subarray(from, from + partBytes)));
  parts.push(opener.end());
  return { bytes: new Uint8Array(Buffer.concat(parts)), isBroken: opener.isBroken };
}

test.each([1, 65_535, 65_536, 65_537, 200_000])("%d bytes come back", async (sizeBytes) => {
  const content = contentOf(sizeBytes);
  const { file, read } = await sealedContent(key, bytesSource("", "a/b", content));
  const sealed = await read(0, file.sizeBytes);
  expect([sealed.length, file.sizeBytes]).toEqual([sealedSize(sizeBytes), sealedSize(sizeBytes)]);
  // The same bytes, in whichever parts they are read.
  const to = Math.min(70_000, sealed.length);
  expect<Uint8Array>(await read(10, to)).toEqual(sealed.slice(10, to));
  for (const partBytes of [1_000, 65_552, 1_000_000])
    expect<object>(opened(sealed, partBytes)).toEqual({ bytes: content, isBroken: false });
});

test("no other device, message or key opens it, and blocks in another order don't", async () => {
  const { file, read } = await sealedContent(key, bytesSource("", "a/b", contentOf(200_000)));
  const sealed = await read(0, file.sizeBytes);
  for (const other of [
    contentKey(seed, { from: laptop, to: phone }, message),
    contentKey(seed, { from: phone, to: laptop }, { ...message, digest: "" }),
    contentKey(new Uint8Array(32).fill(4), { from: phone, to: laptop }, message),
  ]) {
    const { bytes, isBroken } = opened(sealed, 10_000, other);
    expect([bytes.length, isBroken]).toEqual([0, true]);
  }
  const swapped = sealed.slice();
  swapped.set(sealed.subarray(65_552, 131_104), 0);
  swapped.set(sealed.subarray(0, 65_552), 65_552);
  expect(opened(swapped, 10_000)).toEqual({ bytes: new Uint8Array(0), isBroken: true });
});
