/**
 * Scenarios of registration and its status: what is accepted, and what is refused in the order of
 * the checks.
 */
import { expect } from "bun:test";
import { encodeHex0x, renderPublicKey } from "../../../src/core/codec/bytes.ts";
import type { FaultCode } from "../../../src/core/fault.ts";
import { type Json, type Reply, registerBodyOf, simpleDocument } from "../../support/directory.ts";
import { type Identity, identityOf, keyOf } from "../../support/identity.ts";
import { outages } from "./outages.ts";
import {
  aliasOf,
  methodWith,
  type Scenario,
  type Stage,
  sendUpdate,
  smallOrderKey,
} from "./stage.ts";

let count = 0;
/** An identity that no one else uses. */
export const newcomer = (): Identity => identityOf(`newcomer ${count++}`);

// ------------------------------------------------------------------------------------ registration

const register = "POST /register-did";

function sendRegistration(
  stage: Stage,
  identity: Identity,
  members: Json = {},
  spoil: Json = {},
): Promise<Reply> {
  return stage.ask("POST", "/register-did", {
    ...registerBodyOf(identity, stage.nowMs(), members),
    ...spoil,
  });
}

async function expectPending(reply: Reply, stage: Stage): Promise<void> {
  const names = ["did", "did_document", "registration_status", "status", "tx_id"];
  expect(Object.keys(reply.body).sort()).toEqual(names);
  expect(reply.body).toMatchObject({ status: "accepted", registration_status: "pending" });
  expect(await stage.settle(reply)).toMatchObject({ state: "finalized" });
  const { body } = await stage.ask("GET", `/registration-status/${reply.body["did"]}`);
  expect(body).toEqual({
    did: reply.body["did"],
    source: "chain",
    registered: true,
    registration_status: "confirmed",
    did_document: reply.body["did_document"],
    version: 1,
    tx_id: reply.body["tx_id"],
  });
}

const accepted: readonly { name: string; members: (stage: Stage, identity: Identity) => Json }[] = [
  { name: "with an ISO-8601 timestamp", members: () => ({}) },
  {
    name: "with a timestamp in epoch seconds",
    members: (stage) => ({ timestamp: String(Math.floor(stage.nowMs() / 1_000)) }),
  },
  {
    name: "with a version 2 proof",
    members: (stage) => ({ timestamp: `v2:0:${stage.nowMs() + 3_600_000}` }),
  },
  {
    name: "with an alias, in normal form in its proof",
    members: (stage, own) => ({
      alias: `  ${aliasOf(own).toUpperCase()} `,
      timestamp: `v2:0:${stage.nowMs() + 1_000}`,
    }),
  },
  { name: "with the root key of the first method", members: () => ({ root_pubkey: undefined }) },
  {
    name: "with a root key in hex",
    members: (_, own) => ({ root_pubkey: encodeHex0x(own.root.publicKey) }),
  },
  {
    name: "with a document of no more than its id",
    members: (_, own) => ({ did_document: { "@context": ["x"], id: own.did } }),
  },
  {
    name: "with relative ids and a lone endpoint",
    members: (_, own) => ({
      did_document: {
        id: own.did,
        verificationMethod: [{ ...methodWith(own, "a"), id: "#a" }],
        authentication: ["#a"],
        service: [{ id: "#s", type: "T", serviceEndpoint: "https://s.example", authorization: [] }],
      },
    }),
  },
];

export type Refusal = {
  readonly name: string;
  readonly status: number;
  readonly code: FaultCode;
  readonly members?: (stage: Stage, identity: Identity) => Json;
  readonly spoil?: (stage: Stage, identity: Identity) => Json;
  readonly pointers?: readonly string[];
};

