/**
 * Shares: what unsigned and first-time senders together, those of one client network, and one known sender may use of a
 * recipient's quota; and what one client network may use of the whole store. Refusals are counted by what is used up,
 * and logged with the recipient's digest, so that an operator sees whose mailbox refuses.
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
import {
  type MailboxShare,
  type MailboxStats,
  StoreError,
  type StoreOutcome,
} from "../../storage/contract.ts";
import type { Log } from "../http/log.ts";
import type { Metrics } from "../http/metrics.ts";

/** The client that submitted an envelope: its address, and the network under which it is counted. */
export type Origin = { readonly client: string; readonly network: string };

/** Entries of unsigned and first-time senders. */
const strangerLabel = "new";
/** Entries that one client network submits: of strangers and of known senders in a mailbox, and of all in the store. */
const networkPrefix = "net:";
const knownPrefix = "known:";
const storePrefix = "via:";

/** Signed by the sender that `label` names. */
export type Sending = { readonly label: string; readonly isKnown: boolean } | "unsigned";

export const isStranger = (sending: Sending): boolean => sending === "unsigned" || !sending.isKnown;

export function labelsOf(sending: Sending, { network }: Origin): readonly string[] {
  const { known, via, ofStranger } = networkLabels(network);
  if (sending === "unsigned") return ofStranger;
  return sending.isKnown ? [sending.label, known, via] : [sending.label, ...ofStranger];
}

type NetworkLabels = Readonly<Record<"net" | "known" | "via", string>> & {
  readonly ofStranger: readonly string[];
};

/** By network: entries share the array, which stays in memory as long as they do. */
const labelsByNetwork = new BoundedMap<string, NetworkLabels>(10_000);

function networkLabels(network: string): NetworkLabels {
  const known = labelsByNetwork.get(network);
  if (known !== undefined) return known;
  const digest = sha256(utf8(`waypost network ${storingNetwork(network)}`)).toHex();
  const [net = "", acquainted = ""] = [networkPrefix, knownPrefix].map(
    (prefix) => prefix + digest.slice(0, 16),
  );
  // 65,536 groups, which a driver counts over the whole store. Two networks seldom meet in one.
  const via = storePrefix + digest.slice(0, 4);
  const labels = {
    net,
    known: acquainted,
    via,
    ofStranger: Object.freeze([strangerLabel, net, via]),
  };
  labelsByNetwork.set(network, labels);
  return labels;
}

/**
 * The client network behind a label, as `waypost block` takes it: of the networks that sent something lately, because a
 * store keeps only the digest.
 */
export function networkOfLabel(label: string): string | null {
  for (const [network, { net, known }] of labelsByNetwork)
    if (label === net || label === known) return storingNetwork(network);
  return null;
}

/** However small a quota is, a share holds this much: shares protect large mailboxes, not small ones. */
const shareEntriesMin = 100;
const shareBytesMin = 1024 ** 2;
/** Percent for a known sender, and for a network in the store: no one fills either alone. */
const alonePercent = 50;

type Quotas = Pick<
  Config["cache"],
  "recipient_entries_max" | "recipient_bytes_max" | "stranger_share" | "network_share"
>;

const roomOf = (settings: Quotas): MailboxStats => ({
  entries: settings.recipient_entries_max,
  bytes: settings.recipient_bytes_max,
});

function shareOf(label: string, percent: number, { entries, bytes }: MailboxStats): MailboxShare {
  return {
    label,
    entriesMax: Math.max(shareEntriesMin, Math.floor((entries * percent) / 100)),
    bytesMax: Math.max(shareBytesMin, Math.floor((bytes * percent) / 100)),
  };
}

/** The share that a sender has whatever its network is: that of all strangers, or its own. */
function shareOfSender(sending: Sending, settings: Quotas): MailboxShare {
  if (sending !== "unsigned" && sending.isKnown)
    return shareOf(sending.label, alonePercent, roomOf(settings));
  return shareOf(strangerLabel, settings.stranger_share, roomOf(settings));
}

/** A known sender has its own share alone: a stranger behind the same address must not shut it out. */
export function sharesOf(sending: Sending, { network }: Origin, settings: Quotas): MailboxShare[] {
  const ofSender = shareOfSender(sending, settings);
  if (!isStranger(sending)) return [ofSender];
  return [ofSender, shareOf(networkLabels(network).net, settings.network_share, roomOf(settings))];
}

/** What one network may hold in all mailboxes together. */
export function storeShareOf({ network }: Origin, settings: Config["cache"]): MailboxShare {
  const room = { entries: settings.store_entries_max, bytes: settings.store_bytes_max };
  return shareOf(networkLabels(network).via, alonePercent, room);
}

/** What is used up: a share of the mailbox or all of it, the share of a network in the store (`store`) or all of that. */
type Scope = "strangers" | "network" | "sender" | "mailbox" | "store" | "whole";
/** `disk`: the store has no room although its quota does. */
const scopes: readonly (Scope | "disk")[] = [
  "strangers",
  "network",
  "sender",
  "mailbox",
  "store",
  "whole",
  "disk",
];
type Full = Extract<StoreOutcome, { kind: "full" }>;

export type FullReports = {
  readonly refuse: (full: Full, recipient: Did) => Fault;
  /** Counts a store whose disk is full, and throws what it threw. */
  readonly failed: (error: unknown) => never;
};

const warnedMax = 1_000;

type ReportParts = {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly now: () => number;
  /** Names a recipient in the log. */
  readonly digest: (did: Did) => string;
};

/** Counts refusals, and logs what refuses: at once, and once a minute for as long as it does. */
export function createFullReports({ log, metrics, now, digest }: ReportParts): FullReports {
  const refusals = metrics.counter({
    name: "cache_share_refusals_total",
    help: "Stores refused because a mailbox, the store, its disk, or a share of them is used up.",
    labels: ["scope"],
    start: scopes.map((scope) => [scope]),
  });
  const warned = new BoundedMap<string, number>(warnedMax);
  return {
    refuse: (full, recipient) => {
      const scope = scopeOf(full);
      refusals.add([scope]);
      const isStore = scope === "store" || scope === "whole";
      const what = isStore ? scope : digest(recipient);
      if (now() - (warned.get(what) ?? Number.NEGATIVE_INFINITY) >= minuteMs) {
        warned.set(what, now());
        if (scope === "whole")
          log("error", "the Cache is full: store_bytes_max or store_entries_max is reached");
        else if (!isStore) log("warn", "a mailbox refuses envelopes", { scope, recipient: what });
      }
      return fault(isStore ? "storage_full" : "mailbox_full", details[scope]);
    },
    failed: (error) => {
      if (error instanceof StoreError && error.code === "full") refusals.add(["disk"]);
      throw error;
    },
  };
}

function scopeOf(full: Full): Scope {
  if (!("label" in full)) return full.scope === "store" ? "whole" : "mailbox";
  if (full.scope === "store_share") return "store";
  if (full.label === strangerLabel) return "strangers";
  return full.label.startsWith(networkPrefix) ? "network" : "sender";
}

const details: Record<Scope, string> = {
  strangers: "unsigned and first-time senders have used up their share of this mailbox",
  network: "this client network has used up its share of this mailbox",
  sender: "this sender has used up its share of this mailbox",
  mailbox: "the mailbox of the recipient is full",
  store: "this client network has used up its share of this Cache",
  whole: "this Cache is full",
};
