/**
 * What the SDK relies on in answers: every answer as the nodes describe it is taken, and an answer
 * that lacks a member or has one of another type is refused with its place.
 */
import { describe, expect, test } from "bun:test";
import type { TSchema } from "@sinclair/typebox";
import { problemOf, type Shape } from "../../../../src/client/base/shapes.ts";
import * as answers from "../../../../src/client/net/answers.ts";
import * as cache from "../../../../src/client/net/answers.ts";
import * as directory from "../../../../src/core/schema/directory.ts";
import * as policies from "../../../../src/core/schema/identity.ts";
import * as messages from "../../../../src/core/schema/messages.ts";
import { limitsShape } from "../../../../src/core/schema/schema.ts";
import { sampleOf } from "../../../support/samples.ts";

const rows: [name: string, schema: TSchema, shape: Shape<unknown>][] = [
  ["registered", directory.registeredAnswer, answers.registeredShape],
  ["registration status", directory.registrationStatusAnswer, answers.registrationStatusShape],
  ["nonces", directory.noncesAnswer, answers.noncesShape],
  ["resolved", directory.resolvedAnswer, answers.resolvedShape],
  ["alias", directory.aliasAnswer, answers.aliasShape],
  ["submission", directory.submissionAnswer, answers.submissionShape],
  ["change", directory.acceptedAnswer, answers.acceptedShape],
  ["resolution", directory.resolutionAnswer, answers.resolutionShape],
  ["recipient policy", policies.deliveryPolicyAnswer, answers.recipientPolicyShape],
  ["limits", limitsShape, answers.limitsShape],
  ["messages", messages.messagesShape, cache.messagesShape],
  ["summary", messages.summaryShape, cache.summaryShape],
  ["message", messages.messageStateShape, cache.messageStateShape],
  ["acknowledgement", messages.ackShape, cache.ackShape],
];

describe("answers", () => {
  for (const [name, schema, shape] of rows) {
    test(`what is described of ${name} is accepted, with unknown members`, () => {
      const answer = {
        ...(sampleOf(schema, Object.keys(schema["properties"])) as object),
        added_later: true,
      };
      expect(problemOf(shape, answer, "the answer")).toBeNull();
    });
  }

  test("a missing member, or one of another type, is reported with its place", () => {
    const good = { count: 1, messages: [{ message_id: "a", envelope: {} }] };
    expect(problemOf(cache.messagesShape, good, "the answer")).toBeNull();
    const bad: [unknown, string][] = [
      [null, "the answer must be object"],
      [{ count: 1 }, "/messages must be array"],
      [{ ...good, count: "1" }, "/count must be an integer"],
      [
        { ...good, messages: [{ message_id: "a", envelope: [] }] },
        "/messages/0/envelope must be an object",
      ],
      [{ ...good, next_cursor: 7 }, "/next_cursor must be string"],
    ];
    for (const [answer, problem] of bad)
      expect(problemOf(cache.messagesShape, answer, "the answer")).toBe(problem);
  });
});
