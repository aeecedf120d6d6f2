/**
 * Entries of a mailbox in answers. Envelopes are spliced in as the bytes that were stored; nothing here parses them
 * again. Ids, DIDs and times hold nothing that JSON escapes, so they are written as they are.
 * Retrieval without a cursor answers whole messages, as many as one answer holds, for a client without
 * paging. A plan is made from summaries; envelopes are then read in batches as the client reads them, so
 * that an answer holds about 1 MiB in memory whatever its length.
 * The plan starts at the oldest entry. It selects messages and complete sets of chunks until the next one does not
 * fit, and skips sets that are unfinished or larger than any answer: they block nothing behind them, and
 * `next_cursor` leads to everything that was left out.
 * Source: interface "Cached message entry", rules section 6, D141.
 */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import type { Chunk, Cursor, GroupPage, HeldMessage, Mailbox, MessageSummary } from "../../storage/contract.ts";
import { type JsonPart, type Spliced, splice } from "../http/route.ts";
import { type AnswerContext, signEvent } from "./store.ts";

// -------------------------------------------------------------------------------------------- entries as JSON

/** JSON text around an envelope and its commas: ids, DID, times, chunk and event proof. */
const entryOverheadBytes = 1_024;

/**
 * The entries of a list, with commas. An entry is JSON text up to its envelope, the stored bytes, and JSON
 * text after them; the text between two envelopes is one part.
 */
export function entryParts(entries: readonly HeldMessage[], context: AnswerContext): Spliced {
  const timestamp = renderTimestamp(context.nowMs);
  const parts: (string | Uint8Array)[] = [];
  let before = "";
  for (const entry of entries) {
    const { messageId, chunk, expiresAtMs, envelope } = entry;
    const chunked = chunk === null ? "false" : `true,"chunk":${JSON.stringify(renderChunk(chunk))}`;
    const names = `"message_id":"${messageId}","recipient":"${context.recipient}"`;
    parts.push(`${before}{${names},"expires_at":"${renderTimestamp(expiresAtMs)}","chunked":${chunked},"envelope":`);
    parts.push(envelope);
    before = `,"proof":${renderRetrievalProof(messageId, timestamp, context)}},`;
  }
  if (before !== "") parts.push(before.slice(0, -1));
  return parts;
}

/** The JSON text of the event proof of one entry. */
function renderRetrievalProof(messageId: Uuid, timestamp: string, context: AnswerContext): string {
  const { recipient } = context;
  const signature = signEvent("retrieval", { messageId, timestamp }, context);
  const signed = signature === null ? "null" : `"${signature}"`;
  const event = `"event_type":"retrieval","message_id":"${messageId}","recipient_did":"${recipient}"`;
  return `{${event},"timestamp":"${timestamp}","reason":null,"signature":${signed}}`;
}

/** The last members of a list: `next` continues with everything that was left out. */
export function renderMore(next: string | null): string {
  return next === null ? `,"has_more":false` : `,"has_more":true,"next_cursor":${JSON.stringify(next)}`;
}

function renderChunk(chunk: Chunk) {
  return { message_group_id: chunk.groupId, sequence_number: chunk.sequence, total_chunks: chunk.total };
}

/** Chunk members are flat in a summary, as in an envelope. */
export function renderSummaryEntry(entry: MessageSummary): Record<string, unknown> {
  const { messageId, chunk, expiresAtMs } = entry;
  return {
    message_id: messageId,
    expires_at: renderTimestamp(expiresAtMs),
    chunked: chunk !== null,
    ...(chunk === null ? {} : renderChunk(chunk)),
  };
}

// --------------------------------------------------------------------------------------------- whole messages

/** What one answer may hold. */
type AnswerBounds = { readonly entriesMax: number; readonly bytesMax: number };

/** What the plan needs to know of an entry. */
export type PlanEntry = Pick<MessageSummary, "messageId" | "chunk" | "envelopeBytes" | "cursor">;

type WholePlan = {
  /** In the order of arrival. */
  readonly selected: readonly PlanEntry[];
  /** The last entry before the first one that was left out: `null` when nothing was, `start` when there is none. */
  readonly next: Cursor | null;
};

