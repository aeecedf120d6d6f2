/**
 * The campaign's Directories, each a process, and the people who register at them over HTTP as
 * clients do.
 */
import { closeSync, openSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { registerBodyOf } from "../support/directory.ts";
import { freePort } from "../support/executable.ts";
import { type Identity, identityOf } from "../support/identity.ts";
import { until } from "./stand.ts";

export type Directory = {
  readonly url: string;
  /** The address of its account. */
  readonly operator: string;
  readonly states: (people: readonly Person[]) => Promise<string[]>;
  readonly close: () => Promise<void>;
};

export type Person = {
  readonly identity: Identity;
  readonly directory: Directory;
  /** Whether the Directory has answered 202. */
  taken: boolean;
};

const configuration = (listen: string, endpoints: readonly string[]): string => `
[server]
listen = ["${listen}"]

[stores.main]
plugin = "lmdb"
path = "data/main"
free_space_floor_bytes = 0

[stores.chain]
plugin = "chain"
endpoints = ${JSON.stringify(endpoints)}
operator_key_file = "data/operator.key"
outbox = "data/outbox"
free_space_floor_bytes = 0

[directory]
enabled = true
store = "main"
ledger = "chain"
`;

const program = new URL("../../src/main.ts", import.meta.url).pathname;

export async function openDirectory(given: {
  readonly folder: string;
  readonly endpoints: readonly string[];
  readonly operator: string;
}): Promise<Directory> {
  const { folder, endpoints, operator } = given;
  const listen = `127.0.0.1:${freePort()}`;
  const url = `http://${listen}`;
  writeFileSync(join(folder, "waypost.toml"), configuration(listen, endpoints));
  const log = openSync(join(folder, "waypost.log"), "a");
  const child = Bun.spawn([process.execPath, program, "serve", "--config", "waypost.toml"], {
    cwd: folder,
    stdout: log,
    stderr: log,
  });
  closeSync(log);
  const isReady = async () => {
    if (child.exitCode !== null)
      throw new Error(`a Directory ended with ${child.exitCode}: see ${folder}`);
    return (await fetch(`${url}/readyz`).catch(() => null))?.ok ?? false;
  };
  await until("a Directory to be ready", isReady, 600_000);
  return {
    url,
    operator,
    states: (people) => inGroups(people, 20, ({ identity }) => stateOf(url, identity)),
    async close() {
      child.kill("SIGTERM");
      await child.exited;
    },
  };
}

async function stateOf(url: string, { did }: Identity): Promise<string> {
  const reply = await fetch(`${url}/registration-status/${did}`).catch(() => null);
  if (!reply?.ok) return `status ${reply?.status}`;
  const { registration_status: state } = (await reply.json()) as { registration_status: string };
  if (state === "failed") throw new Error(`the registration of ${did} is called failed`);
  return state;
}

async function inGroups<T, R>(
  all: readonly T[],
  size: number,
  work: (one: T) => Promise<R>,
): Promise<R[]> {
  const done: R[] = [];
  for (let from = 0; from < all.length; from += size)
    done.push(...(await Promise.all(all.slice(from, from + size).map(work))));
  return done;
}

/**
 * Each registers at its time and until it is answered 202, with a proof of its own for each
 * attempt.
 */
export async function registerAll(
  directories: readonly Directory[],
  given: { readonly count: number; readonly overMs: number; readonly label: string },
): Promise<Person[]> {
  const people = Array.from({ length: given.count }, (_, n): Person => {
    const directory = directories[n % directories.length] as Directory;
    return { identity: identityOf(`${given.label} ${n}`), directory, taken: false };
  });
  await Promise.all(
    people.map(async (person, n) => {
      await Bun.sleep((n / given.count) * given.overMs);
      await until("a Directory to take a registration", () => register(person), 1_800_000);
    }),
  );
  return people;
}

async function register(person: Person): Promise<boolean> {
  const { identity, directory } = person;
  const reply = await ask(directory, identity).catch(() => null);
  person.taken = reply?.status === 202;
  // An attempt without an answer may have been taken: then the next one meets it.
  if (person.taken || reply?.status === 409) return true;
  if (reply !== null && reply.status < 500)
    throw new Error(`${reply.status} ${await reply.text()}`);
  await Bun.sleep(2_000);
  return false;
}

/** Version 3: for this chain and this Directory's account alone. */
async function ask({ url }: Directory, identity: Identity): Promise<Response> {
  const limits = (await (await fetch(`${url}/limits`)).json()) as {
    genesis_hash: string;
    operator_account: string;
  };
  const binding = {
    genesisHash: Uint8Array.fromHex(limits.genesis_hash.slice(2)),
    submitter: Uint8Array.fromHex(limits.operator_account.slice(2)),
  };
  const nowMs = Date.now();
  const body = registerBodyOf(identity, nowMs, { timestamp: `v3:0:${nowMs + 1_800_000}` }, binding);
  return fetch(`${url}/register-did`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(60_000),
  });
}
