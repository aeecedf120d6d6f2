/**
 * Key bundles for senders: fetched from the Caches that a recipient's document names, and handed on
 * only while signature, DID and time hold. The newest one counts, whichever Cache shows it: one
 * that hides its bundle, repeats an earlier one, shows another's, hangs or answers without end
 * changes nothing for the others, and nothing of what this node has seen.
 * Source: docs/interface.md "Key bundles", D602.
 */
import type { VerifySignature } from "../../core/codec/bytes.ts";
import { type MailboxKey, mailboxOf } from "../../core/codec/did.ts";
import { jsonObjectOf } from "../../core/codec/json.ts";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import { announcesBundle } from "../../core/ledger/account.ts";
import {
  bundleBytesMax,
  bundleTimeProblem,
  type KeyBundle,
  parseBundle,
  verifyBundle,
} from "../../core/message/bundle.ts";
import { endpointsOf } from "../../core/message/plan.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";
import type { Egress } from "../egress/egress.ts";
import type { Metrics } from "../http/metrics.ts";
import { createMemo, type Memo } from "./memo.ts";
import { createRateLimiter, type RateLimiter } from "./rates.ts";
import type { Subject } from "./recipients.ts";

/**
 * Why there is none: the document announces none, no Cache has one, what they show does
 * not hold, a Cache gives no answer, or the client network has asked too often. All but
 * the first are temporary.
 */
type BundleAbsence = "not_announced" | "none" | "invalid" | "unavailable" | "rate_limited";

/** Who asks: the client network that causes the questions. */
type BundleQuery = { readonly network: string; readonly nowMs: number };

export type Bundles = {
  readonly find: (recipient: Subject, asked: BundleQuery) => Promise<KeyBundle | BundleAbsence>;
  readonly close: () => void;
};

/** The Cache of this process. */
type OwnCache = {
  readonly endpoints: readonly string[];
  readonly bundle: (mailbox: MailboxKey, nowMs: number) => Promise<KeyBundle | null>;
};

type BundlesParts = {
  readonly metrics: Metrics;
  readonly egress: Egress;
  readonly verify: VerifySignature;
  readonly own: OwnCache | null;
  readonly skewMs: number;
  /** A clock that never steps back. */
  readonly now?: () => number;
};

/**
 * What the other Caches of a mailbox showed: the newest bundle that held
 * then, or why there was none.
 */
type BundleAnswer = KeyBundle | BundleAbsence;

type BundlesState = BundlesParts & {
  readonly shown: Memo<BundleAnswer>;
  /** The newest that held, by mailbox. */
  readonly newest: BoundedMap<MailboxKey, KeyBundle>;
  readonly rate: RateLimiter;
};

const rememberedMs = 10 * minuteMs;
/** Where a Cache had none, or gave no answer: its owner may put one at any time. */
const failedMs = 10 * secondMs;
const askMs = 3 * secondMs;
/** A document names Caches that strangers choose. */
const cachesMax = 4;
/** A bundle takes about 2 KB. */
const heldMax = 4_096;
/** For each client network: a group of 200 people at once, now and then. */
const fetchRate = { perSecond: 20, burst: 1_000 };

export function createBundles(parts: BundlesParts): Bundles {
  const state: BundlesState = {
    ...parts,
    shown: createMemo<BundleAnswer>({
      valueMs: (value) => (typeof value === "string" ? failedMs : rememberedMs),
      failureMs: 0,
      entriesMax: heldMax,
      loadsMax: 256,
      now: parts.now ?? (() => performance.now()),
    }),
    newest: new BoundedMap(heldMax),
    rate: createRateLimiter(fetchRate),
  };
  const answers = parts.metrics.counter({
    name: "key_bundles_total",
    help: "What senders who asked for a key bundle got: `found`, or why there was none.",
    labels: ["outcome"],
  });
  return {
    find: async (recipient, asked) => {
      const found = await findBundle(state, recipient, asked);
      answers.add([typeof found === "string" ? found : "found"]);
      return found;
    },
    close: () => parts.egress.close(),
  };
}

type RecipientQuery = BundleQuery & {
  readonly mailbox: MailboxKey;
  readonly document: DidDocument;
};

