/**
 * What a recipient has received but may not have acknowledged everywhere, on disk: so that a crash
 * between storing and acknowledging, or a Cache that could not be reached, brings no file twice. One line
 * of JSON per file, appended and synced before the file gets its name; lines are dropped when the
 * messages have expired. One process at a time per identity.
 */
import { mkdir, open, unlink } from "node:fs/promises";
import { join } from "node:path";
import { isPlaced, isSystemError, placeFile, readText, removeIfThere, syncFolder, writeDurably } from "./files.ts";
import { isRecord, localError } from "./http.ts";

export type JournalEntry = {
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
  const unlock = await lock(join(folder, "receive.lock"));
  try {
    return await openLocked(join(folder, "received.jsonl"), unlock, nowMs);
  } catch (error) {
    await unlock();
    throw error;
  }
}

async function openLocked(file: string, unlock: () => Promise<void>, nowMs: number): Promise<Journal> {
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
      await unlock();
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

/** Claims a lock file with this process's id; one whose process is gone is taken over. */
async function lock(path: string): Promise<() => Promise<void>> {
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      const handle = await open(path, "wx", 0o600);
      await handle.writeFile(String(process.pid));
      await handle.close();
      return () => removeIfThere(path);
    } catch (error) {
      if (!isSystemError(error, "EEXIST")) throw error;
    }
    const owner = Number(await readText(path));
    if (owner === process.pid || isAlive(owner)) break;
    await unlink(path).catch(() => undefined);
  }
  throw localError("busy", `another process receives for this identity: it holds ${path}`);
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isSystemError(error, "EPERM");
  }
}
