/** Names that a stranger made too long, as a store keeps them. */
import { expect, test } from "bun:test";
import { keptName, keptType } from "../../../../src/client/mail/kept-names.ts";

test.each([
  ["photo.jpg", "photo.jpg"],
  [`${"x".repeat(1_023)}😀.txt`, `${"x".repeat(1_020)}.txt`],
  [`${"x".repeat(1_023)}😀`, "x".repeat(1_023)],
  [`${"👪".repeat(600)}.jpeg`, `${"👪".repeat(509)}.jpeg`],
  [`${"x".repeat(2_000)}.${"y".repeat(17)}`, "x".repeat(1_024)],
])("%s", (name, kept) => {
  expect(keptName(name)).toBe(kept);
  expect(keptName(name).isWellFormed()).toBe(true);
});

test("a media type ends at a whole letter too", () => {
  expect(keptType(`x/${"y".repeat(1_021)}😀`)).toBe(`x/${"y".repeat(1_021)}`);
  expect(keptType("text/plain")).toBe("text/plain");
});
