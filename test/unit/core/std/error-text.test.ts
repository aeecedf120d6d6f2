/** The text of what was thrown, whatever it was. */
import { expect, test } from "bun:test";
import { errorStack, errorText } from "../../../../src/core/std/error-text.ts";

test("the text of what was thrown", () => {
  const error = new Error("broken");
  expect([errorText(error), errorText("text"), errorText(null)]).toEqual(["broken", "text", "null"]);
  expect(errorStack(error)).toContain("error-text.test.ts");
  expect(errorStack(undefined)).toBe("undefined");
});
