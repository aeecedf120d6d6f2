/**
 * Waiting messages as the Caches list them. A Cache or a Relay may be hostile, so copies under one id may differ: the
 * digest of an envelope decides which copies are the same, and a Cache that lists much hides nothing of the others.
 * Source: interface "Cache" (acknowledging), rules section 6.
 */
import type { JsonObject } from "../core/codec/json.ts";
import { dayMs } from "../core/codec/time.ts";
import { digestCanonical } from "../core/message/proof.ts";
import { isRecord } from "./answers.ts";
import { attempt, ClientError } from "./http.ts";
import type { CacheClient } from "./reader.ts";
import type { SealBinding } from "./seal.ts";

/** An envelope as JSON, from a Cache or a live session: untrusted. */
export type EnvelopeJson = Readonly<JsonObject>;

export type LiveEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly envelope: EnvelopeJson;
};

/** What could not be read or acknowledged, and where. */
export type Unreachable = { readonly endpoint: string; readonly error: ClientError };

type ReadEnvelope = { readonly envelope: EnvelopeJson; readonly digest: string };

/** One copy of an envelope, of a whole message or of a chunk. */
export type EnvelopeCopy = {
  readonly messageId: string;
  readonly chunk: SealBinding["chunk"];
  readonly expiresAtMs: number;
  /** `null` for an envelope of a live session. */
  readonly cache: CacheClient | null;
  /** `null` when it is gone. */
  readonly read: () => Promise<ReadEnvelope | null>;
  /** Reads the envelope only when this machine has not read it yet. */
  readonly digest: () => Promise<string | null>;
  /** After it was removed: what is listed in its place later is another envelope. */
  readonly forget: () => void;
};

/** A waiting message, or the available chunks of one. */
export type PendingMessage = {
  readonly groupId: string | null;
  readonly total: number;
  /** Copies by position, in order. */
  readonly parts: readonly (readonly EnvelopeCopy[])[];
};

type Listing = { readonly pending: readonly PendingMessage[]; readonly unreachable: readonly Unreachable[] };

/** Further messages of a Cache are left for the next run, so that memory stays bounded. */
const listedMax = 100_000;

/**
 * What waits in the Caches, of each in its order, of several in turns. Throws when none could be reached. `digests`: of
 * copies that were read, from one list to the next.
 */
export async function listPending(
  caches: readonly CacheClient[],
  digests: Map<string, string> = new Map(),
): Promise<Listing> {
  if (digests.size > listedMax) digests.clear();
  const lists = await Promise.all(caches.map((cache) => listAt(cache, digests)));
  const unreachable = lists.flatMap(({ error }, i) =>
    error === null ? [] : [{ endpoint: caches[i]?.reader.at.url ?? "", error }],
  );
  const [first] = unreachable;
  if (first !== undefined && unreachable.length === caches.length) throw first.error;
  return { pending: groupCopies(interleave(lists.map(({ copies }) => copies))), unreachable };
}

type CacheList = { readonly copies: readonly EnvelopeCopy[]; readonly error: ClientError | null };

/** Stops reading a Cache that repeats itself or is slow: a page must contain something new, and the others don't wait. */
async function listAt(cache: CacheClient, digests: Map<string, string>): Promise<CacheList> {
  const copies = new Map<string, EnvelopeCopy>();
  const untilMs = performance.now() + cache.reader.at.timeoutMs;
  const read = envelopeReader(cache, () => copies.size >= pagedFrom);
  let cursor: string | undefined;
  const listing = await attempt(async () => {
    do {
      const page = await cache.summary(cursor);
      const before = copies.size;
      for (const listed of page.messages) {
        const chunk = chunkOf(listed);
        const name = `${cache.reader.at.url} ${listed.message_id} ${placeOf(chunk)} ${listed.expires_at}`;
        if (copies.has(name)) continue;
        if (copies.size >= listedMax) return;
        const facts = { messageId: listed.message_id, chunk, expiresAtMs: Date.parse(listed.expires_at), cache };
        copies.set(name, copyOf(facts, { read: () => read(listed.message_id), name, digests }));
      }
      cursor = copies.size === before ? undefined : page.next_cursor;
    } while (cursor !== undefined && performance.now() < untilMs);
  });
  return { copies: [...copies.values()], error: listing ?? null };
}

