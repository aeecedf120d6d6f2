/** HKDF against another implementation, and with the vectors of RFC 5869. */
import { expect, test } from "bun:test";
import { hkdf as hkdfNoble } from "@noble/hashes/hkdf.js";
import { sha256 } from "@noble/hashes/sha2.js";
import fc from "fast-check";
import { hkdf } from "../../../src/client/crypto.ts";

test("gives the keys of RFC 5869, appendix A.1 and A.3", () => {
  const key = new Uint8Array(22).fill(0x0b);
  const [salt, info] = [Uint8Array.fromHex("000102030405060708090a0b0c"), Uint8Array.fromHex("f0f1f2f3f4f5f6f7f8f9")];
  expect(hkdf(key, salt, info, 42).toHex()).toBe(
    "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
  );
  expect(hkdf(key, null, new Uint8Array(0), 42).toHex()).toBe(
    "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
  );
});

test("gives the keys that another implementation gives", () => {
  const bytes = fc.uint8Array({ maxLength: 150 });
  fc.assert(
    fc.property(bytes, bytes, bytes, fc.integer({ min: 1, max: 200 }), (key, salt, info, length) => {
      expect(hkdf(key, salt, info, length)).toEqual(hkdfNoble(sha256, key, salt, info, length));
    }),
    { numRuns: 200 },
  );
});
