/**
 * What an inbox remembers between runs: the journal of received messages, so that none is stored twice. It belongs to one
 * process at a time.
 * Source: rules section 10 ("Receiving").
 */
import { mkdir, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { parseRecord } from "../../client/answers.ts";
import type { ReceivedBefore } from "../../client/copies.ts";
import { localError } from "../../client/http.ts";
import { errorText } from "../../core/fault.ts";
import { isPlaced, placeFile, readText, removeIfThere, sweepLeftovers, syncFolder, writeDurably } from "./files.ts";

type JournalEntry = {
  readonly messageIds: readonly string[];
  /** Of the envelopes that were opened. */
  readonly digests: readonly string[];
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
export type Journal = ReceivedBefore & {
  /** Appends the entry, then gives the file its name. Returns the path; `null` when the message has a file already. */
  readonly place: (entry: JournalEntry) => Promise<string | null>;
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
  const ids = new Set(entries.flatMap((entry) => entry.messageIds));
  const known = new Set(entries.flatMap((entry) => entry.digests));
  const handle = await open(file, "a", 0o600);
  const place = async (entry: JournalEntry): Promise<string | null> => {
    if (entry.digests.every((digest) => known.has(digest))) {
      await removeIfThere(entry.temporary);
      return null;
    }
    await handle.appendFile(renderEntry(entry));
    await handle.sync();
    for (const id of entry.messageIds) ids.add(id);
    for (const digest of entry.digests) known.add(digest);
    return placeFile(entry.temporary, entry.folder, entry.name);
  };
  let last: Promise<unknown> = Promise.resolve();
  return {
    hasId: (messageId) => ids.has(messageId),
    has: (digest) => known.has(digest),
    // One after the other, so that what comes twice at once is one file.
    place: (entry) => {
      const placed = last.then(() => place(entry));
      last = placed.catch(() => undefined);
      return placed;
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
  const entry = parseRecord(line);
  const [messageIds, digests] = [entry?.["messageIds"], entry?.["digests"]];
  const { untilMs, temporary, folder, name } = entry ?? {};
  if (!Array.isArray(messageIds) || !Array.isArray(digests) || typeof untilMs !== "number") return null;
  if (typeof temporary !== "string" || typeof folder !== "string" || typeof name !== "string") return null;
  return { messageIds: messageIds.map(String), digests: digests.map(String), untilMs, temporary, folder, name };
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
  const held = await openExclusively(path, ["PRAGMA journal_mode = OFF", "BEGIN EXCLUSIVE"]);
  return () => held.close();
}

/** A database that no other process can open until this one closes it or dies. Throws `busy`. */
export async function openExclusively(path: string, statements: readonly string[]): Promise<DatabaseSync> {
  const { DatabaseSync } = await import("node:sqlite");
  let opened: DatabaseSync | null = null;
  try {
    opened = new DatabaseSync(path);
    for (const sql of ["PRAGMA locking_mode = EXCLUSIVE", ...statements]) opened.exec(sql);
    return opened;
  } catch (error) {
    opened?.close();
    if (isBusy(error)) throw localError("busy", `another process has ${path} open`);
    throw localError("unusable", `${path} can't be used: ${errorText(error)}`);
  }
}
