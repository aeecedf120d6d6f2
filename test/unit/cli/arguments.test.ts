/** Values of options: what is read, and to what. */
import { describe, expect, test } from "bun:test";
import { parseAmount, parseBetween, parseSeconds, parseUrl } from "../../../src/cli/arguments.ts";

const refused = (parse: (text: string) => unknown, texts: readonly string[]): string[] =>
  texts.filter((text) => {
    try {
      parse(text);
      return false;
    } catch {
      return true;
    }
  });

describe("an amount", () => {
  test("is a whole number that stays text", () => {
    const most = "9".repeat(39);
    expect(["0", "7", most].map(parseAmount)).toEqual(["0", "7", most]);
  });

  test("has no leading zeros, no sign and no more than 39 digits", () => {
    const wrong = ["", "00", "01", "-1", "+1", "1.5", "1e3", " 1", "9".repeat(40)];
    expect(refused(parseAmount, wrong)).toEqual(wrong);
  });
});

test("a number lies between its bounds", () => {
  const parse = parseBetween(2, 5);
  expect(["2", "5"].map(parse)).toEqual([2, 5]);
  const wrong = ["1", "6", "", "x", "2.5", "-3", "0x3"];
  expect(refused(parse, wrong)).toEqual(wrong);
});

test("a bare number is seconds, and 0 among them", () => {
  expect(["0", "30", "30s", "5m"].map(parseSeconds)).toEqual([0, 30_000, 30_000, 300_000]);
  expect(refused(parseSeconds, ["", "-1", "1234567", "x"])).toHaveLength(4);
});

test("the address of a node is one of HTTP", () => {
  expect(parseUrl("http://127.0.0.1:7400")).toBe("http://127.0.0.1:7400");
  const wrong = ["", "node", "ftp://node", "file:///etc/passwd"];
  expect(refused(parseUrl, wrong)).toEqual(wrong);
});
