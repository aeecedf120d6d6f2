/** Pointers into JSON as RFC 6901 escapes them. */
import { describe, expect, test } from "bun:test";
import { jsonPointer } from "../../../../src/core/std/json-pointer.ts";

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
