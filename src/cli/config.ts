/**
 * `waypost config` and `waypost doctor`: whether a configuration is right, and whether this machine can run it. `config`
 * checks a file, shows its effective values, prints the reference and the JSON Schema. `doctor` prints a list of
 * findings: beside a running node it asks that node instead of opening its stores and addresses, and over the network it
 * asks the Directory where recipients are looked up, and the public endpoints as others see them.
 */

import { lookup } from "node:dns/promises";
import { accessSync, constants, existsSync, readFileSync, statfsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import { exposedText, isExposed, loadCertificate, openEventKey } from "../app/credentials.ts";
import { failed, failedInResult } from "../app/failure.ts";
import { rolesOf } from "../app/serving.ts";
import { checkBus, checkStores, storesOf } from "../app/stores.ts";
import { type ConfigProblem, parseConfig } from "../config/config.ts";
import { renderEffective, renderJsonSchema, renderReference } from "../config/reference.ts";
import { configWarnings, isReported } from "../config/relations.ts";
import type { Config } from "../config/schema.ts";
import { minuteMs } from "../core/codec/time.ts";
import { errorText } from "../core/fault.ts";
import { parseListenAddress } from "../core/message/address.ts";
import { checkOutboundEnvironment } from "../nodes/relay/egress.ts";
import type { OpenStep } from "../storage/bind.ts";
import { type InputProblem, type Store, StoreError } from "../storage/contract.ts";
import { version } from "../version.ts";
import { askJson, checkEndpoint, countOf, createReport, type JsonReply, renderBytes } from "./command.ts";
import { readText } from "./files/files.ts";

export const defaultConfigFile = "waypost.toml";

export function registerConfigCommands(program: Command): void {
  registerConfig(program);
  registerDoctor(program);
}

function registerConfig(program: Command): void {
  const config = program.command("config").description("check a configuration file or show its effective values");
  config
    .command("check")
    .description("report every problem and every warning of a configuration file")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .action(async (options: { config: string }) => {
      const { config, retired } = await readConfigFile(options.config, { toServe: true });
      const warnings = warningsOf(config, retired);
      for (const { setting, message } of warnings) console.error(`warning: ${setting}: ${message}`);
      console.log(`${options.config}: no problems`);
    });
  config
    .command("show")
    .description("print every setting with its effective value")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .action(async (options: { config: string }) => {
      console.log(renderEffective(await readConfig(options.config)));
    });
  config
    .command("reference")
    .description("print every setting with its default and meaning, in Markdown")
    .action(() => {
      console.log(renderReference());
    });
  config
    .command("schema")
    .description("print the JSON Schema of the configuration file, for editors")
    .action(() => {
      console.log(renderJsonSchema());
    });
}

/** `toServe` checks the certificate as well, which only a process that listens needs. */
type ReadOptions = { readonly toServe?: boolean };

export async function readConfig(file: string, options: ReadOptions = {}): Promise<Config> {
  return (await readConfigFile(file, options)).config;
}

type ReadConfig = {
  readonly config: Config;
  /** Settings of earlier versions, with what counts in their place. */
  readonly retired: readonly InputProblem[];
};

/** Reads a file and the overrides of the environment; throws a failure that lists every problem. */
export async function readConfigFile(file: string, { toServe = false }: ReadOptions = {}): Promise<ReadConfig> {
  const surroundings = { env: process.env, readFile: (path: string) => readFileSync(path, "utf8") };
  const result = parseConfig(await readTextOf(file), surroundings);
  const reported = result.ok ? [] : result.problems;
  const config = result.ok ? result.config : result.rest;
  const ofStores = config === null ? [] : await checkStores(config);
  const ofBus = config === null ? [] : checkBus(config);
  const ofCertificate = config === null || !toServe ? [] : certificateProblems(config);
  const further = [...ofStores, ...ofBus, ...ofCertificate]
    .filter(({ setting }) => !isReported(setting, reported))
    .map((problem) => ({ ...problem, place: result.placeOf(problem.setting) }));
  const problems = [...reported, ...further];
  if (config === null || problems.length > 0) throw problemReport(file, problems);
  return { config, retired: result.ok ? result.retired : [] };
}

function certificateProblems(config: Config): InputProblem[] {
  const loaded = loadCertificate(config, Date.now());
  return loaded === null || loaded.ok ? [] : [loaded.problem];
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

/** Warnings about retired settings, settings that are probably a mistake, the certificate, and quotas above the disk. */
export function warningsOf(config: Config, retired: readonly InputProblem[]): InputProblem[] {
  const loaded = loadCertificate(config, Date.now());
  const ofCertificate = loaded?.ok === true ? loaded.certificate.warnings : [];
  return [...retired, ...configWarnings(config), ...ofCertificate, ...diskWarnings(config)];
}

function diskWarnings({ cache, stores }: Config): InputProblem[] {
  const path = stores[cache.store]?.["path"];
  if (!cache.enabled || typeof path !== "string") return [];
  const { blocks, bsize } = statfsSync(nearest(resolve(path)));
  if (cache.store_bytes_max <= blocks * bsize) return [];
  const message = `is larger than the file system of ${path} (${Math.floor((blocks * bsize) / 2 ** 30)} GiB)`;
  return [{ setting: "cache.store_bytes_max", message }];
}

// ------------------------------------------------------------------------------------------------------ waypost doctor

/** A warning may be intended, or can't be checked while no node runs. */
type Finding = {
  readonly name: string;
  readonly ok: boolean;
  readonly warning?: true;
  /** The problem as a code, for programs. */
  readonly code?: string;
  readonly detail: string;
};

const freeBytesMin = 2 ** 30;

function registerDoctor(program: Command): void {
  program
    .command("doctor")
    .description("check machine, configuration, stores, addresses and public endpoints without serving")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print the findings as JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const { config, retired } = await readConfigFile(options.config);
      const running = await runningNode(config);
      const program = `waypost ${version}, Bun ${Bun.version}, ${process.platform}-${process.arch}`;
      const findings: Finding[] = [
        { name: "program", ok: true, detail: program },
        { name: "configuration", ok: true, detail: options.config },
        ...settingWarnings(config, retired),
        clock(),
        openFiles(config),
        environment(config),
        ...disks(config),
        ...(running === null
          ? [...(await addresses(config)), ...(await stores(config))]
          : await findingsOfNode(running)),
        ...certificate(config),
        ...(await signingKey(config)),
        ...operatorKeys(config),
        ...(await directories(config)),
        ...(await publicEndpoints(config, running !== null)),
      ];
      const lines = findings.map(
        (one) => `${one.ok ? (one.warning === true ? "warn" : "ok  ") : "FAIL"}  ${one.name}: ${one.detail}`,
      );
      createReport(options.json === true).result(findings, lines.join("\n"));
      if (findings.some((finding) => !finding.ok)) throw failedInResult("some checks failed");
    });
}