/**
 * Continues at the oldest entry. It is a cursor of the Cache and not of a driver, whose cursors can't hold
 * this character.
 */
export const startCursor = "~";

/** `more`: entries after these were not read. */
export function planWhole(
  entries: readonly PlanEntry[],
  { more, entriesMax, bytesMax }: AnswerBounds & { readonly more: boolean },
): WholePlan {
  const sets = chunkSets(entries);
  const taken = new Set<Uuid>();
  const selected: PlanEntry[] = [];
  let room = { entries: entriesMax, bytes: bytesMax };
  let firstLeftOut: number | null = null;
  let full = false;
  entries.forEach((entry, index) => {
    const set =
      entry.chunk === null ? { entries: 1, bytes: entry.envelopeBytes, complete: true } : sets.get(entry.chunk.groupId);
    const known = entry.chunk !== null && taken.has(entry.chunk.groupId);
    if (!known && !full && set?.complete === true) {
      // The first message goes out however large it is: nothing else could ever get it to the client.
      const fits =
        (set.entries <= room.entries && set.bytes <= room.bytes) || (selected.length === 0 && set.entries === 1);
      const everFits = set.entries <= entriesMax && set.bytes <= bytesMax;
      if (fits) {
        room = { entries: room.entries - set.entries, bytes: room.bytes - set.bytes };
        if (entry.chunk !== null) taken.add(entry.chunk.groupId);
        selected.push(entry);
        return;
      }
      full = everFits || entry.chunk === null;
    }
    if (known) selected.push(entry);
    else firstLeftOut ??= index;
  });
  if (firstLeftOut === null) return { selected, next: more ? (entries.at(-1)?.cursor ?? startCursor) : null };
  return { selected, next: entries[firstLeftOut - 1]?.cursor ?? startCursor };
}

type ChunkSet = { entries: number; bytes: number; complete: boolean };

function chunkSets(entries: readonly PlanEntry[]): Map<Uuid, ChunkSet> {
  const sets = new Map<Uuid, ChunkSet>();
  for (const { chunk, envelopeBytes } of entries) {
    if (chunk === null) continue;
    const set = sets.get(chunk.groupId) ?? { entries: 0, bytes: 0, complete: false };
    set.entries += 1;
    set.bytes += envelopeBytes;
    // A sequence number is held once, so the number of entries suffices.
    set.complete = set.entries === chunk.total;
    sets.set(chunk.groupId, set);
  }
  return sets;
}

// -------------------------------------------------------------------------------------------------- scan

/** Ids in one read of the store while planning. */
const scanPageEntries = 1_000;
/**
 * Entries that a plan reads: the default quota of a mailbox, about 2 MB while planning. With a
 * larger quota the cursor leads to later entries.
 */
const scanEntriesMax = 10_000;

type WholeSource = {
  readonly mailbox: Mailbox;
  readonly recipient: MailboxKey;
  readonly bounds: AnswerBounds;
  /** Entries may expire while the answer goes out. */
  readonly now: () => number;
};

/** Reads summaries until the answer is full, the mailbox ends, or the plan reaches its bound. */
export async function scanWhole({ mailbox, recipient, bounds, now }: WholeSource): Promise<WholePlan | Fault> {
  const nowMs = now();
  const entries: PlanEntry[] = [];
  let after: Cursor | null = null;
  for (;;) {
    const page = await mailbox.summary(recipient, { after, entriesMax: scanPageEntries, bytesMax: 0, nowMs });
    if (isFault(page)) return page;
    entries.push(...page.entries);
    after = page.next;
    const more = after !== null;
    const plan = planWhole(entries, { ...bounds, more });
    if (!more || entries.length >= scanEntriesMax || isFull(plan, bounds)) return plan;
  }
}

/** Half full is enough: reading further costs more than a second request. */
function isFull({ selected }: WholePlan, { entriesMax, bytesMax }: AnswerBounds): boolean {
  const bytes = selected.reduce((sum, entry) => sum + entry.envelopeBytes, 0);
  return selected.length >= entriesMax / 2 || bytes >= bytesMax / 2;
}

