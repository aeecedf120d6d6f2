/**
 * The Caches of a recipient: their routes, and what waits there. Every request is signed with
 * a new nonce, by a key that the service in the recipient's document authorizes. A Cache or a Relay
 * may be hostile, so copies under one id may differ: the digest of an envelope decides which copies
 * are the same, and a Cache that lists much hides nothing of the others.
 * Source: interface "Signed Cache proof" and "Cache" (acknowledging), rules section 6.
 */
import { parseUuid } from "../../core/codec/did.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import { dayMs } from "../../core/codec/time.ts";
import {
  ackMembers,
  ackSubject,
  digestCanonical,
  type RetrievalOperation,
} from "../../core/message/proof.ts";
import { attempt, ClientError } from "../base/failure.ts";
import { isRecord, type Shape } from "../base/shapes.ts";
import { ackShape, messageStateShape, messagesShape, summaryShape } from "./answers.ts";
import { type Endpoint, fetchChecked, jsonBody, path, queryOf } from "./http.ts";
import { proofHeaders, proveRequest, type Reader } from "./reader.ts";

/** The most ids that a Cache accepts in one acknowledgement. */
export const ackIdsMax = 1_000;

export type CacheClient = ReturnType<typeof cacheClient>;

export function cacheClient(reader: Reader) {
  const { did, at } = reader;
  const read = <T>(
    operation: RetrievalOperation,
    subject: string,
    where: string,
    shape: Shape<T>,
  ) =>
    atItsTime(at, async () =>
      fetchChecked(
        at,
        { method: "GET", path: where, headers: await proofHeaders(reader, operation, subject) },
        shape,
      ),
    );
  return {
    reader,
    /** A page of at most `limit` entries and about 1 MiB. */
    messages: (cursor: string | undefined, limit: number) =>
      read(
        "pull",
        "*",
        `${path`/cache/messages/${did}`}${queryOf({ limit: String(limit), cursor })}`,
        messagesShape,
      ),
    summary: (cursor?: string) =>
      read("summary", "*", `${path`/cache/summary/${did}`}${queryOf({ cursor })}`, summaryShape),
    message: (messageId: string) =>
      read("pull_message", messageId, path`/cache/message/${did}/${messageId}`, messageStateShape),
    /**
     * Removes entries permanently. At most `ackIdsMax` ids; returns those that were there. Their
     * senders become known to the mailbox if the user has accepted them.
     */
    ack: (messageIds: readonly string[], { isAccepted }: { readonly isAccepted: boolean }) =>
      atItsTime(at, async () => {
        const subject = ackSubject(messageIds);
        const proof = await proveRequest(reader, { operation: "ack", subject }, ackMembers);
        const body = { did, ...proof, message_ids: subject.split(",") };
        const headers: Record<string, string> = isAccepted ? {} : { "Svc-Accepted": "none" };
        const request = {
          method: "POST",
          path: "/cache/ack",
          body: jsonBody(body),
          headers,
        } as const;
        return fetchChecked(at, request, ackShape);
      }),
  };
}

/**
 * Once more with the time of the node, also where that was wrong before: a proof counts at one
 * endpoint alone, so a clock that lies gains nothing.
 */
async function atItsTime<T>({ clock }: Endpoint, work: () => Promise<T>): Promise<T> {
  const { aheadMs } = clock;
  try {
    return await work();
  } catch (error) {
    const hasLearned = clock.aheadMs !== aheadMs;
    const isOfTime = error instanceof ClientError && timeCodes.includes(error.code);
    if (isOfTime && (hasLearned || error.code === "clock_wrong")) return work();
    throw error;
  }
}

const timeCodes = ["clock_wrong", "proof_expired"];

// -------------------------------------------------------------------------------------- what waits

/** An envelope as JSON, from a Cache or a live session: untrusted. */
export type EnvelopeJson = Readonly<JsonObject>;

export type LiveEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly envelope: EnvelopeJson;
};

/** Where an envelope stands in a file that is sent in chunks. */
export type ChunkPlace = {
  readonly groupId: string;
  readonly sequence: number;
  readonly total: number;
};

/** What could not be read or acknowledged, and where. */
export type Unreachable = { readonly endpoint: string; readonly error: ClientError };

