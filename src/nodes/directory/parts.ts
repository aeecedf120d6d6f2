/**
 * What the routes of the Directory share: their stores and settings, the common part of a route,
 * the steps of every change (body, path, the DID that both must name, submission), and the versions
 * of proofs: which ones this Directory accepts on its ledger, and what version 3 binds.
 * Source: interface "Endpoints" ("For every body that carries `did`"), rules
 * section 4, docs/ledger.md 1.8.
 */

import type { Static, TSchema } from "@sinclair/typebox";
import type { Config } from "../../config/schema.ts";
import type { VerifySignature } from "../../core/codec/bytes.ts";
import { type Did, parseDid, parseDidUrl } from "../../core/codec/did.ts";
import { parseJson } from "../../core/codec/json.ts";
import { secondMs } from "../../core/codec/time.ts";
import { badInput, type Fault, type FaultCode, fault, isFault } from "../../core/fault.ts";
import type { AccountId, LedgerProofs } from "../../core/ledger/account.ts";
import { deletesDid, type LedgerCall } from "../../core/ledger/calls.ts";
import {
  type ProofBinding,
  type ProofTimestamp,
  type ProofVersion,
  proofLifeMsMax,
} from "../../core/ledger/document-codec.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { withSignedText } from "../../core/message/signed-text.ts";
import { acceptedAnswer } from "../../core/schema/directory.ts";
import { compileShape } from "../../core/schema/schema.ts";
import type { Ledger, Receipts, Replay, Submission } from "../../storage/contract.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import type { Invitations } from "../operations/invitations.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { HomesOf } from "../parties/foreign.ts";
import type { Members } from "../parties/members.ts";
import { bytesOfDay, createRateLimiter, isUnlimited } from "../parties/rates.ts";
import type { AliasRules } from "./aliases.ts";

export type DirectorySettings = Config["directory"];

export type DirectoryParts = Pick<HomesOf, "homes"> & {
  readonly ledger: Ledger;
  readonly receipts: Receipts;
  readonly replay: Replay;
  /** Verifies the proofs of updates. */
  readonly verify: VerifySignature;
  readonly settings: DirectorySettings;
  /** The operator's block list. */
  readonly blocks?: Pick<Blocks, "checkClient" | "checkDid" | "checkParties">;
  readonly invitations: Pick<Invitations, "claim" | "createForDevice">;
  /** Without it, those of the ledger alone. */
  readonly aliases?: AliasRules;
  /** Whom members turn to, and by what rules; read at each request, because a reload changes it. */
  readonly operator?: Pick<Config["operator"], "contact" | "rules">;
  /** Learns of each registration, and says who is a member. */
  readonly members?: Pick<Members, "registered" | "of">;
  readonly limits: Pick<Config["limits"], "clock_skew">;
  /** Notes durably that a DID is being deleted; the returned function takes it back. */
  readonly expectDeletion?: (did: Did) => Promise<() => Promise<void>>;
  /** Called with every call that was accepted. */
  readonly onSubmitted?: (call: LedgerCall) => void;
};

/**
 * Documents are the largest bodies: 16 KiB of SCALE as hex, or the same as JSON with long escapes.
 */
export const directoryBodyBytesMax = 128 * 1024;

// ------------------------------------------------------------------------------------------ routes

type DirectoryPlan = Omit<Route, "tag" | "capacity"> & {
  /** Alias authorization is not final, and every answer to an alias operation states this. */
  readonly unstable?: boolean;
};

/**
 * Codes of every route that names a DID in its path. A ledger that can't be read
 * is 502, whatever keeps it.
 */
export const pathCodes = [
  "invalid_did",
  "chain_unavailable",
] as const satisfies readonly FaultCode[];

export function directoryRoute({ unstable = false, codes = [], ...plan }: DirectoryPlan): Route {
  // A client of a blocked network writes nothing.
  const own = [
    ...new Set([...codes, ...(plan.method === "GET" ? [] : (["policy_denied"] as const))]),
  ];
  return {
    ...plan,
    tag: "Directory",
    capacity: "normal",
    codes: own,
    ...(plan.request === undefined ? {} : { bodyBytesMax: directoryBodyBytesMax }),
    ...(unstable ? { answerHeaders: { "svc-stability": "unstable" } } : {}),
  };
}

/**
 * Puts the share of bytes in front of a route that writes: 429 `rate_limited`. Records stay for
 * ever, so the scarce thing is room.
 * Source: rules section 4 ("Growth of the ledger").
 */
