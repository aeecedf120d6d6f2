/**
 * The scrub of a running store: it reads every record again and again at a set pace, so that damage is found
 * before somebody needs the record. It reads the file beside LMDB, a slice at a time. A commit may reuse the
 * pages of a slice while it is read: then what looks like damage is read again, until no commit fell into it.
 */
import { errorText } from "../../core/fault.ts";
import { type ScrubReport, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { DamagedFile, DataFile } from "./data-file.ts";
import { recordProblem } from "./integrity.ts";
import { howToGoOn } from "./records.ts";

const sliceBytes = 64 * 1024;
const attemptsMax = 1_000;
/** Absence is answered from these tables. A store that is damaged there must not go on. */
const tablesOfAbsence = new Set(["table", "claims", "receipts"]);
/** A damaged record is logged this often in a pass, and counted every time. */
const logsPerPassMax = 20;

export type ScrubSettings = {
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
    this.timer = setTimeout(() => this.step(), (bytes / this.settings.bytesPerSecond) * 1_000);
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
    this.plan(Math.max(slice.bytes, 4_096));
  }

  /** `null` when a commit fell into a slice that looks damaged. */
  private readSlice(): Slice | null {
    try {
      const before = transactionOf(this.settings.path);
      const slice = sliceOf(this.settings.path, this.place);
      if (slice.problems.length === 0 || transactionOf(this.settings.path) === before) return slice;
      return ++this.attempts < attemptsMax ? null : { ...slice, problems: [] };
    } catch (error) {
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
    if (tablesOfAbsence.has(table)) this.settings.fail(`the store is damaged: ${text}${howToGoOn}`);
  }

  private endPass(): void {
    this.found.passes++;
    this.found.lastPassMs = performance.now() - this.startedMs;
    this.startedMs = performance.now();
    this.logged = 0;
  }
}

function transactionOf(path: string): bigint {
  const file = DataFile.open(path);
  file.close();
  return file.transaction;
}

/** About 64 KiB of records from a place on. `next` is null at the end of the last table. */
function sliceOf(path: string, place: Place | null): Slice {
  const problems: Problem[] = [];
  const file = DataFile.open(path);
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
  } finally {
    file.close();
  }
  return { bytes: file.bytesRead, records, next: null, problems };
}