// ------------------------------------------------------------------------------------------------- parts

/** Envelopes in memory at a time for one answer; a larger one goes alone. */
const batchBytesMax = 1024 ** 2;

/** The answer of a plan. Entries that were acknowledged or have expired since are left out of it. */
export async function* wholeParts(
  { mailbox, recipient, now }: WholeSource,
  plan: WholePlan,
  context: AnswerContext,
): AsyncGenerator<JsonPart> {
  let count = 0;
  yield textPart('{"messages":[');
  for (const batch of batches(plan.selected)) {
    const ids = batch.map((entry) => entry.messageId);
    const read = async (): Promise<Uint8Array> => {
      const entries = await mailbox.read(recipient, ids, now());
      const comma = count > 0 && entries.length > 0 ? "," : "";
      count += entries.length;
      return splice([comma, ...entryParts(entries, context)]);
    };
    yield { bytes: sum(batch), read };
  }
  yield textPart(() => `],"count":${count}${renderMore(plan.next)}}`);
}

function sum(batch: readonly PlanEntry[]): number {
  return batch.reduce((total, entry) => total + entry.envelopeBytes + entryOverheadBytes, 0);
}

function* batches(entries: readonly PlanEntry[]): Generator<PlanEntry[]> {
  let batch: PlanEntry[] = [];
  let bytes = 0;
  for (const entry of entries) {
    if (batch.length > 0 && bytes + entry.envelopeBytes > batchBytesMax) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(entry);
    bytes += entry.envelopeBytes;
  }
  if (batch.length > 0) yield batch;
}

const textBytesMax = 1_024;

function textPart(text: string | (() => string)): JsonPart {
  return { bytes: textBytesMax, read: () => splice([typeof text === "string" ? text : text()]) };
}

// ------------------------------------------------------------------------------------------------- group

type GroupSource = {
  readonly mailbox: Mailbox;
  readonly recipient: MailboxKey;
  readonly groupId: Uuid;
  /** Entries may expire while the answer goes out. */
  readonly now: () => number;
  /** Largest payload of a chunk; its envelope is as large in Base64. */
  readonly chunkBytesMax: number;
};

/** Chunks are read together up to this size; a larger one goes alone. */
const groupBatchBytes = 256 * 1024;

/** The chunks of a group from its first page on, which is removed from `start` so that it does not stay in memory. */
export async function* groupParts(
  source: GroupSource,
  start: { first: GroupPage | null },
  context: AnswerContext,
): AsyncGenerator<JsonPart> {
  const { complete = false, total = null, next = null } = start.first ?? {};
  let count = 0;
  const render = (entries: readonly HeldMessage[]): Uint8Array => {
    const comma = count > 0 && entries.length > 0 ? "," : "";
    count += entries.length;
    return splice([comma, ...entryParts(entries, context)]);
  };
  yield textPart('{"chunks":[');
  let after = next;
  yield {
    bytes: groupBatchBytes,
    read: () => {
      const entries = start.first?.entries ?? [];
      start.first = null;
      return render(entries);
    },
  };
  const bytes = groupBatchBytes + Math.ceil((source.chunkBytesMax * 4) / 3) + entryOverheadBytes;
  while (after !== null) {
    yield {
      bytes,
      read: async () => {
        const page = await groupPage(source, after);
        after = page.next;
        return render(page.entries);
      },
    };
  }
  // Chunks that were acknowledged meanwhile are not in the answer, which is then not complete.
  yield textPart(
    () => `],"count":${count},"complete":${complete && count === total},"total_chunks":${total}${renderMore(null)}}`,
  );
}

async function groupPage({ mailbox, recipient, groupId, now }: GroupSource, after: Cursor | null): Promise<GroupPage> {
  const asked = { after, entriesMax: 100, bytesMax: groupBatchBytes, nowMs: now() };
  const page = await mailbox.group(recipient, groupId, asked);
  if (isFault(page)) throw new Error("a driver refuses the cursor that it gave out");
  return page;
}