export function withinDayBytes(settings: DirectorySettings): (route: Route) => Route {
  const limiter = createRateLimiter(bytesOfDay(settings.network_day_bytes));
  const check = ({ client, network, nowMs, body }: Call): Fault | null => {
    if (isUnlimited(client, settings)) return null;
    const waitMs = limiter.claim(storingNetwork(network), nowMs, body.length);
    if (waitMs === 0) return null;
    const detail = "this client network has written its share of bytes of a day";
    return fault("rate_limited", detail, { retryAfterSeconds: Math.ceil(waitMs / secondMs) });
  };
  return (route) =>
    route.method === "GET"
      ? route
      : { ...route, handle: (call) => check(call) ?? route.handle(call) };
}

// ---------------------------------------------------------------------------------------- decoding

/** The body as JSON of the wanted shape. Refuses with `invalid_json` and `invalid_request`. */
export function decodeBody<T>(call: Call, parseShape: (value: unknown) => T | Fault): T | Fault {
  const json = parseJson(call.body);
  return isFault(json) ? json : parseShape(json);
}

export function pathValue(call: Call, name: string): string {
  return call.params[name] ?? "";
}

/** A handler that gets the DID of the path. Refuses with `invalid_did`, the code of `pathCodes`. */
export function ofDid(
  handle: (did: Did, call: Call) => Promise<Answer | Fault>,
): (call: Call) => Promise<Answer | Fault> {
  return async (call) => {
    const did = parseDid(pathValue(call, "did"));
    return isFault(did) ? did : handle(did, call);
  };
}

/**
 * The DID of the path, once the body names the same. Refuses with `invalid_did`
 * and `path_body_mismatch`.
 */
export function bindDid(call: Call, bodyDid: string, name = "did"): Did | Fault {
  const did = parseDid(pathValue(call, name));
  if (isFault(did) || did === bodyDid) return did;
  return badInput("path_body_mismatch", "/did", "differs from the DID in the path");
}

/**
 * The absolute component id that a path value names. A slash is not part of it, encoded or not, so
 * that no two readers of a path can split it differently.
 */
export function parsePathId(text: string, did: Did): string | Fault {
  const id = text.includes("/") ? null : parseDidUrl(text, did);
  return id ?? fault("invalid_request", "the path must name a component id of this DID");
}

// ------------------------------------------------------------------------------------------- times

type EndRule = { readonly aheadMsMax: number; readonly pointer: string };

/**
 * An end that is named must lie ahead, but not far. `authorization_expired`,
 * `authorization_too_far_ahead`.
 */
export function checkEnd(endMs: bigint, nowMs: number, rule: EndRule): Fault | null {
  if (endMs <= BigInt(nowMs)) return badInput("authorization_expired", rule.pointer, "has passed");
  if (endMs <= BigInt(nowMs + rule.aheadMsMax)) return null;
  return badInput(
    "authorization_too_far_ahead",
    rule.pointer,
    `is more than ${rule.aheadMsMax / 1_000} s ahead`,
  );
}

/**
 * A timestamp without an end must lie within the skew of the clock, either way. The same two codes.
 */
export function checkFreshness(timestampMs: number, nowMs: number, skewMs: number): Fault | null {
  if (timestampMs < nowMs - skewMs)
    return badInput("authorization_expired", "/timestamp", "is too old");
  if (timestampMs <= nowMs + skewMs) return null;
  return badInput("authorization_too_far_ahead", "/timestamp", "is too far in the future");
}

/** A proof of version 1 is dated near the clock; the others end soon. */
export function checkProofTime(time: ProofTimestamp, nowMs: number, skewMs: number): Fault | null {
  if (time.version === "v1") return checkFreshness(time.timestampMs, nowMs, skewMs);
  return checkEnd(time.expiryMs, nowMs, { aheadMsMax: proofLifeMsMax, pointer: "/timestamp" });
}

// ----------------------------------------------------------------------------------------- changes

/** A change of a DID, once its request is decoded and checked. */
export type Change = {
  readonly call: LedgerCall;
  /** What the answer names besides DID and submission. */
  readonly named: {
    readonly action?: string;
    readonly alias?: string;
    readonly extrinsic?: string;
  };
  /** The bytes that the signature in the body covers. */
  readonly signed?: () => Uint8Array | Promise<Uint8Array>;
  /** Where the DID takes one. */
  readonly newAlias?: string;
};

