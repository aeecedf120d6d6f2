/**
 * The senders that a mailbox knows: who shows a pass of its owner, or, until the owner puts passes,
 * those of whom an acknowledgement removed a signed envelope within the last 90 days. One record
 * for each mailbox holds at most 1,000; while it is full, no other sender becomes known, so
 * strangers who get many envelopes acknowledged displace no one. The record is a hint: when it
 * can't be read or written, a sender counts as new.
 * Source: D156, rules section 6 ("Known senders").
 */
import type { MailboxKey } from "../../core/codec/did.ts";
import { dayMs } from "../../core/codec/time.ts";
import { type MailboxEntry, type Receipts, StoreError } from "../../storage/contract.ts";
import { rememberDecoded } from "../../storage/table.ts";
import type { Log } from "../http/log.ts";
import { type EnvelopeAuthor, isVerifiedAuthor } from "../parties/author.ts";
import { decodeRecord, encodeRecord } from "../parties/records.ts";
import { createPassStore, loadPasses, type PassStore, passLabel, readPasses } from "./passes.ts";
import type { MailboxSender } from "./pools.ts";

export type KnownSenders = {
  readonly receipts: Receipts;
  readonly log: Log;
  readonly passes: PassStore;
  /**
   * Each signed envelope reads the record of its mailbox: decoding one of
   * 1,000 senders costs 100 µs.
   */
  readonly decode: (key: string, bytes: Uint8Array) => KnownDays;
};

export function createKnownSenders(receipts: Receipts, log: Log): KnownSenders {
  const decode = (bytes: Uint8Array): KnownDays => new Map(decodeRecord<[string, number][]>(bytes));
  return {
    receipts,
    log,
    passes: createPassStore(receipts, log),
    decode: rememberDecoded(decode, { entriesMax: 4_096, bytesMax: 4 * 1024 ** 2 }),
  };
}

const knownDays = 90;
const sendersMax = 1_000;
/**
 * By the label of the sender, in the order in which they became known: the day of
 * the last acknowledgement.
 */
type KnownDays = ReadonlyMap<string, number>;

/** Who sends an envelope, and what the request shows for it. */
export type ShownSender = {
  readonly author: EnvelopeAuthor;
  readonly pass: string | null;
  readonly envelope: Uint8Array;
};

/** How a mailbox sees who sends: whether it is known, and how many are. */
export function sendingOf(
  known: KnownSenders,
  mailbox: MailboxKey,
  from: ShownSender,
  nowMs: number,
): MailboxSender | Promise<MailboxSender> {
  const { author, pass } = from;
  return pass !== null || (author !== null && isVerifiedAuthor(author))
    ? lookUpSender(known, mailbox, from, nowMs)
    : { isKnown: false, label: author };
}

async function lookUpSender(
  known: KnownSenders,
  mailbox: MailboxKey,
  { author, pass, envelope }: ShownSender,
  nowMs: number,
): Promise<MailboxSender> {
  const [passes, senders] = await Promise.all([
    readPasses(known.passes, mailbox, nowMs),
    readKnown(known, mailbox, nowMs),
  ]);
  const people = senders.size + (passes?.count ?? 0);
  const shown = passes === null ? null : passLabel(passes, pass, { envelope, nowMs });
  const day = author !== null && isVerifiedAuthor(author) ? senders.get(author) : undefined;
  const isAcknowledged = day !== undefined && dayNumber(nowMs) <= day + knownDays;
  const who = shown ?? (isAcknowledged ? author : null);
  if (who === null) return { isKnown: false, label: author };
  return { isKnown: true, label: author, who, people };
}

/**
 * Remembers the senders of acknowledged entries, where the owner has put no passes: one write a day
 * for each. What can't be read is not written over.
 */
export async function rememberSenders(
  known: KnownSenders,
  mailbox: MailboxKey,
  acknowledged: readonly Pick<MailboxEntry, "labels">[],
  nowMs: number,
): Promise<void> {
  const senders = acknowledged.flatMap(({ labels }) => labels.filter(isVerifiedAuthor));
  if (senders.length === 0) return;
  try {
    if ((await loadPasses(known.passes, mailbox, nowMs)) !== null) return;
    const record = withSenders(await loadKnown(known, mailbox, nowMs), senders, dayNumber(nowMs));
    if (record === null) return;
    await known.receipts.put(keyOfKnown(mailbox), encodeRecord(record), nowMs + knownDays * dayMs);
  } catch (error) {
    reportLost(known, error);
  }
}

/** The record with these senders as of today; `null` when it says so already, or is full. */
function withSenders(
  all: KnownDays,
  senders: readonly string[],
  today: number,
): [string, number][] | null {
  const held = new Map([...all].filter(([, day]) => today <= day + knownDays));
  const isFull = held.size >= sendersMax;
  if (senders.every((sender) => held.get(sender) === today || (isFull && !held.has(sender))))
    return null;
  for (const sender of senders) held.set(sender, today);
  return [...held].slice(0, sendersMax);
}

async function loadKnown(
  known: KnownSenders,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<KnownDays> {
  const key = keyOfKnown(mailbox);
  const value = await known.receipts.get(key, nowMs);
  return value === null ? noSenders : known.decode(key, value);
}

async function readKnown(
  known: KnownSenders,
  mailbox: MailboxKey,
  nowMs: number,
): Promise<KnownDays> {
  try {
    return await loadKnown(known, mailbox, nowMs);
  } catch (error) {
    reportLost(known, error);
    return noSenders;
  }
}

const noSenders: KnownDays = new Map();

function reportLost({ log }: KnownSenders, error: unknown): void {
  if (!(error instanceof StoreError)) throw error;
  log("warn", "the known senders of a mailbox could not be read or written; they count as new", {
    error,
  });
}

export function keyOfKnown(mailbox: MailboxKey): string {
  return `known-senders:${mailbox}`;
}

function dayNumber(ms: number): number {
  return Math.floor(ms / dayMs);
}
