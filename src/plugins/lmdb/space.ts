/**
 * Room on the disk. LMDB must never meet a full disk: the library then writes past a buffer of its own
 * and takes the process down. So room is set aside ahead of the file's end (`fallocate` with
 * KEEP_SIZE, where the system has it), and every writer asks first.
 *
 * A store needs room for twice its bytes beyond a reserve; a smaller write may use half of the reserve,
 * and removals nearly all of it, so that a full node still answers pulls and acknowledgements. When no
 * more room can be set aside, writes go on only as long as enough pages inside the file are free.
 * Source: rules section 3 (507 `storage_full`); the behavior of the library was measured.
 */
import { dlopen, FFIType } from "bun:ffi";
import { closeSync, fstatSync, openSync, statfsSync } from "node:fs";
import { StoreError } from "../../storage/contract.ts";

/** What kind of write asks: how much of the reserve it may use. */
export type WriteKind = "store" | "record" | "removal";

/** The disk as the guard sees it; tests give their own. */
export type Disk = {
  /** Bytes that this process may still use on the file system. */
  freeBytes(): number;
  /** Length of the data file. */
  fileBytes(): number;
  /** What the file takes on the disk, with what was set aside by an earlier process. */
  allocatedBytes(): number;
  /** Sets room aside up to this offset of the file; `false` when there is none, `null` when it can't be done. */
  setAside(upTo: number): boolean | null;
  close(): void;
};

export type SpaceLimits = {
  /** Room is only set aside while at least this much stays free for others. */
  readonly floorBytes: number;
  readonly reserveBytes: number;
};

export type SpaceGuard = {
  /** Throws `full` (removals: `unavailable`) when a write of so many bytes may not find room. */
  check(kind: WriteKind, bytes: number): void;
};

const allocationSlackBytes = 256 * 1024;

/** A look at the disk costs 10 µs, so one serves for what fits into half of the room it found, for a moment. */
const creditMs = 50;

/** `pagesFree` answers how many bytes of pages inside the file are free; it may cost a millisecond. */
export function openSpaceGuard(disk: Disk, limits: SpaceLimits, pagesFree: () => number): SpaceGuard {
  const { floorBytes, reserveBytes } = limits;
  // An earlier process may have left room behind the end; a little of it may be the file system's own.
  let setAsideTo = Math.max(disk.allocatedBytes() - allocationSlackBytes, 0);
  /** Whether the file system sets room aside at all. */
  let sets = false;
  let refusedFor = -1;
  let refusedAtMs = 0;
  /** Bytes that may still be stored without another look at the disk, and until when. */
  let credit = 0;
  let creditUntilMs = 0;

  /** Room behind the end of the file that nobody else can use, after trying to have `wanted` of it. */
  function headroom(wanted: number): number {
    const end = disk.fileBytes();
    if (setAsideTo - end >= wanted) return setAsideTo - end;
    const free = disk.freeBytes();
    const aim = end + wanted + reserveBytes;
    if (free - (aim - Math.max(setAsideTo, end)) < floorBytes) return Math.max(setAsideTo - end, 0);
    const done = disk.setAside(aim);
    sets = done !== null;
    if (done === true) setAsideTo = aim;
    if (done === null) return free - floorBytes;
    return Math.max(setAsideTo - end, 0);
  }

  /** Free pages are scattered, and a change copies the pages above it: four times the bytes, and a margin. */
  function fitsInside(bytes: number): boolean {
    return pagesFree() >= 4 * bytes + reserveBytes / 4;
  }

  function admits(kind: WriteKind, bytes: number): boolean {
    const share = { store: 1, record: 1 / 2, removal: 1 / 32 }[kind];
    const wanted = 2 * bytes + reserveBytes * share;
    const room = headroom(2 * bytes + reserveBytes);
    if (room >= wanted) {
      credit = Math.max(room - 2 * bytes - reserveBytes, 0) / 4;
      creditUntilMs = performance.now() + creditMs;
      return true;
    }
    // Growth that free pages can't prevent still has the rest of the reserve.
    const rest = sets || room > 0 ? room : disk.freeBytes();
    return rest >= 2 * bytes + reserveBytes / 32 && fitsInside(bytes);
  }

  return {
    check(kind, bytes) {
      if (bytes <= credit && performance.now() < creditUntilMs) {
        credit -= bytes;
        return;
      }
      // A refusal holds for a moment, so that refused callers cost no look at the disk.
      if (kind === "store" && refusedFor >= 0 && bytes >= refusedFor && performance.now() - refusedAtMs < 250) {
        throw new StoreError("full", "the disk is full for this store");
      }
      if (admits(kind, bytes)) {
        if (kind === "store") refusedFor = -1;
        return;
      }
      if (kind === "removal") throw new StoreError("unavailable", "the disk is full");
      if (kind === "store") {
        refusedFor = bytes;
        refusedAtMs = performance.now();
      }
      throw new StoreError("full", "the disk is full for this store");
    },
  };
}

const keepSize = 1;
const libraries = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"];

/** Calls of the C library, or `null` where it is not to be had. */
function systemCalls() {
  if (process.platform !== "linux") return null;
  for (const name of libraries) {
    try {
      return dlopen(name, {
        fallocate: { args: [FFIType.i32, FFIType.i32, FFIType.i64, FFIType.i64], returns: FFIType.i32 },
      }).symbols;
    } catch {}
  }
  return null;
}

/** The disk below a data file that exists. */
export function openDisk(file: string): Disk {
  const descriptor = openSync(file, "r+");
  const system = systemCalls();
  // Some file systems have no such call; after one that fails in spite of room, room is only counted.
  let usable = system !== null;
  const freeBytes = () => {
    const { bavail, bsize } = statfsSync(file);
    return Number(bavail) * Number(bsize);
  };
  return {
    freeBytes,
    fileBytes: () => fstatSync(descriptor).size,
    allocatedBytes: () => fstatSync(descriptor).blocks * 512,
    setAside(upTo) {
      if (system === null || !usable) return null;
      const free = freeBytes();
      if (system.fallocate(descriptor, keepSize, 0n, BigInt(upTo)) === 0) return true;
      if (free < upTo) return false;
      usable = false;
      return null;
    },
    close: () => closeSync(descriptor),
  };
}
