/**
 * An identity's inbox on this machine: complete messages are stored as files, and only then acknowledged on every Cache
 * that holds a copy. A message that fails does not delay the others, and no message is stored twice, even after a crash.
 * Envelopes of a live session are kept on disk until their file is complete. One process at a time uses an inbox.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3, rules section 6.
 */
import { mkdir, open, readdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { isRecord } from "../../client/answers.ts";
import { type Client, cachesOf, recipientOf } from "../../client/client.ts";
import { ClientError, localError } from "../../client/http.ts";
import type { Identity } from "../../client/keys.ts";
import type { CacheClient, LiveEnvelope } from "../../client/reader.ts";
import {
  acknowledge,
  chunkOf,
  type HeldEnvelope,
  isComplete,
  isUnreadable,
  listPending,
  type PendingMessage,
  type Recipient,
  readChunks,
  type Sender,
  type Written,
} from "../../client/retrieve.ts";
import { encodeHex } from "../../core/codec/bytes.ts";
import { errorText } from "../../core/fault.ts";
import {
  isPlaced,
  placeFile,
  readText,
  removeIfThere,
  safeFileName,
  sweepLeftovers,
  syncFolder,
  writeDurably,
} from "./files.ts";

export type InboxOptions = {
  /** Where files go; made when it is not there. */
  readonly folder: string;
  /** Folder of the state between runs, of this identity alone (`stateFolder`). */
  readonly state: string;
  /** The device to read the Caches as; empty for all. */
  readonly deviceId: string;
  /** Called after each chunk of a message. */
  readonly onChunk?: (done: number, total: number) => void;
};

/** A problem with a Cache (its address) or with a message (its id, or that of its group). */
export type Problem = { readonly what: string; readonly code: string; readonly message: string };

export type Round = {
  readonly received: readonly Received[];
  /** Files of which chunks are missing so far. */
  readonly incomplete: readonly { readonly groupId: string | null; readonly held: number; readonly total: number }[];
  /** Messages that can't be opened: they stay in the Caches until they expire or are purged. */
  readonly unreadable: readonly Problem[];
  /** Messages that could not be received this time. */
  readonly failed: readonly Problem[];
  /** Caches that could not be read or refused an acknowledgement. */
  readonly unreachable: readonly Problem[];
};

export type Inbox = {
  /** Every Cache that the identity's document names and that one of its keys may read. */
  readonly caches: readonly CacheClient[];
  /** Stores and acknowledges every message that is complete in `caches` and on this machine. Throws when no Cache answers. */
  readonly receive: (caches: readonly CacheClient[]) => Promise<Round>;
  /** Keeps an envelope of a live session until its file is complete; `true` means synced. */
  readonly keep: (chunk: LiveEnvelope) => Promise<boolean>;
  readonly close: () => Promise<void>;
};

/** Throws `busy` while another process has it open. */
export async function openInbox(client: Client, identity: Identity, options: InboxOptions): Promise<Inbox> {
  const journal = await openJournal(options.state, Date.now());
  try {
    const folder = resolve(options.folder);
    const temporaryPrefix = `.waypost-${identity.did.slice("did:svc:".length)}-`;
    await sweepTemporaries(folder, temporaryPrefix);
    const caches = await cachesOf(client, identity, options.deviceId);
    const recipient = recipientOf(client, identity);
    const chunks = await openLiveChunks(join(options.state, "chunks"), Date.now());
    const { onChunk } = options;
    const places: ReceiveOptions = {
      folder,
      journal,
      temporaryPrefix,
      ...(onChunk === undefined ? {} : { onChunk }),
    };
    return {
      caches,
      receive: (from) =>
        receiveRound(from, {
          held: chunks.held,
          isKnown: (message) => wasReceived(message, journal),
          store: (message) => storeMessage(message, recipient, places),
          forget: chunks.remove,
        }),
      keep: async (chunk) => journal.has(chunk.messageId) || chunks.has(chunk.messageId) || (await chunks.put(chunk)),
      close: journal.close,
    };
  } catch (error) {
    await journal.close();
    throw error;
  }
}

type Steps = {
  readonly held: () => NonNullable<Parameters<typeof listPending>[1]>;
  readonly isKnown: (message: PendingMessage) => boolean;
  readonly store: (message: PendingMessage) => Promise<Received>;
  readonly forget: (messageIds: readonly string[]) => Promise<void>;
};

async function receiveRound(caches: readonly CacheClient[], steps: Steps): Promise<Round> {
  const { pending, unreachable } = await listPending(caches, steps.held());
  const received: Received[] = [];
  const unreadable: Problem[] = [];
  const failed: Problem[] = [];
  const unreported = unreachable.map(({ endpoint, error }) => problem(endpoint, error));
  const isWhole = (message: PendingMessage) => steps.isKnown(message) || isComplete(message);
  for (const message of pending.filter(isWhole)) {
    const stored = steps.isKnown(message) ? null : await attempt(steps.store, message);
    if (stored instanceof ClientError) {
      (isUnreadable(stored) ? unreadable : failed).push(problem(nameOf(message), stored));
      continue;
    }
    if (stored !== null) received.push(stored);
    await steps.forget(message.held.filter(({ local }) => local !== null).map(({ messageId }) => messageId));
    for (const { endpoint, error } of await acknowledge([message])) unreported.push(problem(endpoint, error));
  }
  const incomplete = pending
    .filter((message) => !isWhole(message))
    .map(({ groupId, parts, total }) => ({ groupId, held: parts.length, total }));
  return { received, incomplete, unreadable, failed, unreachable: unreported };
}

async function attempt(store: Steps["store"], message: PendingMessage): Promise<Received | ClientError> {
  try {
    return await store(message);
  } catch (error) {
    if (error instanceof ClientError) return error;
    throw error;
  }
}

const nameOf = ({ groupId, parts }: PendingMessage): string => groupId ?? parts[0]?.messageId ?? "?";

const problem = (what: string, error: ClientError): Problem => ({ what, code: error.code, message: error.message });

// ---------------------------------------------------------------------------------------- message to file

export type Received = {
  readonly path: string;
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly messageIds: readonly string[];
  readonly from: Sender | null;
};

type ReceiveOptions = {
  readonly folder: string;
  readonly journal: Journal;
  /** Begins the names of temporary files: different for each recipient, none the beginning of another. */
  readonly temporaryPrefix: string;
  readonly onChunk?: (done: number, total: number) => void;
};

/**
 * Whether an earlier run stored the file and its acknowledgement did not arrive everywhere. The journal has whole files
 * only, so one known chunk means that all were stored.
 */
export function wasReceived(message: PendingMessage, journal: Journal): boolean {
  return message.held.some(({ messageId }) => journal.has(messageId));
}

/** Writes a complete message to a file with its own name. Nothing is acknowledged yet. */
export async function storeMessage(
  message: PendingMessage,
  recipient: Recipient,
  options: ReceiveOptions,
): Promise<Received> {
  await mkdir(options.folder, { recursive: true });
  const temporary = join(options.folder, `${options.temporaryPrefix}${crypto.randomUUID()}.part`);
  const { file, from } = await writeTemporary(temporary, message, recipient, options.onChunk);
  const messageIds = message.held.map(({ messageId }) => messageId);
  // From here on the file belongs to the journal: if it can't be named now, the next run does it.
  const path = await options.journal.place({
    messageIds,
    untilMs: message.held.reduce((latest, { expiresAtMs }) => Math.max(latest, expiresAtMs), 0),
    temporary,
    folder: options.folder,
    name: safeFileName(file.name),
  });
  const { name, mediaType, sizeBytes } = file;
  return { path, name, mediaType, sizeBytes, sha256: encodeHex(file.sha256), messageIds, from };
}

/** The whole file under its temporary name, synced; or nothing. */
async function writeTemporary(
  path: string,
  message: PendingMessage,
  recipient: Recipient,
  onChunk: ReceiveOptions["onChunk"],
): Promise<Written> {
  const handle = await open(path, "wx", 0o600);
  try {
    const write = (data: Uint8Array) => handle.appendFile(data);
    const written = await readChunks(message, recipient, { write, ...(onChunk === undefined ? {} : { onChunk }) });
    await handle.sync();
    await handle.close();
    return written;
  } catch (error) {
    await handle.close().catch(() => undefined);
    await removeIfThere(path);
    throw error;
  }
}

/** Removes temporary files of interrupted runs. The caller must hold the journal, so that no other run uses the prefix. */
async function sweepTemporaries(folder: string, prefix: string): Promise<void> {
  const files = await readdir(folder).catch(() => []);
  for (const file of files) {
    if (file.startsWith(prefix) && file.endsWith(".part")) await removeIfThere(join(folder, file));
  }
}

// -------------------------------------------------------------------------------------------- live chunks

/** Further ones are refused; the Relay then stores them in the Cache. */
const chunksKeptMax = 100_000;

type LiveChunks = {
  readonly held: () => HeldEnvelope[];
  readonly has: (messageId: string) => boolean;
  /** `false` when there are too many; true means synced. */
  readonly put: (chunk: {
    messageId: string;
    expiresAtMs: number;
    envelope: Record<string, unknown>;
  }) => Promise<boolean>;
  readonly remove: (messageIds: readonly string[]) => Promise<void>;
};

export async function openLiveChunks(folder: string, nowMs: number): Promise<LiveChunks> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await sweepLeftovers(folder, nowMs);
  const index = new Map<string, HeldEnvelope>();
  for (const file of (await readdir(folder)).filter((name) => name.endsWith(".json"))) {
    const path = join(folder, file);
    const chunk = await readChunkFile(path);
    if (chunk === null || chunk.expiresAtMs <= nowMs) await removeIfThere(path);
    else index.set(file.slice(0, -".json".length), heldChunk(path, chunk));
  }
  return {
    held: () => [...index.values()],
    has: (messageId) => index.has(messageId),
    put: async ({ messageId, expiresAtMs, envelope }) => {
      if (index.size >= chunksKeptMax) return false;
      const path = join(folder, `${messageId}.json`);
      await writeDurably(path, JSON.stringify({ expires_at_ms: expiresAtMs, envelope }));
      index.set(messageId, heldChunk(path, { messageId, expiresAtMs, envelope }));
      return true;
    },
    remove: async (messageIds) => {
      for (const messageId of messageIds) {
        if (index.delete(messageId)) await removeIfThere(join(folder, `${messageId}.json`));
      }
    },
  };
}

