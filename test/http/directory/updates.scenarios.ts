/**
 * Scenarios of the signed updates that hold for every one of them, made from their table:
 * acceptance, and what each must refuse in the order of the checks.
 */
import { expect } from "bun:test";
import type { FaultCode } from "../../../src/core/fault.ts";
import { type Json, type Update, updates } from "../../support/directory.ts";
import { type Identity, keyOf } from "../../support/identity.ts";
import { freshLabel, rotated } from "./certified.ts";
import { outages } from "./outages.ts";
import { ruleScenarios } from "./rules.scenarios.ts";
import { pathOf, type Sending, sampleOf, send } from "./samples.ts";
import type { Scenario, Stage } from "./stage.ts";

const without = (body: Json, name: string): Json =>
  Object.fromEntries(Object.entries(body).filter(([key]) => key !== name));

/** What every signed update refuses, in the order of the checks. */
const common: readonly (Sending & {
  name: string;
  status: number;
  code: FaultCode;
  pointers?: string[];
})[] = [
  {
    name: "lacks members",
    status: 400,
    code: "invalid_request",
    pointers: ["/nonce", "/signature"],
    spoil: (body) => without(without(body, "nonce"), "signature"),
  },
  {
    name: "has a member that is not known",
    status: 400,
    code: "invalid_request",
    pointers: ["/extra"],
    spoil: (body) => ({ ...body, extra: 1 }),
  },
  {
    name: "has a nonce that is a number",
    status: 400,
    code: "invalid_request",
    pointers: ["/nonce"],
    spoil: (body) => ({ ...body, nonce: 0 }),
  },
  {
    name: "has a signature that is not Base64 of 64 bytes",
    status: 400,
    code: "invalid_request",
    pointers: ["/signature"],
    spoil: (body) => ({ ...body, signature: "AA==" }),
  },
  {
    name: "has a signer that is neither root nor absolute",
    status: 400,
    code: "invalid_request",
    pointers: ["/signer_key_id"],
    spoil: (body) => ({ ...body, signer_key_id: "#k1" }),
  },
  {
    name: "names another DID than the path",
    status: 400,
    code: "path_body_mismatch",
    pointers: ["/did"],
    spoil: (body, stage) => ({ ...body, did: stage.unknown.did }),
  },
  {
    name: "names another action",
    status: 400,
    code: "action_mismatch",
    pointers: ["/action"],
    spoil: (body) => ({ ...body, action: "AddDevice" }),
  },
  {
    name: "has a payload that is not the text of bytes",
    status: 400,
    code: "invalid_canonical_payload",
    pointers: ["/canonical_payload"],
    spoil: (body) => ({ ...body, canonical_payload: "{}" }),
  },
  {
    name: "has a payload with a byte left over",
    status: 400,
    code: "invalid_canonical_payload",
    spoil: (body) => ({ ...body, canonical_payload: `${body["canonical_payload"]}00` }),
  },
  {
    name: "has a payload of another nonce than the body",
    status: 400,
    code: "payload_mismatch",
    pointers: ["/nonce", "/canonical_payload"],
    spoil: (body) => ({ ...body, nonce: "1" }),
  },
  {
    name: "is valid until a time that has passed, whatever else is wrong",
    status: 400,
    code: "authorization_expired",
    identity: (stage) => stage.unknown,
    terms: (stage) => ({ validUntilMs: stage.nowMs(), nonce: "9" }),
  },
  {
    name: "is valid for more than an hour",
    status: 400,
    code: "authorization_too_far_ahead",
    terms: (stage) => ({ validUntilMs: stage.nowMs() + 3_600_001 }),
  },
  {
    name: "concerns a DID that is not registered",
    status: 404,
    code: "did_not_found",
    identity: (stage) => stage.unknown,
  },
  {
    name: "concerns a deactivated DID, before its nonce is looked at",
    status: 422,
    code: "did_deactivated",
    identity: (stage) => stage.deactivated,
    terms: () => ({ nonce: "9" }),
  },
  {
    name: "has a stale nonce, before its signature is looked at",
    status: 409,
    code: "nonce_mismatch",
    terms: () => ({ nonce: "9", signer: keyOf("a stranger") }),
  },
  {
    name: "is signed by a stranger",
    status: 403,
    code: "invalid_signature",
    terms: () => ({ signer: keyOf("a stranger") }),
  },
  {
    name: "is signed by a method that authentication does not list",
    status: 403,
    code: "invalid_signature",
    terms: (stage) => ({
      signerKeyId: `${stage.standing.did}#k2`,
      signer: keyOf(`${stage.standing.label} k2`),
    }),
  },
  {
    name: "is signed by a method of another DID",
    status: 403,
    code: "invalid_signature",
    terms: (stage) => ({ signerKeyId: `${stage.unknown.did}#k1` }),
  },
];