type CopySource = {
  readonly read: () => Promise<EnvelopeJson | null>;
  readonly name: string;
  readonly digests: Map<string, string>;
};

function copyOf(
  facts: Omit<EnvelopeCopy, "read" | "digest" | "forget">,
  { read, name, digests }: CopySource,
): EnvelopeCopy {
  const readOnce = async () => {
    const envelope = await read();
    if (envelope === null) return null;
    const digest = digestOf(envelope);
    digests.set(name, digest);
    return { envelope, digest };
  };
  const digest = async () => digests.get(name) ?? (await readOnce())?.digest ?? null;
  return { ...facts, read: readOnce, digest, forget: () => void digests.delete(name) };
}

/** An envelope that a live session brought. */
export function localCopy({ messageId, expiresAtMs, envelope }: LiveEnvelope): EnvelopeCopy {
  const facts = { messageId, expiresAtMs, chunk: chunkOf(envelope), cache: null };
  return copyOf(facts, { read: async () => envelope, name: "", digests: new Map([["", digestOf(envelope)]]) });
}

/** Envelopes are the same when their canonical JSON is: nodes keep neither white space nor the order of members. */
function digestOf(envelope: EnvelopeJson): string {
  try {
    return digestCanonical(envelope);
  } catch {
    // Text with a lone surrogate, for example, has no canonical form; it can't be opened either.
    const { message_id: id } = envelope;
    return `malformed ${typeof id === "string" ? id : ""}`;
  }
}

/** From this number on, envelopes are read by pages instead of one by one. */
const pagedFrom = 4;
const pageEntries = 256;

/**
 * Reads in the order of the list: pages of about 1 MiB, of which one is kept, as long as they contain what is wanted. A
 * Cache that did not answer is not asked again until its next list, so that it delays no other.
 */
function envelopeReader(cache: CacheClient, isLong: () => boolean): (id: string) => Promise<EnvelopeJson | null> {
  let page = new Map<string, EnvelopeJson>();
  let cursor: string | undefined;
  let isPaged = true;
  let failure: ClientError | null = null;
  const read = async (messageId: string) => {
    if (isPaged && isLong() && !page.has(messageId)) {
      const { messages, next_cursor: next } = await cache.messages(cursor, pageEntries);
      page = new Map(messages.map((entry) => [entry.message_id, entry.envelope as EnvelopeJson]));
      cursor = next;
      isPaged = cursor !== undefined && page.has(messageId);
    }
    const known = page.get(messageId);
    if (known !== undefined) return known;
    const { state, message } = await cache.message(messageId);
    return state === "active" && isRecord(message?.envelope) ? (message.envelope as EnvelopeJson) : null;
  };
  return async (messageId) => {
    if (failure !== null) throw failure;
    const result = await attempt(() => read(messageId));
    if (!(result instanceof ClientError)) return result;
    if (["timed_out", "unreachable"].includes(result.kind)) failure = result;
    throw result;
  };
}

function interleave<T>(lists: readonly (readonly T[])[]): T[] {
  const longest = Math.max(...lists.map(({ length }) => length));
  return Array.from({ length: longest }, (_, i) => lists.flatMap((list) => list.slice(i, i + 1))).flat();
}

export function chunkOf(message: Readonly<Record<string, unknown>>): SealBinding["chunk"] {
  const { message_group_id: groupId, sequence_number: sequence, total_chunks: total } = message;
  if (typeof groupId !== "string" || typeof sequence !== "number" || typeof total !== "number") return null;
  return { groupId, sequence, total };
}