/** One copy of an envelope, of a whole message or of a chunk. */
export type EnvelopeCopy = {
  readonly messageId: string;
  readonly chunk: ChunkPlace | null;
  readonly expiresAtMs: number;
  /** When this machine learned of it, by `performance.now()`. */
  readonly foundMs: number;
  /** `null` for an envelope of a live session. */
  readonly cache: CacheClient | null;
  /** `null` when it is gone. */
  readonly read: () => Promise<{ readonly envelope: EnvelopeJson; readonly digest: string } | null>;
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

/** Further messages of a Cache are left for the next run, so that memory stays bounded. */
const listedMax = 100_000;

/**
 * What waits in the Caches, of each in its order, of several in turns. Throws when none could be
 * reached. `digests`: of copies that were read, from one list to the next.
 */
export async function listPending(
  caches: readonly CacheClient[],
  digests: Map<string, string> = new Map(),
): Promise<{
  readonly pending: readonly PendingMessage[];
  readonly unreachable: readonly Unreachable[];
}> {
  if (digests.size > listedMax) digests.clear();
  const lists = await Promise.all(caches.map((cache) => listAt(cache, digests)));
  const unreachable = lists.flatMap(({ endpoint, error }) =>
    error === null ? [] : [{ endpoint, error }],
  );
  const [first] = unreachable;
  if (first !== undefined && unreachable.length === caches.length) throw first.error;
  return { pending: groupCopies(interleave(lists.map(({ copies }) => copies))), unreachable };
}

/**
 * Stops reading a Cache that repeats itself or is slow: a page must contain something new,
 * and the others don't wait.
 */
async function listAt(cache: CacheClient, digests: Map<string, string>) {
  const copies = new Map<string, EnvelopeCopy>();
  const { url: endpoint, timeoutMs } = cache.reader.at;
  const untilMs = performance.now() + timeoutMs;
  const read = envelopeReader(cache, () => copies.size >= pagedFrom);
  let cursor: string | undefined;
  const listing = await attempt(async () => {
    do {
      const page = await cache.summary(cursor);
      const before = copies.size;
      for (const listed of page.messages) {
        // Ids and digests are remembered in one set, and a hostile Cache must
        // not name one by the other.
        if (parseUuid(listed.message_id) === null) continue;
        const chunk = chunkPlaceOf(listed);
        const name = `${endpoint} ${listed.message_id} ${chunkKey(chunk)} ${listed.expires_at}`;
        if (copies.has(name)) continue;
        if (copies.size >= listedMax) return;
        const { message_id: messageId } = listed;
        const facts = { messageId, chunk, expiresAtMs: Date.parse(listed.expires_at), cache };
        copies.set(name, copyOf({ ...facts, read: () => read(messageId), name, digests }));
      }
      cursor = copies.size === before ? undefined : page.next_cursor;
    } while (cursor !== undefined && performance.now() < untilMs);
  });
  return { endpoint, copies: [...copies.values()], error: listing ?? null };
}

type CopySource = Omit<EnvelopeCopy, "foundMs" | "read" | "digest" | "forget"> & {
  readonly read: () => Promise<EnvelopeJson | null>;
  /** Under which its digest is remembered. */
  readonly name?: string;
  readonly digests?: Map<string, string>;
};

function copyOf({ read, name = "", digests = new Map(), ...facts }: CopySource): EnvelopeCopy {
  const readOnce = async () => {
    const envelope = await read();
    if (envelope === null) return null;
    const digest = envelopeDigest(envelope);
    digests.set(name, digest);
    return { envelope, digest };
  };
  const digest = async () => digests.get(name) ?? (await readOnce())?.digest ?? null;
  const foundMs = performance.now();
  return { ...facts, foundMs, read: readOnce, digest, forget: () => void digests.delete(name) };
}

/** An envelope that a live session brought, or what a Cache may have got of it. */
export function liveCopy(
  { messageId, expiresAtMs, envelope }: LiveEnvelope,
  cache: CacheClient | null,
): EnvelopeCopy {
  const read = async () => (cache === null ? envelope : readById(cache, messageId));
  return copyOf({ messageId, expiresAtMs, chunk: chunkPlaceOf(envelope), cache, read });
}

/**
 * Envelopes are the same when their canonical JSON is: nodes keep neither white space
 * nor the order of members.
 */
function envelopeDigest(envelope: EnvelopeJson): string {
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
 * Reads in the order of the list: pages of about 1 MiB, of which one is kept, as long as they
 * contain what is wanted. A Cache that did not answer is not asked again until its next list, so
 * that it delays no other.
 */
function envelopeReader(
  cache: CacheClient,
  isLong: () => boolean,
): (id: string) => Promise<EnvelopeJson | null> {
  let page = new Map<string, EnvelopeJson>();
  let cursor: string | undefined;
  let isPaged = true;
  let failure: ClientError | null = null;
  const readEnvelope = async (messageId: string) => {
    if (isPaged && isLong() && !page.has(messageId)) {
      const { messages, next_cursor: next } = await cache.messages(cursor, pageEntries);
      page = new Map(messages.map((entry) => [entry.message_id, entry.envelope as EnvelopeJson]));
      cursor = next;
      isPaged = cursor !== undefined && page.has(messageId);
    }
    const known = page.get(messageId);
    if (known !== undefined) return known;
    return readById(cache, messageId);
  };
  return async (messageId) => {
    if (failure !== null) throw failure;
    const result = await attempt(() => readEnvelope(messageId));
    if (!(result instanceof ClientError)) return result;
    if (["timed_out", "unreachable"].includes(result.kind)) failure = result;
    throw result;
  };
}

async function readById(cache: CacheClient, messageId: string): Promise<EnvelopeJson | null> {
  const { state, message } = await cache.message(messageId);
  return state === "active" && isRecord(message?.envelope)
    ? (message.envelope as EnvelopeJson)
    : null;
}

function interleave<T>(lists: readonly (readonly T[])[]): T[] {
  const longest = Math.max(...lists.map(({ length }) => length));
  return Array.from({ length: longest }, (_, i) =>
    lists.flatMap((list) => list.slice(i, i + 1)),
  ).flat();
}

export function chunkPlaceOf(message: Readonly<Record<string, unknown>>): ChunkPlace | null {
  const { message_group_id: groupId, sequence_number: sequence, total_chunks: total } = message;
  if (typeof groupId !== "string" || typeof sequence !== "number" || typeof total !== "number")
    return null;
  return { groupId, sequence, total };
}

/** The place of a chunk, as text that is the same for the same place. */
export const chunkKey = (chunk: ChunkPlace | null): string =>
  chunk === null ? "" : `${chunk.groupId.toLowerCase()} ${chunk.sequence} ${chunk.total}`;

/** A Cache that states another number of chunks names another group. */
function groupCopies(copies: readonly EnvelopeCopy[]): PendingMessage[] {
  const groups = new Map<
    string,
    { readonly chunk: ChunkPlace | null; readonly parts: Map<number, EnvelopeCopy[]> }
  >();
  for (const copy of copies) {
    const { chunk, messageId } = copy;
    const name =
      chunk === null ? messageId.toLowerCase() : `${chunk.groupId.toLowerCase()} of ${chunk.total}`;
    const group = groups.get(name) ?? { chunk, parts: new Map<number, EnvelopeCopy[]>() };
    groups.set(name, group);
    const position = chunk?.sequence ?? 0;
    const same = group.parts.get(position) ?? [];
    same.push(copy);
    group.parts.set(position, same);
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
export const pendingName = (message: PendingMessage): string =>
  message.groupId ?? messageIdsOf(message)[0] ?? "";

/** No envelope lives longer. */
const lifeMsMax = 30 * dayMs;

/** When no Cache can offer the message again. A Cache may state any time, or none. */
export function offeredUntilMs(message: PendingMessage, nowMs: number): number {
  const latest = message.parts
    .flat()
    .reduce((most, { expiresAtMs }) => Math.max(most, expiresAtMs), 0);
  return latest >= nowMs && latest <= nowMs + lifeMsMax ? latest : nowMs + lifeMsMax;
}

// --------------------------------------------------------------------------------- received before

/**
 * Separates copies of what was received before, by id in lower case and digest. A copy that can't
 * be read now, and may be one, is in neither.
 */
export async function splitReceived(
  message: PendingMessage,
  before: { readonly has: (name: string) => Promise<boolean> },
): Promise<{ readonly again: readonly EnvelopeCopy[]; readonly fresh: PendingMessage }> {
  const again: EnvelopeCopy[] = [];
  const parts: EnvelopeCopy[][] = [];
  for (const copies of message.parts) {
    const fresh: EnvelopeCopy[] = [];
    for (const copy of copies) {
      const digest = (await before.has(copy.messageId.toLowerCase()))
        ? await attempt(copy.digest)
        : "";
      if (typeof digest !== "string") continue;
      (digest !== "" && (await before.has(digest)) ? again : fresh).push(copy);
    }
    if (fresh.length > 0) parts.push(fresh);
  }
  return { again, fresh: { ...message, parts } };
}

/**
 * The different messages under one id, distinguished by the digest of their first envelope: usually
 * one. Each has the copies that may belong to it.
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
