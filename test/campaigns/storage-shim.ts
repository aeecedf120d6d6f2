/** Builds the shim between the LMDB driver and the disk (storage-shim.c). */
import { join } from "node:path";

/** The path of the library for `LD_PRELOAD`. Throws where there is no C compiler. */
export function buildShim(folder: string): string {
  const library = join(folder, "shim.so");
  const source = join(import.meta.dir, "storage-shim.c");
  const built = Bun.spawnSync(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]);
  if (!built.success) throw new Error(`the shim can't be built: ${built.stderr.toString()}`);
  return library;
}

/**
 * What the shim wrote down: `W` a write, `D` a write that is synced, `S` a sync of all writes
 * before it.
 */
export type Logged = { readonly type: string; readonly at: number; readonly bytes: Buffer };

/** The last record is left out when the log was cut off within it. */
export function loggedWrites(log: Buffer): Logged[] {
  const found: Logged[] = [];
  for (let at = 0; at + 17 <= log.length; ) {
    const [type, offset] = [String.fromCharCode(log[at]!), Number(log.readBigInt64LE(at + 1))];
    const length = Number(log.readBigUInt64LE(at + 9));
    const bytes = log.subarray(at + 17, at + 17 + length);
    at += 17 + length;
    if (bytes.length === length) found.push({ type, at: offset, bytes });
  }
  return found;
}

/** The bytes with a write made. */
export function withWrite(disk: Buffer, { at, bytes }: Pick<Logged, "at" | "bytes">): Buffer {
  const end = at + bytes.length;
  const grown = end <= disk.length ? disk : Buffer.concat([disk, Buffer.alloc(end - disk.length)]);
  bytes.copy(grown, at);
  return grown;
}

/**
 * The disk after these writes: with those that were not synced, as a kill leaves it, or without, as
 * a power cut may.
 */
export function diskAfter(before: Buffer, writes: readonly Logged[], keepsLoose: boolean): Buffer {
  let disk: Buffer = Buffer.from(before);
  const synced = writes.findLastIndex(({ type }) => type === "S");
  for (const [n, write] of writes.entries()) {
    if (write.type === "D" || (write.type === "W" && (keepsLoose || n < synced)))
      disk = withWrite(disk, write);
  }
  return disk;
}