function commonScenarios(update: Update): Scenario[] {
  const route = `${update.method} ${update.path}`;
  const refused: Scenario[] = common.map(({ name, status, code, pointers, ...sending }) => ({
    name: `refuses what ${name}`,
    route,
    status,
    code,
    ...(pointers === undefined ? {} : { pointers }),
    act: (stage) => send(update, stage, sending),
  }));
  const noDid: Scenario = {
    name: "refuses a path without a DID of this service",
    route,
    status: 400,
    code: "invalid_did",
    act: (stage) =>
      send(update, stage, {
        path: ({ standing }) => pathOf(update, standing).replace("did%3Asvc", "did%3Aweb"),
      }),
  };
  return [...refused, noDid, ...outages(route, (stage) => send(update, stage))];
}

function acceptedScenario(update: Update): Scenario {
  return {
    name: "is accepted, answers its members, and settles",
    route: `${update.method} ${update.path}`,
    status: 202,
    act: async (stage) => {
      const identity = await stage.fresh();
      return send(update, stage, { identity: () => identity });
    },
    check: async (reply, stage) => {
      const alias = update.action.endsWith("_alias");
      const names = ["action", ...(alias ? ["alias"] : []), "did", "message", "status", "tx_hash"];
      expect(Object.keys(reply.body).sort()).toEqual(names);
      expect(reply.body).toMatchObject({ status: "accepted", action: update.action });
      expect(reply.headers.get("svc-stability")).toBe(alias ? "unstable" : null);
      expect(await stage.settle(reply)).toMatchObject({ state: "finalized", reason: null });
      const { did } = reply.body as { did: string };
      const { body: submission } = await stage.ask("GET", `/submissions/${reply.body["tx_hash"]}`);
      expect(submission).toMatchObject({ did, action: update.action, state: "finalized" });
      const { body: resolved } = await stage.ask("GET", `/resolve/${did}`);
      const identity = { did, label: "" } as Identity;
      sampleOf(update).effect(resolved, identity);
      if (update.action !== "delete_did") expect(resolved["version"]).toBe(2);
    },
  };
}

/**
 * A refusal changes nothing, so all scenarios of a stage share one; what is accepted takes it away.
 */
const rotatedOn = new WeakMap<Stage, Promise<Identity>>();

function documentNeeded(update: Update): Scenario {
  return {
    name: "refuses a component of a self-certifying DID after a rotation",
    route: `${update.method} ${update.path}`,
    status: 409,
    code: "document_needed",
    act: async (stage) => {
      const shared = rotatedOn.get(stage) ?? rotated(stage, freshLabel());
      rotatedOn.set(stage, shared);
      const identity = await shared;
      const { genesisHash } = await stage.ledger.proofs();
      const reply = await send(update, stage, {
        identity: () => identity,
        terms: () => ({ genesisHash }),
      });
      if (reply.status < 400) rotatedOn.delete(stage);
      return reply;
    },
  };
}

export const updateScenarios: readonly Scenario[] = [
  ...updates.flatMap((update) => [acceptedScenario(update), ...commonScenarios(update)]),
  ...updates.filter(({ path }) => path.startsWith("/dids/:did/document/")).map(documentNeeded),
  ...ruleScenarios,
];
