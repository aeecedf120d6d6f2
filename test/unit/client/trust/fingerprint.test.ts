/** Fingerprints: the same on both sides, 100 bits for each person. */
import { expect, test } from "bun:test";
import { fingerprintOf } from "../../../../src/client/trust/fingerprint.ts";
import type { Did } from "../../../../src/core/codec/did.ts";

const person = (n: number) => ({
  did: `did:svc:${String(n).repeat(22)}` as Did,
  rootKey: new Uint8Array(32).fill(n),
});

test("a fingerprint is the same text on both sides, in groups of five", () => {
  const text = fingerprintOf(person(1), person(2));
  expect(fingerprintOf(person(2), person(1))).toBe(text);
  expect(text).toMatch(/^([0-9A-HJKMNP-TV-Z]{5} ){7}[0-9A-HJKMNP-TV-Z]{5}$/);
});

test("a fingerprint shows each person's DID and root key", () => {
  const text = fingerprintOf(person(1), person(2));
  const [mine, theirs] = [text.slice(0, 23), text.slice(24)];
  const other = fingerprintOf(person(1), { ...person(2), rootKey: new Uint8Array(32).fill(3) });
  expect([other.slice(0, 23) === mine, other.slice(24) === theirs]).toEqual([true, false]);
  expect(fingerprintOf(person(1), person(3)).slice(24)).not.toBe(theirs);
});

test("a fingerprint has the digits that docs/trust.md describes", () => {
  const { did, rootKey } = person(1);
  const digest = new Bun.CryptoHasher("sha256")
    .update(`svc:fingerprint:v1|${did}|`)
    .update(rootKey)
    .digest();
  const number = BigInt(`0x${digest.toString("hex")}`) >> 156n;
  const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  const text = Array.from(
    { length: 20 },
    (_, i) => digits[Number((number >> BigInt(5 * (19 - i))) & 31n)],
  ).join("");
  expect(fingerprintOf(person(1), person(2)).replaceAll(" ", "").slice(0, 20)).toBe(text);
});
