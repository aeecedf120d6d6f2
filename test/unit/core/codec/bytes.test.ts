/** Text forms of payloads and documents: which are read, to which bytes, and which never. */
import { expect, test } from "bun:test";
import { base58 } from "@scure/base";
import fc from "fast-check";
import {
  decodePayloadText,
  encodeBase58,
  parseMultibaseKey,
} from "../../../../src/core/codec/bytes.ts";

test("the same bytes are read from hex and from Base64 of either alphabet, padded or not", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      const texts = [
        `0x${bytes.toHex()}`,
        `0x${bytes.toHex().toUpperCase()}`,
        ...(["base64", "base64url"] as const).flatMap((alphabet) => [
          bytes.toBase64({ alphabet }),
          bytes.toBase64({ alphabet, omitPadding: true }),
        ]),
      ];
      // Base64 that begins with 0x is read as hex; no SCALE structure of ours encodes to such a
      // text.
      fc.pre(!bytes.toBase64().startsWith("0x"));
      for (const text of texts) expect(decodePayloadText(text)).toEqual(bytes);
    }),
  );
});

test("a text with mixed alphabets, half a padding, leftover bits or white space is refused", () => {
  const texts = [
    "+_8",
    "-/8=",
    "A",
    "AA=",
    "A===",
    "AAAA====",
    "AB",
    "AB==",
    "AA AA",
    "AAA=\n",
    "=",
    "0x1",
    "0xzz",
  ];
  for (const text of texts) expect(decodePayloadText(text)).toBeNull();
});

test("base58btc agrees with another implementation, leading zeros included, and other texts are refused", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), fc.nat(4), (bytes, zeros) => {
      const value = Uint8Array.of(...new Array<number>(zeros).fill(0), ...bytes);
      expect(encodeBase58(value)).toBe(base58.encode(value));
      const key = Uint8Array.of(...value, ...new Uint8Array(32).fill(1)).subarray(0, 32);
      expect(parseMultibaseKey(`z${encodeBase58(key)}`)).toEqual(key);
    }),
    { numRuns: 500 },
  );
  for (const text of ["0", "O", "I", "l", " 1", "1\n", "é", "😀", "a-b"])
    expect(parseMultibaseKey(`z${text}`)).toBeNull();
});
