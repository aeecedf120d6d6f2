/**
 * Every documented example of the Directory is sent to a running Directory at the time of the examples:
 * it is accepted, it settles, and the answer is of the documented shape. The signatures among them are
 * made again and compared.
 */
import { afterEach, describe, expect, test } from "bun:test";
import type { TSchema } from "@sinclair/typebox";
import { renderDocument } from "../../../src/core/ledger/account.ts";
import {
  exampleAgreement,
  exampleDocument,
  exampleMethod,
  exampleSecondMethod,
  exampleTime,
  exampleValidUntil,
} from "../../../src/core/schema/schema.ts";
import { ownerUpdates } from "../../../src/nodes/directory/policy.ts";
import type { Route } from "../../../src/nodes/http/route.ts";
import {
  type Json,
  type Reply,
  type TestDirectory,
  testDirectory,
  updateBodyOf,
  updates,
  vectorIdentity,
} from "../../support/directory.ts";
import { expectDocumented, nameOf } from "./stage.ts";

const identity = vectorIdentity();
const exampleMs = Date.parse(exampleTime);

let directory: TestDirectory | null = null;
afterEach(async () => {
  await directory?.close();
  directory = null;
});

/** What the examples of updates suppose on the ledger. */
const suppliedDocument = {
  ...exampleDocument,
  verificationMethod: [exampleMethod, exampleSecondMethod],
  keyAgreement: [exampleAgreement],
};

/** A Directory in which the DID of the examples stands as they suppose, or not at all. */
async function open(registered: boolean): Promise<TestDirectory> {
  const opened = await testDirectory({ startMs: exampleMs - 1_000 });
  directory = opened;
  if (registered)
    await opened.register(identity, {
      did_document: renderDocument(suppliedDocument),
      alias: "team.one",
    });
  opened.advance(exampleMs - opened.nowMs());
  return opened;
}

/** The example of a body, as OpenAPI shows it. */
const exampleOf = (schema: TSchema | undefined): Json => (schema?.["examples"] as Json[] | undefined)?.[0] ?? {};

async function send(stage: TestDirectory, route: Route): Promise<Reply> {
  const body = route.request === undefined ? undefined : exampleOf(route.request);
  const reply = await stage.ask(route.method, pathOf(route.path, body), body);
  expect({ status: reply.status, code: reply.body["code"] }).toEqual({ status: successOf(route), code: undefined });
  expectDocumented(reply, route);
  return reply;
}

const successOf = (route: Route): number => route.answer[0];

/** Path values as the example's body has them. */
function pathOf(template: string, body: Json = {}): string {
  const component = ["verification_method", "key_agreement", "service"].map((name) => body[name] as Json | undefined);
  const id = body["id"] ?? component.find((one) => one !== undefined)?.["id"];
  const values: Json = {
    did: identity.did,
    personaDid: identity.did,
    tag: identity.did,
    alias: body["old_alias"] ?? body["alias"] ?? "team.one",
  };
  return template.replace(/:([A-Za-z]+)/g, (_, name: string) => encodeURIComponent(String(values[name] ?? id)));
}

const sample = await testDirectory();
const { routes } = sample;
await sample.close();
const takesBody = (route: Route): boolean => route.request !== undefined;

describe("the example of", () => {
  test.each(routes.filter(takesBody).map((route) => [nameOf(route), route] as const))("%s works", async (_, route) => {
    const stage = await open(!route.path.startsWith("/register-did"));
    const reply = await send(stage, route);
    if (reply.status === 202) expect(await stage.settle(reply)).toMatchObject({ state: "finalized", reason: null });
  });
});

test("the reads answer as documented once the examples of the policies have been sent", async () => {
  const stage = await open(true);
  const writes = routes.filter((route) => ownerUpdates.some((update) => nameOf(route) === `PUT ${update.path}`));
  const replies: Reply[] = [];
  for (const route of writes) replies.push(await send(stage, route));
  for (const reply of replies) await stage.settle(reply);
  for (const route of routes.filter((one) => !takesBody(one))) {
    // A random DID has no key proof.
    if (!route.path.startsWith("/submissions") && route.id !== "keyProof") await send(stage, route);
  }
});

/** What every body of an update has, besides the items of its action. */
const authorizationMembers = new Set(
  "did action timestamp nonce valid_until signer_key_id canonical_payload signature".split(" "),
);

test.each(updates.map(({ action }) => action))("the signature in the example of %s is that of its key", (action) => {
  const example = exampleOf(routes.find((one) => one.id === action)?.request);
  const items = Object.fromEntries(Object.entries(example).filter(([member]) => !authorizationMembers.has(member)));
  const made = updateBodyOf(identity, action, items, { nonce: "0", validUntilMs: Number(exampleValidUntil) });
  expect(example).toMatchObject(made);
});
