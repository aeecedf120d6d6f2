/**
 * The Directory: identity records, policies and authorization counters over a ledger. This file has
 * the table of its routes, the limits it applies, and the reads: nonces, the resolved record, the
 * holder of an alias, the outcome of a submission. Reads need no proof. Known absence is 404; a
 * ledger that can't be read is 502.
 * Source: interface "Directory" and "Authorization nonces", rules section 4 ("Reads").
 */
import { encodeHex0x, renderPublicKey } from "../../core/codec/bytes.ts";
import { type Did, normalizeAlias } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import {
  type CounterName,
  type Counters,
  type DidRecord,
  renderDocument,
} from "../../core/ledger/account.ts";
import { counters } from "../../core/ledger/actions.ts";
import type { LedgerCallName } from "../../core/ledger/calls.ts";
import { proofLifeMsMax } from "../../core/ledger/document-codec.ts";
import {
  aliasAnswer,
  type DirectoryLimits,
  noncesAnswer,
  resolvedAnswer,
  submissionAnswer,
} from "../../core/schema/directory.ts";
import type { Submission } from "../../storage/contract.ts";
import type { Answer, Route } from "../http/route.ts";
import { foreignAlias, foreignDid, readsHome } from "../parties/foreign.ts";
import type { Foreign } from "../parties/homes.ts";
import { checkClientRate, createRateLimiter, limitOf, type RateLimit } from "../parties/rates.ts";
import { deviceInvitationRoute } from "./device-invitation.ts";
import {
  acceptedVersions,
  type DirectoryParts,
  directoryBodyBytesMax,
  directoryRoute,
  ofDid,
  pathCodes,
  pathValue,
  readBinding,
  withinDayBytes,
} from "./parts.ts";
import { ownerRoutes, ownerUpdates, policyReadRoutes } from "./policy.ts";
import { prepareRegistrationRoute, prepareUpdateRoute } from "./prepare.ts";
import { keyProofRoute } from "./proof.ts";
import { registrationRoutes } from "./register.ts";
import { documentRoute, updateRoutes } from "./update.ts";

export type Directory = {
  readonly routes: readonly Route[];
  /** What the Directory adds to `GET /limits`. */
  readonly limits: () => Promise<DirectoryLimits>;
};

export function createDirectory(parts: DirectoryParts): Directory {
  const changes = [
    ...updateRoutes(parts),
    documentRoute(parts),
    ...ownerRoutes(parts),
    deviceInvitationRoute(parts),
  ];
  const others = [
    ...[noncesRoute, keyProofRoute, resolveRoute, aliasRoute, submissionRoute].map((route) =>
      route(parts),
    ),
    ...policyReadRoutes(parts),
    prepareRegistrationRoute(parts),
    prepareUpdateRoute(parts),
  ];
  const { settings } = parts;
  const checkBlocked: Check = ({ client }) => parts.blocks?.checkClient(client) ?? null;
  // Changes wait in one pool for the next block: one network must leave room there for the others.
  const paced = (limit: () => RateLimit): Check => {
    const limiter = createRateLimiter(limit);
    return (request) => checkBlocked(request) ?? checkClientRate(limiter, request, settings);
  };
  const checkChange = paced(limitOf(settings, "change_rate", "change_burst"));
  const checkRegistration = paced(limitOf(settings, "registration_rate", "registration_burst"));
  // Asked before the body is read. What is public stays public.
  const limited = (check: Check) => (route: Route) =>
    route.method === "GET" ? route : { ...route, rateLimit: check };
  const bounded = withinDayBytes(settings);
  const writes = [
    ...changes.map(limited(checkChange)),
    ...registrationRoutes(parts).map(limited(checkRegistration)),
  ];
  return {
    routes: [...writes.map(bounded), ...others.map(limited(checkBlocked))],
    limits: () => directoryLimits(parts),
  };
}

type Check = NonNullable<Route["rateLimit"]>;

/**
 * The block time is among them: Relays and Caches elsewhere read policies
 * here, which count in blocks.
 */
async function directoryLimits({ ledger, settings, limits, operator }: DirectoryParts) {
  const [{ blockTimeMs }, { proofs, submitter }] = await Promise.all([
    ledger.head(),
    readBinding(ledger),
  ]);
  return {
    block_time_ms: blockTimeMs,
    max_directory_body_bytes: directoryBodyBytesMax,
    max_clock_skew_seconds: limits.clock_skew / 1_000,
    max_authorization_ahead_seconds: settings.authorization_max_ahead / 1_000,
    max_proof_life_seconds: proofLifeMsMax / 1_000,
    registration_proofs: [...acceptedVersions(settings, proofs)],
    authorization_proofs: [...(proofs.bound ? ["v3"] : []), ...(proofs.plain ? ["plain"] : [])],
    genesis_hash: encodeHex0x(proofs.genesisHash),
    operator_account: encodeHex0x(submitter),
    self_certifying_dids: proofs.selfCertifying,
    unsigned_updates: settings.unsigned_updates,
    registration: settings.registration,
    registration_rate_per_second: settings.registration_rate,
    registration_burst: settings.registration_burst,
    change_rate_per_second: settings.change_rate,
    change_burst: settings.change_burst,
    operator_contact: operator?.contact ?? null,
    operator_rules: operator?.rules ?? null,
  };
}

// ------------------------------------------------------------------------------------------- reads

const unknownDid = () => fault("did_not_found", "the DID is not registered");

