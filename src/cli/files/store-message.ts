/**
 * A received message as a file: written under a temporary name, synced, entered in the journal, and only then
 * given its own name. Nothing is acknowledged here.
 * Source: interface "Cache" (acknowledging), docs/ledger.md 3.2 and 3.3.
 */
import { mkdir, open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { type PendingMessage, type Recipient, readChunks, type Sender, type Written } from "../../client/retrieve.ts";
import { encodeHex } from "../../core/codec/bytes.ts";
import { removeIfThere, safeFileName } from "./files.ts";
import type { Journal } from "./journal.ts";

export type Received = {
  readonly path: string;
  readonly name: string;
  readonly mediaType: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly messageIds: readonly string[];
  readonly from: Sender | null;
};

export type ReceiveOptions = {
  readonly folder: string;
  readonly journal: Journal;
  /** Begins the names of temporary files: different for each recipient, none the beginning of another. */
  readonly temporaryPrefix: string;
  readonly onChunk?: (done: number, total: number) => void;
};

/**
 * Whether an earlier run stored the file and its acknowledgement did not arrive everywhere. The journal
 * knows whole files only, so one known chunk stands for all: another copy of a chunk is no new file.
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
  // From here on the file belongs to the journal: should its naming fail, the next run finishes it.
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

/**
 * Removes temporary files of runs that were cut off before they had anything to keep. Only for who holds
 * the journal of the recipient: the prefix must be his alone.
 */
export async function sweepTemporaries(folder: string, prefix: string): Promise<void> {
  const files = await readdir(folder).catch(() => []);
  for (const file of files) {
    if (file.startsWith(prefix) && file.endsWith(".part")) await removeIfThere(join(folder, file));
  }
}
