/**
 * What every client command shares: where the nodes are, where keys lie, how long to wait, and how a
 * result or a failure is reported. Flags win over the environment (`WAYPOST_URL`, `WAYPOST_DIRECTORY_URL`,
 * `WAYPOST_RELAY_URL`, `WAYPOST_CACHE_URL`, `WAYPOST_KEYS`, `WAYPOST_AS`), which wins over the defaults
 * of the development mode.
 */
import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { failed } from "../app/failure.ts";
import { type Client, connect, lookUp } from "../client/client.ts";
import { type Waiting, waitingDefault } from "../client/confirm.ts";
import { timeoutMsDefault } from "../client/http.ts";
import type { Identity } from "../client/keys.ts";
import type { Did } from "../core/codec/did.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { parseUrl, parseWait, urlDefault } from "./arguments.ts";
import { defaultKeysFolder, listIdentities, loadIdentity } from "./files/key-files.ts";
import { createReport, type Report } from "./report.ts";

export type ConnectionFlags = {
  readonly url?: string;
  readonly directory?: string;
  readonly relay?: string;
  readonly cache?: string;
  readonly keys?: string;
  readonly json?: boolean;
};

export function addConnectionFlags(command: Command): Command {
  return command
    .option("--url <url>", `address of all three nodes (WAYPOST_URL; default: ${urlDefault})`, parseUrl)
    .option("--directory <url>", "address of the Directory, where it is another (WAYPOST_DIRECTORY_URL)", parseUrl)
    .option("--relay <url>", "address of the Relay, where it is another (WAYPOST_RELAY_URL)", parseUrl)
    .option("--cache <url>", "address of the Cache, where it is another (WAYPOST_CACHE_URL)", parseUrl)
    .option("--keys <folder>", "folder of the keys (WAYPOST_KEYS; default: ~/.waypost/keys)")
    .option("--json", "print the result as JSON");
}

export type WaitFlags = { readonly wait?: boolean; readonly timeout?: number };

export function addWaitFlags(command: Command): Command {
  return command
    .option("--no-wait", "do not wait for settlement")
    .addOption(
      new Option("--timeout <duration>", "how long to wait: 30s, 5m")
        .argParser(parseWait)
        .default(waitingDefault.timeoutMs, `${waitingDefault.timeoutMs / 1_000}s`),
    );
}

export function addIdentityFlag(command: Command): Command {
  return command.option("--as <name>", "the identity to act as (WAYPOST_AS; default: the only one)");
}

export type Session = {
  readonly client: Client;
  readonly relayUrl: string;
  readonly cacheUrl: string;
  readonly keysFolder: string;
  readonly report: Report;
};

/** Runs a command's work with what it needs; `report.ts` reports failures. */
export async function runSession(flags: ConnectionFlags, work: (session: Session) => Promise<void>): Promise<void> {
  const report = createReport(flags.json === true);
  try {
    await work(openSession(flags, report));
  } finally {
    report.end();
  }
}

function openSession(flags: ConnectionFlags, report: Report): Session {
  const env = process.env;
  const all = flags.url ?? env["WAYPOST_URL"] ?? urlDefault;
  const directoryUrl = flags.directory ?? (flags.url || env["WAYPOST_DIRECTORY_URL"]) ?? all;
  const relayUrl = flags.relay ?? (flags.url || env["WAYPOST_RELAY_URL"]) ?? all;
  const cacheUrl = flags.cache ?? (flags.url || env["WAYPOST_CACHE_URL"]) ?? all;
  return {
    client: connect({ directoryUrl, relayUrl, timeoutMs: timeoutMsDefault }),
    relayUrl: withoutTrailingSlashes(relayUrl),
    cacheUrl: withoutTrailingSlashes(cacheUrl),
    keysFolder: resolve(flags.keys ?? env["WAYPOST_KEYS"] ?? defaultKeysFolder()),
    report,
  };
}

/** The identity that `--as` or the environment names, else the only one there is. */
export async function chooseIdentity(session: Session, name: string | undefined): Promise<Identity> {
  const chosen = name ?? process.env["WAYPOST_AS"];
  if (chosen !== undefined) return useIdentity(session, chosen);
  const names = await listIdentities(session.keysFolder);
  if (names.length === 1) return useIdentity(session, names[0] as string);
  if (names.length === 0)
    throw failed(`no identity in ${session.keysFolder}; make one: waypost did create --name alice`);
  throw failed(`there are several identities; choose one with --as: ${names.join(", ")}`);
}

/** Signs for the ledger that the identity belongs to, and no other. */
export async function useIdentity({ keysFolder, client }: Session, name: string): Promise<Identity> {
  const identity = await loadIdentity(keysFolder, name);
  client.learnt.ledger = identity.ledger;
  return identity;
}

/** A DID from what a person types: a DID, the name of an identity here, or an alias. */
export async function targetDid(session: Session, target: string): Promise<Did> {
  const names = await listIdentities(session.keysFolder);
  if (names.includes(target)) return (await loadIdentity(session.keysFolder, target)).did;
  return lookUp(session.client, target);
}

/** How to wait, or `null` with `--no-wait`; the progress line shows `what`. */
export function waitingOf(session: Session, flags: WaitFlags, what: string): Waiting | null {
  if (flags.wait === false) return null;
  return {
    ...waitingDefault,
    timeoutMs: flags.timeout ?? waitingDefault.timeoutMs,
    onProgress: (elapsedMs, state) => session.report.progress(`${what}: ${state}, ${(elapsedMs / 1_000).toFixed(1)} s`),
  };
}
