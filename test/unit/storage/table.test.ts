/** The memo of decoded values: never older than the bytes, and bounded. */
import { describe, expect, test } from "bun:test";
import { rememberDecoded } from "../../../src/storage/table.ts";

const bytesOf = (text: string) => new TextEncoder().encode(text);

function counting(limits: { entriesMax: number; bytesMax: number }) {
  let decodings = 0;
  const decode = rememberDecoded((bytes) => {
    decodings++;
    if (bytes.length === 0) throw new Error("nothing to decode");
    return { text: new TextDecoder().decode(bytes) };
  }, limits);
  return { decode, decodings: () => decodings };
}

describe("what bytes decode to", () => {
  test("is decoded once for the same bytes under the same key", () => {
    const { decode, decodings } = counting({ entriesMax: 8, bytesMax: 1_000 });
    expect(decode("a", bytesOf("one"))).toBe(decode("a", bytesOf("one")));
    expect(decodings()).toBe(1);
  });

  test("is decoded again when one byte or the length differs", () => {
    const { decode, decodings } = counting({ entriesMax: 8, bytesMax: 1_000 });
    for (const text of ["one", "onf", "on", "one"])
      expect(decode("a", bytesOf(text)).text).toBe(text);
    expect(decodings()).toBe(4);
  });

  test("is not remembered when decoding throws, and the value before is forgotten", () => {
    const { decode, decodings } = counting({ entriesMax: 8, bytesMax: 1_000 });
    decode("a", bytesOf("one"));
    for (let i = 0; i < 2; i++)
      expect(() => decode("a", new Uint8Array(0))).toThrow("nothing to decode");
    decode("a", bytesOf("one"));
    expect(decodings()).toBe(4);
  });

  test("is dropped in order of age when there are too many entries or bytes", () => {
    for (const limits of [
      { entriesMax: 2, bytesMax: 1_000 },
      { entriesMax: 8, bytesMax: 7 },
    ]) {
      const { decode, decodings } = counting(limits);
      for (const key of ["a", "b", "c"]) decode(key, bytesOf(`in ${key}`.slice(-3)));
      expect(decodings()).toBe(3);
      decode("c", bytesOf("n c"));
      decode("b", bytesOf("n b"));
      expect(decodings()).toBe(3);
      decode("a", bytesOf("n a"));
      expect(decodings()).toBe(4);
    }
  });

  test("is returned, but not remembered, when it alone exceeds the bound", () => {
    const { decode, decodings } = counting({ entriesMax: 8, bytesMax: 2 });
    for (let i = 0; i < 2; i++) expect(decode("a", bytesOf("one")).text).toBe("one");
    expect(decodings()).toBe(2);
  });
});
