/**
 * What an inbox remembers between runs: the received messages and where their files go, so that none is stored twice after
 * a crash between storing and acknowledging, or when a Cache could not be reached. It belongs to one process at a time.
 * Source: rules section 10 ("Receiving").
 */
import { join } from "node:path";
import { removeIfThere, syncFolder } from "../../app/files.ts";
import type { ReceivedBefore } from "../../client/caches.ts";
import type { StoreDriver } from "../../client/store/driver.ts";
import { digits, endOf } from "../../client/store/table.ts";
import { decodeUtf8, utf8 } from "../../core/codec/bytes.ts";
import { isPlaced, placeFile } from "./files.ts";
import { fileStore } from "./store.ts";

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

export type Journal = ReceivedBefore & {
  /** Saves the entry, then gives the file its name. Returns the path; `null` when the message has a file already. */
  readonly place: (entry: JournalEntry) => Promise<string | null>;
  readonly close: () => Promise<void>;
};

const seenKeys = ({ messageIds, digests }: JournalEntry) =>
  [...messageIds, ...digests].map((text) => `s/${text.toLowerCase()}`);
const seen = Uint8Array.of(1);

/** Opens the journal in a folder of this identity alone, and names the files that a crash left without a name. */
export async function openJournal(folder: string, nowMs: number): Promise<Journal> {
  const rows = fileStore(join(folder, "received.sqlite"));
  const has = async (text: string) => (await rows.read(`s/${text}`)) !== null;
  const place = async (entry: JournalEntry): Promise<string | null> => {
    if (!(await Promise.all(entry.digests.map(has))).includes(false)) {
      await removeIfThere(entry.temporary);
      return null;
    }
    const key = `e/${digits(entry.untilMs)}/${crypto.randomUUID()}`;
    await rows.apply([[key, utf8(JSON.stringify(entry))], ...seenKeys(entry).map((name) => [name, seen] as const)]);
    return placeFile(entry.temporary, entry.folder, entry.name);
  };
  try {
    await finishAll(rows, nowMs);
  } catch (error) {
    await rows.close();
    throw error;
  }
  let last: Promise<unknown> = Promise.resolve();
  return {
    has,
    // One after the other, so that what comes twice at once is one file.
    place: (entry) => {
      const placed = last.then(() => place(entry));
      last = placed.catch(() => undefined);
      return placed;
    },
    close: rows.close,
  };
}

/** Forgets what has expired, too. */
async function finishAll(rows: StoreDriver, nowMs: number): Promise<void> {
  for (let from = "e/"; ; ) {
    const page = await rows.scan({ from, to: endOf("e/"), limit: 1_000 });
    if (page.length === 0) return;
    for (const [key, bytes] of page) {
      const entry = JSON.parse(decodeUtf8(bytes) ?? "") as JournalEntry;
      await finish(entry);
      if (entry.untilMs <= nowMs) await rows.apply([key, ...seenKeys(entry)].map((name) => [name, null]));
      from = `${key}!`;
    }
  }
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
