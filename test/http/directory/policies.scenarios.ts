/**
 * Scenarios of what the operator account does for a DID (primary alias, policy links, policies),
 * with and without proofs in headers, and of the public reads of policies.
 */
import { expect } from "bun:test";
import type { FaultCode } from "../../../src/core/fault.ts";
import { type OwnerUpdateRow, ownerUpdates } from "../../../src/nodes/directory/policy.ts";
import { type Json, proofHeadersOf, type Reply, updateBodyOf } from "../../support/directory.ts";
import { type Identity, keyOf } from "../../support/identity.ts";
import { outages } from "./outages.ts";
import { aliasOf, encoded, type Scenario, type Stage, termsAt } from "./stage.ts";

const fullPolicy = {
  effective_ttl: 14_400,
  max_message_bytes: 1_048_576,
  cache_eligible: true,
  replication: 2,
  encrypted_header_preview_bytes: 256,
  release_pricing: { base_fee: "1000000000000000", per_kib_fee: "0" },
  expiration_behavior: "KeepHeaderPreview",
};

const personaPolicy = {
  release_pricing: { asset: "SVC", amount: "340282366920938463463374607431768211455" },
  expiration_behavior: { mode: "TombstoneReference", retain_until: "18446744073709551615" },
  allowed_relays: ["relay-1", "relay-2"],
};

type Sample = {
  readonly members: (identity: Identity) => Json;
  /** What is read afterwards, and where. */
  readonly path: (identity: Identity) => string;
  readonly effect: (identity: Identity) => Json;
};

const samples: Readonly<Record<OwnerUpdateRow["extrinsic"], Sample>> = {
  set_alias: {
    // The one that it has: the Directory's account gives no other one.
    members: (identity) => ({ alias: ` ${aliasOf(identity).toUpperCase()}` }),
    path: ({ did }) => `/resolve/${did}`,
    effect: (identity) => ({ aliases: [aliasOf(identity)], version: 2 }),
  },
  set_delivery_policy_links: {
    members: ({ did }) => ({
      delivery_policy_links: { recipient_policy: did, tag_policies: ["news"] },
    }),
    path: ({ did }) => `/resolve/${did}`,
    effect: ({ did }) => ({
      delivery_policy_links: {
        recipient_policy: did,
        tag_policies: ["news"],
        persona_policies: [],
      },
      version: 2,
    }),
  },
  set_persona_policy: {
    members: () => ({ policy: personaPolicy }),
    path: ({ did }) => `/delivery-policies/personas/${did}`,
    effect: ({ did }) => ({ did, scope: "persona", policy: personaPolicy }),
  },
  set_delivery_policy: {
    members: () => ({ policy: fullPolicy }),
    path: ({ did }) => `/delivery-policies/recipients/${did}`,
    effect: ({ did }) => ({ did, scope: "recipient", policy: fullPolicy }),
  },
  set_tag_policy: {
    members: () => ({ policy: fullPolicy }),
    path: ({ did }) => `/delivery-policies/tags/${did}`,
    effect: ({ did }) => ({ did, scope: "tag", policy: fullPolicy }),
  },
};

type Sending = {
  readonly identity?: Identity;
  readonly path?: string;
  readonly spoil?: Json;
  /** Sends proof headers; members of the proof to change, and headers to change afterwards. */
  readonly proof?: { readonly given?: Json; readonly headers?: Json };
};

function send(stage: Stage, update: OwnerUpdateRow, sending: Sending = {}): Promise<Reply> {
  const identity = sending.identity ?? stage.standing;
  const path = sending.path ?? update.path.replace(/:[A-Za-z]+/, encoded(identity.did));
  const body = JSON.stringify({
    did: identity.did,
    ...samples[update.extrinsic].members(identity),
    ...sending.spoil,
  });
  const timestamp = new Date(stage.nowMs()).toISOString();
  const claims = { operation: update.extrinsic, body, timestamp, ...sending.proof?.given };
  const signed =
    sending.proof === undefined
      ? {}
      : { ...proofHeadersOf(identity, claims), ...sending.proof.headers };
  const headers = Object.fromEntries(
    Object.entries(signed).filter(([, value]) => value !== undefined),
  );
  return stage.ask("PUT", path, body, headers as Record<string, string>);
}

