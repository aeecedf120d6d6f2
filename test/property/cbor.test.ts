/**
 * The CBOR of sealed records against a full codec: it writes the same bytes, and reads nothing that the codec reads
 * otherwise.
 */
import { describe, expect, test } from "bun:test";
import { decode, encode, rfc8949EncodeOptions } from "cborg";
import fc from "fast-check";
import { decodeCborMap, encodeCborMap } from "../../src/client/seal.ts";

describe("the CBOR of records", () => {
  const value = fc.oneof(
    fc.string({ unit: "grapheme" }),
    fc.uint8Array({ maxLength: 400 }),
    fc.maxSafeNat(),
    fc.constant(null),
  );
  const map = fc.dictionary(fc.string({ maxLength: 40 }), value, { maxKeys: 40, noNullPrototype: true });

  test("is what a full codec writes in deterministic form, and is read again", () => {
    fc.assert(
      fc.property(map, (members) => {
        const bytes = encodeCborMap(members);
        expect(bytes.toHex()).toBe(encode(members, rfc8949EncodeOptions).toHex());
        expect(decodeCborMap(bytes)).toEqual(members);
      }),
    );
  });

  test("accepts only what a full codec reads to the same value", () => {
    fc.assert(
      fc.property(map, fc.nat(), fc.integer({ min: 0, max: 255 }), (members, at, byte) => {
        const bytes = encodeCborMap(members);
        bytes[at % bytes.length] = byte;
        const taken = decodeCborMap(bytes);
        if (taken === null) return;
        expect(encode(decode(bytes), rfc8949EncodeOptions).toHex()).toBe(bytes.toHex());
      }),
      { numRuns: 2_000 },
    );
  });

  test("a length beyond the bytes, or a map without end, costs nothing", () => {
    for (const hex of ["bf", "a1", "bb7fffffffffffffff", "a16161", "a161617affffffff", "a1616118", "a1616118170000"])
      expect(decodeCborMap(Uint8Array.fromHex(hex))).toBeNull();
  });
});
