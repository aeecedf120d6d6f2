/** Entries and ids for the cases. Times in the cases are small numbers. */
import type { MailboxKey, Uuid } from "../../src/core/codec/did.ts";
import { isFault } from "../../src/core/fault.ts";
import {
  type Chunk,
  type HeldMessage,
  type Mailbox,
  type MailboxEntry,
  type MessageSummary,
  type Page,
  type PageRequest,
  type RemovedMessage,
  StoreError,
  type StoreOutcome,
} from "../../src/storage/contract.ts";
import { shortDigest } from "../../src/storage/mailbox-rules.ts";
import type { MailboxQuota } from "../../src/storage/quota.ts";

export const alice = "did:svc:AAAAAAAAAAAAAAAAAAAA" as MailboxKey;
export const bob = "did:svc:BBBBBBBBBBBBBBBBBBBB" as MailboxKey;

export function did(n: number): MailboxKey {
  const digits = String(n).padStart(16, "1").replaceAll("0", "z");
  return `did:svc:${digits}` as MailboxKey;
}

/** A UUID whose four words all depend on `n`, as those of real ids do. */
export function id(n: number): Uuid {
  const word = (k: number) => (Math.imul(n + 1, k) >>> 0).toString(16).padStart(8, "0");
  const [a, b, c] = [word(2654435761), word(2246822519), word(3266489917)];
  const d = (n >>> 0).toString(16).padStart(8, "0");
  return `${a}-${b.slice(0, 4)}-${b.slice(4)}-${c.slice(0, 4)}-${c.slice(4)}${d}` as Uuid;
}

export function chunkOf(group: number, sequence: number, total: number): Chunk {
  return { groupId: id(1_000_000 + group), sequence, total };
}

/** Stored at 1,000, expires at 10,000, kept until 19,000, 100 bytes that depend on `n`. */
export function entry(n: number, changes: Partial<MailboxEntry> = {}): MailboxEntry {
  return {
    recipient: alice,
    messageId: id(n),
    chunk: null,
    storedAtMs: 1_000,
    expiresAtMs: 10_000,
    onExpiry: "DeleteOnExpiry",
    keptUntilMs: 19_000,
    headerPreview: null,
    labels: [],
    envelope: bytesOf(n, 100),
    digest: shortDigest(changes.envelope ?? bytesOf(n, 100)),
    ...changes,
  };
}

/** The entry with another envelope. */
export function holding(entry: MailboxEntry, envelope: Uint8Array): MailboxEntry {
  return { ...entry, envelope, digest: shortDigest(envelope) };
}

/** Bytes of every value, different for each `n`. */
export function bytesOf(n: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 7 + n * 31 + (i >> 8)) & 0xff);
}

export function quota(changes: Partial<MailboxQuota> = {}): MailboxQuota {
  const large = Number.MAX_SAFE_INTEGER;
  return {
    recipientEntriesMax: large,
    recipientBytesMax: large,
    places: [],
    storeEntriesMax: large,
    storeBytesMax: large,
    storeShare: null,
    ...changes,
  };
}

export function pageOf(changes: Partial<PageRequest> = {}): PageRequest {
  return { after: null, entriesMax: 1_000, bytesMax: 1 << 30, nowMs: 2_000, ...changes };
}

/** The answer, which must not be a refusal. */
export function answered<T>(answer: T): Exclude<T, import("../../src/core/fault.ts").Fault> {
  if (isFault(answer)) throw new Error(`refused: ${answer.code}`);
  return answer as Exclude<T, import("../../src/core/fault.ts").Fault>;
}

export async function listAll(
  mailbox: Mailbox,
  recipient: MailboxKey,
  page: PageRequest,
): Promise<HeldMessage[]> {
  const all: HeldMessage[] = [];
  let after = page.after;
  for (let pages = 0; pages < 10_000; pages++) {
    const answer: Page<HeldMessage> = answered(await mailbox.list(recipient, { ...page, after }));
    all.push(...answer.entries);
    if (answer.next === null) return all;
    after = answer.next;
  }
  throw new Error("the pages never end");
}

export function ids(entries: readonly { readonly messageId: Uuid }[]): Uuid[] {
  return entries.map((one) => one.messageId);
}

/** What `remove` answers for entries without labels. */
export function removedOf(messageIds: readonly Uuid[]): RemovedMessage[] {
  return [...messageIds].sort().map((messageId) => ({ messageId, labels: [] }));
}

export function kinds(outcomes: readonly StoreOutcome[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of outcomes) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** What the operation throws or rejects with, or `null`. */
export async function failureOf(operation: () => unknown): Promise<unknown> {
  try {
    await operation();
    return null;
  } catch (error) {
    return error;
  }
}

export function isFull(error: unknown): boolean {
  return error instanceof StoreError && error.code === "full";
}

/** A generator of numbers in [0, 1) that a seed repeats. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

type Group = {
  readonly entries: readonly MessageSummary[];
  readonly total: number | null;
  readonly complete: boolean;
};

/** The active chunks of a group, by sequence number. */
export async function groupOf(
  mailbox: Mailbox,
  recipient: MailboxKey,
  groupId: Uuid,
  nowMs = pageOf().nowMs,
): Promise<Group> {
  const entries = await mailbox.chunks(recipient, groupId, nowMs);
  const total = entries[0]?.chunk?.total ?? null;
  return { entries, total, complete: entries.length === total };
}
