/**
 * `waypost explain` on a node: why an envelope of this sender would or would not reach this
 * recipient, from what the node itself knows and would decide: document, policy, the
 * operator's blocks, mailbox, live sessions, destinations, and the last results. Nothing is
 * sent and nothing changes.
 */
import type { Static } from "@sinclair/typebox";
import { type Did, type MailboxKey, mailboxOf, parseDid } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import { announcesBundle, bundleAgreement } from "../../core/ledger/account.ts";
import { clientNetwork, parseAddress } from "../../core/message/address.ts";
import { sameEndpoint } from "../../core/message/proof.ts";
import type { explainBody } from "../../core/schema/schema.ts";
import type { Mailbox, MailboxStats } from "../../storage/contract.ts";
import { hasRoomIn, nothingHeld } from "../../storage/mailbox-rules.ts";
import type { Cache } from "../cache/cache.ts";
import { waitingPages } from "../cache/entries.ts";
import { type MailboxSender, type Origin, placesOf } from "../cache/pools.ts";
import { checkService } from "../cache/store.ts";
import {
  type AdmissionFacts,
  gatherRecipientFacts,
  type OperatorRules,
} from "../parties/admission.ts";
import type { Blocks } from "../parties/blocks.ts";
import type { Maintenance } from "../parties/maintenance.ts";
import type { RecipientSource, Subject } from "../parties/recipients.ts";
import type { MailboxLimits } from "../parties/tiers.ts";
import type { Results } from "../results.ts";