type StoredEnvelope = {
  readonly messageId: string;
  readonly expiresAtMs: number;
  readonly envelope: Record<string, unknown>;
};

/** Keeps the chunk's place in its message in memory, and its payload on disk. */
function heldChunk(path: string, chunk: StoredEnvelope): HeldEnvelope {
  const { messageId, expiresAtMs, envelope } = chunk;
  const local = async () => (await readChunkFile(path).catch(() => null))?.envelope ?? null;
  return { messageId, expiresAtMs, chunk: chunkOf(envelope), at: [], local };
}

/** `null` when the file is not a chunk. Throws when it can't be read: it may be the only copy, so it is not removed. */
async function readChunkFile(path: string): Promise<StoredEnvelope | null> {
  const text = await readText(path);
  try {
    const json: unknown = JSON.parse(text ?? "");
    if (!isRecord(json) || !isRecord(json["envelope"]) || typeof json["expires_at_ms"] !== "number") return null;
    const { envelope, expires_at_ms: expiresAtMs } = json;
    return { messageId: String(envelope["message_id"]).toLowerCase(), expiresAtMs, envelope };
  } catch {
    return null;
  }
}

// ------------------------------------------------------------------------------------------------------------- journal

type JournalEntry = {
  readonly messageIds: readonly string[];
  /** When the last of the messages expires: after that no Cache can offer them again. */
  readonly untilMs: number;
  readonly temporary: string;
  readonly folder: string;
  readonly name: string;
};

