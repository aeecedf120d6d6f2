/**
 * Where Relay and Cache learn about DIDs: the ledger of this process, or a Directory over HTTP.
 * A remembered answer is at most 30 s old, an absence or a failure at most 2 s, and one request per DID is in flight at
 * a time. A source that can't be reached throws `unavailable`; `null` is known absence.
 * Source: rules section 7.
 */
import { decodeUtf8 } from "../core/codec/bytes.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue, parseJson, parseU64, parseU128 } from "../core/codec/json.ts";
import { isFault } from "../core/fault.ts";
import {
  type DeliveryPolicy,
  type DeliveryPolicyLinks,
  type DidDocument,
  type ExpirationBehavior,
  expirationBehaviors,
  type PersonaPolicy,
} from "../core/ledger/account.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { parseDocument } from "../core/schema/identity.ts";
import { readCapped } from "../core/std/bounded.ts";
import type { Bus } from "../storage/bus.ts";
import { type LedgerReader, StoreError } from "../storage/contract.ts";
import { createMemo, type Memo } from "./memo.ts";
import { changedSubject } from "./signals.ts";

/** What admission and delivery need to know of a DID, as recipient or as sender. */
export type Subject = {
  readonly did: Did;
  readonly document: DidDocument | null;
  readonly deactivated: boolean;
  readonly links: DeliveryPolicyLinks | null;
  /** How often the DID was deleted. An envelope belongs to the life for which it was admitted. */
  readonly life: number;
};

export interface RecipientSource {
  subject(did: Did): Promise<Subject | null>;
  /** The policy of a recipient (key: its DID) or of a tag (key: the tag). */
  policy(scope: "recipient" | "tag", key: string): Promise<DeliveryPolicy | null>;
  persona(key: string): Promise<PersonaPolicy | null>;
  /** Policies count time in blocks. */
  blockTimeMs(): Promise<number>;
  /** Identifies the state that answers are read from; answers stay the same while it does. `null` where asking is costly. */
  state(): Promise<string | null>;
}

/** Subjects that a cache may hold, and what they may take of memory: strangers choose the size of their documents. */
export const subjectsMax = 10_000;
export const subjectBytesMax = 64 * 1024 ** 2;

/** About what a subject takes of memory: five times its JSON (measured: a document of 905 bytes takes 5.9 KB). */
export function subjectBytes(subject: Subject | null): number {
  if (subject === null) return 256;
  return 1_024 + 5 * JSON.stringify([subject.document, subject.links]).length;
}

/** The ledger of this process, which remembers what it has decoded. */
export function ledgerRecipients(ledger: LedgerReader): RecipientSource {
  return {
    async subject(did) {
      const { record, life } = await ledger.account(did);
      if (record === null) return null;
      return { did, document: record.document, deactivated: record.deactivated, links: record.links, life };
    },
    policy: (scope, key) => ledger.policy(scope, key),
    persona: (key) => ledger.policy("persona", key),
    blockTimeMs: async () => (await ledger.head()).blockTimeMs,
    state: async () => ledger.version() ?? (await ledger.head()).finalized.hash,
  };
}

// ------------------------------------------------------------------------------------------- a Directory

type DirectoryOptions = {
  /** Injected by tests. */
  readonly fetch?: (url: string, init: BunFetchRequestInit) => Promise<Response>;
  /** A clock that never steps back. */
  readonly now?: () => number;
  readonly failureMs?: number;
  readonly timeoutMs?: number;
  /** Answers remembered for each kind of question. */
  readonly entriesMax?: number;
  /** Announces which DIDs have changed, so that they are asked for again at once. */
  readonly bus?: Bus;
};

/** Permission must not outlive its withdrawal for longer. */
const memoMs = 30_000;
/** An absence or a failure: a DID that is looked up just before its registration is found soon. */
const absentMs = 2_000;
/** A document of 16 KiB and its record stay far below this as JSON. */
const answerBytesMax = 256 * 1024;

/**
 * A Directory's public endpoints. Its address is the operator's own choice, so the rules for strange
 * destinations don't apply, but redirects and proxies are refused nevertheless.
 */