export type ExplainParts = {
  readonly recipients: RecipientSource;
  readonly blocks: Pick<Blocks, "checkParties" | "checkClient" | "list">;
  readonly maintenance: Pick<Maintenance, "state">;
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
  const client = asked.client ?? null;
  if (client !== null && parseAddress(client) === null)
    return fault("invalid_request", "client must be an IP address");
  const { recipient, policy, isForeign } = await gatherRecipientFacts(parts.recipients, to);
  const steps = await stepsOf(parts, { to, from, client, recipient, policy, isForeign }, now);
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

type Facts = Pick<AdmissionFacts, "recipient" | "policy" | "isForeign"> & {
  readonly to: Did;
  readonly from: Did | null;
  /** Address of the client that sends. */
  readonly client: string | null;
};

async function stepsOf(parts: ExplainParts, facts: Facts, now: () => number): Promise<Step[]> {
  const { to, from, client, recipient, policy, isForeign } = facts;
  if (recipient === null)
    return [stops("record", "this node's source of recipients has no such DID")];
  if (recipient.deactivated) return [stops("record", "the DID is deactivated")];
  const blocked = parts.blocks.checkParties(to, from);
  const isDemanding = [parts.relay?.rules, parts.cache?.settings].some(
    (rules) => rules?.require_sender_signature,
  );
  const steps: Step[] = [];
  if (parts.maintenance.state() !== null)
    steps.push(stops("maintenance", "this node refuses writes until `waypost maintenance off`"));
  steps.push(keyStep(recipient), policyStep(policy));
  if (isForeign)
    steps.push(stops("home", "another Directory's, and this node serves recipients of its own"));
  if (isDemanding) steps.push(note("signatures", "unsigned envelopes are refused"));
  steps.push(
    blocked === null ? ok("block list", "names neither") : stops("block list", blocked.detail),
  );
  steps.push(...networkSteps(parts, client));
  if (parts.cache !== null) {
    steps.push(await storeStep(parts.cache, recipient, now));
    steps.push(...(await cacheSteps(parts.cache, recipient, { from, client }, now)));
    steps.push(...(await bundleSteps(parts.cache, recipient, now)));
  }
  steps.push(...deliverySteps(parts, recipient));
  return steps;
}

function keyStep({ document, life }: Subject): Step {
  const agreements = document?.keyAgreement ?? [];
  const count = agreements.filter(({ type }) => type !== bundleAgreement.type).length;
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

/** A blocked network is refused before it says to whom it writes. */
function networkSteps({ blocks }: ExplainParts, client: string | null): Step[] {
  const count = blocks.list().filter(({ kind }) => kind === "network").length;
  if (client === null) {
    const detail = `${count} blocked; name the client's address with --client to see whether it is in one`;
    return count === 0 ? [] : [note("networks", detail)];
  }
  const blocked = blocks.checkClient(client);
  return [
    blocked === null
      ? ok("networks", `the network of ${client} is not blocked`)
      : stops("networks", blocked.detail),
  ];
}

/** A disk that is nearly full still takes small ones. */
const largeBytes = 1024 ** 2;

/**
 * Whether the store takes an entry of anybody: its disk, and what all mailboxes together may have.
 */
async function storeStep(
  { mailbox, settings, checkDisk }: NonNullable<ExplainParts["cache"]>,
  { did, life }: Subject,
  now: () => number,
): Promise<Step> {
  const tried = (bytes: number) => checkDisk(mailboxOf(did, life), { bytes, nowMs: now() });
  const refused = await tried(1);
  if (refused !== null) return stops("store", refused);
  const refusedLarge = await tried(largeBytes);
  if (refusedLarge !== null)
    return note("store", `takes small envelopes, and refuses one of 1 MiB: ${refusedLarge}`);
  const all = await mailbox.stats(now());
  return usage("store", "", all, {
    entries: settings.store_entries_max,
    bytes: settings.store_bytes_max,
  });
}

function usage(what: string, before: string, held: MailboxStats, most: MailboxStats): Step {
  const text = `${before}${held.entries} of ${most.entries} entries, ${held.bytes} of ${most.bytes} bytes`;
  const isFull = held.entries >= most.entries || held.bytes >= most.bytes;
  return isFull ? stops(what, `full: ${text}`) : ok(what, text);
}

/**
 * How full the mailbox is, the pools of it that the sender may use, and the
 * devices that would be woken.
 */
async function cacheSteps(
  { mailbox, settings, tiers, sendingOf, passesOf, pushesOf }: NonNullable<ExplainParts["cache"]>,
  recipient: Subject,
  { from, client }: Pick<Facts, "from" | "client">,
  now: () => number,
): Promise<Step[]> {
  const key = mailboxOf(recipient.did, recipient.life);
  const sending = from === null ? unsigned : await sendingOf(key, from, now());
  const sums = await sumsOf(mailbox, key, now);
  const own = tiers?.mailboxOf(recipient.did) ?? settings;
  const whole = usage("mailbox", "", sums(null), {
    entries: own.recipient_entries_max,
    bytes: own.recipient_bytes_max,
  });
  const isListed =
    whole.state === "stops" || checkService(recipient, settings.public_endpoints) === null;
  const unlisted = `${whole.detail}; but the document does not list this Cache`;
  const devices = (await pushesOf?.(key, now())) ?? [
    "this Cache wakes no devices: push.enabled is false",
  ];
  const pushes = devices.length === 0 ? ["no device has subscribed"] : devices;
  return [
    isListed ? whole : note(whole.what, unlisted),
    poolStep(sending, client, { sums, settings: own }),
    ...passSteps(sending, await passesOf(key, now())),
    ...pushes.map((text) => note("push", text)),
  ];
}

/** The weekly key, where the document announces one and lists this Cache. */
async function bundleSteps(
  { bundleOf, settings }: NonNullable<ExplainParts["cache"]>,
  recipient: Subject,
  now: () => number,
): Promise<Step[]> {
  const { did, life, document } = recipient;
  const isHere = checkService(recipient, settings.public_endpoints) === null;
  if (!isHere || document === null || !announcesBundle(document)) return [];
  const bundle = await bundleOf(mailboxOf(did, life), now());
  if (bundle === null) {
    const detail =
      "announced, and none counts here now: who seals by it waits until a device of the owner is online";
    return [note("key bundle", detail)];
  }
  return [ok("key bundle", `${bundle.keyId} until ${renderTimestamp(bundle.notAfterMs)}`)];
}

/** Without an address, a network that no client has. */
function originOf(client: string | null): Origin {
  return client === null ? { client: "", network: "" } : { client, network: clientNetwork(client) };
}

const unsigned: MailboxSender = { isKnown: false, label: null };

/** What waits in a mailbox, altogether (`null`) and by label. */
type WaitingSums = (label: string | null) => MailboxStats;

async function sumsOf(mailbox: Mailbox, key: MailboxKey, now: () => number): Promise<WaitingSums> {
  const sums = new Map<string | null, { entries: number; bytes: number }>();
  for await (const { entries } of waitingPages(mailbox, key, now))
    for (const { envelopeBytes, labels } of entries)
      for (const label of [null, ...labels]) {
        const sum = sums.get(label) ?? { entries: 0, bytes: 0 };
        sum.entries += 1;
        sum.bytes += envelopeBytes;
        sums.set(label, sum);
      }
  return (label) => sums.get(label) ?? nothingHeld;
}

const renderUse = (held: MailboxStats, most: MailboxStats): string =>
  `${held.entries} of ${most.entries} entries, ${held.bytes} of ${most.bytes} bytes`;

/** Both pools of the sender's side, and its own part of them as far as it is known whose it is. */
function poolStep(
  sending: MailboxSender,
  client: string | null,
  { sums, settings }: { readonly sums: WaitingSums; readonly settings: MailboxLimits },
): Step {
  const places = placesOf(sending, originOf(client), settings);
  const texts = places.map(({ own, pool, poolMax }) => {
    const all = `pool ${pool} has ${renderUse(sums(pool), poolMax)}`;
    if (!sending.isKnown && client === null) return all;
    const most = { entries: own.entriesMax, bytes: own.bytesMax };
    return `${all}, this sender's part of it ${renderUse(sums(own.label), most)}`;
  });
  const network = client === null ? "" : ` in the network of ${client}`;
  const who = sending.isKnown
    ? `the mailbox knows the sender, and ${sending.people} in all`
    : `unsigned or first-time sender${network}`;
  // An envelope of one byte: a larger one may find no room where this says it does.
  const hasRoom = places.some((place) => hasRoomIn(place, 1, { mailbox: sums }));
  const detail = `${who}: ${texts.join("; ")}`;
  return hasRoom ? ok("pools", detail) : stops("pools", `full: ${detail}`);
}

/** A pass shows only with an envelope, so this says what one would change. */
function passSteps({ isKnown }: MailboxSender, count: number | null): Step[] {
  if (count === null || isKnown) return [];
  const detail = `the owner has given ${count}: with one, an envelope counts as from a known sender`;
  return [note("passes", detail)];
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