/**
 * The received messages on disk, so that no file is stored twice after a crash between storing and acknowledging, or when
 * a Cache could not be reached. One line of JSON per file, appended and synced before the file gets its name; lines are
 * dropped when the messages have expired.
 */
type Journal = {
  readonly has: (messageId: string) => boolean;
  /** Appends the entry, then gives the file its name. Answers the path. */
  readonly place: (entry: JournalEntry) => Promise<string>;
  readonly close: () => Promise<void>;
};

/** Opens the journal in a folder of this identity alone, and names the files that a crash left without a name. */
export async function openJournal(folder: string, nowMs: number): Promise<Journal> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const unlock = await lock(join(folder, "receiver.lock"));
  try {
    return await openLocked(join(folder, "received.jsonl"), unlock, nowMs);
  } catch (error) {
    unlock();
    throw error;
  }
}

async function openLocked(file: string, unlock: () => void, nowMs: number): Promise<Journal> {
  await sweepLeftovers(dirname(file), nowMs);
  const all = parseEntries((await readText(file)) ?? "");
  for (const entry of all) await finish(entry);
  const entries = all.filter((entry) => entry.untilMs > nowMs);
  await writeDurably(file, entries.map(renderEntry).join(""));
  const known = new Set(entries.flatMap((entry) => entry.messageIds));
  const handle = await open(file, "a", 0o600);
  return {
    has: (messageId) => known.has(messageId),
    place: async (entry) => {
      await handle.appendFile(renderEntry(entry));
      await handle.sync();
      for (const id of entry.messageIds) known.add(id);
      return placeFile(entry.temporary, entry.folder, entry.name);
    },
    close: async () => {
      await handle.close();
      unlock();
    },
  };
}

