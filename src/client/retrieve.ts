/**
 * Receiving from all Caches of a recipient, each message once: fetched, checked, decrypted, written and synced, and only
 * then acknowledged at every Cache with a copy. A message that can't be opened stays in its Cache and is reported.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3.
 */
import { sha256 } from "#sha256";
import { concatBytes, equalBytes } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import type { JsonObject } from "../core/codec/json.ts";
import { parseTimestamp } from "../core/codec/time.ts";
import { isRecord } from "./answers.ts";
import { ClientError, localError } from "./http.ts";
import { ackIdsMax, type CacheClient } from "./reader.ts";
import { type Binding, type FileFacts, type Opened, openPayload, type SecretsOf } from "./seal.ts";

/** One message as in a summary, with every Cache that has it. */
export type HeldEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly chunk: Binding["chunk"];
  readonly at: readonly CacheClient[];
  /** Reads the envelope from this machine, when a live session brought it. */
  readonly local: (() => Promise<Record<string, unknown> | null>) | null;
};

/** Messages of one file: one message, or the available part of a chunk set, by sequence number. */
export type PendingMessage = {
  readonly groupId: string | null;
  readonly total: number;
  readonly parts: readonly HeldEnvelope[];
  /** All copies of all parts, for the acknowledgement. */
  readonly held: readonly HeldEnvelope[];
};

type Unreachable = { readonly endpoint: string; readonly error: ClientError };
type Listing = { readonly pending: readonly PendingMessage[]; readonly unreachable: readonly Unreachable[] };

/** Further messages are left for the next run, so that memory stays bounded. */
const listedMax = 100_000;

/**
 * Messages that wait in the Caches and, with `local`, those that a live session stored here; oldest first. Throws when
 * no Cache could be reached.
 */
export async function listPending(
  caches: readonly CacheClient[],
  local: readonly HeldEnvelope[] = [],
): Promise<Listing> {
  const found = new Map(local.map((held) => [nameOf(held), held]));
  const unreachable: Unreachable[] = [];
  for (const cache of caches) {
    try {
      await listAt(cache, found);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      unreachable.push({ endpoint: cache.reader.at.url, error });
    }
  }
  const [first] = unreachable;
  if (first !== undefined && unreachable.length === caches.length) throw first.error;
  return { pending: groupMessages([...found.values()]), unreachable };
}

/** Stops reading a Cache that repeats itself: a page must contain something new. */
async function listAt(cache: CacheClient, found: Map<string, HeldEnvelope>): Promise<void> {
  const seen = new Set<string>();
  let cursor: string | undefined;
  do {
    const page = await cache.summary(cursor);
    const before = seen.size;
    for (const message of page.messages) {
      const identity = { messageId: message.message_id, chunk: chunkOf(message) };
      const name = nameOf(identity);
      const known = found.get(name);
      if (seen.has(name)) continue;
      if (known === undefined && found.size >= listedMax) return;
      seen.add(name);
      found.set(name, {
        ...identity,
        expiresAtMs: Date.parse(message.expires_at),
        at: [...(known?.at ?? []), cache],
        local: known?.local ?? null,
      });
    }
    cursor = seen.size === before ? undefined : page.next_cursor;
  } while (cursor !== undefined);
}

/**
 * Identity of a message or chunk: id plus position. A Cache that reports a wrong position cannot make us
 * acknowledge the copies of other Caches.
 */
function nameOf({ messageId, chunk }: Pick<HeldEnvelope, "messageId" | "chunk">): string {
  return chunk === null ? messageId : `${messageId} ${groupOf(chunk)} ${chunk.sequence} ${chunk.total}`;
}

const groupOf = (chunk: NonNullable<HeldEnvelope["chunk"]>): string => chunk.groupId.toLowerCase();

type FlatChunk = {
  readonly message_group_id?: unknown;
  readonly sequence_number?: unknown;
  readonly total_chunks?: unknown;
};

