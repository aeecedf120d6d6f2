/**
 * Scenarios of preparation. A client that knows no SCALE prepares, signs the bytes, adds the
 * signature and submits to the route of the answer: each action is submitted once that way, and
 * settles.
 */
import { expect } from "bun:test";
import { encodeBase64 } from "../../../src/core/codec/bytes.ts";
import type { FaultCode } from "../../../src/core/fault.ts";
import {
  type Json,
  type Reply,
  registerBodyOf,
  simpleDocument,
  updates,
} from "../../support/directory.ts";
import type { Identity } from "../../support/identity.ts";
import { outages } from "./outages.ts";
import { newcomer } from "./registration.scenarios.ts";
import { sampleOf } from "./samples.ts";
import {
  aliasOf,
  richDocument,
  type Scenario,
  type Stage,
  sendUpdate,
  smallOrderKey,
} from "./stage.ts";

const prepare = "POST /dids/:did/prepare";
const prepareRegistration = "POST /register-did/prepare";

/** Whom something was prepared for, by DID. */
const askers = new Map<unknown, Identity>();

/**
 * Signs what was prepared, adds the signature, and submits it as the answer says; it is accepted
 * and settles.
 */
async function expectSettled({ body: prepared }: Reply, stage: Stage): Promise<Reply> {
  const reply = await submit(stage, prepared);
  expect({ status: reply.status, code: reply.body["code"] }).toEqual({
    status: 202,
    code: undefined,
  });
  expect(await stage.settle(reply)).toMatchObject({ state: "finalized", reason: null });
  return reply;
}

async function submit(stage: Stage, prepared: Json): Promise<Reply> {
  const message = Uint8Array.fromHex(String(prepared["payload_to_sign"]).slice(2));
  const signature = encodeBase64((askers.get(prepared["did"]) as Identity).root.sign(message));
  const { method, path } = prepared["submit"] as { method: string; path: string };
  return stage.ask(method, path, { ...(prepared["request"] as Json), signature });
}

function ask(stage: Stage, identity: Identity, action: string, members: Json = {}): Promise<Reply> {
  askers.set(identity.did, identity);
  return stage.ask("POST", `/dids/${encodeURIComponent(identity.did)}/prepare`, {
    did: identity.did,
    action,
    ...members,
  });
}

const domains: Readonly<Record<string, string>> = {
  UpdateRootPubkey: "root_pubkey_nonce",
  add_alias: "alias_nonce",
  update_alias: "alias_nonce",
  remove_alias: "alias_nonce",
  deactivate_did: "control_nonce",
  delete_did: "control_nonce",
};

function journey(
  action: string,
  domain: string | null,
  membersOf: (identity: Identity) => Json,
): Scenario {
  return {
    name: `makes ${action} ready for signing, and what is signed settles`,
    route: prepare,
    status: 200,
    act: async (stage) => {
      const identity = await stage.fresh();
      return ask(stage, identity, action, membersOf(identity));
    },
    check: async (reply, stage) => {
      expect(reply.body).toMatchObject({ action, nonce_domain: domain });
      expect(reply.body["expires_at"]).toBe(new Date(stage.nowMs() + 300_000).toISOString());
      expect(reply.body["request"]).not.toHaveProperty("signature");
      await expectSettled(reply, stage);
    },
  };
}

const journeys: readonly Scenario[] = [
  ...updates.map((update) =>
    journey(update.action, domains[update.action] ?? "document_nonce", sampleOf(update).members),
  ),
  journey("replace_document", null, (identity) => ({ document: simpleDocument(identity) })),
  {
    name: "names another signer when asked to",
    route: prepare,
    status: 200,
    act: async (stage) => {
      const identity = await stage.fresh();
      return ask(stage, identity, "RemoveService", {
        id: "#cache",
        signer_key_id: `${identity.did}#k1`,
      });
    },
    check: async (reply, stage) => {
      const did = String(reply.body["did"]);
      expect(reply.body["request"]).toMatchObject({ signer_key_id: `${did}#k1` });
      const path = `/dids/${encodeURIComponent(did)}/document/services/${encodeURIComponent(`${did}#cache`)}`;
      expect(reply.body["submit"]).toEqual({ method: "DELETE", path });
      await expectSettled(reply, stage);
    },
  },
];

