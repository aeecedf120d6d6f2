/**
 * An identity's inbox on this machine: the SDK's receiver, which stores complete messages as files before they are
 * acknowledged. A message that fails does not delay the others, and no message is stored twice, even after a crash. One
 * process at a time uses an inbox.
 * Source: interface "Cache" (acknowledging), rules section 6.
 */
import { mkdir, open, readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { removeIfThere } from "../../app/files.ts";
import { cachesOf, expiryOf, type PendingMessage } from "../../client/caches.ts";
import type { ClientError } from "../../client/http.ts";
import type { Receiver, ReceiverStorage } from "../../client/receiver.ts";
import { type MessageFacts, type ReadMessage, type Recipient, readChunks } from "../../client/retrieve.ts";
import type { Waypost } from "../../client/waypost.ts";
import { encodeHex } from "../../core/codec/bytes.ts";
import { safeFileName } from "./files.ts";
import { type Journal, openJournal } from "./journal.ts";

export type InboxOptions = {
  /** Where files go; made when it is not there. */
  readonly folder: string;
  /** Folder of the state between runs, of this identity alone (`stateFolder`). */
  readonly state: string;
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
  /** Receives until `signal` is aborted, live too, and reconnects by itself. */
  readonly follow: (onRound: (round: Round) => void, signal: AbortSignal) => Promise<void>;
  readonly close: () => Promise<void>;
};

/** Throws `busy` while another process has it open. */
export async function openInbox(me: Waypost, options: InboxOptions): Promise<Inbox> {
  const journal = await openJournal(options.state, Date.now());
  try {
    const temporaryPrefix = `.waypost-${me.did.slice("did:svc:".length)}-`;
    const place: ReceiveOptions = { ...options, folder: resolve(options.folder), journal, temporaryPrefix };
    await sweepTemporaries(place.folder, temporaryPrefix);
    const caches = await cachesOf(me.client, me.identity);
    /** While `work` receives, what could not be opened or read is reported too. */
    const receiving = async (report: Report, work: (receiver: Receiver) => Promise<void>) => {
      const stop = me.on((event) => {
        if (event.type === "unreadable")
          report("unreadable", { what: event.messageIds[0] ?? "?", code: event.code, message: event.reason });
        else if (event.type === "disconnected" && event.what === "cache" && event.error !== null)
          report("unreachable", problem(event.url, event.error));
      });
      await work(await me.receiver(storageOf(place, report))).finally(stop);
    };
    return {
      receive: async () => {
        const round = emptyRound();
        const report: Report = (kind, item) => void (round[kind] as unknown[]).push(item);
        await receiving(report, async (receiver) => {
          const { unreachable } = await receiver.poll(caches);
          for (const { endpoint, error } of unreachable) report("unreachable", problem(endpoint, error));
        });
        return round;
      },
      follow: (onRound, signal) =>
        receiving(
          (kind, item) => onRound({ ...emptyRound(), [kind]: [item] }),
          async (receiver) => {
            const stop = () => void receiver.stop();
            signal.addEventListener("abort", stop);
            receiver.start();
            void me.watch();
            if (signal.aborted) stop();
            await receiver.next().finally(() => receiver.stop());
          },
        ),
      close: journal.close,
    };
  } catch (error) {
    await journal.close();
    throw error;
  }
}

type Report = (kind: keyof Round, item: Round[keyof Round][number]) => void;

function emptyRound(): Round {
  return { received: [], incomplete: [], unreadable: [], failed: [], unreachable: [] };
}

/** What it reads is a file when it returns. */
function storageOf(place: ReceiveOptions, report: Report): ReceiverStorage {
  return {
    has: place.journal.has,
    isKeeping: true,
    read: async (message, recipient) => {
      const { received, read } = await storeMessage(message, recipient, place);
      if (received !== null) report("received", received);
      return { ...read, data: new Uint8Array(0) };
    },
    onLeft: (left) => {
      if (left.type === "incomplete") {
        const { groupId, parts, total } = left.message;
        report("incomplete", { groupId, held: parts.length, total });
      } else report(left.type === "failed" ? "failed" : "unreachable", problem(left.what, left.error));
    },
  };
}

const problem = (what: string, error: ClientError): Problem => ({ what, code: error.code, message: error.message });

// ---------------------------------------------------------------------------------------- message to file

/** A message whose content is a file now. */
export type Received = MessageFacts & { readonly path: string; readonly sha256: string };

type ReceiveOptions = {
  readonly folder: string;
  readonly journal: Journal;
  /** Begins the names of temporary files: different for each recipient, none the beginning of another. */
  readonly temporaryPrefix: string;
  readonly onChunk?: (done: number, total: number) => void;
};

/** Writes a complete message to a file with its own name, unless it has one. Nothing is acknowledged yet. */
export async function storeMessage(
  message: PendingMessage,
  recipient: Recipient,
  options: ReceiveOptions,
): Promise<{ readonly received: Received | null; readonly read: ReadMessage }> {
  await mkdir(options.folder, { recursive: true });
  const temporary = join(options.folder, `${options.temporaryPrefix}${crypto.randomUUID()}.part`);
  const read = await writeTemporary(temporary, message, recipient, options.onChunk);
  const { digests, sha256, ...facts } = read;
  // From here on the file belongs to the journal: if it can't be named now, the next run does it.
  const path = await options.journal.place({
    messageIds: facts.messageIds,
    digests: [...digests],
    untilMs: expiryOf(message, Date.now()),
    temporary,
    folder: options.folder,
    name: safeFileName(facts.name),
  });
  if (path === null) return { received: null, read };
  const [name = "", mediaType = ""] = [facts.name, facts.mediaType].map((text) => text.slice(0, shownCharactersMax));
  return { received: { ...facts, name, mediaType, path, sha256: encodeHex(sha256) }, read };
}

/** Longest name and media type that are shown; a sender may write millions of characters. */
const shownCharactersMax = 1_024;
/** The whole file under its temporary name, synced; or nothing. */
async function writeTemporary(
  path: string,
  message: PendingMessage,
  recipient: Recipient,
  onChunk: ReceiveOptions["onChunk"],
): Promise<ReadMessage> {
  const handle = await open(path, "wx", 0o600);
  try {
    const write = (data: Uint8Array) => handle.appendFile(data);
    const read = await readChunks(message, recipient, { write, ...(onChunk === undefined ? {} : { onChunk }) });
    await handle.sync();
    await handle.close();
    return read;
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
