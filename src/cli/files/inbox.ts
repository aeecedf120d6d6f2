/**
 * An identity's inbox on this machine: what is complete is stored as files, and only then acknowledged on
 * every Cache that holds a copy. One message that fails does not hold up the others, and nothing is stored
 * twice, also after a crash. One process at a time for an identity.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3, rules section 6.
 */
import { join, resolve } from "node:path";
import type { CacheClient } from "../../client/cache.ts";
import { type Client, cachesOf, recipientOf } from "../../client/client.ts";
import { ClientError } from "../../client/http.ts";
import type { Identity } from "../../client/keys.ts";
import type { LiveEnvelope } from "../../client/live.ts";
import { acknowledge, isComplete, isUnreadable, listPending, type PendingMessage } from "../../client/retrieve.ts";
import { openJournal } from "./journal.ts";
import { openLiveChunks } from "./live-chunks.ts";
import { type Received, storeMessage, sweepTemporaries, wasReceived } from "./store-message.ts";

export type InboxOptions = {
  /** Where files go; made when it is not there. */
  readonly folder: string;
  /** What is remembered between runs: a folder of this identity's own (`stateFolder`). */
  readonly state: string;
  /** The device to read the Caches as; empty for all. */
  readonly deviceId: string;
  readonly onPart?: (done: number, total: number) => void;
};

/** What went wrong: with a Cache (its address), or with a message (its id, or that of its group). */
export type Problem = { readonly what: string; readonly code: string; readonly message: string };

export type Round = {
  readonly received: readonly Received[];
  /** Files of which chunks are missing so far. */
  readonly incomplete: readonly { readonly groupId: string | null; readonly held: number; readonly total: number }[];
  /** Messages that can't be opened: they stay where they are until they expire or are purged. */
  readonly unreadable: readonly Problem[];
  /** Messages that could not be received this time. */
  readonly failed: readonly Problem[];
  /** Caches that could not be read or did not take an acknowledgement. */
  readonly unreachable: readonly Problem[];
};

export type Inbox = {
  /** Every Cache that the identity's document names and that one of its keys may read. */
  readonly caches: readonly CacheClient[];
  /**
   * Stores and acknowledges everything that is complete in `caches` and on this machine. Throws when none
   * of the Caches could be asked.
   */
  readonly receive: (caches: readonly CacheClient[]) => Promise<Round>;
  /** Keeps what a live session brought until its file is complete; `true` means synced. */
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
    const { onPart } = options;
    const places = { folder, journal, temporaryPrefix, ...(onPart === undefined ? {} : { onPart }) };
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
