/**
 * The key with which a Cache signs its event proofs: a file with 64 hex digits, as `waypost key new` makes
 * it. That others may read it is told and does not stop the node: secrets are mounted so by some systems.
 */
import { statSync } from "node:fs";
import { readText } from "../cli/files/files.ts";
import { failed } from "../cli/outcome.ts";
import { decodeHex } from "../core/codec/bytes.ts";
import { createSigner } from "../core/codec/ed25519.ts";
import type { CacheParts } from "../nodes/cache/cache.ts";

const setting = "cache.signing_key_file";

export async function readSigner(file: string): Promise<NonNullable<CacheParts["sign"]>> {
  const text = await readText(file).catch((error: unknown) => {
    throw failed(`${setting}: ${file} can't be read: ${error instanceof Error ? error.message : String(error)}`);
  });
  if (text === null) throw failed(`${setting}: there is no file ${file}; make one: waypost key new ${file}`);
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