function noncesRoute(parts: DirectoryParts): Route {
  return directoryRoute({
    method: "GET",
    path: "/dids/:did/nonces",
    id: "nonces",
    summary: "Counter values that the next authorizations of a DID must have",
    answer: [200, "The counters at the finalized head.", noncesAnswer],
    codes: [...pathCodes, "did_not_found"],
    handle: ofDid(async (did) => {
      const account = await parts.ledger.account(did);
      if (account.record === null) return unknownDid();
      return { status: 200, json: { did, ...renderCounters(account.counters) } };
    }),
  });
}

/** The members of an answer: u64 as text, under the names of the interface. */
function renderCounters(values: Counters): Record<string, string> {
  const names = Object.keys(counters) as CounterName[];
  return Object.fromEntries(
    names.map((name) => [counters[name].nonceDomain, values[name].toString()]),
  );
}

function resolveRoute(parts: DirectoryParts): Route {
  return readsHome(
    directoryRoute({
      method: "GET",
      path: "/resolve/:did",
      id: "resolve",
      summary: "The record of a DID",
      answer: [200, "The record at the finalized head.", resolvedAnswer],
      codes: [...pathCodes, "did_not_found"],
      handle: ofDid(async (did, call) => {
        const { record, life } = await parts.ledger.account(did);
        if (record === null) return renderForeign(await foreignDid(parts, did, call));
        return {
          status: 200,
          body: { contentType: "application/json", content: recordText(did, record, life) },
        };
      }),
    }),
  );
}

/** What its key proof shows of a DID that is at home elsewhere. */
function renderForeign(foreign: Foreign | Fault): Answer | Fault {
  if (isFault(foreign)) return foreign;
  const { did, home, document, rootKey, deactivated, checkedAtMs } = foreign;
  const shown = {
    document: renderDocument(document),
    aliases: [],
    root_pubkey: renderPublicKey(rootKey),
    version: 1,
  };
  const rest = {
    deactivated,
    updated_at: renderTimestamp(checkedAtMs),
    delivery_policy_links: null,
    home,
  };
  return { status: 200, json: { did, ...shown, ...rest } };
}

/**
 * By the record, which a ledger gives again until it changes: writing its JSON is a
 * third of what a read costs.
 */
const recordTexts = new WeakMap<DidRecord, string>();

function recordText(did: Did, record: DidRecord, life: number): string {
  const known = recordTexts.get(record);
  if (known !== undefined) return known;
  const text = JSON.stringify({ did, ...renderRecord(record), ...(life === 0 ? {} : { life }) });
  recordTexts.set(record, text);
  return text;
}

function renderRecord({ links, ...record }: DidRecord): Record<string, unknown> {
  return {
    document: record.document === null ? null : renderDocument(record.document),
    aliases: record.aliases,
    root_pubkey: record.rootPubkey === null ? null : renderPublicKey(record.rootPubkey),
    version: Number(record.version),
    deactivated: record.deactivated,
    updated_at: renderTimestamp(Number(record.updatedAtMs)),
    delivery_policy_links: links && {
      recipient_policy: links.recipientPolicy,
      tag_policies: links.tagPolicies,
      persona_policies: links.personaPolicies,
    },
  };
}

function aliasRoute(parts: DirectoryParts): Route {
  return readsHome(
    directoryRoute({
      method: "GET",
      path: "/aliases/:alias",
      id: "alias",
      summary: "The DID of an alias",
      answer: [200, "The holder at the finalized head.", aliasAnswer],
      codes: ["invalid_request", "alias_not_found", "chain_unavailable"],
      handle: async (call) => {
        const alias = normalizeAlias(pathValue(call, "alias"));
        if (alias === null) return fault("invalid_request", "the path must name an alias");
        const foreign = await foreignAlias(parts, call);
        if (isFault(foreign)) return foreign;
        const did = foreign ?? (await parts.ledger.aliasHolder(alias));
        return did === null
          ? fault("alias_not_found", "no DID has this alias")
          : { status: 200, json: { alias, did } };
      },
    }),
  );
}

const txHashForm = /^0x[0-9a-f]{64}$/;

function submissionRoute({ ledger }: DirectoryParts): Route {
  return directoryRoute({
    method: "GET",
    path: "/submissions/:txHash",
    id: "submission",
    summary: "The outcome of a submission",
    answer: [200, "Its state, with the reason when it failed.", submissionAnswer],
    codes: ["invalid_request", "not_found", "chain_unavailable"],
    handle: async (call) => {
      const txHash = pathValue(call, "txHash").toLowerCase();
      if (!txHashForm.test(txHash))
        return fault("invalid_request", "a tx_hash must be 0x and 64 hex digits");
      const submission = await ledger.submission(txHash);
      if (submission === null) return fault("not_found", "this node does not know this submission");
      return { status: 200, json: renderSubmission(submission) };
    },
  });
}

/** Calls that the operator account signs; their operations have no `action`. */
const ownerCalls: ReadonlySet<LedgerCallName> = new Set(
  ownerUpdates.map(({ extrinsic }) => extrinsic),
);

function renderSubmission(submission: Submission): Record<string, unknown> {
  const { txHash, did, call, label, state, reason, block, submittedAtMs } = submission;
  return {
    tx_hash: txHash,
    did,
    ...(ownerCalls.has(call) ? { extrinsic: call } : { action: label }),
    ...(call === "set_document_with_proof" ? { extrinsic: call } : {}),
    state,
    reason: reason === null ? null : { code: reason.code, message: reason.detail },
    block_hash: block?.hash ?? null,
    block_number: block === null ? null : Number(block.number),
    submitted_at: renderTimestamp(submittedAtMs),
  };
}
