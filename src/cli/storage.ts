/**
 * `waypost storage`: what operators do with the stores of a configuration. `migrate` prepares
 * stores before the first start and after an upgrade. `move-places`, `backup`, `verify`, `export`
 * and `top` run while the nodes run; `restore`, `import` and `compact` do not. `top` shows who uses
 * a store: entries and bytes of each recipient, and of each label of the entries (senders and
 * client networks, as digests; the running node names networks that sent something lately).
 */

import { once } from "node:events";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { createInterface } from "node:readline";
import { finished } from "node:stream/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import { failed, failedInResult } from "../app/failure.ts";
import { toFailure } from "../app/stores.ts";
import { errorText } from "../core/fault.ts";
import type { PlaceMove, StoreRecord, VerifyReport } from "../storage/contract.ts";
import {
  encodeExportLine,
  exportEnd,
  exportHeader,
  importRecords,
  parseRecord,
} from "../storage/transfer.ts";
import {
  chosenSteps,
  type From,
  maintained,
  moved,
  type Options,
  reportEach,
  theOne,
} from "./chosen-stores.ts";
import { createReport, defaultConfigFile, ownCommand, parseBetween, print } from "./command.ts";
import { askNode } from "./operations.ts";
import { backup, restoreStore } from "./store-backups.ts";

export function registerStorageCommand(program: Command): void {
  const storage = program
    .command("storage")
    .description("back up, restore, check and move the stores of a configuration");
  const command = (name: string, description: string): Command =>
    storage
      .command(name)
      .description(description)
      .option("-c, --config <file>", "configuration file", defaultConfigFile)
      .option("-s, --store <name...>", "only these stores")
      .option("--json", "print JSON");
  command("migrate", "bring the schema of every database to the version of this program").action(
    migrate,
  );
  command("move-places", "move mailboxes to another database of a store, while the nodes run")
    .requiredOption("--to <shard>", "name of the database in the store's `shards`, or `home`")
    .requiredOption("--places <ranges>", "numbers of 0 to 1023, such as 0-99,512", parsePlaces)
    .action(movePlaces);
  command("backup", "copy the stores into a folder or a bucket, while the nodes run")
    .requiredOption(
      "--to <place>",
      "folder of the copy, in which each store gets a folder of its name; or s3://bucket/prefix",
    )
    .option(
      "--keep <number>",
      "in a bucket: remove older copies than so many",
      parseBetween(1, 10_000),
    )
    .addOption(scratchOption())
    .action(backup);
  command("restore", "create the stores from a backup; existing ones are renamed")
    .requiredOption(
      "--from <place>",
      "folder that `backup` wrote; or s3://bucket/prefix for the newest copy there, or one of its times",
    )
    .addOption(scratchOption())
    .action(restoreStore);
  command("verify", "check every record of the stores, while the nodes run")
    .addOption(new Option("--apart").hideHelp())
    .action(verify);
  command(
    "compact",
    "give free room inside the stores back to the disk, while no node runs",
  ).action(compact);
  command("export", "write everything a store holds as JSON lines, while the nodes run")
    .option("--to <file>", "file to write; standard output without it")
    .action(exportStore);
  command("import", "read an export into a new, empty store")
    .requiredOption("--from <file>", "file that `export` wrote")
    .action(importStore);
  command("top", "print which recipients and labels have the most, while the nodes run")
    .option("--limit <number>", "how many of each", parseBetween(1, 1_000_000), 20)
    .action(top);
}

function scratchOption(): Option {
  return new Option(
    "--scratch <folder>",
    "for a bucket: where the copy lies meanwhile; it needs the room of the stores",
  ).default(tmpdir());
}

async function migrate(options: Options): Promise<void> {
  await reportEach(options, await chosenSteps(options), async ({ migrate: run }) =>
    run === null ? "has nothing to prepare" : run(),
  );
}

async function movePlaces(options: Options & PlaceMove): Promise<void> {
  const steps = (await chosenSteps(options)).flatMap(({ name, migrate: run }) =>
    run === null ? [] : [{ name, run }],
  );
  if (steps.length === 0) throw failed("the stores keep their data in one place");
  await reportEach(options, [theOne(steps)], ({ run }) =>
    run({ to: options.to, places: options.places }),
  );
}

