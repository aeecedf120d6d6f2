/**
 * What a recipient has received but may not have acknowledged everywhere, on disk: so that a crash
 * between storing and acknowledging, or a Cache that could not be reached, brings no file twice. One line
 * of JSON per file, appended and synced before the file gets its name; lines are dropped when the
 * messages have expired. One process at a time per identity.
 */
import { mkdir, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { localError } from "../../client/http.ts";
import { isRecord } from "../../client/shape.ts";
import { errorText } from "../../core/fault.ts";
import { isPlaced, placeFile, readText, removeIfThere, sweepLeftovers, syncFolder, writeDurably } from "./files.ts";

type JournalEntry = {
  readonly messageIds: readonly string[];
  /** When the last of the messages expires: after that no Cache can offer them again. */
  readonly untilMs: number;
  readonly temporary: string;
  readonly folder: string;
  readonly name: string;
};

export type Journal = {
  readonly has: (messageId: string) => boolean;
  /** Writes the entry down, then gives the file its name. Answers its path. */
  readonly place: (entry: JournalEntry) => Promise<string>;
  readonly close: () => Promise<void>;
};

/** Opens the journal in a folder of the identity's own, and finishes what a crash left half done. */
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

/** A last line that a crash cut off is no entry: its file did not get its name. */
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

/** Deno gives no code of SQLite, and SQLite's own words for it. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return "errcode" in error ? error.errcode === sqliteBusy : error.message === "database is locked";
}

/**
 * A lock that the kernel takes back when the process dies, however it dies: SQLite's exclusive lock on an
 * empty file. A process id would lie: in a container the next process has the same one.
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
    if (isBusy(error)) throw localError("busy", `another process receives for this identity: it holds ${path}`);
    throw localError("unusable", `${path} can't be used: ${errorText(error)}`);
  }
}