const refused: readonly Refusal[] = [
  {
    name: "a body without members",
    status: 400,
    code: "invalid_request",
    spoil: () => ({
      did: undefined,
      timestamp: undefined,
      signature: undefined,
      did_document: undefined,
    }),
    pointers: ["/did", "/timestamp", "/signature", "/did_document"],
  },
  {
    name: "an unknown member",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ owner: "me" }),
    pointers: ["/owner"],
  },
  {
    name: "an unknown member of the document",
    status: 400,
    code: "invalid_request",
    spoil: (_, own) => ({ did_document: { id: own.did, assertionMethod: [] } }),
    pointers: ["/did_document/assertionMethod"],
  },
  {
    name: "a DID of another method",
    status: 400,
    code: "invalid_did",
    spoil: () => ({ did: "did:web:example.com" }),
  },
  {
    name: "a DID that is too short, before its document is read",
    status: 400,
    code: "invalid_did",
    spoil: () => ({ did: "did:svc:short", did_document: { id: "x" } }),
  },
  {
    name: "a document of another DID",
    status: 400,
    code: "invalid_request",
    spoil: (stage) => ({ did_document: { id: stage.unknown.did } }),
    pointers: ["/did_document/id"],
  },
  {
    name: "a malformed timestamp",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ timestamp: "2026-02-31T00:00:00Z" }),
    pointers: ["/timestamp"],
  },
  {
    name: "a version 2 nonce that is not 0",
    status: 400,
    code: "invalid_request",
    members: (stage) => ({ timestamp: `v2:1:${stage.nowMs() + 1_000}` }),
    pointers: ["/timestamp"],
  },
  {
    name: "a stale timestamp, before the document is checked",
    status: 400,
    code: "authorization_expired",
    members: (stage, own) => ({
      timestamp: String(stage.nowMs() - 300_001),
      did_document: {
        id: own.did,
        verificationMethod: [{ ...methodWith(own, "a"), publicKeyMultibase: smallOrderKey }],
      },
    }),
    pointers: ["/timestamp"],
  },
  {
    name: "a timestamp of the future",
    status: 400,
    code: "authorization_too_far_ahead",
    members: (stage) => ({ timestamp: String(stage.nowMs() + 300_001) }),
  },
  {
    name: "a version 2 proof that has ended",
    status: 400,
    code: "authorization_expired",
    members: (stage) => ({ timestamp: `v2:0:${stage.nowMs()}` }),
  },
  {
    name: "a version 2 proof that ends too late",
    status: 400,
    code: "authorization_too_far_ahead",
    members: (stage) => ({ timestamp: `v2:0:${stage.nowMs() + 3_600_001}` }),
  },
  {
    name: "a root key that is not a key",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ root_pubkey: "z0" }),
    pointers: ["/root_pubkey"],
  },
  {
    name: "no root key when no method supplies one",
    status: 400,
    code: "invalid_request",
    members: (_, own) => ({ root_pubkey: undefined, did_document: { id: own.did } }),
    pointers: ["/root_pubkey"],
  },
  {
    name: "a root key of small order",
    status: 422,
    code: "document_invalid",
    spoil: () => ({ root_pubkey: smallOrderKey }),
  },
  {
    name: "a first method that holds no Ed25519 key",
    status: 422,
    code: "document_invalid",
    members: (_, own) => ({
      root_pubkey: undefined,
      did_document: {
        id: own.did,
        verificationMethod: [{ ...methodWith(own, "a"), type: "Other" }],
      },
    }),
  },
  {
    name: "authentication without its method",
    status: 422,
    code: "document_invalid",
    members: (_, own) => ({ did_document: { id: own.did, authentication: ["#a"] } }),
  },
  {
    name: "six methods",
    status: 422,
    code: "document_invalid",
    members: (_, own) => ({
      did_document: {
        id: own.did,
        verificationMethod: ["a", "b", "c", "d", "e", "f"].map((x) => methodWith(own, x)),
      },
    }),
  },
  {
    name: "a bad document before a bad alias",
    status: 422,
    code: "document_invalid",
    members: (_, own) => ({ did_document: { id: own.did, authentication: ["#a"] } }),
    spoil: () => ({ alias: "not an alias" }),
  },
  {
    name: "an alias against the grammar",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ alias: "not an alias" }),
    pointers: ["/alias"],
  },
  {
    name: "an alias of another DID",
    status: 409,
    code: "alias_taken",
    members: (stage) => ({ alias: aliasOf(stage.standing) }),
  },
  {
    name: "an alias that the operator reserves",
    status: 403,
    code: "alias_reserved",
    members: () => ({ alias: "Admin" }),
  },
  {
    name: "a signature of a stranger",
    status: 403,
    code: "invalid_signature",
    members: () => ({ root_pubkey: renderPublicKey(keyOf("a stranger").publicKey) }),
  },
];

