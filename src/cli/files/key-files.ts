/**
 * Identities as files of this machine: one each, mode 0600, replaced atomically. A secret that a change is
 * about to put in force is written down before the change is submitted, so that a crash between the two
 * loses no identity.
 * Source: interface "Signed DID-document updates" (private keys).
 */
import { readdir, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { localError } from "../../client/http.ts";
import type { KeyStore } from "../../client/key-stores.ts";
import { type Identity, nameForm, parseIdentity, renderIdentity } from "../../client/keys.ts";
import { createDurably, isSystemError, readText, removeIfThere, sweepLeftovers, writeDurably } from "./files.ts";

/** Default folder of identities: `~/.waypost/keys`. */
export function defaultKeysFolder(): string {
  return join(homedir(), ".waypost", "keys");
}

function identityPath(folder: string, name: string): string {
  if (!nameForm.test(name)) throw localError("invalid_name", `no identity can be called ${JSON.stringify(name)}`);
  return join(folder, `${name}.json`);
}

/** Folder for what the client remembers of an identity between runs: no secrets of its keys. */
export function stateFolder(folder: string, name: string): string {
  return join(folder, ".state", name);
}

/** Writes a new identity. A name in use is a `local` error `name_taken`: nothing is overwritten. */
export async function saveNewIdentity(folder: string, identity: Identity): Promise<void> {
  if (await createDurably(identityPath(folder, identity.name), renderIdentity(identity))) return;
  throw localError("name_taken", `an identity called ${identity.name} already exists in ${folder}`);
}

export async function saveIdentity(folder: string, identity: Identity): Promise<void> {
  await sweepLeftovers(folder, Date.now());
  await writeDurably(identityPath(folder, identity.name), renderIdentity(identity));
}

export async function forgetIdentity(folder: string, name: string): Promise<void> {
  await removeIfThere(identityPath(folder, name));
  await sweepLeftovers(folder, Date.now());
}

export async function loadIdentity(folder: string, name: string): Promise<Identity> {
  const file = identityPath(folder, name);
  const text = await readText(file);
  if (text === null) throw localError("no_identity", `there is no identity called ${name} in ${folder}`);
  if (process.platform !== "win32" && ((await stat(file)).mode & 0o077) !== 0) {
    throw localError("keys_exposed", `${file} can be read by others; run: chmod 600 ${file}`);
  }
  const identity = parseIdentity(text, name);
  if (identity === null) throw localError("keys_unreadable", `${file} is not a key file of this program`);
  return identity;
}

async function loadIfThere(folder: string, name: string): Promise<Identity | null> {
  return (await readText(identityPath(folder, name))) === null ? null : loadIdentity(folder, name);
}

/** A key store of files: the same ones that the commands use, so that both are the same identities. */
export function fileKeys(folder: string = defaultKeysFolder()): KeyStore {
  return {
    load: async (name) => {
      const identity = await loadIfThere(folder, name);
      return identity === null ? null : renderIdentity(identity);
    },
    save: async (name, text) => {
      const identity = parseIdentity(text, name);
      if (identity === null) throw localError("keys_unreadable", "the text is not that of an identity");
      await saveIdentity(folder, identity);
    },
  };
}

/** Names of the identities in a folder, sorted. */
export async function listIdentities(folder: string): Promise<string[]> {
  try {
    const files = await readdir(folder);
    const names = files.filter((file) => file.endsWith(".json")).map((file) => file.slice(0, -".json".length));
    return names.filter((name) => nameForm.test(name)).sort();
  } catch (error) {
    if (isSystemError(error, "ENOENT")) return [];
    throw error;
  }
}
