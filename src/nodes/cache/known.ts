/**
 * The senders that a mailbox knows: those of whom its recipient has acknowledged a signed envelope within the last 90
 * days. A sender is familiar once that happened on seven days: newly known ones, which a stranger can have many of,
 * don't use up the share of familiar ones of their network. One record for each mailbox holds at most 1,000 senders; of
 * those with the fewest days the newest is forgotten first. The record is a hint: when it can't be read or written, a
 * sender counts as new.
 * Source: D156, rules section 6 ("Known senders").
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did, MailboxKey } from "../../core/codec/did.ts";
import { dayMs } from "../../core/codec/time.ts";
import { type MailboxEntry, type Receipts, StoreError } from "../../storage/contract.ts";
import { rememberDecoded } from "../../storage/table.ts";
import type { Log } from "../http/log.ts";
import { decodeRecord, encodeRecord } from "../records.ts";

/** What a mailbox knows of a sender. */
export type Acquaintance = "stranger" | "known" | "familiar";

export type KnownSenders = {
  readonly receipts: Receipts;
  readonly log: Log;
  /** Each signed envelope reads the record of its mailbox: decoding one of 1,000 senders costs 100 µs. */
  readonly decode: (key: string, bytes: Uint8Array) => Known;
};

export function createKnownSenders(receipts: Receipts, log: Log): KnownSenders {
  return { receipts, log, decode: rememberDecoded(decodeKnown, { entriesMax: 4_096, bytesMax: 4 * 1024 ** 2 }) };
}

const knownDays = 90;
/** A sender that is seen again is written again only when this many days have passed. */
const renewDays = 30;
const sendersMax = 1_000;
/** Days with an acknowledgement that make a sender familiar. */
const familiarDays = 7;
const digestChars = 16;
/** The day of the last acknowledgement that was written, and on how many days there was one, counted to `familiarDays`. */
type Seen = { readonly day: number; readonly days: number };
/** By the label of the sender. */
type Known = ReadonlyMap<string, Seen>;

const labelPrefix = "from:";

/** The label of entries that this sender has signed. */
export function senderLabel(sender: Did): string {
  return `${labelPrefix}${sha256(utf8(sender)).toHex().slice(0, digestChars)}`;
}

export async function acquaintanceOf(
  known: KnownSenders,
  mailbox: MailboxKey,
  sender: Did,
  nowMs: number,
): Promise<Acquaintance> {
  const seen = (await readKnown(known, mailbox, nowMs)).get(senderLabel(sender));
  if (seen === undefined || seen.day + knownDays < dayOf(nowMs)) return "stranger";
  return seen.days >= familiarDays ? "familiar" : "known";
}

/** Remembers the senders of acknowledged entries: a write a day for each that is not familiar, then one in 30 days. */
export async function remember(
  known: KnownSenders,
  mailbox: MailboxKey,
  acknowledged: readonly Pick<MailboxEntry, "labels">[],
  nowMs: number,
): Promise<void> {
  const senders = new Set<string>();
  for (const { labels } of acknowledged)
    for (const label of labels) if (label.startsWith(labelPrefix)) senders.add(label);
  if (senders.size === 0) return;
  const today = dayOf(nowMs);
  const held = new Map(await readKnown(known, mailbox, nowMs));
  const stale = [...senders].filter((sender) => isStale(held.get(sender), today));
  if (stale.length === 0) return;
  for (const sender of stale) {
    const days = (held.get(sender)?.days ?? 0) + 1;
    held.set(sender, { day: today, days: Math.min(familiarDays, days) });
  }
  const kept = [...held].filter(([, { day }]) => day + knownDays >= today);
  // The sort is stable: of equal ones the newest come last.
  kept.sort(([, a], [, b]) => b.days - a.days);
  const record = kept.slice(0, sendersMax).map(([sender, { day, days }]) => [sender, day, days]);
  try {
    await known.receipts.put(keyOfKnown(mailbox), encodeRecord(record), nowMs + knownDays * dayMs);
  } catch (error) {
    reportLost(known, error);
  }
}

function isStale(seen: Seen | undefined, today: number): boolean {
  if (seen === undefined) return true;
  return seen.day + (seen.days < familiarDays ? 0 : renewDays) < today;
}

async function readKnown(known: KnownSenders, mailbox: MailboxKey, nowMs: number): Promise<Known> {
  try {
    const key = keyOfKnown(mailbox);
    const value = await known.receipts.get(key, nowMs);
    return value === null ? noSenders : known.decode(key, value);
  } catch (error) {
    reportLost(known, error);
    return noSenders;
  }
}

const noSenders: Known = new Map();

function decodeKnown(bytes: Uint8Array): Known {
  const record = decodeRecord<[sender: string, day: number, days: number][]>(bytes);
  return new Map(record.map(([sender, day, days]) => [sender, { day, days }]));
}

function reportLost({ log }: KnownSenders, error: unknown): void {
  if (!(error instanceof StoreError)) throw error;
  log("warn", "the known senders of a mailbox could not be read or written; they count as new", { error });
}

export function keyOfKnown(mailbox: MailboxKey): string {
  return `known-senders:${mailbox}`;
}

function dayOf(ms: number): number {
  return Math.floor(ms / dayMs);
}
