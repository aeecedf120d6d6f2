/**
 * `waypost bench`: how much a running node can handle, measured from outside. A throwaway identity is registered;
 * envelopes for it are stored, looked for, fetched and acknowledged, and its status is read. What it stores
 * it removes again; the identity stays on the ledger.
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { cachesOf } from "../client/client.ts";
import { waitingDefault } from "../client/confirm.ts";
import { endpoint, exchange, jsonBody, timeoutMsDefault } from "../client/http.ts";
import { createIdentity } from "../client/keys.ts";
import { firstDocument, register, settleRegistration } from "../client/registration.ts";
import type { Did } from "../core/codec/did.ts";
import { addConnectionFlags, type ConnectionFlags, parseBetween, runSession, type Session } from "./command.ts";

type BenchFlags = ConnectionFlags & {
  readonly count: number;
  readonly size: number;
  readonly clients: number;
};

/** One kind of request: how many, how fast, and how long each took. */
type Lap = {
  readonly name: string;
  readonly requests: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
};

/** A mailbox holds 10,000 entries unless the operator says otherwise. */
const countMax = 10_000;

export function registerBenchCommand(program: Command): void {
  const command = program
    .command("bench")
    .description("measure a running node from outside")
    .option("--count <number>", "envelopes to store", parseBetween(1, countMax), 2_000)
    .option("--size <bytes>", "bytes of the payload of each", parseBetween(1, 1_048_576), 1_024)
    .option("--clients <number>", "requests at once", parseBetween(1, 1_024), 64);
  addConnectionFlags(command).action((flags: BenchFlags) => runSession(flags, (session) => bench(session, flags)));
}

async function bench(session: Session, flags: BenchFlags): Promise<void> {
  const { report, client, cacheUrl, relayUrl } = session;
  report.progress("registering a throwaway identity");
  const identity = createIdentity("bench");
  const registered = await register(client, identity, {
    document: await firstDocument(identity, { relayUrl, cacheUrl }),
    alias: null,
  });
  await settleRegistration(client, registered, waitingDefault);
  const [cache] = await cachesOf(client, identity, "");
  if (cache === undefined) throw failed("the identity has no Cache");
  const lap = (name: string, requests: number, one: (i: number) => Promise<void>): Promise<Lap> => {
    report.progress(`${name}: ${requests}`);
    return measure(name, requests, { clients: flags.clients, one });
  };
  const laps = [
    await lap("read a status", flags.count, async () => {
      await client.directory.registrationStatus(identity.did);
    }),
    await lap("store an envelope", flags.count, storing(cacheUrl, identity.did, flags.size)),
    await lap("fetch a page", Math.ceil(flags.count / 100), async () => {
      await cache.messages(undefined, 100);
    }),
  ];
  const removed = await removeAll(cache);
  if (removed !== flags.count) throw failed(`${flags.count} envelopes were stored, but only ${removed} were found`);
  report.result({ ok: true, ...flags, laps }, renderLaps(laps, flags));
}

/** Stores past the Relay, so that what is measured is one node and one synced write. */
function storing(cacheUrl: string, to: Did, size: number): (i: number) => Promise<void> {
  const at = endpoint(cacheUrl, timeoutMsDefault);
  const ciphertext = crypto.getRandomValues(new Uint8Array(Math.min(size, 65_536)));
  const payload = { ciphertext_b64: repeated(ciphertext, size).toBase64() };
  return async () => {
    const timestamp = new Date().toISOString();
    const body = jsonBody({ message_id: crypto.randomUUID(), to, timestamp, ttl: "1h", payload });
    const { status } = await exchange(at, { method: "POST", path: "/cache/store", body });
    if (status !== 202) throw failed(`the Cache answered ${status}`);
  };
}

/** The platform gives at most 64 KiB of randomness at once; the rest repeats it. */
function repeated(bytes: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  for (let at = 0; at < size; at += bytes.length) out.set(bytes.subarray(0, Math.min(bytes.length, size - at)), at);
  return out;
}

type CacheOf = Awaited<ReturnType<typeof cachesOf>>[number];

async function removeAll(cache: CacheOf): Promise<number> {
  let removed = 0;
  for (;;) {
    const { messages } = await cache.summary();
    if (messages.length === 0) return removed;
    removed += (await cache.ack(messages.map((message) => message.message_id))).acked;
  }
}

type Work = { readonly clients: number; readonly one: (i: number) => Promise<void> };

/** Runs `requests` of one kind with so many at once. */
async function measure(name: string, requests: number, { clients, one }: Work): Promise<Lap> {
  const tookMs = new Float64Array(requests);
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < requests) {
      const i = next++;
      const startedMs = performance.now();
      await one(i);
      tookMs[i] = performance.now() - startedMs;
    }
  };
  const startedMs = performance.now();
  await Promise.all(Array.from({ length: Math.min(clients, requests) }, client));
  const seconds = (performance.now() - startedMs) / 1_000;
  tookMs.sort();
  const quantile = (share: number): number => tookMs[Math.min(requests - 1, Math.floor(requests * share))] ?? 0;
  return { name, requests, perSecond: requests / seconds, p50Ms: quantile(0.5), p99Ms: quantile(0.99) };
}

function renderLaps(laps: readonly Lap[], flags: BenchFlags): string {
  const rows = laps.map(({ name, requests, perSecond, p50Ms, p99Ms }) =>
    [
      name.padEnd(20),
      String(requests).padStart(8),
      `${perSecond.toFixed(0)}/s`.padStart(10),
      `${p50Ms.toFixed(1)} ms`.padStart(10),
      `${p99Ms.toFixed(1)} ms`.padStart(10),
    ].join(" "),
  );
  const head = `${"".padEnd(20)} ${"requests".padStart(8)} ${"rate".padStart(10)} ${"p50".padStart(10)} ${"p99".padStart(10)}`;
  return [`${flags.clients} at once, payloads of ${flags.size} bytes`, head, ...rows].join("\n");
}
