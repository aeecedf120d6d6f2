/**
 * Files on this machine, written whole or not at all, and synced before anything relies on them;
 * and identities as such files: one each, mode 0600, replaced atomically. A secret that a change is
 * about to put in force is written down before the change is submitted, so that a crash between the
 * two loses no identity. Names that come from the network are a stranger's: they are reduced to a
 * plain file name and never replace a file.
 * Source: interface "Signed DID-document updates" (private keys).
 */
import { existsSync, rmSync } from "node:fs";
import { link, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import {
  createDurably,
  ifThere,
  isSystemError,
  readText,
  removeIfThere,
  succeeds,
  syncFolder,
  writeDurably,
} from "../../app/files.ts";
import { localError } from "../../client/base/failure.ts";
import type { KeyStore } from "../../client/keys/key-stores.ts";
import { type Identity, nameForm, parseIdentity } from "../../client/keys/keys.ts";
import { encodeHex, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { alone, replaceDurably } from "./lock.ts";

/** Longest file name in bytes on common file systems, with room for ` (3f9a2c01)`. */
const fileNameBytesMax = 240;
/** Longest ending that a cut name keeps. */
const extensionBytesMax = 32;

const leftoverForm = /\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp$/;
const leftoverAgeMs = 60_000;

/**
 * Removes temporary files of killed processes, which may hold secrets. One that is younger than a
 * minute may still be written by another process. The last change of the folder gives the time: the
 * clock of its disk may be another one.
 */
async function sweepLeftovers(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  const changedMs = (await stat(folder).catch(() => null))?.mtimeMs ?? 0;
  for (const name of names.filter((one) => leftoverForm.test(one))) {
    const path = join(folder, name);
    const facts = await stat(path).catch(() => null);
    if (facts !== null && facts.mtimeMs < changedMs - leftoverAgeMs) await removeIfThere(path);
  }
}

/**
 * A plain file name from a stranger's text, which may have millions of characters: the part behind
 * the last slash or backslash, without control characters, leading dots and dashes, and what other
 * systems refuse; `message` when nothing is left. The stem is cut, not the extension.
 */
export function safeFileName(text: string): string {
  const plain = text
    .slice(Math.max(text.lastIndexOf("/"), text.lastIndexOf("\\")) + 1)
    .toWellFormed()
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}<>:"|?*]/gu, "")
    .replace(/^[.\s-]+/, "")
    .replace(/(?<![.\s])[.\s]+$/, "");
  const isReserved = /^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)/i.test(plain);
  const prefixed = isReserved ? `message-${plain}` : plain;
  const name = plain === "" ? "message" : prefixed;
  const [stem, extension] = splitExtension(name);
  if (Buffer.byteLength(extension) >= extensionBytesMax) return cut(name, fileNameBytesMax);
  return cut(stem, fileNameBytesMax - Buffer.byteLength(extension)) + extension;
}

/** At most so many bytes, without a part of a character. */
const cut = (text: string, bytesMax: number): string =>
  Buffer.from(text)
    .subarray(0, bytesMax)
    .toString()
    .replace(/\ufffd+$/, "");

function splitExtension(name: string): [stem: string, extension: string] {
  const dot = name.lastIndexOf(".");
  return dot <= 0 ? [name, ""] : [name.slice(0, dot), name.slice(dot)];
}

/**
 * Gives a finished temporary file a second name in `folder`, or `name (3f9a2c01).ext` and the like
 * when that is in use, and returns the path. No file is ever replaced.
 */
export async function placeFile(temporary: string, folder: string, name: string): Promise<string> {
  const [stem, extension] = splitExtension(name);
  for (
    let path = join(folder, name);
    ;
    path = join(folder, `${stem} (${randomHex()})${extension}`)
  ) {
    if (!(await linkAs(temporary, path))) continue;
    await syncFolder(folder);
    return path;
  }
}

const randomHex = (): string => crypto.randomUUID().slice(0, 8);

