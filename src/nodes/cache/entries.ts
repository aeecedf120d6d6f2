/**
 * Entries of a mailbox in answers. Envelopes are spliced in as the bytes that were stored; nothing
 * here parses them again. Ids, DIDs and times hold nothing that JSON escapes, so they are written
 * as they are. Retrieval without a cursor answers whole messages, as many as one answer holds, for
 * a client without paging. A plan is made from summaries; envelopes are then read in batches as the
 * client reads them, so that an answer holds about 1 MiB in memory whatever its length. The plan
 * starts at the oldest entry. It selects messages and complete sets of chunks until the next one
 * does not fit, and skips sets that are unfinished or larger than any answer: they block nothing
 * behind them, and `next_cursor` leads to everything that was left out.
 * Source: interface "Cached message entry", rules section 6, D141.
 */
import type { MailboxKey } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { type Fault, isFault } from "../../core/fault.ts";
import type {
  Chunk,
  Cursor,
  HeldMessage,
  Mailbox,
  MessageSummary,
  Page,
  PageRequest,
} from "../../storage/contract.ts";
import { encodeCursor, PageFill, parseCursor } from "../../storage/mailbox-rules.ts";
import { type JsonParts, type Spliced, splice } from "../http/route.ts";
import { type AnswerContext, type SignedEvent, signEvent } from "./store.ts";

// --------------------------------------------------------------------------------- entries as JSON

/** JSON text around an envelope and its commas: ids, DID, times, chunk and event proof. */
const entryOverheadBytes = 1_024;

/**
 * The entries of a list, with commas. An entry is JSON text up to its envelope, the stored bytes,
 * and JSON text after them; the text between two envelopes is one part, put together at once from
 * texts that the answer makes once: each smaller piece would be a text of its own.
 */
export function entryParts(entries: readonly HeldMessage[], context: AnswerContext): Spliced {
  const { recipient, nowMs } = context;
  const timestamp = renderTimestamp(nowMs);
  const untilExpiry = `","recipient":"${recipient}","expires_at":"`;
  const untilSignature = `","recipient_did":"${recipient}","timestamp":"${timestamp}","reason":null,"signature":`;
  const parts: (string | Uint8Array)[] = [];
  let before = "";
  for (const { messageId, chunk, expiresAtMs, envelope } of entries) {
    const expiry = renderTimestamp(expiresAtMs);
    const kind = chunk === null ? whole : chunkedAs(chunk);
    parts.push(`${before}{"message_id":"${messageId}${untilExpiry}${expiry}${kind}`, envelope);
    const signature = signatureOf({ messageId, timestamp }, context);
    before = `${proofStart}${messageId}${untilSignature}${signature}}},`;
  }
  if (before !== "") parts.push(before.slice(0, -1));
  return parts;
}

/** Of a whole message, from the end of its expiry up to its envelope. */
const whole = '","chunked":false,"envelope":';
/** The event proof, behind the envelope, up to the id. */
const proofStart = ',"proof":{"event_type":"retrieval","message_id":"';

function chunkedAs(chunk: Chunk): string {
  return `","chunked":true,"chunk":${JSON.stringify(renderChunk(chunk))},"envelope":`;
}

/** The JSON text of the signature of a retrieval. */
function signatureOf(event: SignedEvent, context: AnswerContext): string {
  const signature = signEvent("retrieval", event, context);
  return signature === null ? "null" : `"${signature}"`;
}

/** The last members of a list: `next` continues with everything that was left out. */
export function renderMore(next: string | null): string {
  return next === null
    ? `,"has_more":false`
    : `,"has_more":true,"next_cursor":${JSON.stringify(next)}`;
}