async function expectApplied(stage: Stage, update: OwnerUpdateRow, reply: Reply): Promise<void> {
  const did = String(reply.body["did"]);
  expect(Object.keys(reply.body).sort()).toEqual([
    "did",
    "extrinsic",
    "message",
    "status",
    "tx_hash",
  ]);
  expect(reply.body).toMatchObject({ status: "accepted", extrinsic: update.extrinsic });
  expect(reply.headers.get("svc-stability")).toBe(
    update.extrinsic === "set_alias" ? "unstable" : null,
  );
  expect(await stage.settle(reply)).toMatchObject({ state: "finalized", call: update.extrinsic });
  const submission = await stage.ask("GET", `/submissions/${reply.body["tx_hash"]}`);
  expect(submission.body).toMatchObject({ extrinsic: update.extrinsic, state: "finalized", did });
  expect(submission.body).not.toHaveProperty("action");
  const { path, effect } = samples[update.extrinsic];
  const identity = { did } as Identity;
  const { status, body } = await stage.ask("GET", path(identity));
  expect({ status, body }).toMatchObject({ status: 200, body: effect(identity) });
}

// ----------------------------------------------------------------------------- for every operation

const proofRefusals: readonly {
  readonly name: string;
  readonly status: number;
  readonly code: FaultCode;
  readonly proof: (stage: Stage) => NonNullable<Sending["proof"]>;
}[] = [
  {
    name: "a proof without its nonce",
    status: 401,
    code: "proof_missing",
    proof: () => ({ headers: { "x-nonce": undefined } }),
  },
  {
    name: "a signature alone",
    status: 401,
    code: "proof_missing",
    proof: () => ({
      headers: { "x-key-id": undefined, "x-timestamp": undefined, "x-nonce": undefined },
    }),
  },
  {
    name: "a nonce that is too short",
    status: 401,
    code: "proof_invalid",
    proof: () => ({ given: { nonce: "short" } }),
  },
  {
    name: "a malformed timestamp",
    status: 401,
    code: "proof_invalid",
    proof: () => ({ given: { timestamp: "now" } }),
  },
  {
    name: "a proof outside the clock skew",
    status: 401,
    code: "proof_expired",
    proof: (stage) => ({ given: { timestamp: String(stage.nowMs() - 300_001) } }),
  },
  {
    name: "a proof of a key that authentication does not list",
    status: 403,
    code: "proof_not_authorized",
    proof: (stage) => ({
      given: { keyId: `${stage.standing.did}#k2`, signer: keyOf(`${stage.standing.label} k2`) },
    }),
  },
  {
    name: "a proof of a stranger",
    status: 401,
    code: "proof_invalid",
    proof: () => ({ given: { signer: keyOf("a stranger") } }),
  },
  {
    name: "a proof over another body",
    status: 401,
    code: "proof_invalid",
    proof: () => ({ given: { body: "{}" } }),
  },
  {
    name: "a proof of another operation",
    status: 401,
    code: "proof_invalid",
    proof: () => ({ given: { operation: "set_owner" } }),
  },
];

/** By a DID that has given its own alias up, so that it may get a first one. */
async function takeAnothers(stage: Stage, update: OwnerUpdateRow): Promise<Reply> {
  const [identity, { deactivated }] = [await stage.fresh(), stage];
  const alias = aliasOf(identity);
  const members = { alias, timestamp: new Date(stage.nowMs()).toISOString() };
  const removal = updateBodyOf(identity, "remove_alias", members, termsAt(stage));
  await stage.settle(
    await stage.ask("DELETE", `/dids/${encoded(identity.did)}/aliases/${alias}`, removal),
  );
  return send(stage, update, { identity, spoil: { alias: aliasOf(deactivated) }, proof: {} });
}

