/**
 * An identity's inbox on this machine: complete messages are stored as files, and only then acknowledged on every Cache
 * that holds a copy. A message that fails does not delay the others, and no message is stored twice, even after a crash.
 * Envelopes of a live session are kept on disk until their file is complete. One process at a time uses an inbox.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3, rules section 6.
 */
import { mkdir, open, readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Client } from "../../client/client.ts";
import { type Look, Signal, stayConnected } from "../../client/connections.ts";
import {
  digestOf,
  type EnvelopeCopy,
  isComplete,
  type LiveEnvelope,
  listPending,
  messageIdsOf,
  type PendingMessage,
  splitReceived,
  versionsOf,
} from "../../client/copies.ts";
import { ClientError } from "../../client/http.ts";
import type { Identity } from "../../client/keys.ts";
import type { WaypostEvent } from "../../client/message.ts";
import { type CacheClient, cachesOf } from "../../client/reader.ts";
import {
  acknowledge,
  isUnreadable,
  type Recipient,
  readChunks,
  recipientOf,
  type Sender,
  type Written,
} from "../../client/retrieve.ts";
import { encodeHex } from "../../core/codec/bytes.ts";
import { dayMs } from "../../core/codec/time.ts";
import { removeIfThere, safeFileName } from "./files.ts";
import { type Journal, openJournal, openLiveChunks } from "./journal.ts";

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
  /** Stores and acknowledges every message that is complete now. Throws when no Cache answers. */
  readonly receive: () => Promise<Round>;
  /** Receives until `signal` is aborted, and reconnects by itself. */
  readonly follow: (options: FollowOptions, signal: AbortSignal) => Promise<void>;
  readonly close: () => Promise<void>;
};

export type FollowOptions = {
  /** Names a live session at every Relay; `null` receives from the Caches alone. */
  readonly device: string | null;
  readonly onRound: (round: Round) => void;
  readonly onEvent: (event: WaypostEvent) => void;
};

/** Throws `busy` while another process has it open. */
export async function openInbox(client: Client, identity: Identity, options: InboxOptions): Promise<Inbox> {
  const journal = await openJournal(options.state, Date.now());
  try {
    const steps = await openSteps(client, identity, { ...options, journal });
    const caches = await cachesOf(client, identity, options.deviceId);
    return {
      receive: () => receiveRound(caches, steps),
      follow: (following, signal) => {
        const host = { client, identity: () => identity, cacheDevice: options.deviceId };
        return stayConnected({ ...host, ...arrivals(steps, following) }, signal);
      },
      close: journal.close,
    };
  } catch (error) {
    await journal.close();
    throw error;
  }
}

async function openSteps(
  client: Client,
  identity: Identity,
  { journal, state, onChunk, ...options }: InboxOptions & { readonly journal: Journal },
): Promise<Steps> {
  const folder = resolve(options.folder);
  const temporaryPrefix = `.waypost-${identity.did.slice("did:svc:".length)}-`;
  await sweepTemporaries(folder, temporaryPrefix);
  const recipient = recipientOf(client, identity);
  const chunks = await openLiveChunks(join(state, "chunks"), Date.now());
  const places: ReceiveOptions = { folder, journal, temporaryPrefix, ...(onChunk === undefined ? {} : { onChunk }) };
  return {
    held: chunks.held,
    journal,
    digests: new Map(),
    store: (message) => storeMessage(message, recipient, places),
    keep: async ({ messageId, expiresAtMs, envelope }) => {
      const digest = digestOf(envelope);
      if (journal.has(digest) || chunks.has(digest)) return true;
      return chunks.put({ messageId, expiresAtMs, envelope: envelope });
    },
    forget: chunks.remove,
  };
}

/** An envelope of a live session is on disk before it is acknowledged; its message does not wait for a Cache. */
function arrivals(steps: Steps, { device, onRound, onEvent }: FollowOptions) {
  const news = new Signal();
  const receive = async (caches: readonly CacheClient[]): Promise<Look> => {
    const round = await receiveRound(caches, steps);
    onRound(round);
    // The round itself reports its Caches.
    return { isComplete: round.failed.length + round.unreachable.length === 0, unreachable: [] };
  };
  return {
    liveDevice: device,
    emit: onEvent,
    news,
    receiveLive: async (envelope: LiveEnvelope) => {
      const isKept = await steps.keep(envelope);
      if (isKept) news.wake();
      return isKept;
    },
    receiveWaiting: async (caches: readonly CacheClient[]) => {
      if (steps.held().length > 0) await receive([]);
      return receive(caches);
    },
  };
}