function settingWarnings(config: Config, retired: readonly InputProblem[]): Finding[] {
  return warningsOf(config, retired).map(({ setting, message: detail }) => ({
    name: `setting ${setting}`,
    ok: true,
    warning: true,
    detail,
  }));
}

/** With a clock far in the past, every proof is too old. A small skew shows only in a comparison with a Directory. */
function clock(): Finding {
  const nowMs = Date.now();
  const ok = nowMs > Date.UTC(2026, 0);
  return {
    name: "clock",
    ok,
    detail: `${new Date(nowMs).toISOString()}${ok ? "" : ": before this program was built"}`,
  };
}

/** Each connection is an open file; below this many the node refuses clients early. */
const openFilesMin = 4_096;

function openFiles({ relay }: Config): Finding {
  const name = "open files";
  const limits = readLimits();
  if (limits === null) return { name, ok: true, detail: "this system does not say" };
  const needed = Math.max(openFilesMin, relay.enabled ? relay.sessions_max + 1_024 : 0);
  const ok = limits >= needed;
  return { name, ok, detail: ok ? `at most ${limits}` : `at most ${limits}; set LimitNOFILE=${needed} or more` };
}

/** The soft limit of open files; `null` where the system does not say. */
function readLimits(): number | null {
  try {
    const line = /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync("/proc/self/limits", "utf8"));
    if (line === null) return null;
    return line[1] === "unlimited" ? Number.MAX_SAFE_INTEGER : Number(line[1]);
  } catch {
    return null;
  }
}

/** Outbound requests go straight to checked addresses; proxy variables are removed from `env`. */
export function environmentProblems({ relay }: Config, env: Record<string, string | undefined>): string[] {
  return checkOutboundEnvironment(env, { allowProxyVariables: !relay.enabled || relay.ignore_proxy_variables });
}

function environment(config: Config): Finding {
  const problems = environmentProblems(config, { ...process.env }).join("; ");
  return { name: "environment", ok: problems === "", detail: problems || "nothing weakens outbound requests" };
}

/** Every store option that is called `path` or `outbox` names a folder on a disk. */
function disks(config: Config): Finding[] {
  const folders = Object.entries(config.stores).flatMap(([name, options]) =>
    ["path", "outbox"].flatMap((option) =>
      typeof options[option] === "string" ? [[name, resolve(options[option])] as const] : [],
    ),
  );
  return folders.map(([name, folder]) => ({ name: `disk of store ${name}`, ...disk(folder) }));
}

