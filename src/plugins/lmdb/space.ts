/** The room that a data file has: on its disk, behind its pages, and inside of it. */
import { closeSync, fstatSync, ftruncateSync, openSync, statfsSync, writeSync } from "node:fs";
import { Refusal } from "../../storage/batcher.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { lastCommit } from "./data-file.ts";
import { unusable } from "./lmdb.ts";
import { systemCalls } from "./system.ts";

/** The disk as the guard sees it; tests give their own. */
export type Disk = {
  /** Bytes that this process may still use on the file system. */
  freeBytes(): number;
  /** Length of the data file. */
  fileBytes(): number;
  /** Where the last page of the file ends. */
  usedBytes(): number;
  /** Whether the file has room on the disk for all of its length; elsewhere its end is a hole. */
  readonly reserves: boolean;
  /** Makes the file longer; `false` when there is no room. */
  extend(to: number): boolean;
  close(): void;
};

/**
 * What kind of write asks: how much of the reserve it may use. In this order the kinds of a commit
 * get their room.
 */
const writeKinds = ["sweep", "removal", "claim", "record", "store", "large"] as const;
export type WriteKind = (typeof writeKinds)[number];
export type WriteSize = { readonly kind: WriteKind; readonly bytes: number };

export type SpaceLimits = {
  /** Room is only set aside while at least this much stays free for others. */
  readonly floorBytes: number;
  readonly reserveBytes: number;
};

/**
 * What a write must leave of the reserve: behind the file's pages; or where it uses free ones,
 * there (`inside`) and together with the free pages (`both`).
 */
type Left = { readonly behind: number; readonly inside: number; readonly both: number };
/**
 * Free pages are scattered: a large body may find too few of them side by side, and takes of the
 * reserve none the less. Then it must leave as many more free ones, which serve as well what writes
 * single pages: reads, acknowledgements and sweeps (`isTight`). What frees pages has the rest, but
 * as long as a backup keeps it from using them it leaves what it needs afterwards.
 */
const left: Readonly<Record<WriteKind, Left>> = {
  large: { behind: 1, inside: 1 / 8, both: 3 / 4 },
  store: { behind: 1, inside: 1 / 8, both: 3 / 4 },
  record: { behind: 1 / 2, inside: 3 / 32, both: 3 / 8 },
  claim: { behind: 3 / 8, inside: 1 / 16, both: 9 / 32 },
  removal: { behind: 3 / 16, inside: 1 / 64, both: 3 / 64 },
  sweep: { behind: 1 / 8, inside: 1 / 128, both: 5 / 128 },
};
/** The node must read and free on a full disk. */
const freeing: readonly WriteKind[] = ["claim", "removal", "sweep"];

/** With so many reserves left, the store is not ready. */
const lowReserves = 3;

export type SpaceGuard = {
  /** Throws when there is no room for a write to a file whose pages end there. */
  readonly checkRoom: (size: WriteSize, end: number) => void;
  /** Whether the last write that asked did not find the whole reserve. */
  readonly isTight: () => boolean;
  /**
   * Whether little is left on the disk and inside the file, which it logs once. Asked each minute
   * too, because others may fill the disk long before the file must become longer.
   */
  readonly isLow: () => boolean;
};

type GuardedFile = Pick<StoreEnvironment, "log"> & {
  readonly pagesFree: () => number;
  readonly pagesUsable: () => number;
};

/** Where the pages end, and the room behind them in the file, in bytes. */
type FileEnd = { readonly end: number; readonly behind: number };