function parsePlaces(text: string): number[] {
  const places = text.split(",").flatMap((range) => {
    const [, first = "", last = first] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(range) ?? [];
    const [from, to] = [Number(first), Number(last)];
    if (first === "" || from > to || to > 1_023)
      throw new InvalidArgumentError(
        "It must be numbers of 0 to 1023 and ranges of them: 0-99,512.",
      );
    return Array.from({ length: to - from + 1 }, (_, n) => from + n);
  });
  return [...new Set(places)];
}

// ------------------------------------------------------------------------------------- maintenance

async function verify(options: Options & { readonly apart?: true }): Promise<void> {
  const stores = await maintained(options);
  if (options.apart === true) {
    const report: Verified = await theOne(stores)
      .work.verify()
      .catch((error: unknown) => ({ failure: errorText(error) }));
    print(`${JSON.stringify(report)}\n`);
    return;
  }
  const reports: (VerifyReport & { readonly name: string })[] = [];
  for (const { name } of stores) reports.push({ name, ...(await verifiedApart(options, name)) });
  const lines = reports.flatMap(({ name, records, problems, isTried }) => [
    `${name}: ${records} records, ${problems.length === 0 ? "sound" : `${problems.length} problems`}`,
    ...(isTried || problems.length > 0 ? [] : ["  not tried to write: no room for a copy"]),
    ...problems.map((problem) => `  ${problem}`),
  ]);
  createReport(options.json === true).result(reports, lines.join("\n"));
  if (reports.some(({ problems }) => problems.length > 0))
    throw failedInResult(
      "a store is damaged: restore a backup, or export what is left and import it into a new store",
    );
}

async function compact(options: Options): Promise<void> {
  await reportEach(options, await maintained(options), ({ work }) => work.compact());
}

type Verified = VerifyReport | { readonly failure: string };

/** In a process of its own, which a damaged page may end. */
async function verifiedApart({ config }: Options, store: string): Promise<VerifyReport> {
  const words = ["storage", "verify", "--apart", "--config", config, "--store", store];
  const child = Bun.spawn([...ownCommand(), ...words], { stdout: "pipe", stderr: "ignore" });
  const text = await new Response(child.stdout).text();
  const code = await child.exited;
  if (child.signalCode === null && code === 0) {
    const found = JSON.parse(text) as Verified;
    if ("failure" in found) throw failed(found.failure);
    return found;
  }
  const end = String(child.signalCode ?? `code ${code}`);
  if (endsByRequest.includes(end)) throw failed(`the check of "${store}" was stopped (${end})`);
  const problem = `reading its pages, or writing them in a copy, ended a process (${end})`;
  return { records: 0, bytes: 0, isTried: true, problems: [problem] };
}

/** Of these, a person or the system is the cause, and not the file. */
const endsByRequest = ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"];

// ----------------------------------------------------------------------------------------- records

async function exportStore(options: Options & { readonly to?: string }): Promise<void> {
  const { work } = theOne(await moved(options));
  const { to, json = false } = options;
  const skipped: string[] = [];
  // A file has its name once it is whole.
  const partial = to === undefined ? null : `${to}.partial`;
  const out =
    partial === null ? process.stdout : fs.createWriteStream(partial, { mode: 0o600, flush: true });
  const hash = new Bun.CryptoHasher("sha256");
  let records = 0;
  const writeLine = async (line: string): Promise<void> => {
    const text = `${line}\n`;
    hash.update(text);
    if (!(out === process.stdout ? print(text) : out.write(text))) await once(out, "drain");
  };
  try {
    const found = work.records((problem) => void skipped.push(problem))[Symbol.asyncIterator]();
    // A store that can't be read is refused before a word of an export.
    let next = await found.next();
    await writeLine(exportHeader);
    for (; next.done !== true; next = await found.next()) {
      records++;
      await writeLine(encodeExportLine(next.value));
    }
    await writeLine(exportEnd(records, hash.copy().digest()));
  } catch (error) {
    toFailure(error);
  }
  if (to !== undefined && partial !== null) {
    out.end();
    await finished(out);
    fs.renameSync(partial, to);
  }
  const report = createReport(json);
  for (const problem of skipped.slice(0, 20)) report.note(`left out: ${problem}`);
  const summary = `exported ${records} records${skipped.length === 0 ? "" : `, left out ${skipped.length} damaged ones`}`;
  if (to === undefined) report.note(summary);
  else report.result({ records, skipped: skipped.length }, summary);
}

