/**
 * Where Relay and Cache learn about DIDs: the ledger of this process, or a Directory over HTTP.
 * A remembered answer is at most 30 s old, an absence, a failure or a DID that changes at most 2 s,
 * and one request per DID is in flight at a time. A source that can't be reached throws
 * `unavailable`; `null` is known absence.
 * Source: rules section 7.
 */

import type { Static, TSchema } from "@sinclair/typebox";
import { decodeUtf8 } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { type JsonObject, jsonObjectOf } from "../../core/codec/json.ts";
import { readCapped } from "../../core/codec/stream.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import type {
  Account,
  DeliveryPolicy,
  DeliveryPolicyLinks,
  DidDocument,
  PersonaPolicy,
} from "../../core/ledger/account.ts";
import { parseHome } from "../../core/ledger/home.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import { withoutTrailingSlashes } from "../../core/message/proof.ts";
import { blockTimeShape, subjectShape } from "../../core/schema/directory.ts";
import {
  deliveryPolicyShape,
  parseDocument,
  personaPolicyShape,
} from "../../core/schema/identity.ts";
import { compileShape } from "../../core/schema/schema.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { Bus } from "../../storage/bus.ts";
import { type LedgerReader, StoreError } from "../../storage/contract.ts";
import type { AskedFor, Foreign, Homes } from "./homes.ts";
import { createMemo, type Memo } from "./memo.ts";
import { normalizeDeliveryPolicy, normalizePersonaPolicy, parseLinks } from "./policies.ts";
import { changedSubject } from "./signals.ts";

/** What admission and delivery need to know of a DID, as recipient or as sender. */
export type Subject = {
  readonly did: Did;
  readonly document: DidDocument | null;
  readonly deactivated: boolean;
  readonly links: DeliveryPolicyLinks | null;
  /** How often the DID was deleted. An envelope belongs to the life for which it was admitted. */
  readonly life: number;
  /**
   * Of a DID that is at home at another Directory: whether its home has
   * just confirmed the document.
   */
  readonly foreign?: { readonly isFresh: boolean };
};

export interface RecipientSource {
  /** `asked` helps to find a DID that is at home at another Directory. */
  subject(did: Did, asked?: AskedFor): Promise<Subject | null>;
  /** The policy of a recipient (key: its DID) or of a tag (key: the tag). */
  policy(scope: "recipient" | "tag", key: string): Promise<DeliveryPolicy | null>;
  persona(key: string): Promise<PersonaPolicy | null>;
  /** Policies count time in blocks. */
  blockTimeMs(): Promise<number>;
  /** Whether recipients that are at home at another Directory are served. */
  servesGuests(): Promise<boolean>;
  /**
   * As of the ledger: what it answers of its own people stays true while this is the same number.
   */
  stamp?(): number | null;
}

/**
 * The setting, or else whether the Directory registers everybody: who chooses people
 * chooses whose mail to keep.
 */
type GuestRules = {
  readonly setting: "own" | "any" | null;
  readonly isOpen: () => boolean;
};

const servesByRule = ({ setting, isOpen }: GuestRules): boolean =>
  setting === null ? isOpen() : setting === "any";

/**
 * Subjects that a cache may hold, and what they may take of memory: strangers choose the
 * size of their documents.
 */
export const subjectsMax = 10_000;
export const subjectBytesMax = 64 * 1024 ** 2;

/**
 * About what a subject takes of memory: five times its JSON (measured: a document of
 * 905 bytes takes 5.9 KB).
 */
export function subjectBytes(subject: Subject | null): number {
  if (subject === null) return 256;
  return 1_024 + 5 * JSON.stringify([subject.document, subject.links]).length;
}

export function personaBytes(policy: PersonaPolicy | null): number {
  return 512 + 5 * JSON.stringify(policy?.allowedRelays ?? []).length;
}

