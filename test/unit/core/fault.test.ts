/**
 * What refusals are made of: JSON pointers as RFC 6901 escapes them, and the text of whatever was thrown.
 */
import { describe, expect, test } from "bun:test";
import { errorStack, errorText, jsonPointer } from "../../../src/core/fault.ts";

describe("jsonPointer", () => {
  test.each([
    [[], ""],
    [["a"], "/a"],
    [["a/b", "c~d", 3], "/a~1b/c~0d/3"],
    [["~1"], "/~01"],
    [[""], "/"],
  ] as const)("%j is %s", (steps, pointer) => {
    expect(jsonPointer(...steps)).toBe(pointer);
  });
});

test("errorText and errorStack describe any thrown value", () => {
  const error = new Error("broken");
  expect([errorText(error), errorText("text"), errorText(null)]).toEqual(["broken", "text", "null"]);
  expect(errorStack(error)).toContain("fault.test.ts");
  expect(errorStack(undefined)).toBe("undefined");
});