type Refusal = readonly [
  name: string,
  status: number,
  code: FaultCode,
  action: string,
  members: Json | ((stage: Stage) => Json),
  about?: (stage: Stage) => Identity,
];

const service = { id: "#cache" };
const refusals: readonly Refusal[] = [
  ["an unknown action", 400, "action_mismatch", "add_device", { device_id: "x" }],
  [
    "an action that is no text",
    400,
    "action_mismatch",
    "RemoveService",
    { ...service, action: { toString: 1 } },
  ],
  ["an update whose proof is in headers", 400, "action_mismatch", "set_alias", { alias: "x" }],
  ["a body without the members of its action", 400, "invalid_request", "RemoveService", {}],
  [
    "members of another action",
    400,
    "invalid_request",
    "RemoveService",
    { ...service, alias: "x" },
  ],
  [
    "another DID than the path names",
    400,
    "path_body_mismatch",
    "RemoveService",
    (stage) => ({ ...service, did: stage.unknown.did }),
  ],
  [
    "a signer that is neither root nor absolute",
    400,
    "invalid_request",
    "RemoveService",
    { ...service, signer_key_id: "#k1" },
  ],
  [
    "a full document by another signer than root",
    400,
    "invalid_request",
    "replace_document",
    (stage) => ({
      document: { id: stage.standing.did },
      signer_key_id: `${stage.standing.did}#k1`,
    }),
  ],
  [
    "a document that breaks a rule",
    422,
    "document_invalid",
    "replace_document",
    (stage) => ({ document: { id: stage.standing.did, authentication: ["#a"] } }),
  ],
  [
    "a blob that is not a document",
    422,
    "document_invalid",
    "replace_document",
    { doc_blob: "0x00" },
  ],
  [
    "a DID that is not registered",
    404,
    "did_not_found",
    "RemoveService",
    service,
    (stage) => stage.unknown,
  ],
  [
    "a deactivated DID",
    422,
    "did_deactivated",
    "RemoveService",
    service,
    (stage) => stage.deactivated,
  ],
];

// ------------------------------------------------------------------------------------ registration

function askRegistration(stage: Stage, identity: Identity, members: Json = {}): Promise<Reply> {
  askers.set(identity.did, identity);
  const body = { did: identity.did, did_document: richDocument(identity), ...members };
  return stage.ask("POST", "/register-did/prepare", body);
}

type RegistrationRefusal = readonly [
  name: string,
  status: number,
  code: FaultCode,
  members: Json | ((stage: Stage) => Json),
  about?: (stage: Stage) => Identity,
];

const registrationRefusals: readonly RegistrationRefusal[] = [
  ["an unknown member", 400, "invalid_request", { timestamp: "now" }],
  ["a DID of another method", 400, "invalid_did", { did: "did:web:example.com" }],
  ["a key of small order", 422, "document_invalid", { root_pubkey: smallOrderKey }],
  ["an alias of another DID", 409, "alias_taken", (stage) => ({ alias: aliasOf(stage.standing) })],
  ["a DID that is registered", 409, "did_already_registered", {}, (stage) => stage.standing],
];

/** Registered with a proof that ends in 55 minutes, and deleted. */
async function registerAndDelete(stage: Stage, own: Identity): Promise<void> {
  const body = registerBodyOf(own, stage.nowMs(), {
    timestamp: `v2:0:${stage.nowMs() + 3_300_000}`,
  });
  const registered = await stage.ask("POST", "/register-did", body);
  expect(registered.body["code"]).toBeUndefined();
  await stage.settle(registered);
  const path = `/dids/${own.did}`;
  const deletion = {
    identity: own,
    action: "delete_did",
    method: "DELETE",
    path,
    members: {},
  } as const;
  await stage.settle(await sendUpdate(stage, deletion));
}

