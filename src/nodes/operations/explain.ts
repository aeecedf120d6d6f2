/**
 * `waypost explain` on a node: why an envelope of this sender would or would not reach this recipient, from what the node
 * itself knows and would decide: document, policy, the operator's blocks, mailbox, live sessions, destinations,
 * and the last results. Nothing is sent and nothing changes.
 */
import type { Static } from "@sinclair/typebox";
import { type Did, mailboxOf, parseDid } from "../../core/codec/did.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import type { explainBody } from "../../core/schema/schema.ts";
import type { MailboxStats } from "../../storage/contract.ts";
import { nothingHeld } from "../../storage/mailbox-rules.ts";
import type { Cache } from "../cache/cache.ts";
import { waitingPages } from "../cache/entries.ts";
import { senderLabel } from "../cache/known.ts";
import { shareOfSender } from "../cache/shares.ts";
import { checkService } from "../cache/store.ts";
import {
  type AdmissionFacts,
  gatherRecipientFacts,
  type OperatorRules,
} from "../parties/admission.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { RecipientSource, Subject } from "../parties/recipients.ts";
import type { Results } from "../results.ts";

export type ExplainParts = {
  readonly recipients: RecipientSource;
  readonly blocks: Pick<Blocks, "checkParties">;
  readonly results: Results;
  /** `null` without a Relay. */
  readonly relay: {
    readonly rules: OperatorRules;
    readonly refuses: (endpoint: string) => boolean;
    readonly mayListen: (did: Did) => boolean;
  } | null;
  /** `null` without a Cache. */
  readonly cache: Cache["explained"] | null;
};

/** `stops`: no envelope can reach the recipient because of this. */
type Step = {
  readonly what: string;
  readonly state: "ok" | "note" | "stops";
  readonly detail: string;
};

const step =
  (state: Step["state"]) =>
  (what: string, detail: string): Step => ({ what, state, detail });
const [ok, note, stops] = [step("ok"), step("note"), step("stops")];

/** The answer of `POST /operations/explain`. */
export async function explain(
  parts: ExplainParts,
  asked: Static<typeof explainBody>,
  now: () => number,
): Promise<object | Fault> {
  const to = parseDid(asked.recipient);
  if (isFault(to)) return to;
  const from = asked.sender === null ? null : parseDid(asked.sender);
  if (isFault(from)) return from;
  const { recipient, policy } = await gatherRecipientFacts(parts.recipients, to);
  const steps = await stepsOf(parts, { to, from, recipient, policy }, now);
  // Something takes the envelope, and nothing stops it.
  const takes = ({ what, state }: Step) =>
    state === "ok" && /^(mailbox|live sessions|service )/.test(what);
  const reachable = steps.some(takes) && !steps.some(({ state }) => state === "stops");
  const results = parts.results
    .of(to, from)
    .map(({ atMs, messageId, from: sender, requestId, to: _, ...result }) => ({
      time: new Date(atMs).toISOString(),
      message_id: messageId,
      sender,
      request_id: requestId,
      ...result,
    }));
  return {
    recipient: to,
    sender: from,
    digest: parts.results.digest(to),
    reachable,
    steps,
    results,
  };
}

type Facts = Pick<AdmissionFacts, "recipient" | "policy"> & {
  readonly to: Did;
  readonly from: Did | null;
};

async function stepsOf(parts: ExplainParts, facts: Facts, now: () => number): Promise<Step[]> {
  const { to, from, recipient, policy } = facts;
  if (recipient === null)
    return [stops("record", "this node's source of recipients has no such DID")];
  if (recipient.deactivated) return [stops("record", "the DID is deactivated")];
  const blocked = parts.blocks.checkParties(to, from);
  const isDemanding = [parts.relay?.rules, parts.cache?.settings].some(
    (rules) => rules?.require_sender_signature,
  );
  return [
    keyStep(recipient),
    policyStep(policy),
    ...(isDemanding ? [note("signatures", "unsigned envelopes are refused")] : []),
    blocked === null ? ok("block list", "names neither") : stops("block list", blocked.detail),
    ...(parts.cache === null ? [] : await cacheSteps(parts.cache, recipient, from, now)),
    ...deliverySteps(parts, recipient),
  ];
}

