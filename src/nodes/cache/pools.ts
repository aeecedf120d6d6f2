/**
 * Pools of a mailbox: who may use how much of it, so that no number of senders closes it to the
 * others. Known people and newcomers have a side each; of a side, most is floors, which no one else
 * can take, and the rest goes to those who need it, each at most half of what the others leave.
 * Also, what one client network may use of the whole store.
 * Source: D450, rules section 6 ("Pools of a mailbox").
 */
import type { Config } from "../../config/schema.ts";
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { MailboxStats } from "../../storage/contract.ts";
import type { MailboxPlace, MailboxShare } from "../../storage/quota.ts";
import type { MailboxLimits } from "../parties/tiers.ts";

/**
 * The client that submitted an envelope: its address, and the network under which it is counted.
 */
export type Origin = { readonly client: string; readonly network: string };

/**
 * Who sends, as the mailbox sees it. `label` is that of the author; `who` has the floor: a known
 * author, or a pass; `people` counts all that are known there.
 */
export type MailboxSender =
  | {
      readonly isKnown: true;
      readonly label: string | null;
      readonly who: string;
      readonly people: number;
    }
  | { readonly isKnown: false; readonly label: string | null };

/** The labels of an entry besides those of the place that it takes. */
export function labelsOf({ label }: MailboxSender, { network }: Origin): readonly string[] {
  const { via } = networkLabels(network);
  return label === null ? [via] : [label, via];
}

type NetworkLabels = {
  /**
   * Under which newcomers of the network are counted in a mailbox, and all that it sends in the
   * store.
   */
  readonly net: string;
  readonly via: string;
  /** Their places, made once for the limits that most mailboxes have. */
  newcomers: { readonly limits: MailboxLimits; readonly places: PlacePair } | null;
};

type PlacePair = readonly [floor: MailboxPlace, rest: MailboxPlace];

const labelsByNetwork = new BoundedMap<string, NetworkLabels>(10_000);

function networkLabels(network: string): NetworkLabels {
  const known = labelsByNetwork.get(network);
  if (known !== undefined) return known;
  const digest = sha256(utf8(`waypost network ${storingNetwork(network)}`)).toHex();
  // 65,536 groups, which a driver counts over the whole store. Two networks seldom meet in one.
  const labels: NetworkLabels = {
    net: `net:${digest.slice(0, 16)}`,
    via: `via:${digest.slice(0, 4)}`,
    newcomers: null,
  };
  labelsByNetwork.set(network, labels);
  return labels;
}

/**
 * The client network behind a label, as `waypost block` takes it: of the networks that sent
 * something lately, because a store keeps only the digest.
 */
export function networkOfLabel(label: string): string | null {
  for (const [network, { net, via }] of labelsByNetwork)
    if (label === via || label.endsWith(`:${net}`)) return storingNetwork(network);
  return null;
}

/**
 * However small a quota is, a pool holds this much: pools protect large mailboxes, not small ones.
 */
const poolEntriesMin = 100;
const poolBytesMin = 4 * 1024 ** 2;
/** Of each side, the part that is floors; the rest of it is the rest. */
const floorParts = { known: 2 / 3, new: 3 / 4 } as const;
/** The floor of a client network of newcomers. */
const newcomerFloor: MailboxStats = { entries: 2, bytes: 64 * 1024 };
/** The number of known people is rounded up, so that the next one changes no floor. */
const peopleStep = 8;
/** What a network may have of the store: none fills it alone. */
const networkPart = 0.5;

/**
 * The places for an entry: a floor of its sender, then the rest of its side. The pools are `known`,
 * `known-rest`, `new` and `new-rest`, which are also the labels of what is in them.
 */
export function placesOf(
  sending: MailboxSender,
  { network }: Origin,
  limits: MailboxLimits,
): PlacePair {
  if (sending.isKnown) return placesOn("known", sending.who, limits, sending.people);
  const labels = networkLabels(network);
  if (labels.newcomers?.limits !== limits)
    labels.newcomers = { limits, places: placesOn("new", labels.net, limits) };
  return labels.newcomers.places;
}

/** `people`: how many share the floors of a side where each has one of its own. */
function placesOn(
  side: "known" | "new",
  who: string,
  limits: MailboxLimits,
  people: number | null = null,
): PlacePair {
  const percent = side === "known" ? 100 - limits.stranger_share : limits.stranger_share;
  const floors = poolOf(limits, percent * floorParts[side]);
  const rest = poolOf(limits, percent * (1 - floorParts[side]));
  const floor = people === null ? newcomerFloor : floorOf(floors, people);
  return [
    {
      own: shareOf(`${side}:${who}`, floor),
      pool: side,
      poolMax: floors,
      isRest: false,
    },
    {
      own: shareOf(`${side}-rest:${who}`, rest),
      pool: `${side}-rest`,
      poolMax: rest,
      isRest: true,
    },
  ];
}

/**
 * Floors of all known people together are within the pool, until it has fewer entries than there
 * are people.
 */
function floorOf(pool: MailboxStats, people: number): MailboxStats {
  const count = Math.max(1, Math.ceil(people / peopleStep)) * peopleStep;
  return {
    entries: Math.max(1, Math.floor(pool.entries / count)),
    bytes: Math.floor(pool.bytes / count),
  };
}

function poolOf(limits: MailboxLimits, percent: number): MailboxStats {
  return {
    entries: partOf(limits.recipient_entries_max, percent, poolEntriesMin),
    bytes: partOf(limits.recipient_bytes_max, percent, poolBytesMin),
  };
}

function partOf(all: number, percent: number, min: number): number {
  return Math.max(min, Math.round((all * percent) / 100));
}

function shareOf(label: string, { entries, bytes }: MailboxStats): MailboxShare {
  return { label, entriesMax: entries, bytesMax: bytes };
}

/** What one network may hold in all mailboxes together. */
export function storeShareOf(
  { network }: Origin,
  settings: Pick<Config["cache"], "store_entries_max" | "store_bytes_max">,
): MailboxShare {
  return {
    label: networkLabels(network).via,
    entriesMax: Math.max(100, Math.floor(settings.store_entries_max * networkPart)),
    bytesMax: Math.max(1024 ** 2, Math.floor(settings.store_bytes_max * networkPart)),
  };
}