const registrationScenarios: readonly Scenario[] = [
  {
    name: "makes a registration ready for signing, and what is signed settles",
    route: prepareRegistration,
    status: 200,
    act: (stage) => {
      const own = newcomer();
      return askRegistration(stage, own, { alias: ` ${aliasOf(own).toUpperCase()}` });
    },
    check: async (prepared, stage) => {
      const own = askers.get(prepared.body["did"]) as Identity;
      const submitTo = { method: "POST", path: "/register-did" };
      expect(prepared.body).toMatchObject({
        action: "register",
        nonce_domain: null,
        submit: submitTo,
      });
      expect(prepared.body["request"]).toEqual({
        did: own.did,
        alias: aliasOf(own),
        root_pubkey: expect.any(String),
        did_document: richDocument(own),
        timestamp: `v2:0:${stage.nowMs() + 300_000}`,
      });
      expect(
        (await stage.ask("GET", `/registration-status/${own.did}`)).body["registration_status"],
      ).toBe("missing");
      await expectSettled(prepared, stage);
      const { body } = await stage.ask("GET", `/resolve/${own.did}`);
      expect(body["aliases"]).toEqual([aliasOf(own)]);
    },
  },
  {
    name: "refuses another document than the one that was prepared",
    route: "POST /register-did",
    status: 403,
    code: "invalid_signature",
    act: async (stage) => {
      const own = newcomer();
      const { body } = await askRegistration(stage, own);
      const request = { ...(body["request"] as Json), did_document: simpleDocument(own) };
      return submit(stage, { ...body, request });
    },
  },
  {
    name: "prepares what is taken after a deletion, though an earlier proof ends later than the default",
    route: prepareRegistration,
    status: 200,
    act: async (stage) => {
      const own = newcomer();
      await registerAndDelete(stage, own);
      return askRegistration(stage, own);
    },
    check: async (prepared, stage) => {
      expect(Date.parse(String(prepared.body["expires_at"]))).toBeGreaterThan(
        stage.nowMs() + 3_000_000,
      );
      await expectSettled(prepared, stage);
      const { body } = await stage.ask("GET", `/resolve/${prepared.body["did"]}`);
      expect(body["version"]).toBe(1);
    },
  },
  ...registrationRefusals.map(
    ([name, status, code, members, about]): Scenario => ({
      name: `refuses ${name}`,
      route: prepareRegistration,
      status,
      code,
      act: (stage) =>
        askRegistration(
          stage,
          about?.(stage) ?? newcomer(),
          typeof members === "function" ? members(stage) : members,
        ),
    }),
  ),
  outages(prepareRegistration, (stage) => askRegistration(stage, newcomer()))[0] as Scenario,
];

export const prepareScenarios: readonly Scenario[] = [
  ...journeys,
  ...refusals.map(
    ([name, status, code, action, members, about]): Scenario => ({
      name: `refuses ${name}`,
      route: prepare,
      status,
      code,
      act: (stage) =>
        ask(
          stage,
          about?.(stage) ?? stage.standing,
          action,
          typeof members === "function" ? members(stage) : members,
        ),
    }),
  ),
  {
    name: "refuses a path without a DID of this service",
    route: prepare,
    status: 400,
    code: "invalid_did",
    act: (stage) =>
      stage.ask("POST", "/dids/did:svc:0/prepare", {
        did: "did:svc:0",
        action: "RemoveService",
        ...service,
      }),
  },
  outages(prepare, (stage) => ask(stage, stage.standing, "RemoveService", service))[0] as Scenario,
  ...registrationScenarios,
];

/** Where version 2 proofs are switched off, and where version 1 is. */
export const versionScenarios: Readonly<Record<"v1" | "v2", readonly Scenario[]>> = {
  v1: [
    {
      name: "prepares no version 1 registration, which needs no SCALE",
      route: prepareRegistration,
      status: 400,
      code: "invalid_request",
      act: (stage) => askRegistration(stage, newcomer()),
    },
  ],
  v2: [
    {
      name: "refuses a version 1 registration where it is switched off",
      route: "POST /register-did",
      status: 400,
      code: "invalid_request",
      pointers: ["/timestamp"],
      act: async (stage) => {
        const { body } = await askRegistration(stage, newcomer());
        const request = {
          ...(body["request"] as Json),
          timestamp: new Date(stage.nowMs()).toISOString(),
        };
        return submit(stage, { ...body, request });
      },
    },
  ],
};
