/**
 * Shares of a mailbox: what unsigned and first-time senders together, those of one client network alone, one known
 * sender, and the known senders of one client network may use of a recipient's quota; and what one client network may
 * use of the whole store. Shares of networks and senders shrink as others fill theirs, so that the next one finds room.
 * Refusals are counted, and logged with the recipient's digest and the client's network, so that an operator sees whose
 * mailbox refuses whom.
 * Source: D156, rules section 6 ("Strangers").
 */
import type { Config } from "../../config/schema.ts";
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { MailboxShare, Rest, StoreOutcome, StoreShare } from "../../storage/contract.ts";
import { type Log, maskAddress } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";
import type { Acquaintance } from "./known.ts";

/** The client that submitted an envelope: its address, and the network under which it is counted. */
export type Origin = { readonly client: string; readonly network: string };

/** Entries of unsigned and first-time senders. */
const strangerLabel = "new";
/** Entries that one network submits: of strangers, of known and of familiar senders. */
const networkPrefixes = ["net:", "known:", "familiar:"];
const storePrefix = "via:";

/** Signed by the sender that `label` names. */
export type Sending = { readonly label: string; readonly acquaintance: Acquaintance } | "unsigned";

/**
 * The labels of an entry. A known sender counts for itself: a stranger behind the same address must not shut it out.
 * In the share of the store everything that a network submits counts.
 */
export function labelsOf(sending: Sending, { network }: Origin): readonly string[] {
  const { stranger, via, ...networks } = networkLabels(network);
  if (sending === "unsigned") return stranger;
  if (sending.acquaintance === "stranger") return [sending.label, ...stranger];
  return [sending.label, networks[sending.acquaintance], via];
}

type NetworkLabels = Readonly<Record<"net" | "known" | "familiar" | "via", string>> & {
  readonly stranger: readonly string[];
};

/** By network: entries share the array, which stays in memory as long as they do. */
const labelsByNetwork = new BoundedMap<string, NetworkLabels>(10_000);

function networkLabels(network: string): NetworkLabels {
  const known = labelsByNetwork.get(network);
  if (known !== undefined) return known;
  const digest = sha256(utf8(`waypost network ${storingNetwork(network)}`)).toHex();
  const [net = "", acquainted = "", familiar = ""] = networkPrefixes.map((prefix) => prefix + digest.slice(0, 16));
  // 65,536 groups, which a driver counts over the whole store. Two networks seldom meet in one.
  const via = `${storePrefix}${digest.slice(0, 4)}`;
  const labels = { net, known: acquainted, familiar, via, stranger: Object.freeze([strangerLabel, net, via]) };
  labelsByNetwork.set(network, labels);
  return labels;
}

/**
 * The client network behind a label, as `waypost block` takes it: of the networks that sent something lately, because a
 * store keeps only the digest.
 */
export function networkOfLabel(label: string): string | null {
  for (const [network, { net, known, familiar }] of labelsByNetwork)
    if (label === net || label === known || label === familiar) return storingNetwork(network);
  return null;
}

/** However small a quota is, the first share holds this much: shares protect large mailboxes, not small ones. */
const shareEntriesMin = 100;
const shareBytesMin = 1024 ** 2;
/** Unsigned entries leave the last fifth of a network's share to senders that sign. */
const unsignedPart = 0.8;
/** A known sender, the known senders of a network, and a network in the store get half: no one fills a mailbox alone. */
const alonePart = 0.5;
/** Shares shrink within this part. The rest is for the least that every sender or network may hold. */
const shrinkingPart = 0.9;
/** Strangers leave this part of a mailbox to known senders, whatever these have stored before. */
const strangersMax = 0.95;

/** With the default quota 125 networks more than those that fill the shrinking part must join to close it for the next. */
const networkMin = { entriesMin: 4, bytesMin: 128 * 1024 };
const senderMin = { entriesMin: 8, bytesMin: 256 * 1024 };
/** A network may always hold this part of a store: 1,000 entries and 16 MiB of the default one. */
const storeMin = { entriesPart: 1 / 10_000, bytesPart: 1 / 4_096 };

type Room = { readonly entries: number; readonly bytes: number };
type Least = Pick<Rest, "entriesMin" | "bytesMin">;

/** A share that is `first` of the room while no other label has anything, and shrinks as others come. */
function shrinking(room: Room, first: number, least: Least): Omit<StoreShare, "label"> {
  const part = Math.min(1, first / shrinkingPart);
  return {
    entriesMax: Math.max(Math.floor(room.entries * shrinkingPart), Math.ceil(shareEntriesMin / part)),
    bytesMax: Math.max(Math.floor(room.bytes * shrinkingPart), Math.ceil(shareBytesMin / part)),
    rest: { part, ...least },
  };
}

/** The share of a known sender, or of the known senders of a network, among all of the mailbox. */
function shareOf(room: Room, label: string): MailboxShare {
  const { rest, ...sums } = shrinking(room, alonePart, senderMin);
  return { label, ...sums, rest: { ...rest, among: null } };
}

type Quotas = Pick<
  Config["cache"],
  "recipient_entries_max" | "recipient_bytes_max" | "stranger_share" | "network_share"
>;

