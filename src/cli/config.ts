/**
 * `waypost config`: checks a configuration file, shows its effective values, prints the reference
 * and the JSON Schema. Every command that needs a configuration reads it here.
 */
import { existsSync, readFileSync, statfsSync, statSync } from "node:fs";
import { totalmem } from "node:os";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import { loadCertificate } from "../app/certificate.ts";
import { failed, failedInResult } from "../app/failure.ts";
import { readText } from "../app/files.ts";
import { keyProblems, keyWarnings } from "../app/keys.ts";
import { checkBus, checkStores } from "../app/stores.ts";
import { configWarnings } from "../config/checks.ts";
import { type ConfigProblem, parseConfig } from "../config/config.ts";
import { renderEffective, renderJsonSchema, renderReference } from "../config/reference.ts";
import type { Config } from "../config/schema.ts";
import { parseSource, secretSettings } from "../config/source.ts";
import { errorText } from "../core/fault.ts";
import { natsOptions } from "../plugins/bus/nats.ts";
import { optionSchemas } from "../plugins/load.ts";
import type { InputProblem } from "../storage/setting-problem.ts";
import { countOf, createReport, defaultConfigFile } from "./command.ts";

export function registerConfigCommand(program: Command): void {
  const config = program
    .command("config")
    .description("check a configuration file or show its effective values");
  const ofFile = (name: string, description: string): Command =>
    config
      .command(name)
      .description(description)
      .option("-c, --config <file>", "configuration file", defaultConfigFile);
  ofFile("check", "report every problem and every warning of a configuration file")
    .option("--json", "print problems and warnings as JSON")
    .action(checkConfigFile);
  ofFile("show", "print every setting with its effective value").action(
    async ({ config: file }: { config: string }) =>
      console.log(renderEffective(await readConfig(file))),
  );
  config
    .command("reference")
    .description("print every setting with its default and meaning, in Markdown")
    .action(() => console.log(renderReference()));
  config
    .command("schema")
    .description("print the JSON Schema of the configuration file, for editors")
    .action(() => console.log(renderSchema()));
}

/** For editors: `init` writes it next to the configuration, whose first line names it. */
export function renderSchema(): string {
  return renderJsonSchema({ stores: optionSchemas, bus: { nats: natsOptions } });
}

async function checkConfigFile({
  config: file,
  json = false,
}: {
  readonly config: string;
  readonly json?: boolean;
}) {
  const { config, problems } = await examineConfig(file, { toServe: true });
  if (!json && problems.length > 0) throw problemReport(file, problems);
  const warnings = config === null || problems.length > 0 ? [] : warningsOf(config, file);
  const result = { ok: problems.length === 0, file, problems, warnings };
  if (!json)
    for (const { setting, message } of warnings) console.error(`warning: ${setting}: ${message}`);
  createReport(json).result(result, `${file}: no problems`);
  if (problems.length > 0) throw failedInResult("the configuration has problems");
}

/**
 * `toServe` checks certificate and signing key as well, which only a process that listens needs.
 */
export type ReadOptions = { readonly toServe?: boolean };

/** Reads a file and the overrides of the environment; throws a failure that lists every problem. */
export async function readConfig(file: string, options: ReadOptions = {}): Promise<Config> {
  const { config, problems } = await examineConfig(file, options);
  if (config === null || problems.length > 0) throw problemReport(file, problems);
  return config;
}

type Examined = { readonly config: Config | null; readonly problems: readonly ConfigProblem[] };

async function examineConfig(file: string, { toServe = false }: ReadOptions): Promise<Examined> {
  const surroundings = { env: process.env, readFile: (path: string) => readFileSync(path, "utf8") };
  const result = parseConfig(await readTextOf(file), surroundings);
  if (!result.ok) return { config: null, problems: result.problems };
  const { config, placeOf } = result;
  const ofStores = [...(await checkStores(config)), ...checkBus(config)];
  const problems = [...ofStores, ...(toServe ? await fileProblems(config) : [])];
  return {
    config,
    problems: problems.map((problem) => ({ ...problem, place: placeOf(problem.setting) })),
  };
}

/** Of the certificate and the key files. */
async function fileProblems(config: Config): Promise<InputProblem[]> {
  const loaded = loadCertificate(config, Date.now());
  return [...(loaded === null || "cert" in loaded ? [] : [loaded]), ...(await keyProblems(config))];
}

