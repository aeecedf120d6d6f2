/**
 * Edge cases of Ed25519: the native verifier must answer what the model of its rule answers, must
 * accept nothing that the chain's ZIP-215 rule refuses, and only sound keys are admitted.
 * @noble/curves agrees.
 * Source: rules section 8.
 */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { ed25519 } from "@noble/curves/ed25519.js";
import { isAdmissibleKey, isStrictEncoding, verifyEd25519 } from "../../src/core/codec/crypto.ts";
import { verifyEd25519 as verifyPortably } from "../../src/core/codec/crypto-portable.ts";
import { createPoolVerifier, createVerifier } from "../../src/core/codec/native.ts";
import type { KeyVector, SignatureVector } from "./ed25519/generate.ts";

const verifyInPool = createPoolVerifier();
const verifyKnown = createVerifier();
const load = (file: string) =>
  JSON.parse(readFileSync(new URL(`ed25519/${file}`, import.meta.url), "utf8"));
const signatures: SignatureVector[] = load("signatures.json");
const keys: KeyVector[] = load("keys.json");

/** @noble/curves throws on a key that is no point at all. */
function chainAccepts(signature: Uint8Array, message: Uint8Array, key: Uint8Array): boolean {
  try {
    return ed25519.verify(signature, message, key, { zip215: true });
  } catch {
    return false;
  }
}

test("the vectors hold every class, with verdicts both ways", () => {
  expect(signatures.length).toBeGreaterThan(400);
  expect(new Set(signatures.map((v) => v.class)).size).toBe(16);
  expect(signatures.filter((v) => v.native).length).toBeGreaterThan(20);
  expect(signatures.filter((v) => v.zip215 && !v.native).length).toBeGreaterThan(200);
});

for (const name of new Set(signatures.map((v) => v.class))) {
  test(`signatures, ${name}: the native verdict is as expected, in both threads, and never wider than the chain's`, async () => {
    for (const v of signatures.filter((vector) => vector.class === name)) {
      const [signature, message, key] = [v.signature, v.message, v.public_key].map((h) =>
        Uint8Array.fromHex(h),
      );
      if (!signature || !message || !key) throw new Error("a vector without bytes");
      const native = verifyEd25519(signature, message, key);
      const zip215 = chainAccepts(signature, message, key);
      expect({ v, verdict: native }).toEqual({ v, verdict: v.native });
      expect({ v, inPool: await verifyInPool(signature, message, key) }).toEqual({
        v,
        inPool: v.native,
      });
      for (const time of ["first", "again"])
        expect({ v, time, known: await verifyKnown(signature, message, key) }).toEqual({
          v,
          time,
          known: v.native,
        });
      if (signature.length === 64 && key.length === 32)
        expect({ v, portable: verifyPortably(signature, message, key) }).toEqual({
          v,
          portable: v.native,
        });
      expect({ v, verdict: zip215 }).toEqual({ v, verdict: v.zip215 });
      if (native) expect(zip215).toBe(true);
    }
  });
}

test("whatever comes at once is verified in one of the threads", async () => {
  const vectors = signatures.slice(0, 100);
  const bytes = ({ signature, message, public_key }: SignatureVector) =>
    [signature, message, public_key].map((text) => Uint8Array.fromHex(text)) as [
      Uint8Array,
      Uint8Array,
      Uint8Array,
    ];
  const verdicts = vectors.map((vector) => verifyInPool(...bytes(vector)));
  expect(verdicts.filter((verdict) => typeof verdict === "boolean").length).toBeGreaterThan(0);
  expect(await Promise.all(verdicts)).toEqual(vectors.map(({ native }) => native));
});

for (const name of new Set(keys.map((v) => v.class))) {
  test(`keys, ${name}: admitted exactly when canonical and of large order`, () => {
    for (const v of keys.filter((vector) => vector.class === name)) {
      const admitted = isAdmissibleKey(Uint8Array.fromHex(v.public_key));
      expect({ v, admitted }).toEqual({ v, admitted: v.admissible });
    }
  });
}

test("keys, strict encodings: as the library says of every point, and of bytes near the prime and the bounds", () => {
  const isSound = (key: Uint8Array): boolean => {
    try {
      return !ed25519.Point.fromBytes(key, false).isSmallOrder();
    } catch {
      return false;
    }
  };
  const edges = [0, 1, 2, 0xeb, 0xec, 0xed, 0xee, 0xff].flatMap((lowest) =>
    [0, 0xff].flatMap((middle) =>
      [0, 0x7e, 0x7f, 0x80, 0xfe, 0xff].map((highest) =>
        new Uint8Array(32).fill(middle).with(0, lowest).with(31, highest),
      ),
    ),
  );
  const given = keys.map((v) => Uint8Array.fromHex(v.public_key));
  for (const key of [...edges, ...given])
    expect({ key, admitted: isAdmissibleKey(key) }).toEqual({ key, admitted: isSound(key) });
  // Bytes that are no point may pass: no signature verifies under them.
  const passing = [...edges, ...given].filter((key) => isStrictEncoding(key) && !isSound(key));
  expect(passing.length).toBeGreaterThan(10);
  const [some] = signatures;
  for (const key of passing)
    expect(verifyEd25519(Uint8Array.fromHex(some?.signature ?? ""), new Uint8Array(1), key)).toBe(
      false,
    );
  for (const v of keys.filter(({ admissible }) => admissible))
    expect(isStrictEncoding(Uint8Array.fromHex(v.public_key))).toBe(true);
  for (const v of keys.filter((vector) => vector.class.startsWith("small order")))
    expect(isStrictEncoding(Uint8Array.fromHex(v.public_key))).toBe(false);
});