export function directoryRecipients(url: string, options: DirectoryOptions = {}): RecipientSource {
  const base = withoutTrailingSlashes(url);
  const memo = <T>(
    path: (key: string) => string,
    read: (answer: DirectoryReply, key: string) => T,
    { valueMs = () => memoMs, bytesOf = () => 512 }: ValueRules<T> = {},
  ): Memo<T> =>
    createMemo({
      load: async (key) => read(await ask(`${base}${path(key)}`, options), key),
      valueMs,
      failureMs: options.failureMs ?? absentMs,
      entriesMax: options.entriesMax ?? subjectsMax,
      bytes: { max: subjectBytesMax, of: bytesOf },
      loadsMax: 256,
      now: options.now ?? (() => performance.now()),
    });
  const subjects = memo((did) => `/resolve/${encodeURIComponent(did)}`, readSubject, {
    valueMs: (subject) => (subject === null ? absentMs : memoMs),
    bytesOf: subjectBytes,
  });
  const policies = {
    recipient: memo((key) => `/delivery-policies/recipients/${encodeURIComponent(key)}`, readDeliveryPolicy),
    tag: memo((key) => `/delivery-policies/tags/${encodeURIComponent(key)}`, readDeliveryPolicy),
  };
  const personas = memo((key) => `/delivery-policies/personas/${encodeURIComponent(key)}`, readPersonaPolicy, {
    bytesOf: (policy) => 512 + 5 * JSON.stringify(policy?.allowedRelays ?? []).length,
  });
  const limits = memo(() => "/limits", readBlockTime);
  const memos = [subjects, policies.recipient, policies.tag, personas];
  options.bus?.subscribe(
    changedSubject,
    (message) => {
      const did = decodeUtf8(message) ?? "";
      for (const one of memos) one.forget(did);
      return undefined;
    },
    { missed: () => memos.forEach((one) => void one.clear()) },
  );
  return {
    subject: (did) => subjects.get(did),
    // Only DIDs have policies, so other names need no request.
    policy: async (scope, key) => (isDid(key) ? policies[scope].get(key) : null),
    persona: async (key) => (isDid(key) ? personas.get(key) : null),
    blockTimeMs: () => limits.get(""),
    state: async () => null,
  };
}

/** How long an answer is remembered, and what it takes of memory. */
type ValueRules<T> = { readonly valueMs?: (value: T) => number; readonly bytesOf?: (value: T) => number };

type DirectoryReply = { readonly status: number; readonly body: JsonObject };

function unusable(): StoreError {
  return new StoreError("unavailable", "the Directory's answer is invalid");
}

async function ask(url: string, options: DirectoryOptions): Promise<DirectoryReply> {
  const send = options.fetch ?? fetch;
  let status: number;
  let bytes: Uint8Array | "over";
  try {
    const response = await send(url, {
      headers: { accept: "application/json" },
      redirect: "error",
      proxy: false,
      signal: AbortSignal.timeout(options.timeoutMs ?? 5_000),
    });
    status = response.status;
    bytes = await readCapped(response.body, { bytesMax: answerBytesMax });
  } catch (cause) {
    throw new StoreError("unavailable", "the Directory can't be reached", { cause });
  }
  const body = bytes === "over" ? null : parseJson(bytes);
  if (body === null || isFault(body) || !isJsonObject(body)) throw unusable();
  return { status, body };
}

/**
 * Absence is known only by the Directory's own code: another 404 may come from a proxy
 * or a wrong address, and must not read as "no such recipient".
 */
function saysAbsent(answer: DirectoryReply): boolean {
  const { code } = answer.body;
  return answer.status === 404 && (code === "did_not_found" || code === "policy_not_found");
}

function presentBody(answer: DirectoryReply): JsonObject {
  if (answer.status !== 200) throw unusable();
  return answer.body;
}