export function chunkOf(message: FlatChunk): Binding["chunk"] {
  const { message_group_id: groupId, sequence_number: sequence, total_chunks: total } = message;
  if (typeof groupId !== "string" || typeof sequence !== "number" || typeof total !== "number") return null;
  return { groupId, sequence, total };
}

function groupMessages(held: readonly HeldEnvelope[]): PendingMessage[] {
  const groups = new Map<string, HeldEnvelope[]>();
  for (const one of held) {
    const name = one.chunk === null ? one.messageId : `group ${groupOf(one.chunk)}`;
    const members = groups.get(name);
    if (members === undefined) groups.set(name, [one]);
    else members.push(one);
  }
  return [...groups.values()].map((members) => {
    const bySequence = new Map<number, HeldEnvelope>();
    for (const one of members) {
      const sequence = one.chunk?.sequence ?? 0;
      if (!bySequence.has(sequence)) bySequence.set(sequence, one);
    }
    const parts = [...bySequence.entries()].sort(([a], [b]) => a - b).map(([, one]) => one);
    const chunk = members[0]?.chunk ?? null;
    return { groupId: chunk?.groupId ?? null, total: chunk?.total ?? 1, parts, held: members };
  });
}

export function isComplete(message: PendingMessage): boolean {
  return message.parts.length === message.total;
}

// ---------------------------------------------------------------------------------------------- receiving

/** An envelope as JSON, from a Cache or a live session: untrusted. */
export type EnvelopeJson = Readonly<JsonObject>;

export type Recipient = {
  readonly did: Did;
  readonly secretsOf: SecretsOf;
  /** The claimed sender of an envelope, and whether its signature verifies; `null` when it names no sender. */
  readonly senderOf: (envelope: EnvelopeJson) => Promise<Sender | null>;
};

/** `verified` is `false` when the signature does not verify, `null` when the document could not be read. */
export type Sender = { readonly did: string; readonly verified: boolean | null };

export type Written = {
  readonly file: FileFacts;
  readonly from: Sender | null;
  /** By the sender's clock; `null` when it can't be read. */
  readonly sentAtMs: number | null;
};

/**
 * A complete message in memory, for programs that don't store messages in files. Nothing is written or acknowledged:
 * call `acknowledge` when the data is stored safely.
 */
export async function readMessage(
  message: PendingMessage,
  recipient: Recipient,
): Promise<Written & { data: Uint8Array }> {
  const parts: Uint8Array[] = [];
  const written = await readChunks(message, recipient, { write: async (data) => void parts.push(data) });
  return { ...written, data: concatBytes(...parts) };
}

type Sink = {
  readonly write: (data: Uint8Array) => Promise<void>;
  readonly onChunk?: (done: number, total: number) => void;
};

/** Fetches and opens one part after the other and passes its data on. Size and SHA-256 are those of the whole file. */
export async function readChunks(
  message: PendingMessage,
  recipient: Recipient,
  { write, onChunk }: Sink,
): Promise<Written> {
  const hash = sha256.create();
  let whole: Written | null = null;
  let length = 0;
  for (const [i, part] of message.parts.entries()) {
    const { opened, from, sentAtMs } = await fetchChunk(part, recipient);
    const before: Written = whole ?? { file: opened.file, from, sentAtMs };
    if (!sameFile(before.file, opened.file) || before.from?.did !== from?.did) {
      throw localError("not_authentic", "the chunks describe different files");
    }
    whole = { ...before, from: weaker(before.from, from) };
    hash.update(opened.data);
    length += opened.data.length;
    await write(opened.data);
    onChunk?.(i + 1, message.parts.length);
  }
  if (whole === null || length !== whole.file.sizeBytes || !equalBytes(hash.digest(), whole.file.sha256)) {
    throw localError("not_authentic", "the file is not the one that was sent: size or SHA-256 differ");
  }
  return whole;
}

/** A file is verified only if each of its chunks is. */
function weaker(a: Sender | null, b: Sender | null): Sender | null {
  if (a === null || b === null || a.verified === false) return a;
  return b.verified === true ? a : b;
}

