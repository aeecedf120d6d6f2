/** The text of whatever was thrown. */
import { expect, test } from "bun:test";
import { errorStack, errorText } from "../../../src/core/fault.ts";

test("errorText and errorStack describe any thrown value", () => {
  const error = new Error("broken");
  expect([errorText(error), errorText("text"), errorText(null)]).toEqual([
    "broken",
    "text",
    "null",
  ]);
  expect(errorStack(error)).toContain("fault.test.ts");
  expect(errorStack(undefined)).toBe("undefined");
});

test("a folder that can't be made because something has its name says so", () => {
  const refused = Object.assign(new Error("EEXIST: file already exists, mkdir '/data/store'"), {
    code: "EEXIST",
    syscall: "mkdir",
    path: "/data/store",
  });
  expect(errorText(refused)).toBe("/data/store exists already: a folder was to be made there");
});
