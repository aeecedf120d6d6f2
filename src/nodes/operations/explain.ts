/**
 * `waypost explain` on a node: why an envelope of this sender would or would not reach this recipient, from what the node
 * itself knows and would decide: document, policy, the operator's blocks, mailbox, live sessions, destinations,
 * and the last results. Nothing is sent and nothing changes.
 */
import type { Static } from "@sinclair/typebox";
import { type Did, type MailboxKey, mailboxOf, parseDid } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import type { explainBody } from "../../core/schema/schema.ts";
import type { Mailbox, MailboxStats } from "../../storage/contract.ts";
import { nothingHeld } from "../../storage/mailbox-rules.ts";
import { gatherRecipientFacts, type OperatorRules } from "../admission.ts";
import type { Cache } from "../cache/cache.ts";
import { waitingPages } from "../cache/entries.ts";
import { senderLabel } from "../cache/known.ts";
import { shareOfSender } from "../cache/shares.ts";
import { checkService } from "../cache/store.ts";
import type { RecipientSource, Subject } from "../recipients.ts";
import type { Blocks } from "./blocks.ts";
import type { Results } from "./results.ts";

export type ExplainParts = {
  readonly recipients: RecipientSource;
  readonly blocks: Pick<Blocks, "checkParties">;
  readonly results: Results;
  /** `null` without a Relay; `failuresOf` are the last failures in a row of a destination. */
  readonly relay: {
    readonly rules: OperatorRules;
    readonly failuresOf: (endpoint: string) => number | "refused";
    readonly mayListen: (did: Did) => boolean;
  } | null;
  /** `null` without a Cache. */
  readonly cache: Cache["explained"] | null;
};

/** `stops`: no envelope can reach the recipient because of this. */
type Step = { readonly what: string; readonly state: "ok" | "note" | "stops"; readonly detail: string };
type Parties = { readonly to: Did; readonly from: Did | null };

const ok = (what: string, detail: string): Step => ({ what, state: "ok", detail });
const note = (what: string, detail: string): Step => ({ what, state: "note", detail });
const stops = (what: string, detail: string): Step => ({ what, state: "stops", detail });

function decodeParties({ recipient, sender }: Static<typeof explainBody>): Parties | Fault {
  const to = parseDid(recipient);
  const from = sender === null ? null : parseDid(sender);
  if (isFault(to)) return to;
  return isFault(from) ? from : { to, from };
}

/** The answer of `POST /operations/explain`. */
export async function explain(
  parts: ExplainParts,
  asked: Static<typeof explainBody>,
  now: () => number,
): Promise<object | Fault> {
  const parties = decodeParties(asked);
  if (isFault(parties)) return parties;
  const { recipient, policy } = await gatherRecipientFacts(parts.recipients, parties.to);
  const steps =
    recipient === null
      ? [stops("record", "this node's source of recipients has no such DID")]
      : recipient.deactivated
        ? [stops("record", "the DID is deactivated")]
        : [
            keyStep(recipient),
            policyStep(policy),
            ...partySteps(parts, parties),
            ...(await mailboxSteps(parts, recipient, parties.from, now)),
            ...deliverySteps(parts, recipient),
            ...(await pushSteps(parts, recipient, now())),
          ];
  const { to, from } = parties;
  const digest = parts.results.digest(to);
  return {
    recipient: to,
    sender: from,
    digest,
    reachable: isReachable(steps),
    steps,
    results: resultsOf(parts, parties),
  };
}

/** Nothing stops the envelope, and this node has where to bring it. */
function isReachable(steps: readonly Step[]): boolean {
  const goes = ({ what, state }: Step): boolean => state === "ok" && /^(mailbox|live sessions|service )/.test(what);
  return steps.some(goes) && !steps.some(({ state }) => state === "stops");
}

function resultsOf({ results }: ExplainParts, { to, from }: Parties): object[] {
  return results.of(to, from).map(({ atMs, messageId, from: sender, requestId, route, status, code, detail }) => ({
    time: new Date(atMs).toISOString(),
    message_id: messageId,
    sender,
    request_id: requestId,
    route,
    status,
    code,
    detail,
  }));
}

function keyStep({ document, life }: Subject): Step {
  const count = document?.keyAgreement.length ?? 0;
  if (count === 0) return stops("record", "the document has no key to seal to");
  return ok("record", `${count} key(s) to seal to${life === 0 ? "" : `; the DID was deleted ${life} time(s) before`}`);
}

