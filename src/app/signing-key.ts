/**
 * The key that signs the event proofs of a Cache: a file with 64 hex digits, as `waypost key new` writes it.
 * A file that other users may read is a warning, not a failure: some systems mount secrets that way.
 */
import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { ed25519 } from "@noble/curves/ed25519.js";
import { decodeHex } from "../core/codec/bytes.ts";
import { createSigner } from "../core/codec/ed25519.ts";
import { renderPublicKey } from "../core/codec/public-key.ts";
import { errorText } from "../core/std/error-text.ts";
import type { CacheParts } from "../nodes/cache/cache.ts";
import { failed } from "./failure.ts";

const setting = "cache.signing_key_file";

export async function readSigner(file: string): Promise<NonNullable<CacheParts["sign"]>> {
  const sign = createSigner(await readSeed(file));
  if (sign === null) throw failed(`${setting}: ${file} must hold 32 bytes in hex`);
  return sign;
}

/** The public key of event proofs as multibase, `null` without a file. */
export async function eventProofKey(file: string | null): Promise<string | null> {
  return file === null ? null : renderPublicKey(ed25519.getPublicKey(await readSeed(file)));
}

async function readSeed(file: string): Promise<Uint8Array> {
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT")
      throw failed(`${setting}: there is no file ${file}; make one: waypost key new ${file}`);
    throw failed(`${setting}: ${file} can't be read: ${errorText(error)}`);
  });
  const seed = decodeHex(text.trim());
  if (seed?.length !== 32) throw failed(`${setting}: ${file} must hold 32 bytes in hex`);
  return seed;
}

/** Whether others than the owner may read or write a file; never on systems without such modes. */
export function isExposed(file: string): boolean {
  return process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0;
}

export function exposedText(file: string): string {
  return `${setting}: other users may read ${file}; run: chmod 600 ${file}`;
}
