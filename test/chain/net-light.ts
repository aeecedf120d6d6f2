/** The campaign's light client: the driver over `light:<specification>`, which trusts no node. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { isFault } from "../../src/core/fault.ts";
import { openChain } from "../../src/plugins/chain/driver.ts";
import { openLocalTable } from "../../src/plugins/lmdb/lmdb.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { identityOf, registrationOf } from "../support/identity.ts";
import type { Chain } from "./net-chain.ts";
import type { Network } from "./network.ts";
import { until } from "./stand.ts";

const registrations = 10;
const reads = 50;

/** What it did and cost, as a text. */
export async function asLight(given: {
  readonly network: Network;
  readonly chain: Chain;
  readonly folder: string;
  readonly operator: string;
}): Promise<string> {
  const { network, chain, folder, operator } = given;
  const keyFile = join(folder, "light.key");
  writeFileSync(keyFile, `${operator}\n`, { mode: 0o600 });
  const parsed = chainPlugin.parseOptions({
    endpoints: [`light:${network.specification}`],
    operator_key_file: keyFile,
    outbox: join(folder, "light-outbox"),
    free_space_floor_bytes: 0,
    // Nodes and light client share a machine, which may be busy with other work.
    request_timeout_ms: 60_000,
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  const logged: string[] = [];
  const log = (level: string, message: string, fields?: unknown) =>
    void logged.push(`${level} ${message} ${JSON.stringify(fields)}`);
  const stalls = watchStalls();
  const before = process.memoryUsage.rss();
  const beganMs = performance.now();
  const fatal = (reason: string) => log("fatal", reason);
  const store = await openChain(parsed.options, { now: Date.now, log, fatal }, openLocalTable);
  try {
    const ledger = store.capabilities.ledger!;
    const ready = () =>
      ledger.head().then(
        () => true,
        () => false,
      );
    await until("the light client to have a head", ready, 900_000);
    const startMs = performance.now() - beganMs;
    for (let n = 0; n < reads; n++) {
      const identity = identityOf(`net ${n}`);
      const { record } = await answered("a record", () => ledger.account(identity.did));
      if (record?.rootPubkey?.toHex() !== identity.root.publicKey.toHex())
        throw new Error(`the light client reads another record of ${identity.did}`);
    }
    const readMs = (performance.now() - beganMs - startMs) / reads;
    const hashes = await register(ledger, identities());
    const ends = async () => {
      const all = await Promise.all(hashes.map((hash) => ledger.submission(hash)));
      return all.every((one) => one?.state === "finalized");
    };
    await until("its registrations to be final", ends, 900_000);
    const found = (await chain.registrations()).byDid;
    for (const { did } of identities())
      if (found.get(did) !== 1) throw new Error(`${did} is on the chain ${found.get(did)} times`);
    const mebibytes = Math.round((process.memoryUsage.rss() - before) / 2 ** 20);
    return (
      `stood after ${Math.round(startMs)} ms, read ${reads} records in ${readMs.toFixed(0)} ms each, registered ` +
      `${registrations}, took ${mebibytes} MiB; the longest moment of computing was ${stalls()} ms`
    );
  } catch (error) {
    throw new Error(`the light client failed; it logged ${logged.slice(-10).join("\n")}`, {
      cause: error,
    });
  } finally {
    await store.close();
  }
}

/** The light client may lose its peer, and finds it again. */
function answered<T>(what: string, ask: () => Promise<T>): Promise<T> {
  const attempt = async () => {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof StoreError && error.code === "unavailable") return null;
      throw error;
    }
  };
  return until(what, attempt, 300_000);
}

const identities = () => Array.from({ length: registrations }, (_, n) => identityOf(`light ${n}`));

type Ledger = NonNullable<Awaited<ReturnType<typeof openChain>>["capabilities"]["ledger"]>;

async function register(ledger: Ledger, people: ReturnType<typeof identities>): Promise<string[]> {
  const { genesisHash } = await ledger.proofs();
  const binding = { genesisHash, submitter: await ledger.operator() };
  return Promise.all(
    people.map(async (person) => {
      const call = registrationOf(person, { timestamp: `v3:0:${Date.now() + 1_800_000}`, binding });
      const outcome = await answered("a submission", () => ledger.submit(call, "register"));
      if (isFault(outcome)) throw new Error(`${outcome.code} ${outcome.detail}`);
      return outcome.txHash;
    }),
  );
}

/** The answer ends the watch and returns the longest time for which nothing else could run. */
function watchStalls(): () => number {
  const everyMs = 20;
  let last = performance.now();
  let longest = 0;
  const timer = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last - everyMs);
    last = now;
  }, everyMs);
  return () => {
    clearInterval(timer);
    return Math.round(longest);
  };
}
