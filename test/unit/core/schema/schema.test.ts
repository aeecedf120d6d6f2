/**
 * The shapes of the wire: the checker lists every input error with its pointer, repeats nothing
 * that was sent, and a value of what a schema describes is of its shape.
 */
import { describe, expect, test } from "bun:test";
import { type TSchema, Type } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import fc from "fast-check";
import { type Fault, isFault } from "../../../../src/core/fault.ts";
import * as directory from "../../../../src/core/schema/directory.ts";
import * as documents from "../../../../src/core/schema/identity.ts";
import * as messages from "../../../../src/core/schema/messages.ts";
import * as shared from "../../../../src/core/schema/schema.ts";
import { startOwnTime } from "../../../support/own-time.ts";
import { sampleOf } from "../../../support/samples.ts";

const { compileShape } = shared;
const example = <T>(schema: TSchema): T => structuredClone(sampleOf(schema)) as T;

function refusal(value: unknown): Fault {
  if (!isFault(value)) throw new Error("expected a refusal");
  return value;
}

function pointersOf(value: unknown): string[] {
  return (refusal(value).extra.errors ?? []).map((error) => error.pointer).sort();
}

const parseUpdate = compileShape(directory.updateBody("UpdateVerificationMethod"));
const updateExample = (): Record<string, unknown> =>
  example(directory.updateBody("UpdateVerificationMethod"));

describe("the checker", () => {
  test("returns the value itself when it has the shape", () => {
    const body = updateExample();
    const parsed: unknown = parseUpdate(body);
    expect(parsed).toBe(body);
  });

  test("lists all input errors at once, a missing member at its own place", () => {
    const method = { id: 1, type: "Multikey", controller: example(shared.didText), extra: true };
    const body: Record<string, unknown> = {
      ...updateExample(),
      verification_method: method,
      signature: "no",
      "a/b~c": 1,
    };
    delete body["nonce"];
    const result = parseUpdate(body);
    expect(refusal(result).code).toBe("invalid_request");
    expect(pointersOf(result)).toEqual([
      "/a~1b~0c",
      "/nonce",
      "/signature",
      "/verification_method/extra",
      "/verification_method/id",
      "/verification_method/publicKeyMultibase",
    ]);
  });

  test("says of a text of a form, and of a member with several forms, what its description says", () => {
    const errorsOf = (schema: TSchema, value: unknown) =>
      refusal(compileShape(schema)(value)).extra.errors;
    const service = {
      ...example<object>(documents.serviceShape),
      serviceEndpoint: ["https://a.example", 1],
    };
    expect(errorsOf(documents.serviceShape, service)).toEqual([
      { pointer: "/serviceEndpoint", message: "expected 1 to 5 URLs, or one" },
    ]);
    expect(errorsOf(shared.u64Text, "01")).toEqual([
      { pointer: "", message: "expected unsigned 64-bit number as text" },
    ]);
    expect(errorsOf(shared.uuidText, 1)).toEqual([{ pointer: "", message: "expected string" }]);
    // Without a description, its forms.
    const mode = Type.Union([Type.Literal("Keep"), Type.Literal("Delete"), Type.Null()]);
    expect(errorsOf(mode, "Forget")).toEqual([
      { pointer: "", message: "expected Keep or Delete or null" },
    ]);
  });

  test("names each member once", () => {
    const errors = refusal(parseUpdate({})).extra.errors ?? [];
    expect(new Set(errors.map((error) => error.pointer)).size).toBe(errors.length);
    expect(errors.find((error) => error.pointer === "/nonce")?.message).toBe("is missing");
  });

  test("refuses anything but an object at the root", () => {
    for (const value of [null, [], "x", 1, true])
      expect(pointersOf(parseUpdate(value))).toEqual([""]);
  });

  test("lists no more errors than its bound and stays quick on thousands of them", () => {
    const hostile = Object.fromEntries(Array.from({ length: 4_000 }, (_, i) => [`member${i}`, i]));
    const elapsedMs = startOwnTime();
    expect(refusal(parseUpdate(hostile)).extra.errors?.length).toBe(32);
    expect(elapsedMs()).toBeLessThan(100);
  });

  test("does not repeat an unknown name of great length", () => {
    expect(pointersOf(parseUpdate({ ...updateExample(), ["x".repeat(5_000)]: 1 }))).toEqual([""]);
  });

  test("never repeats a value that was sent", () => {
    const secret = "SECRET-9f2";
    const body = {
      ...updateExample(),
      did: { secret },
      nonce: secret,
      signature: secret,
      valid_until: [secret],
    };
    expect(JSON.stringify(refusal(parseUpdate(body)))).not.toContain(secret);
  });

  test("refuses exactly what the schema refuses, with at least one error", () => {
    const schema = documents.documentInShape;
    const compiled = TypeCompiler.Compile(schema);
    const parse = compileShape(schema);
    const mutated = fc
      .tuple(
        fc.constantFrom("id", "verificationMethod", "authentication", "service", "other"),
        fc.jsonValue(),
      )
      .map(([name, value]) => ({ ...example<object>(schema), [name]: value }));
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), mutated), (value) => {
        const result = parse(value);
        expect(isFault(result)).toBe(!compiled.Check(value));
        if (isFault(result)) expect(result.extra.errors?.length).toBeGreaterThan(0);
      }),
      { numRuns: 500 },
    );
  });
});