/** The records of an export, of which the end proves that nothing is missing. */
async function* recordsIn(path: string): AsyncGenerator<StoreRecord> {
  const lines = createInterface({
    input: fs.createReadStream(path),
    crlfDelay: Number.POSITIVE_INFINITY,
  });
  const hash = new Bun.CryptoHasher("sha256");
  let [number, isWhole] = [0, false];
  for await (const line of lines) {
    number++;
    // Something follows the end.
    if (isWhole) {
      isWhole = false;
      break;
    }
    if (number === 1 && line !== exportHeader)
      throw failed(`${path} is not an export of this version`);
    isWhole = number > 1 && line === exportEnd(number - 2, hash.copy().digest());
    if (!isWhole && line.startsWith('{"kind":"end"')) break;
    hash.update(`${line}\n`);
    if (number === 1 || isWhole) continue;
    const record = parseRecord(line);
    if (typeof record === "string") throw failed(`${path}, line ${number}: ${record}`);
    yield record;
  }
  if (!isWhole) throw failed(`${path} is not whole: its last line does not fit the lines above`);
}

/** The whole file is read before anything is written. */
async function importStore(options: From): Promise<void> {
  const { name, work } = theOne(await moved(options));
  for await (const _ of recordsIn(options.from));
  const report = await importRecords(work, recordsIn(options.from), Date.now()).catch(toFailure);
  const { messages, claims, receipts, ledger, expired, over } = report;
  const left = Object.entries(over).filter(([, count]) => count > 0);
  const lines = [
    `imported: ${messages} messages, ${claims} claims, ${receipts} receipts and ${ledger} records of the ledger in "${name}"`,
    ...(expired === 0
      ? []
      : [
          `expired by now: ${expired} of these messages, of which only what their recipients keep is there`,
        ]),
    ...(left.length === 0
      ? []
      : [
          `left out, because their time is over: ${left.map(([kind, count]) => `${count} ${kind}`).join(", ")}`,
        ]),
  ];
  createReport(options.json === true).result(report, lines.join("\n"));
}

// ------------------------------------------------------------------------------------------- usage

type Sum = { readonly entries: number; readonly bytes: number };

async function top(options: Options & { readonly limit: number }): Promise<void> {
  const all = { entries: 0, bytes: 0 };
  const [recipients, labels] = [new Map<string, Sum>(), new Map<string, Sum>()];
  const count = (sums: Map<string, Sum>, name: string, more: number) => {
    const { entries, bytes } = sums.get(name) ?? { entries: 0, bytes: 0 };
    sums.set(name, { entries: entries + 1, bytes: bytes + more });
  };
  const nowMs = Date.now();
  try {
    for (const { work } of await moved(options))
      for await (const record of work.records(() => {})) {
        if (
          record.kind !== "message" ||
          record.state !== "active" ||
          record.entry.expiresAtMs <= nowMs
        )
          continue;
        const { recipient, envelope, labels: names } = record.entry;
        all.entries++;
        all.bytes += envelope.length;
        count(recipients, recipient, envelope.length);
        for (const name of names) count(labels, name, envelope.length);
      }
  } catch (error) {
    toFailure(error);
  }
  const most = (sums: ReadonlyMap<string, Sum>) =>
    [...sums]
      .map(([name, sum]) => ({ name, ...sum }))
      .sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1))
      .slice(0, options.limit);
  const found = {
    ...all,
    recipients: most(recipients),
    labels: await named(most(labels), options),
  };
  const table = (title: "recipients" | "labels") => {
    const lines = found[title].map(
      ({ name, entries, bytes, ...of }) =>
        `  ${String(entries).padStart(9)} ${String(bytes).padStart(14)}  ${name}${"network" in of ? `  ${of.network}` : ""}`,
    );
    return lines.length === 0 ? [] : ["", title, ...lines];
  };
  const text = [
    `${all.entries} entries, ${all.bytes} bytes`,
    ...table("recipients"),
    ...table("labels"),
  ].join("\n");
  createReport(options.json === true).result(found, text);
}

/**
 * With the client network behind a label where the running node knows it: the
 * store keeps only a digest.
 */
async function named<T extends { readonly name: string }>(labels: T[], { config }: Options) {
  const asked = askNode({ config }, "/operations/networks", {
    labels: labels.map(({ name }) => name),
  });
  const { networks } = await asked.catch(() => ({ networks: {} }));
  const known = networks as Readonly<Record<string, string>>;
  return labels.map((label) =>
    label.name in known ? { ...label, network: known[label.name] as string } : label,
  );
}
