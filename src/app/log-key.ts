/**
 * Keys of logs and witnesses in files, in the form of Go's `note` package, and the last head that a log has signed beside
 * its key: outside the store, because a restored store has forgotten it.
 */
import { readFile } from "node:fs/promises";
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Config } from "../config/schema.ts";
import { createSigner } from "../core/codec/crypto.ts";
import { errorText } from "../core/fault.ts";
import { type NoteKey, noteKey, parseNamedAddress, parseSignerKey } from "../core/trust/note.ts";
import type { LogKey } from "../nodes/directory/log.ts";
import type { NamedAddress } from "../nodes/witness/exchange.ts";
import type { WitnessParts } from "../nodes/witness/witness.ts";
import { exposedText, isExposed, readSeed } from "./credentials.ts";
import { failed } from "./failure.ts";
import { readText, writeDurably } from "./files.ts";

/** The files of keys that a configuration names; `read` throws what is wrong with one. */
export function keyFilesOf({ cache, directory, witness }: Config) {
  const files = [
    { setting: "cache.signing_key_file", file: cache.enabled ? cache.signing_key_file : null, type: null },
    { setting: "directory.log_key_file", file: directory.enabled ? directory.log_key_file : null, type: "log" },
    { setting: "witness.key_file", file: witness.key_file, type: "witness" },
  ] as const;
  return files.flatMap(({ setting, file, type }) => {
    const read = (path: string): Promise<unknown> => (type === null ? readSeed(path) : readNoteSigner(path, type));
    return file === null ? [] : [{ setting, file, read: () => read(file) }];
  });
}

type NoteSigner = Pick<WitnessParts, "key" | "sign">;

/** `setting` names the file in failures. */
export async function readNoteSigner(file: string, type: NoteKey["type"], setting = ""): Promise<NoteSigner> {
  const context = setting === "" ? "" : `${setting}: `;
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    throw failed(
      `${context}${file} can't be read: ${errorText(error)}; create one: waypost key new --${type} <name> ${file}`,
    );
  });
  const parsed = parseSignerKey(text.trim());
  const key = parsed === null ? null : noteKey(parsed.name, parsed.type, ed25519.getPublicKey(parsed.bytes));
  const sign = parsed === null ? null : createSigner(parsed.bytes);
  if (key === null || sign === null || key.id !== parsed?.id || key.type !== type)
    throw failed(`${context}${file} must hold a key that waypost key new --${type} <name> has made`);
  return { key, sign };
}

type Warn = (level: "warn", message: string) => void;

/** `null` where the Directory has no log. */
export async function openLogKey({ directory }: Config, log: Warn): Promise<LogKey | null> {
  const { enabled, log_key_file: file } = directory;
  if (!enabled || file === null) return null;
  const setting = "directory.log_key_file";
  const signer = await readNoteSigner(file, "log", setting);
  if (isExposed(file)) log("warn", exposedText(file, setting));
  const signedFile = `${file}.head`;
  return {
    ...signer,
    readSigned: async () => (await readText(signedFile)) ?? "",
    writeSigned: (note) => writeDurably(signedFile, note),
  };
}

/** `null` where this process is no witness. */
export async function openWitnessKey({ witness }: Config, log: Warn): Promise<NoteSigner | null> {
  const { key_file: file } = witness;
  if (file === null) return null;
  if (isExposed(file)) log("warn", exposedText(file, "witness.key_file"));
  return readNoteSigner(file, "witness", "witness.key_file");
}

/** The schema has checked them. */
export function addressesOf(texts: readonly string[]): NamedAddress[] {
  return texts.map(parseNamedAddress).filter((one) => one !== null);
}