/** The file of an entry that a crash kept from getting its name. */
async function finish(entry: JournalEntry): Promise<void> {
  const placed = await isPlaced(entry.temporary);
  if (placed === null) return;
  if (placed) {
    await removeIfThere(entry.temporary);
    await syncFolder(entry.folder);
  } else {
    await placeFile(entry.temporary, entry.folder, entry.name);
  }
}

const renderEntry = (entry: JournalEntry) => `${JSON.stringify(entry)}\n`;

/** A last line that a crash cut off is ignored: its file did not get its name. */
function parseEntries(text: string): JournalEntry[] {
  return text.split("\n").flatMap((line) => {
    const entry = parseLine(line);
    return entry === null ? [] : [entry];
  });
}

function parseLine(line: string): JournalEntry | null {
  let json: unknown;
  try {
    json = JSON.parse(line);
  } catch {
    return null;
  }
  if (!isRecord(json) || !Array.isArray(json["messageIds"]) || typeof json["untilMs"] !== "number") return null;
  const { temporary, folder, name } = json;
  if (typeof temporary !== "string" || typeof folder !== "string" || typeof name !== "string") return null;
  return { messageIds: json["messageIds"].map(String), untilMs: json["untilMs"], temporary, folder, name };
}

const sqliteBusy = 5;

/** Deno gives no code of SQLite, only its message. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return "errcode" in error ? error.errcode === sqliteBusy : error.message === "database is locked";
}

/**
 * A lock that the kernel releases when the process dies, however it dies: SQLite's exclusive lock on an empty file. A
 * process id would not do: in a container the next process has the same one.
 */
async function lock(path: string): Promise<() => void> {
  const { DatabaseSync } = await import("node:sqlite");
  let held: InstanceType<typeof DatabaseSync> | null = null;
  try {
    held = new DatabaseSync(path);
    for (const sql of ["PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = OFF", "BEGIN EXCLUSIVE"])
      held.exec(sql);
    const taken = held;
    return () => taken.close();
  } catch (error) {
    held?.close();
    if (isBusy(error)) throw localError("busy", `another process receives for this identity: it has ${path} open`);
    throw localError("unusable", `${path} can't be used: ${errorText(error)}`);
  }
}
