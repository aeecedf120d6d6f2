/**
 * What the operator account does on behalf of a DID: primary alias, policy links, and the policies
 * of a recipient, a tag or a persona; and what anybody may read of those policies.
 * Order of checks: shape, path equals body, form and time of the proof in headers (or the
 * permission to go without), who signed, nonce of the proof, then the rules of the ledger.
 * Source: interface "Recipient delivery policy" and "Persona delivery policy",
 * rules section 4.
 */
import type { Static, TSchema } from "@sinclair/typebox";
import { type Did, parseDid } from "../../core/codec/did.ts";
import { type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "../../core/ledger/account.ts";
import type { OwnerCall } from "../../core/ledger/calls.ts";
import { parseAlias } from "../../core/ledger/intents.ts";
import {
  decideUpdateProof,
  decodeUpdateProof,
  ledgerHeader,
  proofReplayed,
  type UpdateProof,
  updateHeaders,
} from "../../core/message/proof.ts";
import { primaryAliasBody } from "../../core/schema/directory.ts";
import {
  deliveryPolicyAnswer,
  deliveryPolicyBody,
  linksBody,
  personaPolicyAnswer,
  personaPolicyBody,
} from "../../core/schema/identity.ts";
import { isTag, tagForm } from "../../core/schema/schema.ts";
import type { Call, Route } from "../http/route.ts";
import {
  normalizeDeliveryPolicy,
  normalizePersonaPolicy,
  parseLinks,
} from "../parties/policies.ts";
import { changeRoute, type DirectoryParts, directoryRoute, pathValue } from "./parts.ts";

// --------------------------------------------------------------------------------------- mutations

type OwnedSchema = TSchema & { static: { readonly did: string } };

type OwnerRow<S extends OwnedSchema> = {
  readonly extrinsic: OwnerCall["name"];
  readonly path: string;
  /** Path value that holds the DID. */
  readonly subject: string;
  readonly summary: string;
  /** On top of those of every update. */
  readonly codes?: readonly FaultCode[];
  readonly request: S;
  readonly callOf: (body: Static<S>, did: Did) => OwnerCall | Fault;
};

/** A row whose `callOf` takes what its `request` has checked. */
export type OwnerUpdateRow = Omit<OwnerRow<OwnedSchema>, "callOf"> & {
  readonly callOf: (body: never, did: Did) => OwnerCall | Fault;
};

const ownerRow = <S extends OwnedSchema>(row: OwnerRow<S>): OwnerUpdateRow => row;

export const ownerUpdates: readonly OwnerUpdateRow[] = [
  ownerRow({
    extrinsic: "set_alias",
    path: "/dids/:did/alias",
    subject: "did",
    summary: "Replace all aliases of a DID by one",
    codes: ["alias_taken"],
    request: primaryAliasBody,
    callOf: ({ alias: text }, did) => {
      const alias = parseAlias(text, "/alias");
      return isFault(alias) ? alias : { name: "set_alias", did, alias };
    },
  }),
  ownerRow({
    extrinsic: "set_delivery_policy_links",
    path: "/dids/:did/delivery-policy-links",
    subject: "did",
    summary: "Set the policy links of a DID",
    request: linksBody,
    callOf: (body, did) => {
      const links = parseLinks(body);
      return isFault(links) ? links : { name: "set_delivery_policy_links", did, ...links };
    },
  }),
  ownerRow({
    extrinsic: "set_persona_policy",
    path: "/delivery-policies/personas/:personaDid",
    subject: "personaDid",
    summary: "Set the policy of a persona",
    request: personaPolicyBody,
    callOf: ({ policy }, did) => ({
      name: "set_persona_policy",
      did,
      policy: normalizePersonaPolicy(policy),
    }),
  }),
  ownerRow({
    extrinsic: "set_delivery_policy",
    path: "/delivery-policies/recipients/:did",
    subject: "did",
    summary: "Set the policy of a recipient",
    request: deliveryPolicyBody,
    callOf: ({ policy }, did) => ({
      name: "set_delivery_policy",
      did,
      policy: normalizeDeliveryPolicy(policy),
    }),
  }),
  ownerRow({
    extrinsic: "set_tag_policy",
    path: "/delivery-policies/tags/:tag",
    subject: "tag",
    summary: "Set the policy of a tag that is a registered DID",
    request: deliveryPolicyBody,
    callOf: ({ policy }, did) => ({
      name: "set_tag_policy",
      did,
      policy: normalizeDeliveryPolicy(policy),
    }),
  }),
];

export function ownerRoutes(parts: DirectoryParts): Route[] {
  return ownerUpdates.map(({ extrinsic, callOf, codes = [], ...plan }) =>
    changeRoute(parts, {
      ...plan,
      method: "PUT",
      id: extrinsic,
      headers: updateProofHeaders,
      credential: "updateProof",
      codes: [...updateProofCodes, ...codes],
      unstable: extrinsic === "set_alias",
      decide: async (body, did, call) => {
        const owned = callOf(body as never, did);
        if (isFault(owned)) return owned;
        return (await checkOwner(parts, owned, call)) ?? { call: owned, named: { extrinsic } };
      },
    }),
  );
}

/**
 * The proof of an update: its form and time, who signed it, its nonce, which
 * counts as used from here on.
 */
async function checkOwner(
  parts: DirectoryParts,
  { name, did }: OwnerCall,
  call: Call,
): Promise<Fault | null> {
  const { ledger, replay, verify } = parts;
  const proof = decodeHeaderProof(call, { operation: name, did }, parts);
  if (isFault(proof)) return proof;
  const [{ record }, { genesisHash }] = await Promise.all([ledger.account(did), ledger.proofs()]);
  const claim = proof === null ? null : await decideUpdateProof(proof, record, genesisHash, verify);
  if (isFault(claim)) return claim;
  if (claim !== null && !(await replay.claim(claim.tag, claim.untilMs, call.nowMs)))
    return proofReplayed();
  // To the policies of a ledger a deactivated DID is like a missing one; the
  // caller learns which it is.
  return record?.deactivated ? fault("did_deactivated", "the DID is deactivated") : null;
}

// ------------------------------------------------------------------------------- proofs in headers

export const updateProofHeaders = [...Object.values(updateHeaders), ledgerHeader];

const updateProofCodes = [
  "unsigned_update_denied",
  "proof_missing",
  "proof_invalid",
  "proof_expired",
  "proof_not_authorized",
  "proof_replayed",
] as const satisfies readonly FaultCode[];

/**
 * The proof of the headers in good form and in time. One that is presented is checked in every
 * mode; `null` when none is needed and none was sent.
 */
function decodeHeaderProof(
  call: Call,
  update: { readonly operation: string; readonly did: Did },
  { settings, limits }: DirectoryParts,
): UpdateProof | null | Fault {
  if (Object.values(updateHeaders).some((name) => call.headers.has(name))) {
    const ledger = call.headers.get(ledgerHeader);
    const rule = { ...update, ledger, body: call.body, skewMs: limits.clock_skew };
    return decodeUpdateProof((name) => call.headers.get(name), rule, call.nowMs);
  }
  if (settings.unsigned_updates === "allow") return null;
  return fault(
    "unsigned_update_denied",
    `this update needs a proof in the headers ${updateProofHeaders.join(", ")}`,
  );
}

// ------------------------------------------------------------------------------------------- reads

/** What each scope names in its path, and how the name is read. */
const policyReads = {
  recipient: { subject: "did", parseKey: parseDid, schema: deliveryPolicyAnswer },
  persona: { subject: "personaDid", parseKey: parseDid, schema: personaPolicyAnswer },
  tag: { subject: "tag", parseKey: parseTag, schema: deliveryPolicyAnswer },
} as const;

export function policyReadRoutes(parts: DirectoryParts): Route[] {
  return (["recipient", "persona", "tag"] as const).map((scope) => policyRoute(parts, scope));
}

function policyRoute(parts: DirectoryParts, scope: PolicyScope): Route {
  const { subject, parseKey, schema } = policyReads[scope];
  return directoryRoute({
    method: "GET",
    path: `/delivery-policies/${scope}s/:${subject}`,
    id: `${scope}Policy`,
    summary: `The delivery policy of a ${scope}`,
    answer: [200, "The policy at the finalized head.", schema],
    codes: [
      scope === "tag" ? "invalid_request" : "invalid_did",
      "policy_not_found",
      "chain_unavailable",
    ],
    handle: async (call) => {
      const key = parseKey(pathValue(call, subject));
      if (isFault(key)) return key;
      const policy = await parts.ledger.policy(scope, key);
      if (policy === null)
        return fault("policy_not_found", `there is no ${scope} policy under this name`);
      const rendered =
        "allowedRelays" in policy ? renderPersonaPolicy(policy) : renderDeliveryPolicy(policy);
      return { status: 200, json: { did: key, scope, policy: rendered } };
    },
  });
}

/** Any tag of an envelope may be asked for; only those that are DIDs can have a policy. */
function parseTag(text: string): string | Fault {
  return isTag(text) ? text : fault("invalid_request", `a tag must be ${tagForm}`);
}

/** Options that were not set read as their defaults. */
function renderDeliveryPolicy(policy: DeliveryPolicy): Record<string, unknown> {
  return {
    effective_ttl: policy.effectiveTtlBlocks,
    max_message_bytes: policy.maxMessageBytes,
    cache_eligible: policy.cacheEligible,
    replication: policy.replication ?? 1,
    encrypted_header_preview_bytes: policy.encryptedHeaderPreviewBytes ?? 0,
    release_pricing: {
      base_fee: (policy.releasePricing?.baseFee ?? 0n).toString(),
      per_kib_fee: (policy.releasePricing?.perKibFee ?? 0n).toString(),
    },
    expiration_behavior: policy.expirationBehavior ?? "DeleteOnExpiry",
  };
}

function renderPersonaPolicy(policy: PersonaPolicy): Record<string, unknown> {
  const { releasePricing: pricing, expirationBehavior: expiration, allowedRelays } = policy;
  const retainUntilMs = expiration?.retainUntilMs ?? null;
  return {
    ...(pricing === null
      ? {}
      : { release_pricing: { asset: pricing.asset, amount: pricing.amount.toString() } }),
    ...(expiration === null
      ? {}
      : {
          expiration_behavior: {
            mode: expiration.mode,
            ...(retainUntilMs === null ? {} : { retain_until: retainUntilMs.toString() }),
          },
        }),
    allowed_relays: allowedRelays,
  };
}
