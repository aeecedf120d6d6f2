/**
 * `waypost storage`: what operators do with stores. `stats` opens the stores, so it does not run beside the
 * nodes; running nodes show the same at `/metrics`. `migrate` prepares stores before the first start and
 * after an upgrade. The others are in storage-maintenance.ts.
 */
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { storesOf, toFailure } from "../app/stores.ts";
import type { OpenStep } from "../storage/bind.ts";
import type { Store } from "../storage/contract.ts";
import { defaultConfigFile, readConfig } from "./config.ts";
import { createReport } from "./report.ts";
import { registerMaintenance } from "./storage-maintenance.ts";

type StoreReport = {
  readonly name: string;
  readonly plugin: string;
  readonly durability: string;
  readonly capabilities: readonly string[];
  readonly mailbox?: { readonly entries: number; readonly bytes: number };
  readonly ledger?: { readonly block: string; readonly hash: string; readonly time: string };
};

export function registerStorageCommand(program: Command): void {
  const storage = program.command("storage").description("look into the stores of a configuration, and prepare them");
  storage
    .command("migrate")
    .description("bring the schema of every database to the version of this program")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const done = await migrateStores(await storesOf(await readConfig(options.config)));
      const text = done.map(({ name, result }) => `${name}: ${result}`).join("\n");
      createReport(options.json === true).result(done, text);
    });
  registerMaintenance(storage);
  storage
    .command("stats")
    .description("print what every store holds")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const reports = await reportStores(await storesOf(await readConfig(options.config)));
      createReport(options.json === true).result(reports, reports.map(renderReport).join("\n\n"));
    });
}

type Migrated = { readonly name: string; readonly result: string };

async function migrateStores(steps: readonly OpenStep[]): Promise<Migrated[]> {
  const done: Migrated[] = [];
  for (const { name, migrate } of steps) {
    const result = migrate === null ? "has nothing to prepare" : await migrate().catch(toFailure);
    done.push({ name, result });
  }
  return done;
}

/** Reading must not create anything: a missing store is reported before any is opened. */
async function reportStores(steps: readonly OpenStep[]): Promise<StoreReport[]> {
  const absent = steps.flatMap(({ name, absence }) => {
    const reason = absence();
    return reason === null ? [] : [`store "${name}": ${reason}; it is made when a node starts`];
  });
  if (absent.length > 0) throw failed(absent.join("\n"));
  const reports: StoreReport[] = [];
  for (const step of steps) reports.push(await reportOpened(step));
  return reports;
}

async function reportOpened({ name, open }: OpenStep): Promise<StoreReport> {
  const fatal = (reason: string) => {
    throw new Error(reason);
  };
  const store = await open({ now: Date.now, log: () => undefined, fatal }).catch(toFailure);
  try {
    return await reportStore(name, store);
  } finally {
    await store.close();
  }
}

async function reportStore(name: string, store: Store): Promise<StoreReport> {
  const { mailbox, ledger } = store.capabilities;
  const head = ledger === undefined ? null : (await ledger.head()).finalized;
  return {
    name,
    plugin: store.plugin,
    durability: store.durability,
    capabilities: Object.keys(store.capabilities),
    ...(mailbox === undefined ? {} : { mailbox: await mailbox.stats(Date.now()) }),
    ...(head === null
      ? {}
      : { ledger: { block: head.number.toString(), hash: head.hash, time: new Date(head.timeMs).toISOString() } }),
  };
}

function renderReport(report: StoreReport): string {
  const lines = [
    `${report.name}: ${report.plugin}, ${report.durability}`,
    `  offers ${report.capabilities.join(", ")}`,
  ];
  if (report.mailbox !== undefined)
    lines.push(`  mailbox: ${report.mailbox.entries} entries, ${report.mailbox.bytes} bytes`);
  if (report.ledger !== undefined) lines.push(`  ledger: block ${report.ledger.block} of ${report.ledger.time}`);
  return lines.join("\n");
}