/** The ledger of this process, which remembers what it has decoded. */
export function ledgerRecipients(ledger: LedgerReader): RecipientSource {
  return {
    subject: (did) => ledger.account(did).then((account) => subjectOf(did, account)),
    policy: (scope, key) => ledger.policy(scope, key),
    persona: (key) => ledger.policy("persona", key),
    blockTimeMs: async () => (await ledger.head()).blockTimeMs,
    // The own ledger has no guests.
    servesGuests: async () => true,
    stamp: () => ledger.stamp(),
  };
}

function subjectOf(did: Did, { record, life }: Account): Subject | null {
  if (record === null) return null;
  const { document, deactivated, links } = record;
  return { did, document, deactivated, links, life };
}

/** Of a witness without other nodes. */
export const noRecipients: RecipientSource = {
  subject: async () => null,
  policy: async () => null,
  persona: async () => null,
  blockTimeMs: async () => 0,
  servesGuests: async () => false,
};

/** A source that also knows who is at home elsewhere. */
export function withHomes(
  source: RecipientSource,
  homes: Homes | undefined,
  guests: GuestRules,
): RecipientSource {
  if (homes === undefined) return source;
  const elsewhere = async (did: Did, asked: AskedFor | undefined): Promise<Subject | null> => {
    const found = await homes.find(did, asked ?? { home: null, network: "" });
    return typeof found === "string" ? null : foreignSubject(found);
  };
  return {
    ...source,
    servesGuests: async () => servesByRule(guests),
    subject: (did, asked) => source.subject(did).then((own) => own ?? elsewhere(did, asked)),
  };
}

/** Policies are not in a proof: the recipient's own nodes apply them. */
export function foreignSubject({ did, document, deactivated, isFresh }: Foreign): Subject {
  return { did, document, deactivated, links: null, life: 0, foreign: { isFresh } };
}

// ------------------------------------------------------------------------------------- a Directory

type DirectoryOptions = {
  /** Injected by tests. */
  readonly fetch?: (url: string, init: BunFetchRequestInit) => Promise<Response>;
  /** A clock that never steps back. */
  readonly now?: () => number;
  readonly failureMs?: number;
  readonly timeoutMs?: number;
  /** Answers remembered for each kind of question. */
  readonly entriesMax?: number;
  /** Announces which DIDs change, so that they are asked for again soon. */
  readonly bus?: Bus;
  /** Without it, what that Directory says of its registration counts. */
  readonly guests?: GuestRules["setting"];
};

/** Permission must not outlive its withdrawal for longer. */
const memoMs = 30_000;
/**
 * An absence, a failure, or a DID that changes: one that is looked up just before its
 * registration is found soon.
 */
const shortMs = 2_000;
/**
 * The time in which a submission becomes final. After it, and beyond so many
 * DIDs, only `memoMs` holds.
 */
const changeMs = 2 * minuteMs;
const changingMax = 1_000;
/** A document of 16 KiB and its record stay far below this as JSON. */
const answerBytesMax = 256 * 1024;

/** `key` is a DID, with a space and its home where it is known. */
function subjectPath(key: string): string {
  const [did = "", home] = key.split(" ");
  const path = `/resolve/${encodeURIComponent(did)}`;
  return home === undefined ? path : `${path}?home=${encodeURIComponent(home)}`;
}

const policyPath = (scope: string) => (key: string) =>
  `/delivery-policies/${scope}/${encodeURIComponent(key)}`;

/**
 * A Directory's public endpoints. Its address is the operator's own choice, so the rules for
 * strange destinations don't apply, but redirects and proxies are refused nevertheless.
 */
