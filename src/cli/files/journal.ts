/**
 * What an inbox remembers between runs: the journal of received messages, so that none is stored twice, and the envelopes
 * of live sessions that wait for the rest of their message. Both belong to one process at a time.
 * Source: rules section 6 ("Receiving").
 */
import { mkdir, open, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isRecord } from "../../client/answers.ts";
import type { EnvelopeJson, LiveEnvelope } from "../../client/copies.ts";
import { digestOf, type EnvelopeCopy, localCopy, type ReceivedBefore } from "../../client/copies.ts";
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
  const ids = new Set(entries.flatMap((entry) => entry.messageIds));
  const known = new Set(entries.flatMap((entry) => entry.digests));
  const handle = await open(file, "a", 0o600);
  return {
    hasId: (messageId) => ids.has(messageId),
    has: (digest) => known.has(digest),
    place: async (entry) => {
      await handle.appendFile(renderEntry(entry));
      await handle.sync();
      for (const id of entry.messageIds) ids.add(id);
      for (const digest of entry.digests) known.add(digest);
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
  if (
    !isRecord(json) ||
    !Array.isArray(json["messageIds"]) ||
    !Array.isArray(json["digests"]) ||
    typeof json["untilMs"] !== "number"
  )
    return null;
  const { temporary, folder, name } = json;
  if (typeof temporary !== "string" || typeof folder !== "string" || typeof name !== "string") return null;
  const [messageIds, digests] = [json["messageIds"].map(String), json["digests"].map(String)];
  return { messageIds, digests, untilMs: json["untilMs"], temporary, folder, name };
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

// -------------------------------------------------------------------------------------------- live chunks

/** Further ones are refused; the Relay then stores them in the Cache. */
const chunksKeptMax = 100_000;

type LiveChunks = {
  readonly held: () => EnvelopeCopy[];
  readonly has: (digest: string) => boolean;
  /** `false` when there are too many; true means synced. */
  readonly put: (chunk: LiveEnvelope) => Promise<boolean>;
  readonly remove: (copies: readonly EnvelopeCopy[]) => Promise<void>;
};

/** One file for each envelope, by its digest: two that differ under one id are both kept. */
export async function openLiveChunks(folder: string, nowMs: number): Promise<LiveChunks> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await sweepLeftovers(folder, nowMs);
  const index = new Map<string, EnvelopeCopy>();
  const pathOf = (digest: string) => join(folder, `${encodeURIComponent(digest)}.json`);
  const keep = (digest: string, chunk: LiveEnvelope) =>
    index.set(
      digest,
      localCopy(chunk, async () => (await readChunkFile(pathOf(digest)).catch(() => null))?.envelope ?? null),
    );
  for (const file of (await readdir(folder)).filter((name) => name.endsWith(".json"))) {
    const path = join(folder, file);
    const chunk = await readChunkFile(path);
    if (chunk === null || chunk.expiresAtMs <= nowMs) await removeIfThere(path);
    else keep(digestOf(chunk.envelope), chunk);
  }
  return {
    held: () => [...index.values()],
    has: (digest) => index.has(digest),
    put: async (chunk) => {
      if (index.size >= chunksKeptMax) return false;
      const digest = digestOf(chunk.envelope);
      await writeDurably(
        pathOf(digest),
        JSON.stringify({ expires_at_ms: chunk.expiresAtMs, envelope: chunk.envelope }),
      );
      keep(digest, chunk);
      return true;
    },
    remove: async (copies) => {
      for (const copy of copies) {
        const digest = (await copy.digest()) ?? "";
        if (index.delete(digest)) await removeIfThere(pathOf(digest));
      }
    },
  };
}

/** `null` when the file is not a chunk. Throws when it can't be read: it may be the only copy, so it is not removed. */
async function readChunkFile(path: string): Promise<LiveEnvelope | null> {
  const text = await readText(path);
  try {
    const json: unknown = JSON.parse(text ?? "");
    if (!isRecord(json) || !isRecord(json["envelope"]) || typeof json["expires_at_ms"] !== "number") return null;
    const { envelope, expires_at_ms: expiresAtMs } = json;
    return {
      messageId: String(envelope["message_id"]).toLowerCase(),
      expiresAtMs,
      envelope: envelope as EnvelopeJson,
    };
  } catch {
    return null;
  }
}