function commonScenarios(update: OwnerUpdateRow): Scenario[] {
  const route = `PUT ${update.path}`;
  const refused = (
    name: string,
    status: number,
    code: FaultCode,
    act: Scenario["act"],
  ): Scenario => ({
    name: `refuses ${name}`,
    route,
    status,
    code,
    act,
  });
  return [
    {
      name: "is accepted, settles and can be read",
      route,
      status: 202,
      act: async (stage) => send(stage, update, { identity: await stage.fresh() }),
      check: (reply, stage) => expectApplied(stage, update, reply),
    },
    {
      name: "is accepted with a proof of root",
      route,
      status: 202,
      act: async (stage) => send(stage, update, { identity: await stage.fresh(), proof: {} }),
      check: (reply, stage) => expectApplied(stage, update, reply),
    },
    {
      name: "is accepted with a proof of a listed method",
      route,
      status: 202,
      act: async (stage) => {
        const identity = await stage.fresh();
        return send(stage, update, { identity, proof: { given: { keyId: `${identity.did}#k1` } } });
      },
    },
    refused("a proof that was used before", 409, "proof_replayed", async (stage) => {
      const identity = await stage.fresh();
      const proof = { given: { nonce: crypto.randomUUID() } };
      expect((await send(stage, update, { identity, proof })).status).toBe(202);
      return send(stage, update, { identity, proof });
    }),
    ...(update.extrinsic === "set_alias"
      ? [
          refused("an alias of another DID", 409, "alias_taken", (stage) =>
            takeAnothers(stage, update),
          ),
        ]
      : []),
    ...proofRefusals.map(({ name, status, code, proof }) =>
      refused(name, status, code, (stage) => send(stage, update, { proof: proof(stage) })),
    ),
    refused("an unknown member", 400, "invalid_request", (stage) =>
      send(stage, update, { spoil: { extra: 1 } }),
    ),
    refused("another DID than the path names", 400, "path_body_mismatch", (stage) =>
      send(stage, update, { spoil: { did: stage.unknown.did } }),
    ),
    refused("a path without a DID", 400, "invalid_did", (stage) =>
      send(stage, update, { path: update.path.replace(/:[A-Za-z]+/, "news") }),
    ),
    refused("a DID that is not registered", 404, "did_not_found", (stage) =>
      send(stage, update, { identity: stage.unknown }),
    ),
    refused("a proof for a DID that is not registered", 403, "proof_not_authorized", (stage) =>
      send(stage, update, { identity: stage.unknown, proof: {} }),
    ),
    refused("a deactivated DID", 422, "did_deactivated", (stage) =>
      send(stage, update, { identity: stage.deactivated }),
    ),
    ...outages(route, (stage) => send(stage, update)),
  ];
}

// ---------------------------------------------------------------------------- of single operations

const updateOf = (extrinsic: OwnerUpdateRow["extrinsic"]): OwnerUpdateRow =>
  ownerUpdates.find((update) => update.extrinsic === extrinsic) as OwnerUpdateRow;

type Rule = readonly [
  extrinsic: OwnerUpdateRow["extrinsic"],
  name: string,
  spoil: Json | ((stage: Stage) => Json),
  code: FaultCode,
  status: number,
  pointer?: string,
];

const policyBreaches: readonly [name: string, policy: Json, pointer: string][] = [
  ["no effective_ttl", { effective_ttl: undefined }, "/policy/effective_ttl"],
  ["an effective_ttl of 0", { effective_ttl: 0 }, "/policy/effective_ttl"],
  ["an effective_ttl beyond 30 days", { effective_ttl: 432_001 }, "/policy/effective_ttl"],
  ["no max_message_bytes", { max_message_bytes: undefined }, "/policy/max_message_bytes"],
  [
    "max_message_bytes beyond 16 MiB",
    { max_message_bytes: 16_777_217 },
    "/policy/max_message_bytes",
  ],
  ["no cache_eligible", { cache_eligible: undefined }, "/policy/cache_eligible"],
  ["a replication of 5", { replication: 5 }, "/policy/replication"],
  [
    "a preview beyond 4 KiB",
    { encrypted_header_preview_bytes: 4_097 },
    "/policy/encrypted_header_preview_bytes",
  ],
  [
    "a fee that is a number",
    { release_pricing: { base_fee: 1, per_kib_fee: "0" } },
    "/policy/release_pricing/base_fee",
  ],
  [
    "a fee beyond 10^15",
    { release_pricing: { base_fee: "0", per_kib_fee: "1000000000000001" } },
    "/policy/release_pricing/per_kib_fee",
  ],
  ["another behavior", { expiration_behavior: "Never" }, "/policy/expiration_behavior"],
];