export function directoryRecipients(url: string, options: DirectoryOptions = {}): RecipientSource {
  const base = withoutTrailingSlashes(url);
  const now = options.now ?? (() => performance.now());
  /** DIDs of which a change was announced, and until when it may become final. */
  const changing = new BoundedMap<string, number>(changingMax);
  const memo = <T>(
    path: (key: string) => string,
    read: (answer: DirectoryReply, key: string) => T,
    bytesOf: (value: T) => number = () => 512,
  ): Memo<T> =>
    createMemo({
      load: async (key) => read(await fetchFromDirectory(`${base}${path(key)}`, options), key),
      valueMs: (value, key) =>
        value === null || now() < (changing.get(key) ?? 0) ? shortMs : memoMs,
      failureMs: options.failureMs ?? shortMs,
      entriesMax: options.entriesMax ?? subjectsMax,
      bytes: { max: subjectBytesMax, of: bytesOf },
      loadsMax: 256,
      now,
    });
  const subjects = memo(
    subjectPath,
    (reply, key) => readSubject(reply, key.split(" ")[0] as Did),
    subjectBytes,
  );
  const policies = {
    recipient: memo(policyPath("recipients"), readDeliveryPolicy),
    tag: memo(policyPath("tags"), readDeliveryPolicy),
  };
  const personas = memo(policyPath("personas"), readPersonaPolicy, personaBytes);
  const limits = memo(() => "/limits", readLimits);
  const memos = [subjects, policies.recipient, policies.tag, personas];
  options.bus?.subscribe(
    changedSubject,
    (message) => {
      const did = decodeUtf8(message) ?? "";
      changing.set(did, now() + changeMs);
      for (const one of memos) one.forget(did);
      return undefined;
    },
    { missed: () => memos.forEach((one) => void one.clear()) },
  );
  return {
    subject: async (did, asked) => {
      const subject = await subjects.get(did);
      const home = subject === null && isSelfCertifying(did) ? parseHome(asked?.home ?? "") : null;
      return home === null ? subject : subjects.get(`${did} ${home}`);
    },
    // Only DIDs have policies, so other names need no request.
    policy: async (scope, key) => (isDid(key) ? policies[scope].get(key) : null),
    persona: async (key) => (isDid(key) ? personas.get(key) : null),
    blockTimeMs: async () => (await limits.get("")).block_time_ms,
    servesGuests: async () => {
      if (options.guests != null) return options.guests === "any";
      const { registration = "open" } = await limits.get("");
      return registration === "open";
    },
  };
}

type DirectoryReply = { readonly status: number; readonly body: JsonObject };

function invalidAnswer(): StoreError {
  return new StoreError("unavailable", "the Directory's answer is invalid");
}

async function fetchFromDirectory(url: string, options: DirectoryOptions): Promise<DirectoryReply> {
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
  const body = bytes === "over" ? null : jsonObjectOf(bytes);
  if (body === null) throw invalidAnswer();
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
  if (answer.status !== 200) throw invalidAnswer();
  return answer.body;
}

/** A Directory that answers in another shape gives no knowledge. */
function checked<S extends TSchema>(schema: S): (value: unknown) => Static<S> {
  const check = compileShape(schema);
  return (value) => usable(check(value));
}

function usable<T>(parsed: T | Fault): T {
  if (isFault(parsed)) throw invalidAnswer();
  return parsed;
}

const checkSubject = checked(subjectShape);
const checkDeliveryPolicy = checked(deliveryPolicyShape);
const checkPersonaPolicy = checked(personaPolicyShape);
const checkLimits = checked(blockTimeShape);

function readSubject(answer: DirectoryReply, did: Did): Subject | null {
  if (saysAbsent(answer)) return null;
  const {
    document,
    deactivated,
    delivery_policy_links: links,
    life = 0,
    home,
  } = checkSubject(presentBody(answer));
  return {
    did,
    document: document == null ? null : usable(parseDocument(document, did)),
    deactivated,
    links: links == null ? null : usable(parseLinks({ did, delivery_policy_links: links })),
    life,
    ...(home === undefined ? {} : { foreign: { isFresh: false } }),
  };
}

function readDeliveryPolicy(answer: DirectoryReply): DeliveryPolicy | null {
  if (saysAbsent(answer)) return null;
  return normalizeDeliveryPolicy(checkDeliveryPolicy(presentBody(answer)["policy"]));
}

function readPersonaPolicy(answer: DirectoryReply): PersonaPolicy | null {
  if (saysAbsent(answer)) return null;
  return normalizePersonaPolicy(checkPersonaPolicy(presentBody(answer)["policy"]));
}

function readLimits(answer: DirectoryReply): Static<typeof blockTimeShape> {
  return checkLimits(presentBody(answer));
}
