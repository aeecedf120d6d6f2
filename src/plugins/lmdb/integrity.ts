/**
 * Whether what lies on the disk is what was written: the structure of the file (data-file.ts), and the
 * checksum of every record. Used before a store is opened (within a bound), by `storage verify` (whole),
 * and by the scrub of a running store: it reads every record again and again at a set pace, a slice at a
 * time, so that damage is found before somebody needs the record. A commit may reuse the pages of a slice
 * while it is read: then what looks like damage is read again, until no commit fell into it.
 */
import { existsSync, statSync } from "node:fs";
import { errorText } from "../../core/fault.ts";
import { timerMsMax } from "../../core/std/bounded.ts";
import { type ScrubReport, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { DamagedFile, DataFile, type FileRecord, type Tree } from "./data-file.ts";
import { boundDatabases, currentFormat, databaseNames, formatKey, isDatabase } from "./format.ts";
import { bodiesOf, howToGoOn, unsealed, unsealedUnder } from "./records.ts";
import { isOutOfDescriptors } from "./space.ts";

/** The check before opening reads at most this much: about a tenth of a second. Absence comes from these tables. */
const startBytesMax = 64 * 1024 * 1024;
/** Values of these tables are read, and their checksums verified, when claims and the index are loaded or a message is read. */
const readLater = new Set(["claims", "journal", "pages", "blocks"]);

/** A problem of one record, or `null`. Costs about 1 µs for each KiB. */
function recordProblem(table: string, { key, value }: FileRecord): string | null {
  const what = `a record of table "${table}"`;
  try {
    if (isBound(table)) unsealedUnder(key, value(), what);
    else if (table === "journal" || table === "pages") unsealed(value(), what);
    else if (table === "blocks") return blockProblem(key, value());
    else if (table === "receipts-due" && (key.length <= 8 || value()[0] !== 1)) return `${what} is damaged`;
    return null;
  } catch (error) {
    if (error instanceof StoreError) return error.message.replace(howToGoOn, "");
    throw error;
  }
}

function isBound(table: string): boolean {
  return boundDatabases.some((name) => name === table);
}

function blockProblem(key: Buffer, block: Buffer): string | null {
  if (key.length !== 12 || key.readUInt32BE(8) !== block.length) return "a block of messages has another size";
  // A part of a `Buffer` costs 1 µs.
  const bytes = new Uint8Array(block.buffer, block.byteOffset, block.length);
  for (const body of bodiesOf(bytes)) if (body === null || !body.isIntact) return "a block holds a damaged message";
  return null;
}

type FileReport = {
  readonly records: number;
  readonly bytes: number;
  /** The first problems; there may be more. */
  readonly problems: readonly string[];
};

const problemsMax = 100;

/** Checks every record of a store that nobody writes to. Reads only the file; the process can't crash on it. */
export function verifyFile(path: string): FileReport {
  return readDataFile(path, verifyRecords);
}

export function verifyRecords(file: DataFile): FileReport {
  let records = 0;
  const problems: string[] = [];
  const note = (problem: string | null) => {
    if (problem !== null && problems.length < problemsMax) problems.push(problem);
  };
  const noting = (read: () => void) => {
    try {
      read();
    } catch (error) {
      if (!(error instanceof DamagedFile)) throw error;
      note(error.message);
    }
  };
  let trees: Tree[] = [];
  noting(() => {
    trees = file.trees();
  });
  // Records of an older format have other checksums: `storage migrate` verifies them.
  const isCurrent = trees.length > 0 && formatOf(file) === currentFormat;
  for (const tree of trees) {
    noting(() => {
      for (const record of file.records(tree)) {
        records++;
        if (isCurrent) note(recordProblem(tree.name, record));
      }
    });
  }
  note(pairProblem(trees));
  return { records, bytes: file.bytesRead, problems };
}

/** Throws `corrupt` when the file is damaged. */
export function readDataFile<T>(path: string, read: (file: DataFile) => T): T {
  let file: DataFile | null = null;
  try {
    file = DataFile.open(path);
    return read(file);
  } catch (error) {
    throw error instanceof DamagedFile ? damaged(path, error) : error;
  } finally {
    file?.close();
  }
}

/** Each receipt has one record with its end. */
function pairProblem(trees: readonly Tree[]): string | null {
  const [one, other] = ["receipts", "receipts-due"].map(
    (name) => trees.find((tree) => tree.name === name)?.entries ?? 0,
  );
  return one === other ? null : `table "receipts" has ${one} entries, and ${other} ends of them`;
}

/** The format of the store, or `null` when the file is not a finished store of ours. */
export function formatOf(file: DataFile): string | null {
  if (file.trees().some(({ name }) => !isDatabase(name))) return null;
  for (const { key, value } of file.recordsOf("meta")) if (key.equals(formatKey)) return value().toString();
  return null;
}

export function damaged(path: string, { message, isCut }: DamagedFile): StoreError {
  const cause = isCut ? "the file is cut short, as after an unfinished copy" : "the file is damaged";
  return new StoreError("corrupt", `${path}: ${cause} (${message})${howToGoOn}`);
}

/**
 * Throws `corrupt` when the file is cut short or a table is damaged: LMDB would end the process by a signal,
 * or answer that something does not exist. Reads at most 64 MiB; the scrub checks the rest later.
 */
export function checkDataFile(path: string, bytesMax = startBytesMax): void {
  if (!existsSync(path) || statSync(path).size === 0) return;
  readDataFile(path, (file) => checkTables(file, bytesMax));
}

function checkTables(file: DataFile, bytesMax: number): void {
  const format = formatOf(file);
  if (format === null) return;
  const order = (tree: Tree) => (databaseNames as readonly string[]).indexOf(tree.name);
  const trees = file.trees().sort((a, b) => order(a) - order(b));
  for (const tree of trees) {
    if (tree.name === "blocks" && format === currentFormat) continue;
    const isReadLater = readLater.has(tree.name) || format !== currentFormat;
    for (const record of file.records(tree)) {
      const problem = isReadLater ? null : recordProblem(tree.name, record);
      if (problem !== null) throw new DamagedFile(problem);
      if (file.bytesRead > bytesMax) return;
    }
  }
  const problem = pairProblem(trees);
  if (problem !== null) throw new DamagedFile(problem);
}

const sliceBytes = 64 * 1024;
const attemptsMax = 1_000;
/** A damaged record is logged this often in a pass, and counted every time. */
const logsPerPassMax = 20;

type ScrubSettings = {
  readonly path: string;
  readonly bytesPerSecond: number;
  readonly log: StoreEnvironment["log"];
  /** Ends the store. */
  readonly fail: (reason: string) => void;
};

type Place = { readonly table: string; readonly from: Buffer | null };
type Slice = {
  readonly bytes: number;
  readonly records: number;
  readonly next: Place | null;
  readonly problems: Problem[];
};
type Problem = { readonly table: string; readonly text: string };

export class Scrub {
  private place: Place | null = null;
  private attempts = 0;
  private logged = 0;
  private startedMs = performance.now();
  private timer: ReturnType<typeof setTimeout> | null = null;
  private found = { passes: 0, records: 0, problems: 0, lastPassMs: null as number | null };

  constructor(private readonly settings: ScrubSettings) {}

  get report(): ScrubReport {
    return { ...this.found };
  }

  /** 0 bytes a second never start it. */
  start(): void {
    if (this.settings.bytesPerSecond > 0) this.plan(sliceBytes);
  }

  stop(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }

  private plan(bytes: number): void {
    this.stop();
    const delayMs = Math.min((bytes / this.settings.bytesPerSecond) * 1_000, timerMsMax);
    this.timer = setTimeout(() => this.step(), delayMs);
    this.timer.unref();
  }

  /** Reads the next slice. Tests call it without waiting. */
  step(): void {
    const slice = this.readSlice();
    if (slice === null) {
      this.plan(sliceBytes);
      return;
    }
    this.found.records += slice.records;
    for (const problem of slice.problems) this.note(problem);
    this.place = slice.next;
    this.attempts = 0;
    if (slice.next === null) this.endPass();
    this.plan(Math.max(slice.bytes, sliceBytes));
  }

  /** `null` when a commit fell into a slice that looks damaged, or the file can't be opened for lack of descriptors. */
  private readSlice(): Slice | null {
    try {
      const { path } = this.settings;
      const [slice, transaction] = readDataFile(path, (file) => [sliceOf(file, this.place), file.transaction] as const);
      if (slice.problems.length === 0 || transactionOf(path) === transaction) return slice;
      return ++this.attempts < attemptsMax ? null : { ...slice, problems: [] };
    } catch (error) {
      if (isOutOfDescriptors(error)) return null;
      // The file can't be read at this moment, or its first pages are damaged: the next step tries again.
      this.note({ table: "", text: errorText(error) });
      return null;
    }
  }

  private note({ table, text }: Problem): void {
    this.found.problems++;
    if (this.logged++ < logsPerPassMax) {
      this.settings.log("error", "the scrub found damage: run `waypost storage verify`", { table, problem: text });
    }
    // A store that is damaged there must not go on: it would answer absence.
    if (isBound(table)) this.settings.fail(`the store is damaged: ${text}${howToGoOn}`);
  }

  private endPass(): void {
    this.found.passes++;
    this.found.lastPassMs = performance.now() - this.startedMs;
    this.startedMs = performance.now();
    this.logged = 0;
  }
}

export function transactionOf(path: string): bigint {
  return readDataFile(path, (file) => file.transaction);
}

/** About 64 KiB of records from a place on. `next` is null at the end of the last table. */
function sliceOf(file: DataFile, place: Place | null): Slice {
  const problems: Problem[] = [];
  let [records, table] = [0, place?.table ?? ""];
  try {
    const trees = file.trees().filter(({ name }) => name >= table);
    for (const tree of trees) {
      table = tree.name;
      for (const record of file.records(tree, tree.name === place?.table ? place.from : null)) {
        if (file.bytesRead > sliceBytes && records > 0) {
          return { bytes: file.bytesRead, records, next: { table, from: Buffer.from(record.key) }, problems };
        }
        records++;
        const text = recordProblem(table, record);
        if (text !== null) problems.push({ table, text });
      }
    }
  } catch (error) {
    if (!(error instanceof DamagedFile || error instanceof StoreError)) throw error;
    problems.push({ table, text: error.message });
    // What lies behind a damaged page of a table can't be found: the next table goes on.
    return { bytes: file.bytesRead, records, next: { table: `${table}\0`, from: null }, problems };
  }
  return { bytes: file.bytesRead, records, next: null, problems };
}