const rules: readonly Rule[] = [
  [
    "set_alias",
    "an alias against the grammar",
    { alias: "@home" },
    "invalid_request",
    400,
    "/alias",
  ],
  [
    "set_delivery_policy_links",
    "both forms together",
    { tag_policies: [] },
    "invalid_request",
    400,
    "/tag_policies",
  ],
  [
    "set_delivery_policy_links",
    "nine tags",
    { delivery_policy_links: { tag_policies: [..."123456789"] } },
    "invalid_request",
    400,
    "/delivery_policy_links/tag_policies",
  ],
  [
    "set_delivery_policy_links",
    "a link that is too long",
    { delivery_policy_links: { tag_policies: ["x", "x".repeat(129)] } },
    "invalid_request",
    400,
    "/delivery_policy_links/tag_policies/1",
  ],
  [
    "set_delivery_policy_links",
    "a recipient policy of 130 bytes",
    { delivery_policy_links: { recipient_policy: "ü".repeat(65) } },
    "invalid_request",
    400,
    "/delivery_policy_links/recipient_policy",
  ],
  [
    "set_delivery_policy_links",
    "nine personas at the top level",
    { delivery_policy_links: undefined, persona_policies: [..."123456789"] },
    "invalid_request",
    400,
    "/persona_policies",
  ],
  [
    "set_delivery_policy_links",
    "an empty link",
    { delivery_policy_links: { tag_policies: [""] } },
    "invalid_request",
    400,
    "/delivery_policy_links/tag_policies/0",
  ],
  [
    "set_persona_policy",
    "an amount that is not a number",
    { policy: { release_pricing: { asset: "SVC", amount: "1.5" } } },
    "invalid_request",
    400,
    "/policy/release_pricing/amount",
  ],
  [
    "set_persona_policy",
    "another mode",
    { policy: { expiration_behavior: { mode: "Never" } } },
    "invalid_request",
    400,
    "/policy/expiration_behavior/mode",
  ],
  [
    "set_persona_policy",
    "17 relays",
    { policy: { allowed_relays: Array.from({ length: 17 }, (_, i) => `r${i}`) } },
    "invalid_request",
    400,
    "/policy/allowed_relays",
  ],
  [
    "set_persona_policy",
    "a relay of more than 128 bytes",
    { policy: { allowed_relays: ["relay-1", "ä".repeat(65)] } },
    "invalid_request",
    400,
    "/policy/allowed_relays/1",
  ],
  [
    "set_persona_policy",
    "an asset of more than 32 bytes",
    { policy: { release_pricing: { asset: "ä".repeat(17), amount: "1" } } },
    "invalid_request",
    400,
    "/policy/release_pricing/asset",
  ],
  ...(["set_delivery_policy", "set_tag_policy"] as const).flatMap((extrinsic) =>
    policyBreaches.map(
      ([name, spoiled, pointer]): Rule => [
        extrinsic,
        name,
        { policy: { ...fullPolicy, ...spoiled } },
        "invalid_request",
        400,
        pointer,
      ],
    ),
  ),
];

const ruleScenarios: readonly Scenario[] = rules.map(
  ([extrinsic, name, spoil, code, status, pointer]) => ({
    name: `refuses ${name}`,
    route: `PUT ${updateOf(extrinsic).path}`,
    status,
    code,
    ...(pointer === undefined ? {} : { pointers: [pointer] }),
    act: (stage) =>
      send(stage, updateOf(extrinsic), {
        spoil: typeof spoil === "function" ? spoil(stage) : spoil,
      }),
  }),
);

