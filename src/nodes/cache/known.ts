/**
 * Senders that a mailbox knows: those of whom the recipient has acknowledged a signed envelope within the
 * last 90 days. Everybody else shares a part of the mailbox, so that strangers can't close it for friends.
 * One record for each mailbox holds at most 1,000 senders, the ones seen longest ago forgotten first. It is
 * a hint: when it can't be read or written, a sender counts as new.
 * Source: D156.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import type { Did, MailboxKey } from "../../core/codec/did.ts";
import { sha256 } from "../../core/codec/hash.ts";
import { dayMs } from "../../core/codec/time.ts";
import { type Receipts, StoreError } from "../../storage/contract.ts";
import { rememberDecoded } from "../../storage/decoded.ts";
import type { Log } from "../http/log.ts";

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
/** A record is a list of these: the start of a digest, and the day of the last acknowledgement. */
const digestChars = 16;
type Known = ReadonlyMap<string, number>;

const labelPrefix = "from:";

/** The label of entries that this sender has signed. */
export function senderLabel(sender: Did): string {
  return `${labelPrefix}${sha256(utf8(sender)).toHex().slice(0, digestChars)}`;
}

export async function isKnown(known: KnownSenders, mailbox: MailboxKey, sender: Did, nowMs: number): Promise<boolean> {
  const day = (await readKnown(known, mailbox, nowMs)).get(senderLabel(sender));
  return day !== undefined && day + knownDays >= dayOf(nowMs);
}

/** Remembers the senders of acknowledged entries. No write when all of them are known. */
export async function remember(
  known: KnownSenders,
  mailbox: MailboxKey,
  labels: readonly string[],
  nowMs: number,
): Promise<void> {
  const senders = new Set(labels.filter((label) => label.startsWith(labelPrefix)));
  if (senders.size === 0) return;
  const today = dayOf(nowMs);
  const held = new Map(await readKnown(known, mailbox, nowMs));
  const stale = [...senders].filter((sender) => (held.get(sender) ?? Number.NEGATIVE_INFINITY) + renewDays < today);
  if (stale.length === 0) return;
  for (const sender of stale) {
    held.delete(sender);
    held.set(sender, today);
  }
  const kept = [...held].filter(([, day]) => day + knownDays >= today).slice(-sendersMax);
  try {
    await known.receipts.put(keyOf(mailbox), utf8(JSON.stringify(kept)), nowMs + knownDays * dayMs);
  } catch (error) {
    reportLost(known, error);
  }
}

async function readKnown(known: KnownSenders, mailbox: MailboxKey, nowMs: number): Promise<Known> {
  try {
    const key = keyOf(mailbox);
    const value = await known.receipts.get(key, nowMs);
    return value === null ? nobody : known.decode(key, value);
  } catch (error) {
    reportLost(known, error);
    return nobody;
  }
}

const nobody: Known = new Map();

function decodeKnown(bytes: Uint8Array): Known {
  return new Map(JSON.parse(new TextDecoder().decode(bytes)) as [string, number][]);
}

function reportLost({ log }: KnownSenders, error: unknown): void {
  if (!(error instanceof StoreError)) throw error;
  log("warn", "the known senders of a mailbox could not be read or written; they count as new", { error: error.code });
}

function keyOf(mailbox: MailboxKey): string {
  return `known-senders:${mailbox}`;
}

function dayOf(ms: number): number {
  return Math.floor(ms / dayMs);
}