type Steps = {
  readonly held: () => readonly EnvelopeCopy[];
  readonly journal: Journal;
  /** Of copies that were read, from one round to the next. */
  readonly digests: Map<string, string>;
  readonly store: (message: PendingMessage) => Promise<Received>;
  /** Keeps an envelope of a live session until its message is complete; `true` means synced. */
  readonly keep: (chunk: LiveEnvelope) => Promise<boolean>;
  readonly forget: (copies: readonly EnvelopeCopy[]) => Promise<void>;
};

async function receiveRound(caches: readonly CacheClient[], steps: Steps): Promise<Round> {
  const { journal, digests } = steps;
  const { pending, unreachable } = await listPending(caches, { local: steps.held(), digests });
  const received: Received[] = [];
  const unreadable: Problem[] = [];
  const failed: Problem[] = [];
  const incomplete: PendingMessage[] = [];
  const unreported = unreachable.map(({ endpoint, error }) => problem(endpoint, error));
  const settle = async (copies: readonly EnvelopeCopy[]) => {
    for (const { endpoint, error } of await acknowledge(copies, journal)) unreported.push(problem(endpoint, error));
    await steps.forget(copies.filter(({ cache }) => cache === null));
  };
  for (const message of pending) {
    // Stored by an earlier run whose acknowledgement did not arrive everywhere.
    const { again, fresh } = await splitReceived(message, journal);
    await settle(again);
    if (!isComplete(fresh)) {
      if (fresh.parts.length > 0 && again.length === 0) incomplete.push(fresh);
      continue;
    }
    for (const version of await versionsOf(fresh)) {
      const stored = await attempt(steps.store, version);
      if (stored instanceof ClientError) {
        (isUnreadable(stored) ? unreadable : failed).push(problem(nameOf(message), stored));
        continue;
      }
      received.push(stored);
      await settle(version.parts.flat());
    }
  }
  const missing = incomplete.map(({ groupId, parts, total }) => ({ groupId, held: parts.length, total }));
  return { received, incomplete: missing, unreadable, failed, unreachable: unreported };
}

async function attempt(store: Steps["store"], message: PendingMessage): Promise<Received | ClientError> {
  try {
    return await store(message);
  } catch (error) {
    if (error instanceof ClientError) return error;
    throw error;
  }
}

const nameOf = ({ groupId, parts }: PendingMessage): string => groupId ?? parts[0]?.[0]?.messageId ?? "?";

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

/** Writes a complete message to a file with its own name. Nothing is acknowledged yet. */
export async function storeMessage(
  message: PendingMessage,
  recipient: Recipient,
  options: ReceiveOptions,
): Promise<Received> {
  await mkdir(options.folder, { recursive: true });
  const temporary = join(options.folder, `${options.temporaryPrefix}${crypto.randomUUID()}.part`);
  const { file, from, digests } = await writeTemporary(temporary, message, recipient, options.onChunk);
  const messageIds = messageIdsOf(message);
  // From here on the file belongs to the journal: if it can't be named now, the next run does it.
  const path = await options.journal.place({
    messageIds,
    digests: [...digests],
    untilMs: expiryOf(message, Date.now()),
    temporary,
    folder: options.folder,
    name: safeFileName(file.name),
  });
  const [name, mediaType] = [file.name, file.mediaType].map((text) => text.slice(0, shownCharactersMax)) as [
    string,
    string,
  ];
  return { path, name, mediaType, sizeBytes: file.sizeBytes, sha256: encodeHex(file.sha256), messageIds, from };
}

/** Longest name and media type that are shown; a sender may write millions of characters. */
const shownCharactersMax = 1_024;
/** No envelope lives longer. */
const lifeMsMax = 30 * dayMs;

/** When no Cache can offer the message again. A Cache may state any time, or none. */
function expiryOf(message: PendingMessage, nowMs: number): number {
  const latest = message.parts.flat().reduce((most, { expiresAtMs }) => Math.max(most, expiresAtMs), 0);
  return latest >= nowMs && latest <= nowMs + lifeMsMax ? latest : nowMs + lifeMsMax;
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