function disk(folder: string): Omit<Finding, "name"> {
  try {
    const at = nearest(folder);
    if (!statSync(at).isDirectory()) return { ok: false, detail: `${at} is a file, not a folder` };
    accessSync(at, constants.R_OK | constants.W_OK | constants.X_OK);
    const { bavail, bsize } = statfsSync(at);
    const ok = bavail * bsize >= freeBytesMin;
    const detail = `${renderBytes(bavail * bsize)} free for ${folder}`;
    return { ok, detail: ok ? detail : `${detail}: less than ${renderBytes(freeBytesMin)}` };
  } catch (error) {
    return { ok: false, detail: reasonOf(error) };
  }
}

/** The folder, or the nearest existing one above it. */
function nearest(folder: string): string {
  return existsSync(folder) || dirname(folder) === folder ? folder : nearest(dirname(folder));
}

function addresses(config: Config): Promise<Finding[]> {
  const { listen, admin_listen, share_port } = config.server;
  return Promise.all(
    [...listen, ...admin_listen].map(async (address) => {
      if (share_port && listen.includes(address))
        return { name: `address ${address}`, ok: true, detail: "shared with other processes, so not tried" };
      const problem = await canListen(address);
      return { name: `address ${address}`, ok: problem === null, detail: problem ?? "free" };
    }),
  );
}

function canListen(address: string): Promise<string | null> {
  const place = parseListenAddress(address);
  if (place === null || "unix" in place) return Promise.resolve(null);
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error) => resolve(error.message));
    server.listen(place.port, place.hostname, () => server.close(() => resolve(null)));
  });
}

function certificate(config: Config): Finding[] {
  const loaded = loadCertificate(config, Date.now());
  if (loaded === null) return [];
  const name = "certificate";
  if (!loaded.ok) return [{ name, ok: false, code: loaded.problem.code, detail: loaded.problem.message }];
  const detail = `${config.server.tls_cert_file} is valid until ${new Date(loaded.certificate.notAfterMs).toISOString()}`;
  return [{ name, ok: true, detail }];
}

async function signingKey({ cache }: Config): Promise<Finding[]> {
  const file = cache.signing_key_file;
  if (!cache.enabled || file === null) return [];
  const name = "signing key";
  try {
    await openEventKey(file, () => undefined);
    return [isExposed(file) ? { name, ok: false, detail: exposedText(file) } : { name, ok: true, detail: file }];
  } catch (error) {
    return [{ name, ok: false, detail: reasonOf(error) }];
  }
}

/** A missing store is not a failure. The check does not create it: it would belong to the user who runs the check. */
async function stores(config: Config): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const step of await storesOf(config)) {
    const absence = step.absence();
    findings.push({
      name: `store ${step.name}`,
      ...(absence === null ? await openOnce(step) : { ok: true, detail: `${absence}; a node creates it at its start` }),
    });
  }
  return findings;
}

async function openOnce({ open }: OpenStep): Promise<Omit<Finding, "name">> {
  try {
    const store = await open({ now: Date.now, log: () => undefined, fatal: () => undefined });
    try {
      await store.probe();
      const ahead = await ledgerAhead(store);
      if (ahead !== null) return { ok: false, detail: ahead };
      return { ok: true, detail: `${store.plugin}, offers ${Object.keys(store.capabilities).join(", ")}` };
    } finally {
      await store.close();
    }
  } catch (error) {
    return { ok: false, detail: reasonOf(error) };
  }
}

/** Block times only grow, so nothing can be registered until the clock has passed the last one. */
async function ledgerAhead({ capabilities }: Store): Promise<string | null> {
  const head = (await capabilities.ledger?.head())?.finalized;
  if (head === undefined || head.timeMs <= Date.now() + minuteMs) return null;
  return `the ledger's last block has the time ${new Date(head.timeMs).toISOString()}, which is ahead of this machine's clock`;
}

/** The innermost reason: the finding already names the store. */
function reasonOf(error: unknown): string {
  if (error instanceof StoreError && error.cause instanceof StoreError) return error.cause.message;
  return errorText(error);
}

// ------------------------------------------------------------------------------------------ a running node

type RunningNode = { readonly url: string; readonly unix: string | undefined };

/** The first public listener where a node with this configuration answers; `null` when none runs. */
async function runningNode(config: Config): Promise<RunningNode | null> {
  const scheme = config.server.tls_cert_file === null ? "http" : "https";
  for (const address of config.server.listen) {
    const place = parseListenAddress(address);
    if (place === null) continue;
    const unix = "unix" in place ? place.unix : undefined;
    const url = "unix" in place ? "http://localhost" : `${scheme}://${hostOf(place.hostname)}:${place.port}`;
    const reply = await askJson(url, "/node", { unix, isOwn: true });
    if (typeof reply !== "string" && isNodeOf(config, reply.json)) return { url, unix };
  }
  return null;
}

