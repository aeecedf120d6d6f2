/** The canonical form of JSON: the example of RFC 8785, and what a stranger could nest. */
import { expect, test } from "bun:test";
import canonicalize from "canonicalize";
import fc from "fast-check";
import { type JsonValue, renderCanonical } from "../../../../src/core/codec/json.ts";

test("is that of RFC 8785, section 3.2.3, which sorts by UTF-16 units", () => {
  const value = { "\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7 };
  expect(renderCanonical(value)).toBe('{"\\r":2,"1":4,"\u0080":6,"\u00f6":7,"\u20ac":1,"\ud83d\ude00":5,"\ufb33":3}');
  expect(renderCanonical([1 / 3, 1e30, 4.5, 2e-3, 1e-27, -0, true, null])).toBe(
    "[0.3333333333333333,1e+30,4.5,0.002,1e-27,0,true,null]",
  );
});

test("is what another implementation writes for any JSON", () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 5, stringUnit: "grapheme" }), (value) => {
      expect(renderCanonical(value as JsonValue)).toBe(canonicalize(value) ?? "");
    }),
    { numRuns: 500 },
  );
});

test("does not fail on what nests a hundred thousand times", () => {
  const nested: JsonValue = JSON.parse(`${"[".repeat(100_000)}${"]".repeat(100_000)}`);
  expect(renderCanonical(nested).length).toBeLessThan(1_000);
});
