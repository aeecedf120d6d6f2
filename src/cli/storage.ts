/**
 * `waypost storage stats`: what the stores of a configuration hold. It opens the stores, so it must not
 * run beside the nodes themselves; running nodes tell the same at `/metrics`.
 */
import type { Command } from "commander";
import type { Store } from "../storage/contract.ts";
import { openConfiguredStores } from "./compose-stores.ts";
import { defaultConfigFile, readConfig } from "./config.ts";

type StoreReport = {
  readonly name: string;
  readonly plugin: string;
  readonly durability: string;
  readonly capabilities: readonly string[];
  readonly mailbox?: { readonly entries: number; readonly bytes: number };
  readonly ledger?: { readonly block: string; readonly hash: string; readonly time: string };
};

export function registerStorageCommand(program: Command): void {
  program
    .command("storage")
    .description("look into the stores of a configuration")
    .command("stats")
    .description("print what every store holds")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const config = await readConfig(options.config);
      const opened = await openConfiguredStores(config, {
        now: Date.now,
        log: () => undefined,
        fatal: (reason) => {
          throw new Error(reason);
        },
      });
      try {
        const reports = await Promise.all([...opened.stores].map(([name, store]) => reportStore(name, store)));
        console.log(options.json ? JSON.stringify(reports, null, 2) : reports.map(renderReport).join("\n\n"));
      } finally {
        await opened.close();
      }
    });
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