function policyStep(policy: Awaited<ReturnType<typeof gatherRecipientFacts>>["policy"]): Step {
  if (policy === null) return stops("policy", "could not be read");
  if (isFault(policy)) return stops("policy", policy.detail);
  const { messageBytesMax, cacheEligible, allowedRelays } = policy;
  const size = messageBytesMax === null ? "any size that the node allows" : `at most ${messageBytesMax} bytes`;
  const relays = allowedRelays.length === 0 ? "" : `; only the Relays ${allowedRelays.flat().join(", ")}`;
  const text = `${size}; ${cacheEligible ? "Caches may store" : "no Cache may store"}${relays}`;
  return cacheEligible ? ok("policy", text) : note("policy", text);
}

/** What the operator refuses. */
function partySteps({ relay, cache, blocks }: ExplainParts, { to, from }: Parties): Step[] {
  const demanding = [relay?.rules, cache?.settings].some((rules) => rules?.require_sender_signature === true);
  const signed = demanding ? [note("signatures", "unsigned envelopes are refused")] : [];
  const blocked = blocks.checkParties(to, from);
  return [...signed, blocked === null ? ok("block list", "names neither") : stops("block list", blocked.detail)];
}

/** How full the mailbox is, and the share of it that the sender may use. */
async function mailboxSteps(
  { cache }: ExplainParts,
  recipient: Subject,
  from: Did | null,
  now: () => number,
): Promise<Step[]> {
  if (cache === null) return [];
  const { did, life } = recipient;
  const { mailbox, settings } = cache;
  const listed = checkService(recipient, settings.public_endpoints) === null;
  const key = mailboxOf(did, life);
  const held = await heldIn(mailbox, key, now);
  const all = held(null);
  const { recipient_entries_max: entries, recipient_bytes_max: bytes } = settings;
  const text = useText(all, { entries, bytes });
  const isKnown = from !== null && (await cache.isKnown(key, from, now()));
  const share = shareOfSender(from === null ? "unsigned" : { label: senderLabel(from), isKnown }, settings);
  const own = held(share.label);
  const most = { entries: share.entriesMax, bytes: share.bytesMax };
  const who = isKnown ? "the mailbox knows the sender" : "unsigned and first-time senders together";
  const shown = `${who}: ${useText(own, most)}`;
  const ofSender = isKnown ? ok : note;
  return [
    isFull(all, { entries, bytes })
      ? stops("mailbox", `full: ${text}`)
      : listed
        ? ok("mailbox", text)
        : note("mailbox", `${text}; but the document does not list this Cache`),
    isFull(own, most) ? stops("share", `used up: ${shown}`) : ofSender("share", shown),
  ];
}

async function heldIn(mailbox: Mailbox, key: MailboxKey, now: () => number) {
  const sums = new Map<string | null, MailboxStats>();
  const held = (label: string | null) => sums.get(label) ?? nothingHeld;
  for await (const page of waitingPages(mailbox, key, now))
    for (const { envelopeBytes, labels } of page.entries)
      for (const label of [null, ...labels]) {
        const { entries, bytes } = held(label);
        sums.set(label, { entries: entries + 1, bytes: bytes + envelopeBytes });
      }
  return held;
}

function useText(held: MailboxStats, most: MailboxStats): string {
  return `${held.entries} of ${most.entries} entries, ${held.bytes} of ${most.bytes} bytes`;
}

function isFull(held: MailboxStats, most: MailboxStats): boolean {
  return held.entries >= most.entries || held.bytes >= most.bytes;
}

/** Which sleeping devices would be woken, and what became of the last push. */
async function pushSteps({ cache }: ExplainParts, { did, life }: Subject, nowMs: number): Promise<Step[]> {
  if (cache === null) return [];
  if (cache.pushesOf === null) return [note("push", "this Cache wakes no devices: push.enabled is false")];
  const texts = await cache.pushesOf(mailboxOf(did, life), nowMs);
  return texts.length === 0 ? [note("push", "no device has subscribed")] : texts.map((text) => note("push", text));
}

/** Live sessions, and the destinations that this node's Relay would try. */
function deliverySteps({ relay, cache }: ExplainParts, { did, document }: Subject): Step[] {
  if (relay === null) return [];
  const listens = relay.mayListen(did);
  const own = cache?.settings.public_endpoints ?? [];
  const endpoints = (document?.service ?? []).flatMap(({ type, serviceEndpoint }) =>
    serviceEndpoint
      .filter((endpoint) => !own.some((one) => sameEndpoint(one, endpoint)))
      .map((endpoint) => destinationStep(`service ${type} ${endpoint}`, relay.failuresOf(endpoint))),
  );
  return [
    listens ? ok("live sessions", "a device is connected") : note("live sessions", "no device is connected"),
    ...endpoints,
  ];
}

function destinationStep(what: string, failures: number | "refused"): Step {
  if (failures === "refused") return note(what, "this Relay sends nothing to such an address");
  return failures === 0 ? ok(what, "no failure lately") : note(what, `failed ${failures} time(s) in a row lately`);
}
