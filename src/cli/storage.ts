/**
 * `waypost storage`: what operators do with the stores of a configuration. `migrate` prepares stores before the first
 * start and after an upgrade. `backup`, `verify`, `export` and `top` run beside the nodes; `restore`, `compact`, `import`
 * and `stats` do not (running nodes show the figures of `stats` at `/metrics`). `top` shows who uses a store: entries and
 * bytes of each recipient, and of each label of the entries (senders and client networks, as digests).
 */
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { finished } from "node:stream/promises";
import type { Command } from "commander";
import { failed, failedInResult } from "../app/failure.ts";
import { storesOf, toFailure } from "../app/stores.ts";
import type { BoundMaintenance, OpenStep } from "../storage/bind.ts";
import type { Store, StoreEnvironment, StoreRecord } from "../storage/contract.ts";
import { encodeRecord, exportHeader, importRecords, parseRecord } from "../storage/transfer.ts";
import { createReport, print } from "./command.ts";
import { defaultConfigFile, readConfig } from "./config.ts";
import { syncFolder } from "./files/files.ts";

type StoreReport = {
  readonly name: string;
  readonly plugin: string;
  readonly durability: string;
  readonly capabilities: readonly string[];
  readonly mailbox?: { readonly entries: number; readonly bytes: number };
  readonly ledger?: { readonly block: string; readonly hash: string; readonly time: string };
};

export function registerStorageCommand(program: Command): void {
  const storage = program
    .command("storage")
    .description("back up, restore, check and move the stores of a configuration");
  command(storage, "migrate", "bring the schema of every database to the version of this program").action(migrate);
  command(storage, "backup", "copy the stores into a folder, beside running nodes")
    .requiredOption("--to <folder>", "folder of the copy; each store gets a folder of its name in it")
    .option("--rate <MiB/s>", "read and write at most this many MiB per second", "64")
    .action(backup);
  command(storage, "restore", "create the stores from a backup; existing ones are renamed")
    .requiredOption("--from <folder>", "folder that `backup` wrote")
    .action(restore);
  command(storage, "verify", "check every record of the stores, beside running nodes").action(verify);
  command(storage, "compact", "return free space inside the files to the disk").action(compact);
  command(storage, "export", "write everything a store holds as JSON lines, beside running nodes")
    .option("--to <file>", "file to write; standard output without it")
    .action(exportStore);
  command(storage, "import", "read an export into a new, empty store")
    .requiredOption("--from <file>", "file that `export` wrote")
    .action(importStore);
  command(storage, "top", "print which recipients and labels have the most, beside running nodes")
    .option("--limit <number>", "how many of each", "20")
    .action(top);
  const statsText = "print counts and sizes of the stores of a stopped node (/status shows a running one)";
  command(storage, "stats", statsText).action(stats);
}

type Options = {
  readonly config: string;
  readonly json?: boolean;
  readonly store?: string;
  readonly to?: string;
  readonly from?: string;
  readonly rate?: string;
  readonly limit?: string;
};

function command(storage: Command, name: string, description: string): Command {
  return storage
    .command(name)
    .description(description)
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("-s, --store <name>", "only this store")
    .option("--json", "print JSON");
}

/** The stores of the configuration, or the one that `--store` names. */
async function chosenSteps({ config, store }: Options): Promise<OpenStep[]> {
  const steps = await storesOf(await readConfig(config));
  const chosen = store === undefined ? steps : steps.filter(({ name }) => name === store);
  if (chosen.length === 0) throw failed(`no node uses a store named "${store ?? ""}"`);
  return chosen;
}

/** Works on one store after another; the result has a line for each. */
async function reportEach<T extends { readonly name: string }>(
  options: Options,
  ones: readonly T[],
  work: (one: T) => Promise<string>,
): Promise<void> {
  const done: { readonly name: string; readonly result: string }[] = [];
  for (const one of ones) done.push({ name: one.name, result: await work(one).catch(toFailure) });
  createReport(options.json === true).result(done, done.map(({ name, result }) => `${name}: ${result}`).join("\n"));
}

async function migrate(options: Options): Promise<void> {
  await reportEach(options, await chosenSteps(options), async ({ migrate: run }) =>
    run === null ? "has nothing to prepare" : run(),
  );
}

// --------------------------------------------------------------------------------------------------------------- stats

/** Reading must not create anything: a missing store is reported before any is opened. */
async function stats(options: Options): Promise<void> {
  const steps = await chosenSteps(options);
  const absent = steps.flatMap(({ name, absence }) => {
    const reason = absence();
    return reason === null ? [] : [`store "${name}": ${reason}; a node creates it at its start`];
  });
  if (absent.length > 0) throw failed(absent.join("\n"));
  const reports: StoreReport[] = [];
  for (const step of steps) reports.push(await reportOpened(step));
  createReport(options.json === true).result(reports, reports.map(renderReport).join("\n\n"));
}