function sameFile(a: FileFacts, b: FileFacts): boolean {
  const same = a.name === b.name && a.mediaType === b.mediaType && a.sizeBytes === b.sizeBytes;
  return same && equalBytes(a.sha256, b.sha256);
}

/** From the first copy that opens: a Cache that answers anything else does not stop the search. */
async function fetchChunk(part: HeldEnvelope, recipient: Recipient): Promise<OpenedEnvelope> {
  let last: ClientError | null = null;
  for (const read of copiesOf(part)) {
    try {
      const envelope = await read();
      if (envelope !== null) return await openChunk(envelope, part, recipient);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      last = error;
    }
  }
  throw last ?? localError("gone", `no Cache has ${part.messageId} any more`);
}

/** From this machine first, then from each Cache; `null` when it is gone. */
function copiesOf({ messageId, at, local }: HeldEnvelope): (() => Promise<Record<string, unknown> | null>)[] {
  const elsewhere = at.map((cache) => async () => {
    const { state, message } = await cache.message(messageId);
    return state === "active" && isRecord(message?.envelope) ? message.envelope : null;
  });
  return local === null ? elsewhere : [local, ...elsewhere];
}

function openChunk(envelope: Record<string, unknown>, part: HeldEnvelope, recipient: Recipient) {
  const messageId = envelope["message_id"];
  const chunk = chunkOf(envelope);
  const expected =
    typeof messageId === "string" &&
    messageId.toLowerCase() === part.messageId.toLowerCase() &&
    envelope["to"] === recipient.did &&
    chunk?.groupId.toLowerCase() === part.chunk?.groupId.toLowerCase() &&
    chunk?.sequence === part.chunk?.sequence &&
    chunk?.total === part.chunk?.total;
  if (!expected) throw localError("not_authentic", "the Cache answered with another message");
  return openEnvelope(envelope, recipient);
}

type OpenedEnvelope = Pick<Written, "from" | "sentAtMs"> & { readonly opened: Opened };

/**
 * One envelope to this recipient, decrypted: a whole message, or one chunk of a file (`message_group_id`).
 * Throws a `local` ClientError: `unknown_profile`, `unknown_key`, `not_authentic` or
 * `record_unreadable`.
 */
export async function openEnvelope(
  envelope: Readonly<Record<string, unknown>>,
  recipient: Recipient,
): Promise<OpenedEnvelope> {
  const messageId = envelope["message_id"];
  if (typeof messageId !== "string" || envelope["to"] !== recipient.did)
    throw localError("not_authentic", "the envelope is for somebody else");
  const binding: Binding = { messageId, to: recipient.did, chunk: chunkOf(envelope) };
  const opened = await openPayload(envelope["payload"], binding, recipient.secretsOf);
  const timestamp = envelope["timestamp"] ?? envelope["created_at"];
  const sentAtMs = typeof timestamp === "string" ? parseTimestamp(timestamp) : null;
  return { opened, from: await recipient.senderOf(envelope as EnvelopeJson), sentAtMs };
}

/** Codes of a message that no later attempt will open: it waits until it expires or is removed. */
const unreadableCodes = ["unknown_profile", "unknown_key", "not_authentic", "record_unreadable"];

export function isUnreadable(error: ClientError): boolean {
  return error.kind === "local" && unreadableCodes.includes(error.code);
}

/** Acknowledges every copy everywhere. Returns the Caches where that failed: they will offer the message again. */
export async function acknowledge(pending: readonly PendingMessage[]): Promise<Unreachable[]> {
  const idsAt = new Map<CacheClient, string[]>();
  for (const { messageId, at } of pending.flatMap((message) => message.held)) {
    for (const cache of at) {
      const ids = idsAt.get(cache);
      if (ids === undefined) idsAt.set(cache, [messageId]);
      else ids.push(messageId);
    }
  }
  const failures: Unreachable[] = [];
  for (const [cache, ids] of idsAt) {
    try {
      for (let from = 0; from < ids.length; from += ackIdsMax) await cache.ack(ids.slice(from, from + ackIdsMax));
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      failures.push({ endpoint: cache.reader.at.url, error });
    }
  }
  return failures;
}