function readSubject(answer: DirectoryReply, key: string): Subject | null {
  if (saysAbsent(answer)) return null;
  const { document, deactivated, delivery_policy_links: links, life } = presentBody(answer);
  const did = key as Did;
  const parsed = document === null || document === undefined ? null : parseDocument(document, did);
  if (isFault(parsed) || typeof deactivated !== "boolean") throw unusable();
  return { did, document: parsed, deactivated, links: readLinks(links), life: whole(life, 0) ?? 0 };
}

function readLinks(value: JsonValue | undefined): DeliveryPolicyLinks | null {
  if (value === null || value === undefined) return null;
  if (!isJsonObject(value)) throw unusable();
  const { recipient_policy: recipientPolicy, tag_policies: tagPolicies, persona_policies: personaPolicies } = value;
  if (recipientPolicy !== null && recipientPolicy !== undefined && typeof recipientPolicy !== "string")
    throw unusable();
  return {
    recipientPolicy: recipientPolicy ?? null,
    tagPolicies: texts(tagPolicies),
    personaPolicies: texts(personaPolicies),
  };
}

function texts(value: JsonValue | undefined): string[] {
  if (!Array.isArray(value)) throw unusable();
  return value.map((entry) => {
    if (typeof entry !== "string") throw unusable();
    return entry;
  });
}

/** A whole number of at least `min`, or `null` when the member is absent. */
function whole(value: JsonValue | undefined, min: number): number | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < min) throw unusable();
  return value;
}

function required<T>(value: T | null): T {
  if (value === null) throw unusable();
  return value;
}

function behavior(value: JsonValue | undefined): ExpirationBehavior | null {
  if (value === undefined || value === null) return null;
  return required(expirationBehaviors.find((one) => one === value) ?? null);
}

function amount(value: JsonValue | undefined): bigint {
  return required(typeof value === "string" ? parseU128(value) : null);
}

function readPolicyMembers(answer: DirectoryReply): JsonObject {
  const { policy } = presentBody(answer);
  if (!isJsonObject(policy)) throw unusable();
  return policy;
}

function readDeliveryPolicy(answer: DirectoryReply): DeliveryPolicy | null {
  if (saysAbsent(answer)) return null;
  const policy = readPolicyMembers(answer);
  const pricing = policy["release_pricing"];
  if (typeof policy["cache_eligible"] !== "boolean") throw unusable();
  return {
    effectiveTtlBlocks: required(whole(policy["effective_ttl"], 1)),
    maxMessageBytes: required(whole(policy["max_message_bytes"], 1)),
    cacheEligible: policy["cache_eligible"],
    replication: whole(policy["replication"], 1),
    encryptedHeaderPreviewBytes: whole(policy["encrypted_header_preview_bytes"], 0),
    releasePricing: isJsonObject(pricing)
      ? { baseFee: amount(pricing["base_fee"]), perKibFee: amount(pricing["per_kib_fee"]) }
      : null,
    expirationBehavior: behavior(policy["expiration_behavior"]),
  };
}

function readPersonaPolicy(answer: DirectoryReply): PersonaPolicy | null {
  if (saysAbsent(answer)) return null;
  const policy = readPolicyMembers(answer);
  const { release_pricing: pricing, expiration_behavior: expiration, allowed_relays: relays } = policy;
  const asset = isJsonObject(pricing) ? pricing["asset"] : null;
  return {
    releasePricing:
      isJsonObject(pricing) && typeof asset === "string" ? { asset, amount: amount(pricing["amount"]) } : null,
    expirationBehavior: isJsonObject(expiration) ? readPersonaExpiration(expiration) : null,
    allowedRelays: relays === undefined || relays === null ? [] : texts(relays),
  };
}

function readPersonaExpiration(value: JsonObject): NonNullable<PersonaPolicy["expirationBehavior"]> {
  const { mode, retain_until: until } = value;
  const retainUntilMs =
    until === undefined || until === null ? null : required(typeof until === "string" ? parseU64(until) : null);
  return { mode: required(behavior(mode)), retainUntilMs };
}

function readBlockTime(answer: DirectoryReply): number {
  return required(whole(presentBody(answer)["block_time_ms"], 1));
}