const flatLinks: Scenario = {
  name: "takes the links at the top level too, and clears what is absent",
  route: `PUT ${updateOf("set_delivery_policy_links").path}`,
  status: 202,
  act: async (stage) => {
    const { did } = await stage.fresh();
    const path = `/dids/${did}/delivery-policy-links`;
    const first = await stage.ask("PUT", path, {
      did,
      tag_policies: ["news"],
      persona_policies: [did],
    });
    await stage.settle(first);
    expect((await stage.ask("GET", `/resolve/${did}`)).body["delivery_policy_links"]).toEqual({
      recipient_policy: null,
      tag_policies: ["news"],
      persona_policies: [did],
    });
    return stage.ask("PUT", path, { did });
  },
  check: async (reply, stage) => {
    await stage.settle(reply);
    const { body } = await stage.ask("GET", `/resolve/${reply.body["did"]}`);
    const links = { recipient_policy: null, tag_policies: [], persona_policies: [] };
    expect(body["delivery_policy_links"] ?? links).toEqual(links);
  },
};

const defaults: Scenario = {
  name: "reads absent options as their defaults",
  route: `PUT ${updateOf("set_delivery_policy").path}`,
  status: 202,
  act: async (stage) => {
    const { did } = await stage.fresh();
    const policy = { effective_ttl: 1, max_message_bytes: 1, cache_eligible: false };
    return stage.ask("PUT", `/delivery-policies/recipients/${did}`, { did, policy });
  },
  check: async (reply, stage) => {
    await stage.settle(reply);
    const { body } = await stage.ask("GET", `/delivery-policies/recipients/${reply.body["did"]}`);
    expect(body["policy"]).toEqual({
      effective_ttl: 1,
      max_message_bytes: 1,
      cache_eligible: false,
      replication: 1,
      encrypted_header_preview_bytes: 0,
      release_pricing: { base_fee: "0", per_kib_fee: "0" },
      expiration_behavior: "DeleteOnExpiry",
    });
  },
};

// ------------------------------------------------------------------------------------------- reads

const reads = [
  ["recipients", "did"],
  ["personas", "personaDid"],
  ["tags", "tag"],
] as const;

const readScenarios: readonly Scenario[] = reads.flatMap(([kind, name]): Scenario[] => {
  const route = `GET /delivery-policies/${kind}/:${name}`;
  const read = (key: string) => (stage: Stage) =>
    stage.ask("GET", `/delivery-policies/${kind}/${encoded(key)}`);
  const absent: Scenario = {
    name: "answers 404 when there is no policy",
    route,
    status: 404,
    code: "policy_not_found",
    act: (stage) => read(stage.unknown.did)(stage),
  };
  const unreadable = outages(route, (stage) => read(stage.standing.did)(stage)).slice(0, 1);
  if (kind !== "tags") {
    return [
      absent,
      ...unreadable,
      {
        name: "refuses a malformed DID",
        route,
        status: 400,
        code: "invalid_did",
        act: read("news"),
      },
    ];
  }
  return [
    absent,
    ...unreadable,
    {
      name: "answers 404 for a tag that is not a DID",
      route,
      status: 404,
      code: "policy_not_found",
      act: read("news"),
    },
    {
      name: "refuses a tag that is too long",
      route,
      status: 400,
      code: "invalid_request",
      act: read("x".repeat(97)),
    },
    {
      name: "refuses a tag of 49 characters in 98 bytes",
      route,
      status: 400,
      code: "invalid_request",
      act: read("ü".repeat(49)),
    },
    ...["a\u0000", "a\u0085"].map(
      (tag): Scenario => ({
        name: `refuses a tag with the control character ${JSON.stringify(tag.at(-1))}`,
        route,
        status: 400,
        code: "invalid_request",
        act: read(tag),
      }),
    ),
  ];
});

export const policyScenarios: readonly Scenario[] = [
  ...ownerUpdates.flatMap(commonScenarios),
  ...ruleScenarios,
  flatLinks,
  defaults,
  ...readScenarios,
];

/** For a Directory that takes no update without a proof. */
export const deniedScenarios: readonly Scenario[] = ownerUpdates.map((update) => ({
  name: "refuses an update without a proof where the operator wants one",
  route: `PUT ${update.path}`,
  status: 403,
  code: "unsigned_update_denied",
  act: (stage) => send(stage, update),
}));
