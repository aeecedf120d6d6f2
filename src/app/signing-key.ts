/**
 * The key that signs the event proofs of a Cache: a file with 64 hex digits, as `waypost key new` writes it.
 * A file that other users may read is a warning, not a failure: some systems mount secrets that way.
 */
import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { ed25519 } from "@noble/curves/ed25519.js";
import { decodeHex, renderPublicKey } from "../core/codec/bytes.ts";
import { createSigner } from "../core/codec/crypto.ts";
import { errorText } from "../core/fault.ts";
import type { CacheParts } from "../nodes/cache/cache.ts";
import type { Log } from "../nodes/http/log.ts";
import { failed } from "./failure.ts";

const setting = "cache.signing_key_file";

export async function readSigner(file: string): Promise<NonNullable<CacheParts["sign"]>> {
  const sign = createSigner(await readSeed(file));
  if (sign === null) throw failed(`${setting}: ${file} must hold 32 bytes in hex`);
  return sign;
}

/** A key that signed before the present one; what it signed verifies until then. */
type PreviousKey = { readonly publicKey: string; readonly untilMs: number };

/** The key of a running node. `waypost key rotate` changes the file, and a reload reads it again. */
export type EventKey = {
  /** Signs with the key of the moment; `null` without a file. */
  readonly sign: CacheParts["sign"];
  readonly publicKey: () => string | null;
  readonly previous: (nowMs: number) => readonly PreviousKey[];
  /** Whether the file holds another key than before. A file that can't be read changes nothing and throws. */
  readonly read: () => Promise<boolean>;
};

export async function openEventKey(file: string | null, log: Log): Promise<EventKey> {
  if (file === null) return { sign: null, publicKey: () => null, previous: () => [], read: async () => false };
  let key = await readKey(file);
  if (isExposed(file)) log("warn", exposedText(file));
  return {
    sign: (text) => key.sign(text),
    publicKey: () => key.publicKey,
    previous: (nowMs) =>
      key.previous.filter(({ publicKey, untilMs }) => untilMs > nowMs && publicKey !== key.publicKey),
    read: async () => {
      const before = key.publicKey;
      key = await readKey(file);
      return key.publicKey !== before;
    },
  };
}

async function readKey(file: string) {
  const [sign, seed, previous] = await Promise.all([readSigner(file), readSeed(file), readPreviousKeys(file)]);
  return { sign, publicKey: renderPublicKey(ed25519.getPublicKey(seed)), previous };
}

/** Beside the key: one line for each previous key, its public form and the time until which it counts. */
export function previousKeysFile(file: string): string {
  return `${file}.previous`;
}

export async function readPreviousKeys(file: string): Promise<PreviousKey[]> {
  const text = await readFile(previousKeysFile(file), "utf8").catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return "";
    throw failed(`${previousKeysFile(file)} can't be read: ${errorText(error)}`);
  });
  return text.split("\n").flatMap((line) => {
    const [publicKey = "", until = ""] = line.trim().split(" ");
    const untilMs = Date.parse(until);
    return publicKey === "" || Number.isNaN(untilMs) ? [] : [{ publicKey, untilMs }];
  });
}

export function renderPreviousKeys(keys: readonly PreviousKey[]): string {
  return keys.map(({ publicKey, untilMs }) => `${publicKey} ${new Date(untilMs).toISOString()}\n`).join("");
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