async function reportOpened({ name, open }: OpenStep): Promise<StoreReport> {
  const store = await open(quiet()).catch(toFailure);
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

// --------------------------------------------------------------------------------------------------------- maintenance

const mebibyte = 1024 * 1024;

type Maintained = { readonly name: string; readonly work: BoundMaintenance };

/** The chosen stores that this program maintains itself. */
async function maintained(options: Options): Promise<Maintained[]> {
  const found = (await chosenSteps(options)).flatMap(({ name, maintenance }) =>
    maintenance === null ? [] : [{ name, work: maintenance }],
  );
  if (found.length === 0) throw failed("the stores keep their data in a database: use its own tools");
  return found;
}

/** Of one store: the one that `--store` names, or the only one. */
async function theOne(options: Options): Promise<Maintained> {
  const [one, ...more] = await maintained(options);
  if (one === undefined || more.length > 0) throw failed("there are several stores: name one with --store");
  return one;
}

/** A file in a backup until all of its stores are whole. */
const unfinishedFile = "UNFINISHED";

async function backup(options: Options): Promise<void> {
  const rate = Number(options.rate);
  if (!(rate > 0)) throw failed("--rate is a number of MiB a second above 0");
  const folder = resolve(options.to ?? "");
  const stores = await maintained(options);
  const isResumed = await resumesBackup(folder, stores);
  await reportEach(options, stores, ({ name, work }) => backupOne(join(folder, name), { work, rate, isResumed }));
  rmSync(join(folder, unfinishedFile));
  await syncFolder(folder);
}

/** The same command continues an interrupted backup: whole stores stay, the others begin again. */
async function resumesBackup(folder: string, stores: readonly Maintained[]): Promise<boolean> {
  const note = join(folder, unfinishedFile);
  if (existsSync(note)) return true;
  const present = stores.find(({ name }) => existsSync(join(folder, name)));
  if (present !== undefined)
    throw failed(`${join(folder, present.name)} exists already: name an empty folder with --to`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(note, `begun ${new Date().toISOString()}; run the same backup again to finish it\n`, { flush: true });
  await syncFolder(folder);
  return false;
}

type BackupWork = { readonly work: BoundMaintenance; readonly rate: number; readonly isResumed: boolean };

/** A store has its name in a backup only when it is whole, verified and synced. */
async function backupOne(target: string, { work, rate, isResumed }: BackupWork): Promise<string> {
  if (isResumed && existsSync(target))
    return `has been complete since ${statSync(target).mtime.toISOString()}; it was kept`;
  const partial = `${target}.partial`;
  rmSync(partial, { recursive: true, force: true });
  const result = await work.backup(partial, rate * mebibyte);
  renameSync(partial, target);
  await syncFolder(dirname(target));
  return result.replace(partial, target);
}

async function restore(options: Options): Promise<void> {
  const folder = resolve(options.from ?? "");
  if (existsSync(join(folder, unfinishedFile)))
    throw failed(`the backup in ${folder} is not finished: run the same \`waypost storage backup\` again`);
  const stores = await maintained(options);
  const missing = stores.find(({ name }) => !existsSync(join(folder, name)));
  if (missing !== undefined) throw failed(`${folder} has no backup of the store "${missing.name}"`);
  await reportEach(options, stores, ({ name, work }) => work.restore(join(folder, name)));
}

async function compact(options: Options): Promise<void> {
  await reportEach(options, await maintained(options), ({ work }) => work.compact());
}

async function verify(options: Options): Promise<void> {
  const reports: { readonly name: string; readonly records: number; readonly problems: readonly string[] }[] = [];
  for (const { name, work } of await maintained(options)) {
    reports.push({ name, ...(await work.verify().catch(toFailure)) });
  }
  const lines = reports.flatMap(({ name, records, problems }) => [
    `${name}: ${records} records, ${problems.length === 0 ? "sound" : `${problems.length} problems`}`,
    ...problems.map((problem) => `  ${problem}`),
  ]);
  createReport(options.json === true).result(reports, lines.join("\n"));
  if (reports.some(({ problems }) => problems.length > 0)) {
    throw failedInResult("a store is damaged: restore a backup, or export what is left and import it into a new store");
  }
}

async function exportStore(options: Options): Promise<void> {
  const { work } = await theOne(options);
  const skipped: string[] = [];
  const out = options.to === undefined ? process.stdout : createWriteStream(options.to, { mode: 0o600, flush: true });
  const write = out === process.stdout ? print : (text: string) => out.write(text);
  let records = 0;
  try {
    write(`${JSON.stringify(exportHeader)}\n`);
    for await (const record of work.records((problem) => void skipped.push(problem))) {
      records++;
      if (!write(`${encodeRecord(record)}\n`)) await new Promise((resume) => out.once("drain", resume));
    }
  } catch (error) {
    toFailure(error);
  }
  if (out !== process.stdout) {
    out.end();
    await finished(out);
  }
  const report = createReport(options.json === true);
  for (const problem of skipped.slice(0, 20)) report.note(`left out: ${problem}`);
  const summary = `exported ${records} records${skipped.length === 0 ? "" : `, left out ${skipped.length} damaged ones`}`;
  if (options.to === undefined) report.note(summary);
  else report.result({ records, skipped: skipped.length }, summary);
}

async function* linesOf(path: string): AsyncGenerator<StoreRecord> {
  const lines = createInterface({ input: createReadStream(path), crlfDelay: Number.POSITIVE_INFINITY });
  let number = 0;
  for await (const line of lines) {
    number++;
    if (number === 1) {
      if (line !== JSON.stringify(exportHeader)) throw failed(`${path} is not an export of this version`);
      continue;
    }
    const record = parseRecord(line);
    if (typeof record === "string") throw failed(`${path}, line ${number}: ${record}`);
    yield record;
  }
}

async function importStore(options: Options): Promise<void> {
  const steps = await chosenSteps(options);
  const [step] = steps;
  if (step === undefined || steps.length > 1) throw failed("name one store with --store");
  const store = await step.open(quiet()).catch(toFailure);
  try {
    const report = await importRecords(store, linesOf(options.from ?? ""), Date.now()).catch(toFailure);
    const { messages, claims, receipts, ledgerPairs, over } = report;
    createReport(options.json === true).result(
      report,
      `imported ${messages} messages, ${claims} claims, ${receipts} receipts and ${ledgerPairs} records of the ` +
        `ledger into "${step.name}"; ${over} were over`,
    );
  } finally {
    await store.close();
  }
}

function quiet(): StoreEnvironment {
  const fatal = (reason: string) => {
    throw new Error(reason);
  };
  return { now: Date.now, log: () => undefined, fatal };
}

async function top(options: Options): Promise<void> {
  const limit = Number(options.limit);
  if (!Number.isInteger(limit) || limit < 1) throw failed("--limit is a whole number above 0");
  const usage = createUsage(Date.now());
  try {
    for (const { work } of await maintained(options))
      for await (const record of work.records(() => {})) usage.add(record);
  } catch (error) {
    toFailure(error);
  }
  const found = usage.top(limit);
  createReport(options.json === true).result(found, renderUsage(found));
}

// -------------------------------------------------------------------------------------------------- usage

type Usage = { readonly name: string; readonly entries: number; readonly bytes: number };
type UsageReport = {
  readonly entries: number;
  readonly bytes: number;
  readonly recipients: readonly Usage[];
  readonly labels: readonly Usage[];
};

type Sum = { entries: number; bytes: number };

function createUsage(nowMs: number) {
  const [recipients, labels] = [new Map<string, Sum>(), new Map<string, Sum>()];
  const all: Sum = { entries: 0, bytes: 0 };
  const count = (sums: Map<string, Sum>, name: string, bytes: number) => {
    const sum = sums.get(name) ?? { entries: 0, bytes: 0 };
    sums.set(name, { entries: sum.entries + 1, bytes: sum.bytes + bytes });
  };
  return {
    add(record: StoreRecord): void {
      if (record.kind !== "message" || record.state !== "active" || record.entry.expiresAtMs <= nowMs) return;
      const { recipient, envelope } = record.entry;
      all.entries++;
      all.bytes += envelope.length;
      count(recipients, recipient, envelope.length);
      for (const label of record.entry.labels) count(labels, label, envelope.length);
    },
    top: (limit: number): UsageReport => ({
      ...all,
      recipients: largest(recipients, limit),
      labels: largest(labels, limit),
    }),
  };
}

function largest(sums: ReadonlyMap<string, Sum>, limit: number): Usage[] {
  const usages = [...sums].map(([name, sum]) => ({ name, ...sum }));
  return usages.sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1)).slice(0, limit);
}

function renderUsage({ entries, bytes, recipients, labels }: UsageReport): string {
  const lines = [`${entries} entries, ${bytes} bytes`];
  for (const [title, usages] of [
    ["recipients", recipients],
    ["labels", labels],
  ] as const) {
    if (usages.length > 0) lines.push("", title);
    for (const usage of usages)
      lines.push(`  ${String(usage.entries).padStart(9)} ${String(usage.bytes).padStart(14)}  ${usage.name}`);
  }
  return lines.join("\n");
}
