/** Both sides of `#texts` agree: on what they write, and on which texts they read, with and without native methods. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import * as library from "../../../../src/core/codec/texts.ts";
import * as portable from "../../../../src/core/codec/texts-portable.ts";

const numRuns = 2_000;
const codecs = [
  ["encodeHex", "decodeHexDigits", "0123456789abcdefABCDEF"],
  ["encodeBase64", "decodeBase64", "AQgwZz09+/=="],
  ["encodeBase58", "decodeBase58", "1123zZ0OIl"],
] as const;

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
  test.each(codecs)("%s, %s", (encode, decode, letters) => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        const text = within(() => portable[encode](bytes));
        expect(text).toBe(library[encode](bytes));
        expect(within(() => portable[decode](text))).toEqual(bytes);
      }),
      { numRuns },
    );
    const near = fc.string({ unit: fc.constantFrom(...letters), maxLength: 12 });
    fc.assert(
      fc.property(fc.oneof(near, fc.string({ maxLength: 12 })), (text) => {
        expect(within(() => portable[decode](text))).toEqual(library[decode](text));
      }),
      { numRuns },
    );
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