/**
 * LMDB must never meet a full disk. So the file is longer than its pages, with room for its length
 * (`fallocate`, or zeros where a file system has no such call), and every commit asks first. A look
 * at the disk costs 10 µs, and a commit needs one only when the file must become longer. A commit
 * does not write the last pages when it frees them: so only a file that is longer shows whether it
 * was cut short.
 *
 * A store needs room for twice its bytes beyond a reserve; a smaller write may use half of the
 * reserve, and removals most of it, so that a full node still answers pulls and acknowledgements.
 * When no more room can be set aside, writes go on only as long as enough pages inside the file can
 * be used, and as the reserve has enough for removals.
 * Source: rules section 3 (507 `storage_full`); the behavior of the library was measured.
 *
 * `pagesFree` returns how many bytes of pages inside the file are free, and `pagesUsable` how many
 * of them a commit may use.
 */
export function openSpaceGuard(
  disk: Disk,
  { floorBytes, reserveBytes }: SpaceLimits,
  { log, pagesFree, pagesUsable }: GuardedFile,
): SpaceGuard {
  /** What was logged since there was enough. */
  const logged = new Set<string>();
  let isTight = false;

  function logOnce(level: "warn" | "error", message: string): void {
    if (!logged.has(message)) log(level, message);
    logged.add(message);
  }

  const look = (end = disk.usedBytes()): FileEnd => ({ end, behind: disk.fileBytes() - end });

  /** What the file may still take of the disk. A hole at its end takes nothing yet. */
  const spare = (behind: number) =>
    Math.max(disk.freeBytes() - floorBytes - (disk.reserves ? 0 : behind), 0);

  /**
   * Room behind the last page, after trying to have `wanted` there, and another reserve for the
   * next ones.
   */
  function roomOf(wanted: number, at: FileEnd): number {
    const { end, behind } = at;
    if (behind >= wanted) return behind;
    isLow(at);
    const most = spare(behind);
    const made = [wanted + reserveBytes, wanted].find(
      (aim) => aim - behind <= most && disk.extend(end + aim),
    );
    return made ?? behind;
  }

  function isLow({ behind } = look()): boolean {
    const [enough, most] = [lowReserves * reserveBytes, spare(behind) + behind];
    const isLittle = most < enough && most + pagesFree() < enough;
    if (isLittle) logOnce("warn", "the disk is nearly full: writes will be refused");
    else logged.clear();
    return isLittle;
  }

  function admits({ kind, bytes }: WriteSize, at: FileEnd): boolean {
    const { behind, inside, both } = left[kind];
    const room = roomOf(2 * bytes + reserveBytes, at);
    isTight = room < 2 * bytes + reserveBytes;
    const isFreeing = freeing.includes(kind);
    // Reads and acknowledgements write less than their bytes, and pages of trees.
    const most = kind === "claim" || kind === "removal" ? bytes : 2 * bytes;
    if (room >= most + reserveBytes * behind) return true;
    const free = pagesUsable();
    if (room < (isFreeing ? 0 : most) + reserveBytes * inside) return false;
    if (room + free < 2 * bytes + reserveBytes * both) return false;
    // A change copies the pages above it: four times the bytes, and a margin.
    return free >= (isFreeing ? 2 : 4) * bytes + reserveBytes / (isFreeing ? 32 : 4);
  }

  function checkRoom(size: WriteSize, end: number): void {
    if (admits(size, look(end))) return;
    logOnce("error", "the disk is full: writes are refused");
    throw new StoreError(
      freeing.includes(size.kind) ? "unavailable" : "full",
      "the disk is full for this store",
    );
  }
  return { checkRoom, isTight: () => isTight, isLow };
}

// -------------------------------------------------------------------------------------- one commit

/**
 * What a commit writes besides, by kind: pages of trees, and for each store a part of a page of
 * the index.
 */
const perCommit: Readonly<Record<WriteKind, number>> = {
  large: 256 * 1024,
  store: 256 * 1024,
  record: 0,
  claim: 64 * 1024,
  removal: 64 * 1024,
  sweep: 0,
};
const perStore = 1_024;

type Sized = { readonly size: WriteSize };

/** Of these the first ones that find room are taken, where all together find none. */
const inPart: readonly WriteKind[] = [...freeing, "large"];

