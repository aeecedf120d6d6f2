/**
 * An identity's inbox on this machine: what is complete is stored as files, and only then acknowledged on
 * every Cache that holds a copy. One message that fails does not hold up the others, and nothing is stored
 * twice, also after a crash. One process at a time for an identity.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3, decisions section 6.
 */
import { join, resolve } from "node:path";
import type { CacheClient } from "../../client/cache.ts";
import { type Client, cachesOf, recipientOf } from "../../client/client.ts";
import { ClientError } from "../../client/http.ts";
import type { Identity } from "../../client/keys.ts";
import type { LivePiece } from "../../client/live.ts";
import { openPieces } from "../../client/pieces.ts";
import {
  acknowledge,
  isComplete,
  listParcels,
  type Parcel,
  type Received,
  storeParcel,
  sweepTemporaries,
  wasReceived,
} from "../../client/retrieve.ts";
import { openJournal } from "./journal.ts";

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
export type Trouble = { readonly what: string; readonly code: string; readonly message: string };

export type Round = {
  readonly received: readonly Received[];
  /** Files of which pieces are missing so far. */
  readonly incomplete: readonly { readonly groupId: string | null; readonly held: number; readonly total: number }[];
  /** Messages that can't be opened: they stay where they are until they expire or are purged. */
  readonly failed: readonly Trouble[];
  /** Caches that could not be read, or not be told. */
  readonly unreachable: readonly Trouble[];
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
  readonly keep: (piece: LivePiece) => Promise<boolean>;
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
    const pieces = await openPieces(join(options.state, "pieces"), Date.now());
    const { onPart } = options;
    const places = { folder, journal, temporaryPrefix, ...(onPart === undefined ? {} : { onPart }) };
    return {
      caches,
      receive: (from) =>
        receiveRound(from, {
          held: pieces.held,
          isKnown: (parcel) => wasReceived(parcel, journal),
          store: (parcel) => storeParcel(parcel, recipient, places),
          forget: pieces.remove,
        }),
      keep: async (piece) => journal.has(piece.messageId) || pieces.has(piece.messageId) || (await pieces.put(piece)),
      close: journal.close,
    };
  } catch (error) {
    await journal.close();
    throw error;
  }
}

type Steps = {
  readonly held: () => NonNullable<Parameters<typeof listParcels>[1]>;
  readonly isKnown: (parcel: Parcel) => boolean;
  readonly store: (parcel: Parcel) => Promise<Received>;
  readonly forget: (messageIds: readonly string[]) => Promise<void>;
};

async function receiveRound(caches: readonly CacheClient[], steps: Steps): Promise<Round> {
  const { parcels, unreachable } = await listParcels(caches, steps.held());
  const received: Received[] = [];
  const failed: Trouble[] = [];
  const untold = unreachable.map(({ endpoint, error }) => trouble(endpoint, error));
  const isWhole = (parcel: Parcel) => steps.isKnown(parcel) || isComplete(parcel);
  for (const parcel of parcels.filter(isWhole)) {
    const stored = steps.isKnown(parcel) ? null : await attempt(steps.store, parcel);
    if (stored !== null && "code" in stored) {
      failed.push(stored);
      continue;
    }
    if (stored !== null) received.push(stored);
    await steps.forget(parcel.held.filter(({ local }) => local !== null).map(({ messageId }) => messageId));
    for (const { endpoint, error } of await acknowledge([parcel])) untold.push(trouble(endpoint, error));
  }
  const incomplete = parcels
    .filter((parcel) => !isWhole(parcel))
    .map(({ groupId, parts, total }) => ({ groupId, held: parts.length, total }));
  return { received, incomplete, failed, unreachable: untold };
}

async function attempt(store: Steps["store"], parcel: Parcel): Promise<Received | Trouble> {
  try {
    return await store(parcel);
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    return trouble(parcel.groupId ?? parcel.parts[0]?.messageId ?? "?", error);
  }
}

const trouble = (what: string, error: ClientError): Trouble => ({ what, code: error.code, message: error.message });