type ChangePlan<S extends TSchema> = Pick<
  DirectoryPlan,
  "method" | "path" | "id" | "summary" | "headers" | "credential"
> & {
  readonly request: S;
  /** On top of those of every change. */
  readonly codes: readonly FaultCode[];
  readonly unstable?: boolean;
  /** Path value that holds the DID. */
  readonly subject?: string;
  readonly decide: (
    body: Static<S>,
    did: Did,
    call: Call,
  ) => Promise<Change | Fault> | Change | Fault;
};

const changeCodes = [
  ...pathCodes,
  "path_body_mismatch",
  "did_not_found",
  "did_deactivated",
  "chain_submission_rejected",
  "rate_limited",
  "storage_full",
] as const satisfies readonly FaultCode[];

/** A route that submits a change: 202 when the ledger has accepted it. */
export function changeRoute<S extends TSchema & { static: { readonly did: string } }>(
  parts: DirectoryParts,
  { subject = "did", decide, ...plan }: ChangePlan<S>,
): Route {
  const parseShape: (json: unknown) => Static<S> | Fault = compileShape(plan.request);
  return directoryRoute({
    ...plan,
    answer: [202, "The ledger has accepted the change; it is not settled yet.", acceptedAnswer],
    codes: [...changeCodes, ...plan.codes],
    handle: async (call) => {
      const body = decodeBody(call, parseShape);
      if (isFault(body)) return body;
      const did = bindDid(call, body.did, subject);
      if (isFault(did)) return did;
      const change = await decide(body, did, call);
      if (isFault(change)) return change;
      const claim =
        change.newAlias && (await parts.aliases?.claim(did, change.newAlias, call.nowMs));
      if (isFault(claim)) return claim;
      const submission = await submit(parts, change.call, plan.id);
      if (isFault(submission) && typeof claim === "function") await claim();
      if (isFault(submission))
        return explainSignature(submission, (await change.signed?.()) ?? new Uint8Array(0));
      const { txHash: tx_hash } = submission;
      return {
        status: 202,
        json: { status: "accepted", did, ...change.named, tx_hash, message: acceptedMessage },
      };
    },
  });
}

const acceptedMessage = "Accepted for submission; GET /submissions/{tx_hash} reports its outcome";

/**
 * Hands a call to the ledger, which keeps it under `label`: the name of the
 * operation in `GET /submissions`.
 */
export async function submit(
  { ledger, expectDeletion, onSubmitted }: DirectoryParts,
  call: LedgerCall,
  label: string,
): Promise<Submission | Fault> {
  const takeBack = deletesDid(call) ? await expectDeletion?.(call.did) : undefined;
  const submission = await ledger.submit(call, label);
  if (isFault(submission)) await takeBack?.();
  else onSubmitted?.(call);
  return submission;
}

/** A refusal of a signature shows which bytes were verified; any other refusal stays as it is. */
export function explainSignature(refusal: Fault, signed: Uint8Array): Fault {
  return refusal.code === "invalid_signature" ? withSignedText(refusal, signed) : refusal;
}

// ------------------------------------------------------------------------------ versions of proofs

/** The ledger, its proofs and the account that a proof is for. */
export type Binding = ProofBinding & {
  readonly submitter: AccountId;
  readonly proofs: LedgerProofs;
};

export async function readBinding(ledger: Ledger): Promise<Binding> {
  const [proofs, submitter] = await Promise.all([ledger.proofs(), ledger.operator()]);
  return { proofs, submitter, genesisHash: proofs.genesisHash };
}

/** The versions of the registration proof that this Directory accepts, the best first. */
export function acceptedVersions(
  settings: DirectorySettings,
  proofs: LedgerProofs,
): readonly ProofVersion[] {
  const bound: readonly ProofVersion[] = proofs.bound ? ["v3"] : [];
  const older: readonly ProofVersion[] = proofs.plain ? ["v2", "v1"] : [];
  return [...bound, ...older].filter(
    (version) => settings.registration_proofs?.includes(version) ?? true,
  );
}

/**
 * Whether a preparation makes version 3: for a DID that needs it, and where the ledger accepts
 * nothing else. Otherwise it makes the older ones, because clients of the family compare what they
 * sign with the form that they know.
 */
export function isBound(did: Did, { proofs }: Binding): boolean {
  return !proofs.plain || (proofs.selfCertifying && isSelfCertifying(did));
}
