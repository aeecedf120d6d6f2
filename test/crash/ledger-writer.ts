/**
 * The child of the ledger's crash test: until it is killed, it registers DIDs, gives each an alias,
 * and prints a line for every answered submission before the next one.
 */
import { writeSync } from "node:fs";
import { isFault } from "../../src/core/fault.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { optionsOf } from "../conformance/options.ts";
import { identityOf, registrationOf } from "../support/identity.ts";

const path = process.argv[2] as string;
const environment = { now: Date.now, log: () => {}, fatal: () => process.exit(9) };
const store = await lmdbPlugin.open(
  optionsOf(lmdbPlugin, { path, block_time_ms: 120 }),
  environment,
);
const ledger = store.capabilities.ledger!;

async function submit(call: LedgerCall): Promise<void> {
  const outcome = await ledger.submit(call, call.name);
  if (isFault(outcome)) throw new Error(`refused: ${outcome.code}`);
  writeSync(1, `${outcome.txHash} ${call.did}\n`);
}

async function work(): Promise<never> {
  for (;;) {
    const identity = identityOf(crypto.randomUUID());
    await submit(registrationOf(identity, { timestamp: String(Date.now()) }));
    while ((await ledger.account(identity.did)).record === null) await Bun.sleep(1);
    await submit({ name: "set_alias", did: identity.did, alias: crypto.randomUUID() });
  }
}

await Promise.all(Array.from({ length: 16 }, work));