/** A second name for a finished file; `false` when the name is in use. */
async function linkAs(temporary: string, path: string): Promise<boolean> {
  try {
    return await succeeds(link(temporary, path), "EEXIST");
  } catch (error) {
    if (!isSystemError(error, "EPERM", "ENOTSUP", "ENOSYS", "EOPNOTSUPP")) throw error;
    // A file system without links: an empty file claims the name, since a
    // plain rename would replace.
    const isClaimed = await succeeds(writeFile(path, "", { flag: "wx", mode: 0o600 }), "EEXIST");
    if (isClaimed) await rename(temporary, path);
    return isClaimed;
  }
}

// --------------------------------------------------------------------------------------- key files

/** Default folder of identities: `~/.waypost/keys`. */
export function defaultKeysFolder(): string {
  return join(homedir(), ".waypost", "keys");
}

function checkedName(name: string): string {
  if (nameForm.test(name)) return name;
  throw localError("invalid_name", `no identity can be called ${JSON.stringify(name)}`);
}

const identityPath = (folder: string, name: string): string =>
  join(folder, `${checkedName(name)}.json`);

/**
 * Folder of an identity's state between runs, such as its store. It holds no keys, but seeds of
 * messages that are being sent; it goes with the identity.
 */
export function stateFolder(folder: string, name: string): string {
  return join(folder, ".state", name);
}

const knownFolder = (folder: string, name: string): string =>
  join(stateFolder(folder, checkedName(name)), "known");

export async function loadIdentity(folder: string, name: string): Promise<Identity> {
  const text = await fileKeys(folder).load(name);
  if (text === null)
    throw localError("no_identity", `there is no identity called ${name} in ${folder}`);
  const identity = parseIdentity(text, name);
  if (identity !== null) return identity;
  throw localError(
    "keys_unreadable",
    `${identityPath(folder, name)} is not a key file of this program`,
  );
}

/**
 * A key store of files: the same ones that the commands use, so that both are the same
 * identities. What an identity remembers is one file for each key, named by a hash, because file
 * systems fold case and bound lengths.
 */
export function fileKeys(folder: string = defaultKeysFolder()): KeyStore {
  const lockPath = join(folder, ".state", ".lock");
  const isIdentity = (key: string) => !key.includes("/");
  const pathOf = (key: string): string => {
    if (isIdentity(key)) return identityPath(folder, key);
    const [name = "", ...rest] = key.split("/");
    return join(knownFolder(folder, name), `${encodeHex(sha256(utf8(rest.join("/"))))}.json`);
  };
  const sweep = async (key: string) => {
    await sweepLeftovers(dirname(pathOf(key)));
    if (isIdentity(key)) await sweepLeftovers(knownFolder(folder, key));
  };
  return {
    load: async (key) => {
      const file = pathOf(key);
      const text = await readText(file);
      const isExposed =
        process.platform !== "win32" && ((await ifThere(stat(file)))?.mode ?? 0) & 0o077;
      if (text === null || !isIdentity(key) || !isExposed) return text;
      throw localError("keys_exposed", `${file} can be read by others; run: chmod 600 ${file}`);
    },
    save: async (key, text) => {
      const path = pathOf(key);
      // The state goes first: interrupted, the identity is still there to be deleted.
      if (isIdentity(key) && text === null)
        await rm(stateFolder(folder, checkedName(key)), { recursive: true, force: true });
      if (text !== null) await writeDurably(path, text);
      else if (existsSync(path)) await alone(lockPath, () => rmSync(path, { force: true }));
      await sweep(key);
    },
    replace: async (key, before, text) => {
      if (before === null) return createDurably(pathOf(key), text);
      const isReplaced = await replaceDurably(lockPath, { path: pathOf(key), before, text });
      await sweep(key);
      return isReplaced;
    },
  };
}

/** Names of the identities in a folder, sorted. */
export async function listIdentities(folder: string): Promise<string[]> {
  const files = (await ifThere(readdir(folder))) ?? [];
  const names = files
    .filter((file) => file.endsWith(".json"))
    .map((file) => file.slice(0, -".json".length));
  // Next to an identity with several devices lies the DID of this one, which is not
  // an identity of the user's.
  const isDevice = (name: string) =>
    name.endsWith(".device") && names.includes(name.slice(0, -".device".length));
  return names.filter((name) => nameForm.test(name) && !isDevice(name)).sort();
}
