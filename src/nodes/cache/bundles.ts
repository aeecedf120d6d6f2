/**
 * Key bundles at the Cache: the owner of a mailbox puts the one for this week, and everybody may
 * read it. One is kept for each mailbox. A later one replaces it and an earlier one is refused
 * until no earlier one can count any more.
 * Source: docs/interface.md "Key bundles", D601.
 */
import { encodeHex, type VerifySignature } from "../../core/codec/bytes.ts";
import { type MailboxKey, mailboxOf, parseDid } from "../../core/codec/did.ts";
import { type JsonObject, parseJsonObject } from "../../core/codec/json.ts";
import { renderTimestamp, weekMs } from "../../core/codec/time.ts";
import { badInput, type Fault, fault, isFault } from "../../core/fault.ts";
import {
  bundleBytesMax,
  bundleTimeProblem,
  encodeBundleText,
  type KeyBundle,
  parseBundle,
  renderBundle,
  verifyBundle,
} from "../../core/message/bundle.ts";
import { withSignedText } from "../../core/message/signed-text.ts";
import { bundlePutShape, keyBundleShape } from "../../core/schema/messages.ts";
import { inOrder } from "../../core/std/order.ts";
import type { Receipts } from "../../storage/contract.ts";
import type { Answer, Call, Route } from "../http/route.ts";
import type { RecipientSource } from "../parties/recipients.ts";
import { encodeRecord, readRecord } from "../parties/records.ts";
import type { OwnedRoute, ProvenOwner, ProveOwner } from "./owner.ts";

export type BundleStore = {
  readonly receipts: Receipts;
  readonly recipients: RecipientSource;
  readonly verify: VerifySignature;
  readonly skewMs: number;
  /** One put after the other for each mailbox of this process. */
  readonly inTurn: <T>(mailbox: MailboxKey, put: () => Promise<T>) => Promise<T>;
};

export function createBundleStore(parts: Omit<BundleStore, "inTurn">): BundleStore {
  return { ...parts, inTurn: inOrder<MailboxKey>() };
}

export function keyOfBundle(mailbox: MailboxKey): string {
  return `bundle:${mailbox}`;
}

/** The one that counts now; `null` when there is none. */
export async function currentBundle(
  store: BundleStore,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<KeyBundle | null> {
  const bundle = await keptBundle(store, mailbox, nowMs);
  return bundle === null || bundleTimeProblem(bundle, nowMs, store.skewMs) !== null ? null : bundle;
}

async function keptBundle(
  { receipts }: BundleStore,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<KeyBundle | null> {
  const kept = await readRecord<JsonObject>(receipts, keyOfBundle(mailbox), nowMs);
  const bundle = kept === null ? null : parseBundle(kept);
  return isFault(bundle) ? null : bundle;
}

/**
 * Keeps a later one. 400 `invalid_json` or `invalid_request` (form, time), 403 `invalid_signature`,
 * 409 `bundle_stale` after one that was issued later, or at the same time with another text.
 */
async function putBundle(
  store: BundleStore,
  { did, mailbox, document }: ProvenOwner,
  call: Call,
): Promise<Answer | Fault> {
  const members = parseJsonObject(call.body);
  const bundle = isFault(members) ? members : parseBundle(members);
  if (isFault(bundle)) return bundle;
  if (bundle.did !== did) return badInput("invalid_request", "/did", "must be the DID of the path");
  const problem = bundleTimeProblem(bundle, call.nowMs, store.skewMs);
  if (problem === "future") return badInput("invalid_request", "/issued_at", "is in the future");
  if (problem === "expired") return badInput("invalid_request", "/not_after", "has passed");
  if (document === null || !(await verifyBundle(bundle, document, store.verify))) {
    const refusal = fault("invalid_signature", "no method in authentication has signed the bundle");
    return withSignedText(refusal, encodeBundleText(bundle));
  }
  return store.inTurn(mailbox, async () => {
    const before = await keptBundle(store, mailbox, call.nowMs);
    // One of the future was taken while this clock was ahead: its owner could put none until then.
    const counts =
      before !== null && bundleTimeProblem(before, call.nowMs, store.skewMs) !== "future";
    if (counts && isStale(bundle, before))
      return fault("bundle_stale", `one was issued at ${renderTimestamp(before.issuedAtMs)}`);
    // No earlier one counts for longer, even where this one ends before.
    const untilMs = bundle.issuedAtMs + weekMs;
    await store.receipts.put(keyOfBundle(mailbox), encodeRecord(renderBundle(bundle)), untilMs);
    const { key_id, issued_at, not_after } = renderBundle(bundle);
    return { status: 200, json: { key_id, issued_at, not_after } };
  });
}

function isStale(bundle: KeyBundle, before: KeyBundle): boolean {
  if (bundle.issuedAtMs !== before.issuedAtMs) return bundle.issuedAtMs < before.issuedAtMs;
  return encodeHex(encodeBundleText(bundle)) !== encodeHex(encodeBundleText(before));
}

async function getBundle(store: BundleStore, call: Call): Promise<Answer | Fault> {
  const did = parseDid(call.params["did"] ?? "");
  if (isFault(did)) return did;
  const subject = await store.recipients.subject(did);
  const bundle =
    subject === null || subject.deactivated
      ? null
      : await currentBundle(store, mailboxOf(did, subject.life), call.nowMs);
  return bundle === null
    ? fault("not_found", "no key bundle of this DID counts here now")
    : { status: 200, json: renderBundle(bundle) };
}

// ------------------------------------------------------------------------------------------ routes

type BundleRoutes = {
  readonly open: Pick<Route, "tag" | "capacity" | "rateLimit">;
  readonly owned: OwnedRoute;
  readonly prove: ProveOwner;
};

export function bundleRoutes(
  store: BundleStore,
  { open, owned, prove }: BundleRoutes,
): readonly Route[] {
  const path = "/cache/keys/:did";
  return [
    {
      ...owned,
      method: "PUT",
      path,
      id: "cacheKeysPut",
      summary: "Put the key that others seal to in this week",
      request: keyBundleShape,
      answer: [200, "The bundle is on disk", bundlePutShape],
      codes: [...owned.codes, "invalid_signature", "bundle_stale"],
      bodyBytesMax: bundleBytesMax,
      handle: (call) => prove(call, (owner) => putBundle(store, owner, call)),
    },
    {
      ...open,
      method: "GET",
      path,
      id: "cacheKeys",
      summary: "The key that others seal to in this week, signed by its owner",
      answer: [200, "The bundle, as it was put", keyBundleShape],
      codes: ["invalid_did", "not_found", "rate_limited", "service_unavailable"],
      handle: (call) => getBundle(store, call),
    },
  ];
}