function keyStep({ document, life }: Subject): Step {
  const count = document?.keyAgreement.length ?? 0;
  if (count === 0) return stops("record", "the document has no key to seal to");
  return ok(
    "record",
    `${count} key(s) to seal to${life === 0 ? "" : `; the DID was deleted ${life} time(s) before`}`,
  );
}

function policyStep(policy: Facts["policy"]): Step {
  if (policy === null) return stops("policy", "could not be read");
  if (isFault(policy)) return stops("policy", policy.detail);
  const { messageBytesMax, cacheEligible, allowedRelays } = policy;
  const size =
    messageBytesMax === null ? "any size that the node allows" : `at most ${messageBytesMax} bytes`;
  const relays =
    allowedRelays.length === 0 ? "" : `; only the Relays ${allowedRelays.flat().join(", ")}`;
  const text = `${size}; ${cacheEligible ? "Caches may store" : "no Cache may store"}${relays}`;
  return cacheEligible ? ok("policy", text) : note("policy", text);
}

/** How full the mailbox is, the share of it that the sender may use, and the devices that would be woken. */
async function cacheSteps(
  { mailbox, settings, isKnown, pushesOf }: NonNullable<ExplainParts["cache"]>,
  recipient: Subject,
  from: Did | null,
  now: () => number,
): Promise<Step[]> {
  const key = mailboxOf(recipient.did, recipient.life);
  const known = from !== null && (await isKnown(key, from, now()));
  const share = shareOfSender(
    from === null ? "unsigned" : { label: senderLabel(from), isKnown: known },
    settings,
  );
  const [all, own] = [{ ...nothingHeld }, { ...nothingHeld }];
  for await (const { entries } of waitingPages(mailbox, key, now))
    for (const { envelopeBytes, labels } of entries)
      for (const sum of labels.includes(share.label) ? [all, own] : [all]) {
        sum.entries += 1;
        sum.bytes += envelopeBytes;
      }
  const used = (what: string, before: string, held: MailboxStats, most: MailboxStats) => {
    const text = `${before}${held.entries} of ${most.entries} entries, ${held.bytes} of ${most.bytes} bytes`;
    const isFull = held.entries >= most.entries || held.bytes >= most.bytes;
    return isFull ? stops(what, `full: ${text}`) : ok(what, text);
  };
  const whole = used("mailbox", "", all, {
    entries: settings.recipient_entries_max,
    bytes: settings.recipient_bytes_max,
  });
  const isListed =
    whole.state === "stops" || checkService(recipient, settings.public_endpoints) === null;
  const who = known ? "the mailbox knows the sender" : "unsigned and first-time senders together";
  const texts = (await pushesOf?.(key, now())) ?? [
    "this Cache wakes no devices: push.enabled is false",
  ];
  return [
    isListed
      ? whole
      : note(whole.what, `${whole.detail}; but the document does not list this Cache`),
    used("share", `${who}: `, own, { entries: share.entriesMax, bytes: share.bytesMax }),
    ...(texts.length === 0 ? ["no device has subscribed"] : texts).map((text) =>
      note("push", text),
    ),
  ];
}

/** Live sessions, and the destinations that this node's Relay would try. */
function deliverySteps({ relay, cache }: ExplainParts, { did, document }: Subject): Step[] {
  if (relay === null) return [];
  const own = cache?.settings.public_endpoints ?? [];
  const elsewhere = (document?.service ?? [])
    .flatMap(({ type, serviceEndpoint }) => serviceEndpoint.map((endpoint) => ({ type, endpoint })))
    .filter(({ endpoint }) => !own.some((one) => sameEndpoint(one, endpoint)));
  return [
    relay.mayListen(did)
      ? ok("live sessions", "a device is connected")
      : note("live sessions", "no device is connected"),
    ...elsewhere.map(({ type, endpoint }) => {
      const what = `service ${type} ${endpoint}`;
      if (relay.refuses(endpoint)) return note(what, "this Relay sends nothing to such an address");
      return ok(what, "this Relay may send there");
    }),
  ];
}