/** Whether roles and endpoints are those of the configuration: another node may use the address. */
function isNodeOf(config: Config, about: JsonReply["json"]): boolean {
  const endpoints = [config.relay, config.cache].map((node) => (node.enabled ? node.public_endpoints : []));
  const named = [about["roles"], about["relay_endpoints"], about["cache_endpoints"]];
  return JSON.stringify(named) === JSON.stringify([rolesOf(config), ...endpoints]);
}

/** Where a wildcard address is reached from this machine. */
function hostOf(hostname: string): string {
  if (hostname === "0.0.0.0") return "127.0.0.1";
  if (hostname === "::") return "[::1]";
  return hostname.includes(":") ? `[${hostname}]` : hostname;
}

/** Readiness of the running node, which holds the addresses and the stores. */
async function findingsOfNode({ url, unix }: RunningNode): Promise<Finding[]> {
  const ready = await askJson(url, "/readyz", { unix, isOwn: true });
  const name = "running node";
  if (typeof ready === "string") return [{ name, ok: false, detail: `${unix ?? url}: ${ready}` }];
  if (ready.status === 200) return [{ name, ok: true, detail: `${unix ?? url} is ready; its stores were not opened` }];
  return [{ name, ok: false, detail: `${unix ?? url}: ${String(ready.json["detail"] ?? "not ready")}` }];
}

// ------------------------------------------------------------------------------- sources and chain operators

const skewMsMax = 30_000;

/** The Directories where recipients are looked up: whether they answer, and whether the clocks agree. */
async function directories(config: Config): Promise<Finding[]> {
  const urls = (["relay", "cache"] as const)
    .filter((node) => config[node].enabled)
    .map((node) => config[node].recipients)
    .filter((recipients) => URL.canParse(recipients) && /^https?:/.test(recipients));
  return Promise.all([...new Set(urls)].map(directoryFinding));
}

async function directoryFinding(url: string): Promise<Finding> {
  const name = `directory ${url}`;
  const reply = await askJson(url, "/readyz");
  if (typeof reply === "string") return { name, ok: false, detail: reply };
  if (reply.status !== 200) return { name, ok: false, detail: `answers ${reply.status}: it is not ready` };
  const skewMs = reply.dateMs === null ? 0 : Date.now() - reply.dateMs;
  if (Math.abs(skewMs) > skewMsMax)
    return { name, ok: false, detail: `its clock and this one differ by ${Math.round(skewMs / 1_000)} s` };
  return { name, ok: true, detail: "is ready, and the clocks agree" };
}

/** Each file with the key of a chain operator must exist, and only its owner may read it. */
function operatorKeys({ stores }: Config): Finding[] {
  return Object.entries(stores).flatMap(([store, options]) => {
    const file = options["operator_key_file"];
    return typeof file === "string" ? [{ name: `operator key of store ${store}`, ...keyFileFinding(file) }] : [];
  });
}

function keyFileFinding(file: string): Omit<Finding, "name"> {
  try {
    if (readFileSync(file, "utf8").trim() === "") return { ok: false, detail: `${file} is empty` };
    if (isExposed(file)) return { ok: false, detail: `other users may read ${file}; run: chmod 600 ${file}` };
    return { ok: true, detail: file };
  } catch (error) {
    return { ok: false, detail: errorText(error) };
  }
}

// ------------------------------------------------------------------------------------------ public endpoints

/**
 * Each public endpoint as this machine reaches it: its name resolves, its certificate holds, and a node
 * with the published role answers there and names the same endpoint. While no node runs, a failure is only a
 * warning: nothing can answer yet.
 */
async function publicEndpoints(config: Config, isRunning: boolean): Promise<Finding[]> {
  const published = (["relay", "cache"] as const).flatMap((role) =>
    config[role].enabled ? config[role].public_endpoints.map((endpoint) => ({ role, endpoint })) : [],
  );
  const findings = await Promise.all(published.map(endpointFinding));
  return findings.map((finding) => (finding.ok || isRunning ? finding : { ...finding, ok: true, warning: true }));
}

async function endpointFinding(published: { role: "relay" | "cache"; endpoint: string }): Promise<Finding> {
  const { role, endpoint } = published;
  const name = `public endpoint ${endpoint} (${role})`;
  const { hostname } = new URL(endpoint);
  try {
    await lookup(hostname.replace(/^\[|\]$/g, ""));
  } catch {
    return { name, ok: false, detail: `${hostname} has no address: publish it in DNS` };
  }
  const check = await checkEndpoint(endpoint, role);
  if (check.state === "ok") return { name, ok: true, detail: "answers under this address" };
  return { name, ok: false, detail: check.state === "unknown" ? "answers, but not as this version" : check.reason };
}
