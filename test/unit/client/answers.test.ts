/**
 * What the SDK relies on in answers: every example that the nodes document is taken, and an answer that lacks
 * a member or has one of another type is refused with its place. And the record's CBOR beside a full codec.
 */
import { describe, expect, test } from "bun:test";
import type { TSchema } from "@sinclair/typebox";
import { decode, encode, rfc8949EncodeOptions } from "cborg";
import fc from "fast-check";
import * as answers from "../../../src/client/answers.ts";
import { decodeCborMap, encodeCborMap } from "../../../src/client/cbor.ts";
import type { Shape } from "../../../src/client/shape.ts";
import * as directory from "../../../src/core/schema/directory.ts";
import * as messages from "../../../src/core/schema/messages.ts";
import * as policies from "../../../src/core/schema/policies.ts";
import { limitsShape } from "../../../src/core/schema/schema.ts";

const rows: [name: string, schema: TSchema, shape: Shape<unknown>][] = [
  ["registered", directory.registeredAnswer, answers.registeredShape],
  ["registration status", directory.registrationStatusAnswer, answers.registrationStatusShape],
  ["nonces", directory.noncesAnswer, answers.noncesShape],
  ["resolved", directory.resolvedAnswer, answers.resolvedShape],
  ["alias", directory.aliasAnswer, answers.aliasShape],
  ["submission", directory.submissionAnswer, answers.submissionShape],
  ["update", directory.updateAnswer, answers.acceptedShape],
  ["alias update", directory.aliasUpdateAnswer, answers.acceptedShape],
  ["extrinsic", directory.extrinsicAnswer, answers.acceptedShape],
  ["document", directory.replaceDocumentAnswer, answers.acceptedShape],
  ["prepared", directory.preparedAnswer, answers.preparedShape],
  ["resolution", directory.resolutionAnswer, answers.resolutionShape],
  ["recipient policy", policies.deliveryPolicyAnswer, answers.recipientPolicyShape],
  ["persona policy", policies.personaPolicyAnswer, answers.personaPolicyShape],
  ["limits", limitsShape, answers.limitsShape],
  ["messages", messages.messagesShape, answers.messagesShape],
  ["chunks", messages.chunksShape, answers.chunksShape],
  ["summary", messages.summaryShape, answers.summaryShape],
  ["message", messages.messageStateShape, answers.messageStateShape],
  ["acknowledgement", messages.ackShape, answers.ackShape],
];

describe("answers", () => {
  for (const [name, schema, shape] of rows) {
    test(`the documented example of ${name} is taken, with members that are new`, () => {
      const examples: unknown[] = schema["examples"];
      expect(examples.length).toBeGreaterThan(0);
      for (const example of examples) expect(shape({ ...(example as object), added_later: true }, "")).toBeNull();
    });
  }

  test("what is missing or of another type is named with its place", () => {
    const good = { count: 1, messages: [{ message_id: "a", envelope: {} }] };
    expect(answers.messagesShape(good, "")).toBeNull();
    const bad: [unknown, string][] = [
      [null, "the answer must be an object"],
      [{ count: 1 }, "/messages must be a list"],
      [{ ...good, count: "1" }, "/count must be an integer"],
      [{ ...good, messages: [{ message_id: "a", envelope: [] }] }, "/messages/0/envelope must be an object"],
      [{ ...good, next_cursor: 7 }, "/next_cursor must be text"],
    ];
    for (const [answer, problem] of bad) expect(answers.messagesShape(answer, "")).toBe(problem);
  });
});

describe("the CBOR of records", () => {
  const value = fc.oneof(
    fc.string({ unit: "grapheme" }),
    fc.uint8Array({ maxLength: 400 }),
    fc.maxSafeNat(),
    fc.constant(null),
  );
  const map = fc.dictionary(fc.string({ maxLength: 40 }), value, { maxKeys: 40, noNullPrototype: true });

  test("is what a full codec writes in deterministic form, and is read again", () => {
    fc.assert(
      fc.property(map, (members) => {
        const bytes = encodeCborMap(members);
        expect(bytes.toHex()).toBe(encode(members, rfc8949EncodeOptions).toHex());
        expect(decodeCborMap(bytes)).toEqual(members);
      }),
    );
  });

  test("nothing else is read: what is taken is what a full codec reads, in the same form", () => {
    fc.assert(
      fc.property(map, fc.nat(), fc.integer({ min: 0, max: 255 }), (members, at, byte) => {
        const bytes = encodeCborMap(members);
        bytes[at % bytes.length] = byte;
        const taken = decodeCborMap(bytes);
        if (taken === null) return;
        expect(encode(decode(bytes), rfc8949EncodeOptions).toHex()).toBe(bytes.toHex());
      }),
      { numRuns: 2_000 },
    );
  });

  test("a length beyond the bytes, or a map without end, costs nothing", () => {
    for (const hex of ["bf", "a1", "bb7fffffffffffffff", "a16161", "a161617affffffff", "a1616118", "a1616118170000"])
      expect(decodeCborMap(Uint8Array.fromHex(hex))).toBeNull();
  });
});