async function readTextOf(file: string): Promise<string> {
  const text = await readText(file).catch((error: unknown) => {
    throw failed(`${file} can't be read: ${errorText(error)}`);
  });
  if (text === null) throw failed(`${file}: there is no such file`);
  return text;
}

function problemReport(file: string, problems: readonly ConfigProblem[]) {
  // In the form of compilers, which terminals and editors turn into links.
  const lines = problems.map(({ setting, message, place }) => {
    const where = place === null ? file : `${file}:${place.line}:${place.column}`;
    return `  ${where}: ${setting}: ${message}`;
  });
  return failed([`${file}: ${countOf(problems.length, "problem")}`, ...lines].join("\n"));
}

/** Of settings, of files that others may read, and of what the machine has not. */
export function warningsOf(config: Config, file: string): InputProblem[] {
  return [
    ...configWarnings(config),
    ...keyWarnings(config),
    ...secretWarnings(file),
    ...secretFileWarnings(file),
    ...machineWarnings(config),
  ];
}

function* secretWarnings(file: string): Generator<InputProblem> {
  if (
    !/^\s*(password|token)\s*=/m.test(readFileSync(file, "utf8")) ||
    (statSync(file).mode & 0o004) === 0
  )
    return;
  const message = `it holds a secret, and every user may read it; run: chmod o-r ${file}, or name a file of its own`;
  yield { setting: "(file)", message };
}

/** Files of passwords and tokens that the options of stores and of the bus name. */
function* secretFileWarnings(file: string): Generator<InputProblem> {
  const parsed = parseSource(readFileSync(file, "utf8"));
  if (!parsed.ok) return;
  const { stores, bus } = parsed.source.input;
  const tables = [
    ...Object.entries(stores ?? {}).map(([name, table]) => [`stores.${name}`, table] as const),
    ["bus", bus ?? {}] as const,
  ];
  for (const [section, table] of tables)
    for (const [option, path] of Object.entries(table as object)) {
      const isSecret = secretSettings.some((name) => option === `${name}_file`);
      if (!(isSecret || /^(tls_key|credentials)_file$/.test(option)) || typeof path !== "string")
        continue;
      const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
      if ((mode & 0o004) === 0) continue;
      const message = `every user may read ${path}; run: chmod o-r ${path}`;
      yield { setting: `${section}.${option}`, message };
    }
}

function* machineWarnings(config: Config): Generator<InputProblem> {
  const { cache, server } = config;
  for (const [store, option, folder] of foldersOf(config)) {
    const { blocks, bsize, type } = statfsSync(nearestFolder(folder));
    const setting = `stores.${store}.${option}`;
    if (memoryFileSystems.includes(type))
      yield {
        setting,
        message: `${folder} is on a file system in memory: everything is lost when the machine stops`,
      };
    if (networkFileSystems.includes(type))
      yield { setting, message: `${folder} is on another machine: a store needs a local disk` };
    if (
      cache.enabled &&
      cache.store === store &&
      option === "path" &&
      cache.store_bytes_max > blocks * bsize
    )
      yield {
        setting: "cache.store_bytes_max",
        message: `is larger than the file system of ${folder}`,
      };
  }
  const message = `is more than half of the memory of this machine (${Math.floor(totalmem() / 2 ** 20)} MiB)`;
  if (server.body_bytes_in_flight > totalmem() / 2)
    yield { setting: "server.body_bytes_in_flight", message };
}

/** Numbers of statfs(2) on Linux: tmpfs and ramfs; NFS, CIFS and SMB. */
const memoryFileSystems = [0x01021994, 0x858458f6];
const networkFileSystems = [0x6969, 0xff534d42, 0xfe534d42];

/** Every store option that is called `path` or `outbox` names a folder on a disk. */
export function foldersOf({
  stores,
}: Config): (readonly [store: string, option: string, folder: string])[] {
  return Object.entries(stores).flatMap(([name, options]) =>
    ["path", "outbox"].flatMap((option) => {
      const folder = options[option];
      return typeof folder === "string" ? [[name, option, resolve(folder)] as const] : [];
    }),
  );
}

/** The folder, or the nearest existing one above it. */
export function nearestFolder(folder: string): string {
  return existsSync(folder) || dirname(folder) === folder ? folder : nearestFolder(dirname(folder));
}

/** Outbound requests check certificates. */
export function checkEnvironment(env: Record<string, string | undefined>): void {
  if (env["NODE_TLS_REJECT_UNAUTHORIZED"] === "0")
    throw failed("NODE_TLS_REJECT_UNAUTHORIZED=0 switches certificate checks off; unset it");
}
