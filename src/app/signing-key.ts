/**
 * The key that signs the event proofs of a Cache: a file with 64 hex digits, as `waypost key new` writes it.
 * A file that other users may read is a warning, not a failure: some systems mount secrets that way.
 */
import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";

import { decodeHex } from "../core/codec/bytes.ts";
import { createSigner } from "../core/codec/ed25519.ts";
import type { CacheParts } from "../nodes/cache/cache.ts";
import { failed } from "./failure.ts";

const setting = "cache.signing_key_file";

export async function readSigner(file: string): Promise<NonNullable<CacheParts["sign"]>> {
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT")
      throw failed(`${setting}: there is no file ${file}; make one: waypost key new ${file}`);
    throw failed(`${setting}: ${file} can't be read: ${error instanceof Error ? error.message : String(error)}`);
  });
  const seed = decodeHex(text.trim());
  const sign = seed === null ? null : createSigner(seed);
  if (sign === null) throw failed(`${setting}: ${file} must hold 32 bytes in hex`);
  return sign;
}

/** Whether others than the owner may read or write a file; never on systems without such modes. */
export function isExposed(file: string): boolean {
  return process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0;
}

export function exposedText(file: string): string {
  return `${setting}: other users may read ${file}; run: chmod 600 ${file}`;
}
