/**
 * Scenarios of the invitations that a member makes for own devices, while the Directory registers
 * who is invited.
 */
import { expect, spyOn } from "bun:test";
import type { FaultCode } from "../../../src/core/fault.ts";
import { StoreError } from "../../../src/storage/contract.ts";
import { type Json, proofHeadersOf, type Reply } from "../../support/directory.ts";
import { type Identity, keyOf } from "../../support/identity.ts";
import { outages } from "./outages.ts";
import { encoded, type Scenario, type Stage } from "./stage.ts";

const route = "POST /dids/:did/device-invitations";

type Sending = {
  readonly identity?: Identity;
  readonly path?: string;
  readonly spoil?: Json;
  /** Members of the proof to change; `null` sends none. */
  readonly proof?: Json | null;
  readonly registration?: Stage["settings"]["registration"];
};

/** The Directory is open again afterwards. */
async function send(stage: Stage, sending: Sending = {}): Promise<Reply> {
  const { identity = stage.standing, spoil = {}, proof = {}, registration = "invite" } = sending;
  const path = sending.path ?? encoded(identity.did);
  const body = JSON.stringify({ did: identity.did, ...spoil });
  const timestamp = new Date(stage.nowMs()).toISOString();
  const claims = { operation: "invite_device", body, timestamp, ...proof };
  const headers = proof === null ? {} : proofHeadersOf(identity, claims);
  // The stage's identities are registered before its first answer, while the Directory is open.
  await stage.ask("GET", "/limits");
  stage.settings.registration = registration;
  const reply = await stage.ask("POST", `/dids/${path}/device-invitations`, body, headers);
  stage.settings.registration = "open";
  return reply;
}

const refusals: readonly (readonly [
  name: string,
  status: number,
  code: FaultCode,
  sending: (stage: Stage) => Sending,
])[] = [
  ["no proof", 401, "proof_missing", () => ({ proof: null })],
  ["another operation", 401, "proof_invalid", () => ({ proof: { operation: "set_alias" } })],
  ["another body", 401, "proof_invalid", () => ({ proof: { body: "{}" } })],
  ["a stranger's key", 401, "proof_invalid", () => ({ proof: { signer: keyOf("a stranger") } })],
  [
    "a proof outside the clock skew",
    401,
    "proof_expired",
    (stage) => ({ proof: { timestamp: String(stage.nowMs() - 300_001) } }),
  ],
  [
    "a DID that is not registered",
    403,
    "proof_not_authorized",
    ({ unknown }) => ({ identity: unknown }),
  ],
  [
    "a deactivated DID",
    403,
    "proof_not_authorized",
    ({ deactivated }) => ({ identity: deactivated }),
  ],
  ["an unknown member", 400, "invalid_request", () => ({ spoil: { uses: 500 } })],
  [
    "another DID than the path names",
    400,
    "path_body_mismatch",
    ({ unknown }) => ({ spoil: { did: unknown.did } }),
  ],
  ["a path without a DID", 400, "invalid_did", () => ({ path: "news" })],
  ["an open Directory", 400, "invalid_request", () => ({ registration: "open" })],
  ["a closed Directory", 403, "registration_closed", () => ({ registration: "closed" })],
];

export const deviceScenarios: readonly Scenario[] = [
  {
    name: "gives a code",
    route,
    status: 201,
    act: (stage) => send(stage),
    check: ({ body }) => expect(Object.keys(body).sort()).toEqual(["expires_at", "invitation"]),
  },
  ...refusals.map(
    ([name, status, code, sending]): Scenario => ({
      name: `refuses ${name}`,
      route,
      status,
      code,
      act: (stage) => send(stage, sending(stage)),
    }),
  ),
  {
    name: "refuses a proof that was used before",
    route,
    status: 409,
    code: "proof_replayed",
    act: async (stage) => {
      const proof = { nonce: crypto.randomUUID() };
      expect((await send(stage, { proof })).status).toBe(201);
      return send(stage, { proof });
    },
  },
  {
    name: "refuses a ninth in a day",
    route,
    status: 429,
    code: "rate_limited",
    act: async (stage) => {
      const identity = await stage.fresh();
      for (let i = 0; i < 8; i++) expect((await send(stage, { identity })).status).toBe(201);
      return send(stage, { identity });
    },
  },
  {
    name: "says that the store is full",
    route,
    status: 507,
    code: "storage_full",
    act: async (stage) => {
      const { receipts } = stage.store.capabilities;
      if (receipts === undefined) throw new Error("no receipts");
      const identity = await stage.fresh();
      const full = spyOn(receipts, "put").mockRejectedValueOnce(new StoreError("full", "no room"));
      const reply = await send(stage, { identity });
      full.mockRestore();
      return reply;
    },
  },
  outages(route, (stage) => send(stage))[0] as Scenario,
];
