/** For any bytes, parseJson answers or refuses, and its answers agree with JSON.parse. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { outerNames, parseJson, readJson } from "../../src/core/codec/json.ts";
import { isFault } from "../../src/core/fault.ts";

test("never throws on bytes", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      parseJson(bytes);
    }),
    { numRuns: 5_000 },
  );
});

const structural = fc.string({
  unit: fc.constantFrom('"', "\\", "{", "}", "[", "]", ":", ",", "1", " ", "a", "\\u0061"),
  maxLength: 40,
});

test("accepts nothing that JSON.parse refuses, and reads the same value", () => {
  fc.assert(
    fc.property(fc.oneof(structural, fc.json()), (text) => {
      const value = parseJson(utf8(text));
      if (!isFault(value)) expect(value).toEqual(JSON.parse(text));
    }),
    { numRuns: 5_000 },
  );
});

const forbiddenNames = ["__proto__", "constructor", "prototype"];

test("accepts every small document without forbidden names", () => {
  const document = fc.object({
    key: fc.string({ minLength: 1, maxLength: 8 }).filter((k) => !forbiddenNames.includes(k)),
    values: [fc.string({ unit: "grapheme" }), fc.integer(), fc.boolean(), fc.constant(null)],
    maxDepth: 4,
    maxKeys: 8,
  });
  fc.assert(
    fc.property(document, fc.constantFrom(undefined, 2, "\t"), (value, indent) => {
      expect(parseJson(utf8(JSON.stringify(value, null, indent)))).toEqual(
        JSON.parse(JSON.stringify(value)),
      );
    }),
    { numRuns: 2_000 },
  );
});

test("finds a name that stands twice wherever it stands", () => {
  const inner = fc.object({ key: fc.stringMatching(/^[a-z]{1,4}$/), maxDepth: 2, maxKeys: 4 });
  fc.assert(
    fc.property(inner, inner, fc.stringMatching(/^[a-z]{1,4}$/), (first, second, name) => {
      const twice = `{"${name}":${JSON.stringify(first)},"${name}":${JSON.stringify(second)}}`;
      expect(isFault(parseJson(utf8(twice)))).toBe(true);
      expect(isFault(parseJson(utf8(`{"outer":[${twice}]}`)))).toBe(true);
    }),
    { numRuns: 1_000 },
  );
});

test("spans of outer names read back as the names of the object", () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.string({ unit: "grapheme" }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 6 }),
      (value) => {
        const text = JSON.stringify(value);
        fc.pre(!forbiddenNames.some((name) => text.includes(`"${name}":`)));
        const reading = readJson(utf8(text));
        if (isFault(reading)) throw new Error(reading.detail);
        const names = outerNames(reading.text).map(({ start, end }) =>
          JSON.parse(text.slice(start, end)),
        );
        expect(names.toSorted()).toEqual(Object.keys(value).toSorted());
      },
    ),
    { numRuns: 1_000 },
  );
});