/**
 * The operations of a commit for which `check` throws, all of a kind or those behind the first
 * ones. What a kind takes is gone for the next.
 */
export function refusalsOf<Operation extends Sized>(
  operations: readonly Operation[],
  check: (size: WriteSize) => void,
): Map<Operation, Refusal> {
  const refusals = new Map<Operation, Refusal>();
  const sizes = new Map<WriteKind, number>();
  for (const { size } of operations)
    sizes.set(size.kind, (sizes.get(size.kind) ?? perCommit[size.kind]) + bytesOf(size));
  let before = 0;
  for (const kind of writeKinds) {
    const bytes = sizes.get(kind);
    if (bytes === undefined) continue;
    const refusal = refusalBy(check, { kind, bytes: before + bytes });
    if (refusal === null) before += bytes;
    else {
      const ofKind = operations.filter(({ size }) => size.kind === kind);
      const first = inPart.includes(kind) ? fitting(ofKind, check, before) : { count: 0, bytes: 0 };
      before += first.bytes;
      for (const operation of ofKind.slice(first.count)) refusals.set(operation, refusal);
    }
  }
  return refusals;
}

const bytesOf = ({ kind, bytes }: WriteSize): number =>
  bytes + (kind === "store" || kind === "large" ? perStore : 0);

function refusalBy(check: (size: WriteSize) => void, size: WriteSize): Refusal | null {
  try {
    check(size);
    return null;
  } catch (error) {
    return new Refusal(error);
  }
}

/** How many of the operations find room, from the first one on: all are of one kind. */
function fitting(
  operations: readonly Sized[],
  check: (size: WriteSize) => void,
  before: number,
): { readonly count: number; readonly bytes: number } {
  const { kind } = operations[0]!.size;
  let fits = { count: 0, bytes: 0 };
  for (let tooMany = operations.length; tooMany - fits.count > 1; ) {
    const count = Math.floor((fits.count + tooMany) / 2);
    const some = operations.slice(0, count);
    const bytes = some.reduce((sum, { size }) => sum + bytesOf(size), perCommit[kind]);
    if (refusalBy(check, { kind, bytes: before + bytes }) === null) fits = { count, bytes };
    else tooMany = count;
  }
  return fits;
}

/** Written at a time where a file system sets no room aside by itself. */
const zeros = new Uint8Array(1024 ** 2);

/** Writes zeros from there to there; `false`, and the file is as long as before, without room. */
function fill(descriptor: number, from: number, to: number): boolean {
  const { size } = fstatSync(descriptor);
  try {
    for (let at = from; at < to; )
      at += writeSync(descriptor, zeros, 0, Math.min(zeros.length, to - at), at);
    return true;
  } catch {
    ftruncateSync(descriptor, size);
    return false;
  }
}

/** The disk below a data file that exists. */
export function openDisk(file: string): Disk {
  const descriptor = openSync(file, "r+");
  const { size } = fstatSync(descriptor);
  const allocate = (to: number) => systemCalls?.fallocate(descriptor, 0, 0n, BigInt(to)) === 0;
  // The folder may get another name.
  const onDisk = process.platform === "linux" ? `/proc/self/fd/${descriptor}` : file;
  // Some file systems have no such call, and the end of the file may be a hole.
  const allocates = allocate(size);
  const reserves = allocates || fill(descriptor, lastCommit(descriptor).end, size);
  return {
    freeBytes() {
      try {
        const { bavail, bsize } = statfsSync(onDisk);
        return Number(bavail) * Number(bsize);
      } catch (error) {
        throw unusable(file, error);
      }
    },
    fileBytes: () => fstatSync(descriptor).size,
    usedBytes: () => lastCommit(descriptor).end,
    reserves,
    extend(to) {
      return allocates ? allocate(to) : fill(descriptor, fstatSync(descriptor).size, to);
    },
    close: () => closeSync(descriptor),
  };
}
