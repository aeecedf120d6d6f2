/**
 * Copies of a store: backup beside a running node, restore, and compacting. A copy gets its name only when
 * it is whole, synced and verified, so that an interrupted one is never taken for a store.
 */
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { StoreError, type VerifyReport } from "../../storage/contract.ts";
import { DataFile } from "./data-file.ts";
import { dataFile, partialFile, storeAbsence, syncDirectory, takeLock } from "./folder.ts";
import { openRoot } from "./format.ts";
import { markOf, verifyFile, verifyRecords } from "./integrity.ts";
import { howToGoOn } from "./records.ts";
import { openSnapshot } from "./snapshot.ts";

const partBytes = 1024 * 1024;

/** Copies the store at `from`, which a node may have open, into the folder `to`. */
export async function backupStore(from: string, to: string, bytesPerSecondMax: number): Promise<string> {
  const folder = resolve(to);
  if (existsSync(join(folder, dataFile))) throw new StoreError("unavailable", `${folder} holds a store already`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const snapshot = await openSnapshot(from);
  try {
    await copyState(snapshot.file, join(folder, partialFile), bytesPerSecondMax);
  } finally {
    await snapshot.close();
  }
  const { records, bytes } = finishCopy(folder, dataFile);
  return `copied ${records} records, ${bytes} bytes, to ${folder}; the copy was verified`;
}

/** The free pages are copied too, as whatever they hold at that moment: nothing refers to them. */
async function copyState(file: DataFile, to: string, bytesPerSecondMax: number): Promise<void> {
  const target = openSync(to, "w", 0o600);
  try {
    const startedMs = performance.now();
    const head = file.metaPages();
    writeSync(target, head);
    for (let at = head.length; at < file.lengthBytes; at += partBytes) {
      const part = file.raw(at, Math.min(partBytes, file.lengthBytes - at));
      if (part.length === 0) break;
      writeSync(target, part, 0, part.length, at);
      const aheadMs = (at / bytesPerSecondMax) * 1_000 - (performance.now() - startedMs);
      await Bun.sleep(Math.max(0, Math.min(aheadMs, 10_000)));
    }
    fsyncSync(target);
  } finally {
    closeSync(target);
  }
}

/** Verifies the unfinished copy in a folder and gives it its name. */
function finishCopy(folder: string, name: string): { readonly records: number; readonly bytes: number } {
  const partial = join(folder, partialFile);
  const { records, problems } = verifyFile(partial);
  if (problems.length > 0) {
    rmSync(partial);
    throw new StoreError("corrupt", `the copy has ${problems.length} problems: ${problems[0]}${howToGoOn}`);
  }
  renameSync(partial, join(folder, name));
  syncDirectory(folder);
  return { records, bytes: statSync(join(folder, name)).size };
}

/**
 * Checks every record. Beside a running node a pinned state is read. A file whose structure is damaged is
 * read without LMDB, which can't be trusted with it; then no node has it open.
 */
export async function verifyStore(path: string): Promise<VerifyReport> {
  const snapshot = await openSnapshot(path).catch((error: unknown) => {
    if (error instanceof StoreError && error.code === "corrupt") return null;
    throw error;
  });
  if (snapshot === null) return verifyFile(join(resolve(path), dataFile));
  try {
    return verifyRecords(snapshot.file);
  } finally {
    await snapshot.close();
  }
}

/** Makes the store at `path` out of the backup in the folder `from`. A store that is there is set aside. */
export async function restoreStore(path: string, from: string): Promise<string> {
  const [folder, source] = [resolve(path), join(resolve(from), dataFile)];
  if (!existsSync(source)) throw new StoreError("unavailable", `${resolve(from)} holds no backup`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const lock = takeLock(folder);
  try {
    const file = DataFile.open(source);
    try {
      if (markOf(file) === null) throw new StoreError("unavailable", `${source} is no store of waypost`);
      await copyState(file, join(folder, partialFile), Number.MAX_SAFE_INTEGER);
    } finally {
      file.close();
    }
    const aside = setAside(folder);
    const { records, bytes } = finishRestore(folder, aside);
    return `restored ${records} records, ${bytes} bytes${aside === null ? "" : `; the former store is ${aside}`}`;
  } finally {
    lock.close();
  }
}

/** The former data file keeps its bytes under another name until the operator removes it. */
function setAside(folder: string): string | null {
  const { problems } = verifyFile(join(folder, partialFile));
  if (problems.length > 0) throw new StoreError("corrupt", `the backup is damaged: ${problems[0]}`);
  if (storeAbsence(folder) !== null) return null;
  const name = `${dataFile}.before-${new Date().toISOString().replaceAll(":", "-")}`;
  renameSync(join(folder, dataFile), join(folder, name));
  rmSync(join(folder, "lock.mdb"), { force: true });
  return join(folder, name);
}

function finishRestore(folder: string, aside: string | null): { readonly records: number; readonly bytes: number } {
  try {
    return finishCopy(folder, dataFile);
  } catch (error) {
    if (aside !== null) renameSync(aside, join(folder, dataFile));
    throw error;
  }
}

/** Writes the store anew without its free pages. Needs room for the copy, and the store alone. */
export async function compactStore(path: string): Promise<string> {
  const folder = resolve(path);
  if (storeAbsence(folder) !== null) throw new StoreError("unavailable", `${folder} holds no store`);
  const lock = takeLock(folder);
  try {
    const data = join(folder, dataFile);
    const before = statSync(data).size;
    const { problems } = verifyFile(data);
    if (problems.length > 0) throw new StoreError("corrupt", `the store is damaged: ${problems[0]}${howToGoOn}`);
    const copy = join(folder, "compact");
    rmSync(copy, { recursive: true, force: true });
    mkdirSync(copy, { mode: 0o700 });
    const root = openRoot(folder);
    await root.backup(copy, true).finally(() => root.close());
    syncFile(join(copy, dataFile));
    renameSync(join(copy, dataFile), join(folder, partialFile));
    rmSync(copy, { recursive: true });
    const { bytes } = finishCopy(folder, dataFile);
    rmSync(join(folder, "lock.mdb"), { force: true });
    return `compacted from ${before} to ${bytes} bytes`;
  } finally {
    lock.close();
  }
}

function syncFile(path: string): void {
  const descriptor = openSync(path, "r+");
  fsyncSync(descriptor);
  closeSync(descriptor);
}