/** The place of a chunk, as text that is the same for the same place. */
export const placeOf = (chunk: SealBinding["chunk"]): string =>
  chunk === null ? "" : `${chunk.groupId.toLowerCase()} ${chunk.sequence} ${chunk.total}`;

/** A Cache that states another number of chunks names another group. */
function groupCopies(copies: readonly EnvelopeCopy[]): PendingMessage[] {
  const groups = new Map<
    string,
    { readonly chunk: SealBinding["chunk"]; readonly parts: Map<number, EnvelopeCopy[]> }
  >();
  for (const copy of copies) {
    const { chunk, messageId } = copy;
    const name = chunk === null ? messageId.toLowerCase() : `${chunk.groupId.toLowerCase()} of ${chunk.total}`;
    const group = groups.get(name) ?? { chunk, parts: new Map<number, EnvelopeCopy[]>() };
    groups.set(name, group);
    const position = chunk?.sequence ?? 0;
    const same = group.parts.get(position);
    if (same === undefined) group.parts.set(position, [copy]);
    else same.push(copy);
  }
  return [...groups.values()].map(({ chunk, parts }) => ({
    groupId: chunk?.groupId ?? null,
    total: chunk?.total ?? 1,
    parts: [...parts.entries()].sort(([a], [b]) => a - b).map(([, same]) => same),
  }));
}

export function isComplete(message: PendingMessage): boolean {
  return message.parts.length === message.total;
}

export function messageIdsOf(message: PendingMessage): string[] {
  return [...new Set(message.parts.flat().map(({ messageId }) => messageId))];
}

/** The id by which programs know a message. */
export const nameOf = (message: PendingMessage): string => message.groupId ?? messageIdsOf(message)[0] ?? "";

/** No envelope lives longer. */
const lifeMsMax = 30 * dayMs;

/** When no Cache can offer the message again. A Cache may state any time, or none. */
export function expiryOf(message: PendingMessage, nowMs: number): number {
  const latest = message.parts.flat().reduce((most, { expiresAtMs }) => Math.max(most, expiresAtMs), 0);
  return latest >= nowMs && latest <= nowMs + lifeMsMax ? latest : nowMs + lifeMsMax;
}

// ------------------------------------------------------------------------------------------------ received before

/** What was received before: the ids of envelopes, in lower case, and their digests. */
export type ReceivedBefore = { readonly has: (name: string) => boolean | Promise<boolean> };

/** Separates copies of what was received before. A copy that can't be read now, and may be one, is in neither. */
export async function splitReceived(
  message: PendingMessage,
  before: ReceivedBefore,
): Promise<{ readonly again: readonly EnvelopeCopy[]; readonly fresh: PendingMessage }> {
  const again: EnvelopeCopy[] = [];
  const parts: EnvelopeCopy[][] = [];
  for (const copies of message.parts) {
    const fresh: EnvelopeCopy[] = [];
    for (const copy of copies) {
      const digest = (await before.has(copy.messageId.toLowerCase())) ? await attempt(copy.digest) : "";
      if (typeof digest !== "string") continue;
      (digest !== "" && (await before.has(digest)) ? again : fresh).push(copy);
    }
    if (fresh.length > 0) parts.push(fresh);
  }
  return { again, fresh: { ...message, parts } };
}

/**
 * The different messages under one id, told apart by the digest of their first envelope: usually one. Each has the copies
 * that may belong to it.
 */
export async function versionsOf(message: PendingMessage): Promise<PendingMessage[]> {
  const [first = [], ...others] = message.parts;
  if (first.length < 2) return [message];
  const versions = new Map<string, EnvelopeCopy[]>();
  for (const copy of first) {
    const digest = await attempt(copy.digest);
    if (typeof digest === "string") versions.set(digest, [...(versions.get(digest) ?? []), copy]);
  }
  if (versions.size === 0) return [message];
  return [...versions.values()].map((copies) => ({ ...message, parts: [copies, ...others] }));
}