function renderChunk(chunk: Chunk) {
  return {
    message_group_id: chunk.groupId,
    sequence_number: chunk.sequence,
    total_chunks: chunk.total,
  };
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

// ---------------------------------------------------------------------------------- whole messages

/** What one answer may hold. */
type AnswerBounds = { readonly entriesMax: number; readonly bytesMax: number };

/** What the plan needs to know of an entry. */
export type PlanEntry = Pick<MessageSummary, "messageId" | "chunk" | "envelopeBytes" | "cursor">;

type WholePlan = {
  /** In the order of arrival. */
  readonly selected: readonly PlanEntry[];
  /**
   * The last entry before the first one that was left out: `null` when nothing was, `start` when
   * there is none.
   */
  readonly next: Cursor | null;
  /** The next message did not fit. */
  readonly isFull: boolean;
};

/**
 * Continues at the oldest entry. It is a cursor of the Cache and not of a driver, whose cursors
 * can't hold this character.
 */
export const startCursor = "~";

/** `more`: entries after these were not read. */
export function planWhole(
  entries: readonly PlanEntry[],
  { more, entriesMax, bytesMax }: AnswerBounds & { readonly more: boolean },
): WholePlan {
  const taken = new Set<PlanEntry>();
  let bytes = 0;
  let isFull = false;
  for (const message of Map.groupBy(entries, (entry) => entry.chunk?.groupId ?? entry).values()) {
    const size = sum(message);
    // A sequence number is held once, so the number of entries suffices.
    const isComplete = message.length === (message[0]?.chunk?.total ?? 1);
    const everFits = message.length === 1 || (message.length <= entriesMax && size <= bytesMax);
    if (!isComplete || !everFits) continue;
    // The first message goes out however large it is: nothing else could ever get it to the client.
    isFull =
      taken.size > 0 && (taken.size + message.length > entriesMax || bytes + size > bytesMax);
    if (isFull) break;
    bytes += size;
    for (const entry of message) taken.add(entry);
  }
  const selected = entries.filter((entry) => taken.has(entry));
  const leftOut = entries.findIndex((entry) => !taken.has(entry));
  if (leftOut < 0)
    return { selected, next: more ? (entries.at(-1)?.cursor ?? startCursor) : null, isFull };
  return { selected, next: entries[leftOut - 1]?.cursor ?? startCursor, isFull };
}

// -------------------------------------------------------------------------------------------- scan

/** Ids in one read of the store while planning. */
const scanPageEntries = 1_000;
/**
 * Entries that a plan reads: the default quota of a mailbox, about 2 MB while planning. With a
 * larger quota the cursor leads to later entries.
 */
const scanEntriesMax = 10_000;

type Source = {
  readonly mailbox: Mailbox;
  readonly recipient: MailboxKey;
  /** Entries may expire while the answer goes out. */
  readonly now: () => number;
};

/** What waits in a mailbox, oldest first; what arrives meanwhile is on a later page. */
export async function* waitingPages(mailbox: Mailbox, key: MailboxKey, now: () => number) {
  for (let after: Cursor | null = null; ; ) {
    const page = await mailbox.summary(key, {
      after,
      entriesMax: scanPageEntries,
      bytesMax: 0,
      nowMs: now(),
    });
    // The cursor is the mailbox's own.
    if (isFault(page)) throw new Error(page.detail);
    yield page;
    if (page.next === null) return;
    after = page.next;
  }
}

/** Reads summaries until the answer is full, the mailbox ends, or so many were read. */
export async function scanWhole(
  { mailbox, recipient, now }: Source,
  bounds: AnswerBounds,
): Promise<WholePlan> {
  const entries: PlanEntry[] = [];
  let plan = planWhole(entries, { ...bounds, more: false });
  for await (const page of waitingPages(mailbox, recipient, now)) {
    entries.push(...page.entries);
    plan = planWhole(entries, { ...bounds, more: page.next !== null });
    if (plan.isFull || entries.length >= scanEntriesMax) break;
  }
  return plan;
}

// ------------------------------------------------------------------------------------------- parts

/**
 * A list whose entries are counted at its end: those that were acknowledged or have expired
 * meanwhile are not in it.
 */
async function* listParts(
  { mailbox, recipient, now }: Source,
  batches: Iterable<readonly PlanEntry[]>,
  { name, context, end }: ListForm,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let count = 0;
  let before = `{"${name}":[`;
  for (const batch of batches) {
    const ids = batch.map(({ messageId }) => messageId);
    const entries = await mailbox.read(recipient, ids, now());
    if (entries.length === 0) continue;
    // Nothing behind the yield names the entries: while a client reads the part, memory holds it
    // once.
    count += entries.length;
    yield splice([before, ...entryParts(entries, context)]);
    before = ",";
  }
  yield splice([count === 0 ? before : "", `],"count":${count}${end(count)}}`]);
}

type ListForm = {
  readonly name: "messages" | "chunks";
  readonly context: AnswerContext;
  /** The members after the count. */
  readonly end: (count: number) => string;
};

function listOf(source: Source, entries: readonly PlanEntry[], form: ListForm): JsonParts {
  const batches = batchesOf(entries);
  const bytesOf = (batch: readonly PlanEntry[]) => sum(batch) + batch.length * entryOverheadBytes;
  const bytes = batches.reduce((most, batch) => Math.max(most, bytesOf(batch)), entryOverheadBytes);
  return { bytes, parts: listParts(source, batches, form) };
}

/** Envelopes in memory at a time for one answer; a larger one goes alone. */
const batchBytesMax = 1024 ** 2;
/** Ids that a store reads at once. */
const batchEntriesMax = 1_000;

/** The answer of a plan. */
export function wholeParts(
  source: Source,
  { selected, next }: WholePlan,
  context: AnswerContext,
): JsonParts {
  return listOf(source, selected, { name: "messages", context, end: () => renderMore(next) });
}

function batchesOf(entries: readonly PlanEntry[]): PlanEntry[][] {
  const batches: PlanEntry[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const entry of entries) {
    bytes += entry.envelopeBytes;
    if (bytes > batchBytesMax || batches.at(-1)?.length === batchEntriesMax) {
      batches.push([]);
      bytes = entry.envelopeBytes;
    }
    batches.at(-1)?.push(entry);
  }
  return batches;
}

function sum(entries: readonly PlanEntry[]): number {
  return entries.reduce((total, { envelopeBytes }) => total + envelopeBytes, 0);
}

// ------------------------------------------------------------------------------------------- group

const sequenceOf = ({ chunk }: PlanEntry): number => chunk?.sequence ?? 0;

/** Cursors of a group count sequence numbers from 1. */
export function pageOfGroup(
  chunks: readonly PlanEntry[],
  page: PageRequest,
): Page<PlanEntry> | Fault {
  const after = parseCursor(page.after);
  if (isFault(after)) return after;
  const rest = chunks.filter((chunk) => sequenceOf(chunk) + 1 > after);
  const fill = new PageFill(page.entriesMax, page.bytesMax);
  const end = rest.findIndex(({ envelopeBytes }) => !fill.accepts(envelopeBytes));
  if (end < 0) return { entries: rest, next: null };
  const last = rest[end - 1];
  return {
    entries: rest.slice(0, end),
    next: encodeCursor(last === undefined ? after : sequenceOf(last) + 1),
  };
}

type FoundChunks = { readonly chunks: readonly PlanEntry[]; readonly found: Page<PlanEntry> };

/**
 * `complete` speaks of the group, whatever a page of it holds: chunks that were acknowledged
 * meanwhile are missing.
 */
export function groupParts(
  source: Source,
  { chunks, found }: FoundChunks,
  context: AnswerContext,
): JsonParts {
  const total = chunks[0]?.chunk?.total ?? null;
  const isComplete = (count: number) => chunks.length === total && count === found.entries.length;
  const end = (count: number) =>
    `,"complete":${isComplete(count)},"total_chunks":${total}${renderMore(found.next)}`;
  return listOf(source, found.entries, { name: "chunks", context, end });
}