const registrationScenarios: readonly Scenario[] = [
  ...accepted.map(
    ({ name, members }): Scenario => ({
      name: `is accepted ${name}, and settles`,
      route: register,
      status: 202,
      act: (stage) => {
        const own = newcomer();
        return sendRegistration(stage, own, members(stage, own));
      },
      check: expectPending,
    }),
  ),
  ...refused.map(
    ({ name, status, code, members, spoil, pointers }): Scenario => ({
      name: `refuses ${name}`,
      route: register,
      status,
      code,
      ...(pointers === undefined ? {} : { pointers }),
      act: (stage) => {
        const own = newcomer();
        return sendRegistration(stage, own, members?.(stage, own), spoil?.(stage, own));
      },
    }),
  ),
  {
    name: "refuses a DID that is registered, before the signature is looked at",
    route: register,
    status: 409,
    code: "did_already_registered",
    act: (stage) =>
      sendRegistration(stage, stage.standing, {}, { timestamp: String(stage.nowMs()) }),
  },
  {
    name: "refuses another registration while one is pending, before the signature is looked at",
    route: register,
    status: 409,
    code: "registration_pending",
    act: async (stage) => {
      const own = newcomer();
      const members = { did_document: { ...simpleDocument(own), service: [] } };
      return stage.beforeBlock(async () => {
        await sendRegistration(stage, own);
        return sendRegistration(
          stage,
          own,
          {},
          { ...members, timestamp: `v2:0:${stage.nowMs() + 1_000}` },
        );
      });
    },
  },
  {
    name: "answers the same registration again with the same transaction, whatever its timestamp",
    route: register,
    status: 202,
    act: async (stage) => {
      const own = newcomer();
      return stage.beforeBlock(async () => {
        const first = await sendRegistration(stage, own);
        const second = await sendRegistration(stage, own, {
          timestamp: `v2:0:${stage.nowMs() + 1_000}`,
        });
        expect(second.body["tx_id"]).toBe(first.body["tx_id"]);
        return second;
      });
    },
  },
  {
    name: "wants a valid proof of the repetition too",
    route: register,
    status: 403,
    code: "invalid_signature",
    act: async (stage) => {
      const own = newcomer();
      return stage.beforeBlock(async () => {
        await sendRegistration(stage, own);
        return sendRegistration(stage, own, {}, { timestamp: String(stage.nowMs()) });
      });
    },
  },
  {
    name: "does not revive a deleted DID with its old proof",
    route: register,
    status: 409,
    code: "document_stale",
    act: async (stage) => {
      const own = newcomer();
      const body = registerBodyOf(own, stage.nowMs());
      await stage.settle(await stage.ask("POST", "/register-did", body));
      const path = `/dids/${own.did}`;
      const deletion = await sendUpdate(stage, {
        identity: own,
        action: "delete_did",
        method: "DELETE",
        path,
        members: {},
      });
      await stage.settle(deletion);
      expect(
        (await stage.ask("GET", `/registration-status/${own.did}`)).body["registration_status"],
      ).toBe("missing");
      return stage.ask("POST", "/register-did", body);
    },
  },
  ...outages(register, (stage) => sendRegistration(stage, newcomer())),
];

/** Where a network may register three at once. */
export const paceScenarios: readonly Scenario[] = [
  {
    name: "refuses a network that registers too many at once",
    route: register,
    status: 429,
    code: "rate_limited",
    act: async (stage) => {
      const tries = 10;
      for (let i = 1; i < tries; i++) {
        const reply = await sendRegistration(stage, newcomer());
        if (reply.status === 429) return reply;
      }
      return sendRegistration(stage, newcomer());
    },
    check: (reply) => expect(reply.headers.get("retry-after")).toBe("1"),
  },
];

/** While the Directory is not open, which ends with the scenario. */
const barred = (
  name: string,
  code: FaultCode,
  registration: "invite" | "closed",
  invitation?: string,
): Scenario => ({
  name,
  route: register,
  status: 403,
  code,
  act: async (stage) => {
    const headers: Record<string, string> =
      invitation === undefined ? {} : { "svc-invitation": invitation };
    stage.settings.registration = registration;
    const reply = await stage.ask(
      "POST",
      "/register-did",
      registerBodyOf(newcomer(), stage.nowMs()),
      headers,
    );
    stage.settings.registration = "open";
    return reply;
  },
});

const barredScenarios: readonly Scenario[] = [
  barred("refuses who is not invited", "invitation_required", "invite"),
  barred("refuses an invitation that nobody made", "invitation_invalid", "invite", "guessed"),
  barred("refuses everybody when closed", "registration_closed", "closed", "any"),
];

// ------------------------------------------------------------------------------------------ status

const status = "GET /registration-status/:did";

const statusScenarios: readonly Scenario[] = [
  {
    name: "answers missing for a DID that nobody registered",
    route: status,
    status: 200,
    act: (stage) => stage.ask("GET", `/registration-status/${stage.unknown.did}`),
    check: ({ body }, stage) =>
      expect(body).toEqual({
        did: stage.unknown.did,
        source: "chain",
        registered: false,
        registration_status: "missing",
      }),
  },
  {
    name: "answers pending with the transaction until the chain confirms",
    route: status,
    status: 200,
    act: async (stage) => {
      const own = newcomer();
      const reply = await stage.beforeBlock(async () => {
        const taken = await sendRegistration(stage, own);
        const { body } = await stage.ask(
          "GET",
          `/registration-status/${encodeURIComponent(own.did)}`,
        );
        const pending = {
          registered: false,
          registration_status: "pending",
          tx_id: taken.body["tx_id"],
        };
        expect(body).toMatchObject(pending);
        return taken;
      });
      await stage.settle(reply);
      return stage.ask("GET", `/registration-status/${own.did}`);
    },
    check: ({ body }) =>
      expect(body).toMatchObject({
        registered: true,
        registration_status: "confirmed",
        version: 1,
      }),
  },
  {
    name: "refuses a malformed DID",
    route: status,
    status: 400,
    code: "invalid_did",
    act: (stage) => stage.ask("GET", "/registration-status/did:svc:0OIl"),
  },
  outages(status, (stage) =>
    stage.ask("GET", `/registration-status/${stage.standing.did}`),
  )[0] as Scenario,
];

export const registrationAreaScenarios: readonly Scenario[] = [
  ...registrationScenarios,
  ...barredScenarios,
  ...statusScenarios,
];
