/**
 * Both sides of `#texts` agree: on what they write, and on which texts they read, with and without
 * native methods.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import * as library from "../../../../src/core/codec/texts.ts";
import * as portable from "../../../../src/core/codec/texts-portable.ts";

const numRuns = 2_000;
/** A name, how each side writes and reads, and letters near its alphabet. */
const codecs = [
  {
    name: "hex",
    library: { encode: library.encodeHex, decode: library.decodeHexDigits },
    portable: { encode: portable.encodeHex, decode: portable.decodeHexDigits },
    letters: "0123456789abcdefABCDEF",
  },
  {
    name: "Base64",
    library: { encode: library.encodeBase64, decode: library.decodeBase64 },
    portable: { encode: portable.encodeBase64, decode: portable.decodeBase64 },
    letters: "AQgwZz09+/==",
  },
  {
    name: "base58btc",
    library: { encode: library.encodeBase58, decode: library.decodeBase58 },
    portable: { encode: portable.encodeBase58, decode: portable.decodeBase58 },
    letters: "1123zZ0OIl",
  },
];

/** What older runtimes lack. The library looks for it once, when it is loaded. */
const natives = [
  [Uint8Array.prototype, "toHex"],
  [Uint8Array.prototype, "toBase64"],
  [Uint8Array, "fromHex"],
  [Uint8Array, "fromBase64"],
] as const;

function inOlderRuntime<T>(run: () => T): T {
  const kept = natives.map(([owner, name]) => Object.getOwnPropertyDescriptor(owner, name));
  for (const [owner, name] of natives) Reflect.deleteProperty(owner, name);
  try {
    return run();
  } finally {
    for (const [i, [owner, name]] of natives.entries())
      Object.defineProperty(owner, name, kept[i] ?? {});
  }
}

const runtimes = [
  ["in a new runtime", <T>(run: () => T): T => run()],
  ["in an older one", inOlderRuntime],
] as const;

describe.each(runtimes)("texts by the library and by the platform are the same %s", (_, within) => {
  test.each(codecs)("$name", ({ library, portable, letters }) => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        const text = within(() => portable.encode(bytes));
        expect(text).toBe(library.encode(bytes));
        expect(within(() => portable.decode(text))).toEqual(bytes);
      }),
      { numRuns },
    );
    const near = fc.string({ unit: fc.constantFrom(...letters), maxLength: 12 });
    fc.assert(
      fc.property(fc.oneof(near, fc.string({ maxLength: 12 })), (text) => {
        expect(within(() => portable.decode(text))).toEqual(library.decode(text));
      }),
      { numRuns },
    );
  });

  test("the length of a Base64 text is that of what it decodes to", () => {
    const text = fc.string({ unit: fc.constantFrom(..."AQgwZz09+/== \n"), maxLength: 12 });
    fc.assert(
      fc.property(fc.oneof(text, fc.base64String({ maxLength: 60 })), (text) => {
        const length = library.decodeBase64(text)?.length ?? null;
        expect(library.lengthOfBase64(text)).toBe(length);
        expect(within(() => portable.lengthOfBase64(text))).toBe(length);
      }),
      { numRuns },
    );
    for (const bytes of [48 * 1024, 48 * 1024 + 1, 100_000])
      expect(library.lengthOfBase64(library.encodeBase64(new Uint8Array(bytes)))).toBe(bytes);
  });

  test("base32", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        expect(within(() => portable.encodeBase32(bytes))).toBe(library.encodeBase32(bytes));
      }),
      { numRuns },
    );
  });
});
