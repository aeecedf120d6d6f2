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
