/** The room that a data file has: on its disk, behind its pages, and inside of it. */
import { closeSync, fstatSync, ftruncateSync, openSync, statfsSync } from "node:fs";
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

/** What kind of write asks: how much of the reserve it may use. */
export type WriteKind = "large" | "store" | "record" | "claim" | "removal" | "sweep";
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
 * single pages. What frees pages has the rest.
 */
const left: Readonly<Record<WriteKind, Left>> = {
  large: { behind: 1, inside: 1 / 8, both: 3 / 4 },
  store: { behind: 1, inside: 1 / 8, both: 3 / 4 },
  record: { behind: 1 / 2, inside: 3 / 32, both: 3 / 8 },
  claim: { behind: 1 / 4, inside: 1 / 16, both: 9 / 32 },
  removal: { behind: 1 / 32, inside: 1 / 64, both: 3 / 64 },
  sweep: { behind: 1 / 64, inside: 1 / 128, both: 5 / 128 },
};
/** They write single pages, and the node must read and free on a full disk. */
const freeing: readonly WriteKind[] = ["claim", "removal", "sweep"];

/** With so many reserves left, the store is not ready. */
const lowReserves = 3;

export type SpaceGuard = {
  /** Throws when there is no room for a write to a file whose pages end there. */
  readonly checkRoom: (size: WriteSize, end: number) => void;
  /**
   * Whether little is left on the disk and inside the file, which it logs once. Asked each minute
   * too, because others may fill the disk long before the file must become longer.
   */
  readonly isLow: () => boolean;
};

/** Where the pages end, and the room behind them in the file, in bytes. */
type FileEnd = { readonly end: number; readonly behind: number };

/**
 * LMDB must never meet a full disk. So the file is longer than its pages, with room for its length
 * where the system sets room aside (`fallocate`), and every commit asks first. A look at the disk
 * costs 10 µs, and a commit needs one only when the file must become longer. A commit does not
 * write the last pages when it frees them: so only a file that is longer shows whether it was cut
 * short.
 *
 * A store needs room for twice its bytes beyond a reserve; a smaller write may use half of the
 * reserve, and removals nearly all of it, so that a full node still answers pulls and
 * acknowledgements. When no more room can be set aside, writes go on only as long as enough pages
 * inside the file are free, and as the reserve has enough for removals.
 * Source: rules section 3 (507 `storage_full`); the behavior of the library was measured.
 *
 * `pagesFree` returns how many bytes of pages inside the file are free.
 */
export function openSpaceGuard(
  disk: Disk,
  { floorBytes, reserveBytes }: SpaceLimits,
  { log, pagesFree }: Pick<StoreEnvironment, "log"> & { readonly pagesFree: () => number },
): SpaceGuard {
  /** What was logged since there was enough. */
  const logged = new Set<string>();

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
    if (room >= 2 * bytes + reserveBytes * behind) return true;
    const free = pagesFree();
    const isLeft = room + free >= 2 * bytes + reserveBytes * both;
    if (freeing.includes(kind))
      return isLeft && room >= reserveBytes * inside && free >= 2 * bytes + reserveBytes / 32;
    // A change copies the pages above it: four times the bytes, and a margin.
    const isRoomInside = free >= 4 * bytes + reserveBytes / 4;
    return isLeft && isRoomInside && room >= 2 * bytes + reserveBytes * inside;
  }

  function checkRoom(size: WriteSize, end: number): void {
    if (admits(size, look(end))) return;
    logOnce("error", "the disk is full: writes are refused");
    throw new StoreError(
      freeing.includes(size.kind) ? "unavailable" : "full",
      "the disk is full for this store",
    );
  }
  return { checkRoom, isLow };
}

/** The disk below a data file that exists. */
export function openDisk(file: string): Disk {
  const descriptor = openSync(file, "r+");
  const { size } = fstatSync(descriptor);
  const allocate = (to: number) => systemCalls?.fallocate(descriptor, 0, 0n, BigInt(to)) === 0;
  // The folder may get another name.
  const onDisk = process.platform === "linux" ? `/proc/self/fd/${descriptor}` : file;
  // Some file systems have no such call.
  const reserves = allocate(size);
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
      if (reserves) return allocate(to);
      if (to > fstatSync(descriptor).size) ftruncateSync(descriptor, to);
      return true;
    },
    close: () => closeSync(descriptor),
  };
}