describe("text formats", () => {
  const cases: [format: string, accepted: string[], refused: unknown[]][] = [
    [
      "u64",
      ["0", "18446744073709551615"],
      ["", "01", "-1", "1.0", "18446744073709551616", " 1", "0x1", 1],
    ],
    [
      "u128",
      ["0", "340282366920938463463374607431768211455"],
      ["340282366920938463463374607431768211456", "a"],
    ],
    [
      "fee",
      ["0", "1000000000000000"],
      ["1000000000000001", "340282366920938463463374607431768211456", "-1", ""],
    ],
    [
      "utf8-32",
      ["", "a".repeat(32), "ä".repeat(16)],
      ["a".repeat(33), "ä".repeat(17), "€".repeat(11)],
    ],
    [
      "timestamp",
      ["2026-07-16T12:00:00Z", "1784203200", "1784203200000"],
      ["2026-02-31T00:00:00Z", "now", "v2:0:1"],
    ],
    [
      "proof-timestamp",
      ["v2:0:1784203200000", "2026-07-16T12:00:00+02:00"],
      ["v2:0", "v2:a:1", "v2:0:1:2", "v1:0:1"],
    ],
    [
      "ed25519-signature",
      [example<string>(shared.signatureText)],
      ["", "AA==", `${"A".repeat(86)}=`, `${"A".repeat(85)}B==`, `${"_".repeat(86)}==`],
    ],
  ];
  for (const [format, accepted, refused] of cases) {
    test(`${format} accepts its forms and nothing else`, () => {
      const parse = compileShape(Type.String({ format }));
      for (const text of accepted) expect(parse(text)).toBe(text);
      for (const text of refused) expect(refusal(parse(text)).code).toBe("invalid_request");
    });
  }

  test("number texts also have a pattern, which accepts what the format accepts", () => {
    for (const [schema, most] of [
      [shared.u64Text, 2n ** 64n - 1n],
      [shared.u128Text, 2n ** 128n - 1n],
    ] as const) {
      const pattern = new RegExp(schema.pattern ?? "^$");
      for (const text of ["0", "10", String(most)]) {
        expect(text).toMatch(pattern);
        expect(compileShape(schema)(text)).toBe(text);
      }
      for (const text of ["", "01", "-1", "1e3", "0x1"]) expect(text).not.toMatch(pattern);
      expect(pointersOf(compileShape(schema)(String(most + 1n)))).toEqual([""]);
    }
  });

  test("valid_until is text or a safe integer", () => {
    for (const value of ["1893456000000", 1_893_456_000_000, 0])
      expect(isFault(parseUpdate({ ...updateExample(), valid_until: value }))).toBe(false);
    for (const value of [-1, 1.5, 2 ** 53, "1e3", null])
      expect(pointersOf(parseUpdate({ ...updateExample(), valid_until: value }))).toEqual([
        "/valid_until",
      ]);
  });
});

test("what a schema describes has its shape, and so has every example", () => {
  const schemas = [
    ...[shared, directory, documents, messages].flatMap(
      (module) => Object.values(module) as unknown[],
    ),
  ].filter(
    (value): value is TSchema => typeof value === "object" && value !== null && "type" in value,
  );
  expect(schemas.length).toBeGreaterThan(40);
  for (const schema of schemas) {
    const parse = compileShape(schema);
    for (const value of [sampleOf(schema), ...((schema["examples"] as unknown[]) ?? [])]) {
      const result = parse(value);
      expect(isFault(result) ? { schema, value, errors: result.extra.errors } : null).toBeNull();
    }
  }
});