async function findBundle(
  state: BundlesState,
  { did, life, document }: Subject,
  asked: BundleQuery,
): Promise<KeyBundle | BundleAbsence> {
  if (document === null || !announcesBundle(document)) return "not_announced";
  const { newest } = state;
  const asking = { ...asked, document, mailbox: mailboxOf(did, life) };
  const shown = await showAll(state, asking);
  const before = newest.get(asking.mailbox);
  const best = await newestOf(state, before === undefined ? shown : [before, ...shown], asking);
  if (typeof best === "string") newest.delete(asking.mailbox);
  else newest.set(asking.mailbox, best);
  return best;
}

/** The Cache of this process is read each time, the others at most every ten minutes. */
async function showAll(
  state: BundlesState,
  asking: RecipientQuery,
): Promise<readonly BundleAnswer[]> {
  const { own, shown } = state;
  const caches = endpointsOf(asking.document.service, "SvcCacheService").slice(0, cachesMax);
  const isOwn = (cache: string) => own?.endpoints.some((one) => sameEndpoint(one, cache)) === true;
  const others = caches.filter((cache) => !isOwn(cache));
  // A document that names other Caches is another question.
  const key = [asking.mailbox, ...others].join(" ");
  const answers = [
    ...(own !== null && others.length < caches.length ? [readOwn(own, asking)] : []),
    ...(others.length > 0 ? [shown.get(key, () => fetchAll(state, others, asking))] : []),
  ];
  const found = await Promise.all(answers.map((answer) => answer.catch(absenceOf)));
  for (const one of found)
    if (typeof one !== "string" && (await problemOf(state, one, asking)) !== null)
      shown.forget(key);
  return found;
}

async function readOwn(own: OwnCache, { mailbox, nowMs }: RecipientQuery): Promise<BundleAnswer> {
  return (await own.bundle(mailbox, nowMs)) ?? "none";
}

/** Thrown, so that what one network's rate refuses is not remembered for the others. */
const refusedByRate = new Error("this client network asks for key bundles too often");

function absenceOf(error: unknown): BundleAbsence {
  if (error === refusedByRate) return "rate_limited";
  if (error instanceof StoreError) return "unavailable";
  throw error;
}

async function fetchAll(
  state: BundlesState,
  caches: readonly string[],
  asking: RecipientQuery,
): Promise<BundleAnswer> {
  if (state.rate.claim(asking.network, asking.nowMs) > 0) throw refusedByRate;
  const shown = await Promise.all(caches.map((cache) => fetchFrom(state, cache, asking)));
  return newestOf(state, shown, asking);
}

/**
 * One request through the guard of outbound requests, which follows no
 * redirect and has the deadline.
 */
async function fetchFrom(
  { egress }: BundlesState,
  cache: string,
  asking: RecipientQuery,
): Promise<BundleAnswer> {
  const { document, network } = asking;
  const { httpStatus, body } = await egress.send({
    endpoint: cache,
    suffix: `/cache/keys/${document.id}`,
    body: null,
    wantsBody: () => true,
    answerBytesMax: bundleBytesMax,
    client: network,
    timeoutMs: askMs,
  });
  if (body === null) return httpStatus === 200 ? "invalid" : "unavailable";
  const members = jsonObjectOf(body);
  // A status alone may be that of a proxy before it.
  if (httpStatus === 404 && members?.["code"] === "not_found") return "none";
  if (httpStatus !== 200) return "unavailable";
  const bundle = members === null ? null : parseBundle(members);
  return bundle === null || isFault(bundle) ? "invalid" : bundle;
}

/** `null` for one that counts: of this DID, signed by a method of its document, and in time. */
async function problemOf(
  { verify, skewMs }: BundlesState,
  bundle: KeyBundle,
  { document, nowMs }: RecipientQuery,
): Promise<"invalid" | null> {
  if (bundleTimeProblem(bundle, nowMs, skewMs) !== null) return "invalid";
  return (await verifyBundle(bundle, document, verify)) ? null : "invalid";
}

/** What may change by itself comes first, so that a sender waits for it. */
const absences: readonly BundleAbsence[] = ["rate_limited", "unavailable", "invalid", "none"];

async function newestOf(
  state: BundlesState,
  shown: readonly BundleAnswer[],
  asking: RecipientQuery,
): Promise<BundleAnswer> {
  const bundles = shown.filter((one) => typeof one !== "string");
  for (const bundle of bundles.sort((a, b) => b.issuedAtMs - a.issuedAtMs))
    if ((await problemOf(state, bundle, asking)) === null) return bundle;
  if (bundles.length > 0) return "invalid";
  return absences.find((absence) => shown.includes(absence)) ?? "none";
}
