/**
 * The addon of `lmdb` 3.5.6 without its overflow. When a write to the disk fails, the library
 * prints a text of up to 131 bytes into 100 bytes of the heap (liblmdb/mdb.c:4743), and the process
 * ends by SIGABRT or worse. No release has it mended, and machines that install this have no
 * compiler: so the format of that text is replaced by a shorter one in the compiled addon, in a
 * copy, because the package manager shares its files between folders. `bun install` runs this for
 * the addons in node_modules (`postinstall`); build.ts embeds no other.
 */
import { existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const long = Buffer.from(
  "Attempting to write page at position %u, size %u, blocks %u, buffer sizes %i %i %i\0",
);
/** At most 75 bytes once it is filled in. */
const short = Buffer.from(
  "Failed to write page at position %u, size %u, blocks %u\0".padEnd(long.length, "\0"),
);

/** Whether a failed write can't overflow; the addon of Windows has neither text. */
export function isMended(addon: Buffer): boolean {
  return !addon.includes(long);
}

export function mended(addon: Buffer): Buffer {
  const result = Buffer.from(addon);
  const at = result.indexOf(long);
  if (at < 0) return result;
  short.copy(result, at);
  signAgain(addon, result, at);
  if (isMended(result)) return result;
  throw new Error("the addon of lmdb has the text twice");
}

/**
 * On macOS an addon lists the SHA-256 of each of its pages, and one that differs ends the process.
 */
function signAgain(before: Buffer, after: Buffer, at: number): void {
  for (const pageBytes of [4_096, 16_384]) {
    const from = at - (at % pageBytes);
    if (from + pageBytes < at + long.length)
      throw new Error("the text of the addon of lmdb lies on two pages");
    const sums = [before, after].map((one) =>
      Buffer.from(sha256(one.subarray(from, from + pageBytes))),
    );
    const listed = before.indexOf(sums[0]!);
    if (listed >= 0) after.set(sums[1]!, listed);
  }
}

function sha256(bytes: Uint8Array): Uint8Array {
  return new Bun.CryptoHasher("sha256").update(bytes).digest();
}

if (import.meta.main) {
  const packages = join(import.meta.dir, "..", "node_modules", "@lmdb");
  const names = existsSync(packages)
    ? readdirSync(packages, { recursive: true, encoding: "utf8" })
    : [];
  for (const name of names) {
    const path = join(packages, name);
    const addon = name.endsWith(".node") ? readFileSync(path) : null;
    if (addon === null || isMended(addon)) continue;
    writeFileSync(`${path}.mended`, mended(addon), { mode: 0o755 });
    renameSync(`${path}.mended`, path);
  }
}