const roomOf = (settings: Quotas): Room => ({
  entries: settings.recipient_entries_max,
  bytes: settings.recipient_bytes_max,
});

/** The share that a sender has whatever its network is: that of all strangers, or its own. */
export function shareOfSender(sending: Sending, settings: Quotas): MailboxShare {
  const room = roomOf(settings);
  if (sending !== "unsigned" && sending.acquaintance !== "stranger") return shareOf(room, sending.label);
  const strangers = partOf(room, settings.stranger_share / 100);
  return { label: strangerLabel, entriesMax: strangers.entries, bytesMax: strangers.bytes, rest: null };
}

export function sharesOf(sending: Sending, origin: Origin, settings: Quotas): MailboxShare[] {
  const room = roomOf(settings);
  const ofSender = shareOfSender(sending, settings);
  if (sending !== "unsigned" && sending.acquaintance !== "stranger") {
    return [ofSender, shareOf(room, networkLabels(origin.network)[sending.acquaintance])];
  }
  const { stranger_share, network_share } = settings;
  const strangers = partOf(room, stranger_share / 100);
  const first = (network_share / stranger_share) * (sending === "unsigned" ? unsignedPart : 1);
  const { rest, ...sums } = shrinking(strangers, first, networkMin);
  const most = partOf(room, strangersMax);
  return [
    ofSender,
    {
      label: strangerLabel,
      entriesMax: most.entries,
      bytesMax: most.bytes,
      rest: { among: null, part: 1, entriesMin: 0, bytesMin: 0 },
    },
    { label: networkLabels(origin.network).net, ...sums, rest: { ...rest, among: strangerLabel } },
  ];
}

function partOf({ entries, bytes }: Room, part: number): Room {
  return {
    entries: Math.max(shareEntriesMin, Math.floor(entries * part)),
    bytes: Math.max(shareBytesMin, Math.floor(bytes * part)),
  };
}

/** What one network may hold in all mailboxes together. */
export function storeShareOf(origin: Origin, settings: Config["cache"]): StoreShare {
  const room = { entries: settings.store_entries_max, bytes: settings.store_bytes_max };
  const least = {
    entriesMin: Math.max(networkMin.entriesMin, Math.floor(room.entries * storeMin.entriesPart)),
    bytesMin: Math.max(networkMin.bytesMin, Math.floor(room.bytes * storeMin.bytesPart)),
  };
  return { label: networkLabels(origin.network).via, ...shrinking(room, alonePart, least) };
}

/** What is used up: a share of the mailbox or all of it, the share of a network in the store (`store`) or all of that. */
type Scope = "strangers" | "network" | "sender" | "mailbox" | "store" | "whole";
type Full = Extract<StoreOutcome, { kind: "full" }>;

export type FullReports = { readonly refuse: (full: Full, recipient: Did, origin: Origin) => Fault };

const warnEveryMs = minuteMs;
const warnedMax = 1_000;

type ReportParts = {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly now: () => number;
  /** Names a recipient in the log. */
  readonly digest: (did: Did) => string;
};

/** Counts refusals, and logs what refuses: at once, and once a minute for as long as it does. */
export function createFullReports({ log, metrics, now, digest: digestOf }: ReportParts): FullReports {
  const refusals = metrics.counter({
    name: "cache_share_refusals_total",
    help: "Stores refused because a mailbox, the store, or a share of them is used up.",
    labels: ["scope"],
  });
  const warned = new BoundedMap<string, number>(warnedMax);
  return {
    refuse: (full, recipient, { client }) => {
      const scope = scopeOf(full);
      refusals.add([scope]);
      const fields = fieldsOf(scope, { recipient: digestOf(recipient), network: maskAddress(client) });
      const key = Object.values(fields).join(" ");
      if (now() - (warned.get(key) ?? Number.NEGATIVE_INFINITY) >= warnEveryMs) {
        warned.set(key, now());
        if (scope === "whole") log("error", "the Cache is full: store_bytes_max or store_entries_max is reached");
        else log("warn", scope === "store" ? "a share of the store is used up" : "a mailbox refuses envelopes", fields);
      }
      return fault(scope === "whole" || scope === "store" ? "storage_full" : "mailbox_full", details[scope]);
    },
  };
}

type Involved = { readonly recipient: string; readonly network: string };

/** A full mailbox, and a full store, refuse everybody. */
function fieldsOf(scope: Scope, { recipient, network }: Involved): Readonly<Record<string, string>> {
  if (scope === "whole") return { scope };
  return scope === "mailbox" ? { scope, recipient } : { scope, recipient, network };
}

function scopeOf(full: Full): Scope {
  if (!("label" in full)) return full.scope === "store" ? "whole" : "mailbox";
  if (full.scope === "store_share") return "store";
  if (full.label === strangerLabel) return "strangers";
  return networkPrefixes.some((prefix) => full.label.startsWith(prefix)) ? "network" : "sender";
}

const details: Record<Scope, string> = {
  strangers: "unsigned and first-time senders have used up their share of this mailbox",
  network: "this client network has used up its share of this mailbox",
  sender: "this sender has used up its share of this mailbox",
  mailbox: "the mailbox of the recipient is full",
  store: "this client network has used up its share of this Cache",
  whole: "this Cache is full",
};
