/** SHA-256 in JavaScript against the native one: whole, and cut anywhere. */
import { describe, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import fc from "fast-check";
import { createSha256, sha256 } from "../../../../src/core/codec/sha256-portable.ts";

const native = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("SHA-256 outside Bun", () => {
  test("has the digest of every length around its blocks", () => {
    for (let length = 0; length <= 200; length++) {
      const bytes = new Uint8Array(length).map((_, i) => (i * 7 + length) & 0xff);
      expect([length, sha256(bytes).toHex()]).toEqual([length, native(bytes)]);
    }
  });

  test("does not depend on how its input is cut", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 8 }), (parts) => {
        const hash = createSha256();
        for (const part of parts) hash.update(part);
        expect(hash.digest().toHex()).toBe(native(Buffer.concat(parts)));
      }),
      { numRuns: 300 },
    );
  });

  test("reads a part of a larger buffer, and a mebibyte", () => {
    const bytes = new Uint8Array(1_048_577).map((_, i) => (i * 31) & 0xff);
    expect(sha256(bytes.subarray(1)).toHex()).toBe(native(bytes.subarray(1)));
  });
});
