/** Which letters the app's search takes for the same. */
import { expect, test } from "bun:test";
import { folded, isSought, originalIndex } from "../../../src/web/text.ts";

test.each([
  ["cafe\u0301 tomorrow", "caf\u00e9", true],
  ["caf\u00e9 tomorrow", "cafe\u0301", true],
  ["STRASSE", "strasse", true],
  ["Straße", "STRASSE", true],
  ["ＡＢＣ", "abc", true],
  ["ﬁnal", "FINAL", true],
  ["东京", "京", true],
  ["Σίσυφος", "ΣΊΣΥΦΟΣ", true],
  ["İstanbul", "istanbul", true],
  ["GROẞ", "groß", true],
  ["مُحَمَّد", "محمد", true],
  ["שָׁלוֹם", "שלום", true],
  ["co\u00adope\u200bration", "cooperation", true],
  ["cafe", "caf\u00e9", false],
])("%s, sought by %s: %p", (stored, typed, isFound) => {
  expect(folded(stored).includes(folded(typed))).toBe(isFound);
});

test("one letter is enough where a script has thousands", () => {
  expect(["a", "京", "ㄱ", "ab", ""].map(isSought)).toEqual([false, true, true, true, false]);
});

test("the place of what was found is that in the text as it was written", () => {
  expect(originalIndex("ﬁrst ﬁnal", folded("FINAL"))).toBe(5);
  expect(originalIndex("no", "yes")).toBe(-1);
});
