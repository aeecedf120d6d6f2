/**
 * X-Wing and HPKE give what their published examples say, byte for byte, and refuse what is
 * malformed.
 * Source: draft-connolly-cfrg-xwing-kem appendix C, draft-ietf-hpke-pq, RFC 9180 appendix A.2.1.
 */
import { describe, expect, test } from "bun:test";
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { hpkeKeys, hpkeOpen, hpkeSeal } from "../../../../src/client/keys/hpke.ts";
import { decapsulate, encapsulate, expandSeed } from "../../../../src/client/keys/xwing.ts";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import published from "../../../vectors/sealed/published.json";

const bytes = (hex: string) => Uint8Array.fromHex(hex);
const kems = [...published.xwing.vectors, ...published.hpke_pq.vectors];

test.each(kems)("the public key of a published seed ($sk)", async ({ sk, pk }) => {
  expect((await expandSeed(bytes(sk))).publicKey.toHex()).toBe(pk);
});

test.each(kems)("published randomness encapsulates to the published bytes ($sk)", async (v) => {
  const { enc, shared } = await encapsulate(bytes(v.pk), bytes(v.eseed));
  expect([enc.toHex(), shared.toHex()]).toEqual([v.ct, v.ss]);
  expect((await decapsulate(enc, await expandSeed(bytes(v.sk)))).toHex()).toBe(v.ss);
});

test.each(published.rfc9180.vectors)("the key schedule of RFC 9180", (v) => {
  const { key, nonce } = hpkeKeys(bytes(v.ss), bytes(v.info), bytes(v.suite_id));
  expect([key.toHex(), nonce.toHex()]).toEqual([v.key, v.nonce]);
});

test.each(published.hpke_pq.vectors)("key, nonce and first ciphertext of HPKE", (v) => {
  const { key, nonce } = hpkeKeys(bytes(v.ss), bytes(v.info));
  expect([key.toHex(), nonce.toHex()]).toEqual([v.key, v.nonce]);
  for (const { aad, ct, pt } of v.encryptions)
    expect(chacha20poly1305(key, nonce, bytes(aad)).decrypt(bytes(ct)).toHex()).toBe(pt);
});

describe("HPKE", () => {
  const seed = new Uint8Array(32).fill(3);
  const randomness = new Uint8Array(64).fill(4);
  const info = utf8("bound");
  const plain = utf8("Meet me at noon.\n");
  const sealed = async () =>
    hpkeSeal({ publicKey: (await expandSeed(seed)).publicKey, randomness }, info, plain);

  test("opens to what was sealed, and the same randomness seals the same bytes", async () => {
    const one = await sealed();
    expect((await hpkeOpen(one, await expandSeed(seed), info))?.plain).toEqual(plain);
    expect(await sealed()).toEqual(one);
  });

  test("opens for one secret and one text only, and not when a bit has changed", async () => {
    const { enc, ciphertext } = await sealed();
    const flipped = (from: Uint8Array, at: number) =>
      from.with(at, (from[at] as number) ^ 1) as Uint8Array;
    const others: [Parameters<typeof hpkeOpen>[0], Uint8Array, Uint8Array][] = [
      [{ enc, ciphertext }, new Uint8Array(32).fill(5), info],
      [{ enc, ciphertext }, seed, utf8("bound.")],
      [{ enc: flipped(enc, 0), ciphertext }, seed, info],
      [{ enc: flipped(enc, 1_087), ciphertext }, seed, info],
      [{ enc: flipped(enc, 1_088), ciphertext }, seed, info],
      [{ enc: enc.subarray(1), ciphertext }, seed, info],
      [{ enc: enc.slice().fill(0, 1_088), ciphertext }, seed, info],
      [{ enc, ciphertext: flipped(ciphertext, 0) }, seed, info],
      [{ enc, ciphertext: ciphertext.subarray(0, 15) }, seed, info],
    ];
    for (const [from, secret, bound] of others)
      expect(await hpkeOpen(from, await expandSeed(secret), bound)).toBeNull();
  });

  test("refuses what is not a public key", async () => {
    const { publicKey } = await expandSeed(seed);
    const wrong = [
      publicKey.subarray(1),
      publicKey.slice().fill(0xff, 0, 3),
      publicKey.slice().fill(0, 1_184),
    ];
    for (const key of wrong)
      await expect(hpkeSeal({ publicKey: key, randomness }, info, plain)).rejects.toThrow();
    await expect(
      hpkeSeal({ publicKey, randomness: randomness.subarray(1) }, info, plain),
    ).rejects.toThrow();
  });
});
