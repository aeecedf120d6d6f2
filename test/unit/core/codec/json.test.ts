/** JSON from untrusted bytes: what is refused, what is kept, and that the bounds cost nothing. */
import { describe, expect, test } from "bun:test";
import { decodeHex, utf8 } from "../../../../src/core/codec/bytes.ts";
import { outerNames, parseJson, parseJsonObject } from "../../../../src/core/codec/json.ts";
import { isFault } from "../../../../src/core/fault.ts";
import { startOwnTime } from "../../../support/own-time.ts";
import invalidDocuments from "../../../vectors/json/invalid/documents.json";
import validDocuments from "../../../vectors/json/valid/documents.json";

type Vector = { name: string; text?: string; hex?: string; code?: string };
const bytesOf = (vector: Vector) =>
  vector.hex === undefined ? utf8(vector.text ?? "") : (decodeHex(vector.hex) as Uint8Array);
const codeOf = (text: string) => {
  const value = parseJson(utf8(text));
  return isFault(value) ? value.code : "accepted";
};

describe("parseJson", () => {
  test.each(validDocuments as Vector[])("accepts $name and agrees with JSON.parse", (vector) => {
    const bytes = bytesOf(vector);
    expect(parseJson(bytes)).toEqual(JSON.parse(new TextDecoder().decode(bytes)));
  });

  test.each(invalidDocuments as Vector[])("refuses $name", (vector) => {
    const value = parseJson(bytesOf(vector));
    expect(isFault(value) && value.code).toBe(vector.code as never);
  });

  test("counts the outer value as depth 1", () => {
    expect(codeOf("[".repeat(32) + "]".repeat(32))).toBe("accepted");
    expect(codeOf("[".repeat(33) + "]".repeat(33))).toBe("invalid_json");
    const objects = (depth: number) => `${'{"a":'.repeat(depth - 1)}{}${"}".repeat(depth - 1)}`;
    expect(codeOf(objects(32))).toBe("accepted");
    expect(codeOf(objects(33))).toBe("invalid_json");
  });

  test("bounds values and members", () => {
    const list = (length: number) => `[${Array(length).fill("1").join(",")}]`;
    expect(codeOf(list(4_096))).toBe("accepted");
    expect(codeOf(list(4_097))).toBe("invalid_json");
    const containers = (length: number) => `[${Array(length).fill("{}").join(",")}]`;
    expect(codeOf(containers(2_048))).toBe("accepted");
    expect(codeOf(containers(2_049))).toBe("invalid_json");
    const object = (length: number) =>
      `{${Array.from({ length }, (_, i) => `"m${i}":1`).join(",")}}`;
    expect(codeOf(object(4_096))).toBe("accepted");
    expect(codeOf(object(4_097))).toBe("invalid_json");
  });

  test("finds the end of long strings with escapes at every distance from the window", () => {
    for (let plain = 0; plain < 80; plain++) {
      const value = { a: `${"x".repeat(plain)}"\\${"y".repeat(plain)}`, b: "{[,:" };
      expect(parseJson(utf8(JSON.stringify(value)))).toEqual(value);
    }
  });

  test("answers hostile bodies of 4 MiB within a second each", () => {
    const size = 4 * 1024 * 1024;
    const bodies = [
      "[".repeat(size),
      '{"a":'.repeat(size / 5),
      `"${"\\n".repeat(size / 2)}"`,
      " ".repeat(size),
      `"${"\\".repeat(size)}`,
      `[${"1,".repeat(size / 2)}1]`,
      `"${`${"x".repeat(30)}\\n`.repeat(size / 32)}"`,
    ];
    for (const body of bodies) {
      const bytes = utf8(body);
      const elapsedMs = startOwnTime();
      parseJson(bytes);
      expect(elapsedMs()).toBeLessThan(1_000);
    }
  });
});

describe("parseJsonObject", () => {
  test.each(["[]", "1", "null", '"x"', "true"])(
    "refuses %s at the root as invalid_request",
    (text) => {
      const value = parseJsonObject(utf8(text));
      expect(isFault(value) && value.code).toBe("invalid_request");
    },
  );
});

describe("outerNames", () => {
  test("answers the names of the outermost object only, as they are written", () => {
    const text = ' {"a" : {"b":1}, "c\\u0064":[{"e":":"}],"f":"\\"g\\":"}';
    expect(outerNames(text).map(({ start, end }) => text.slice(start, end))).toEqual([
      '"a"',
      '"c\\u0064"',
      '"f"',
    ]);
  });
});
