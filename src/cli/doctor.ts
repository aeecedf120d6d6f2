/**
 * `waypost doctor`: what `config check` checks, and then whether this machine can run the configuration, as a list of
 * findings. Beside a running node it asks that node instead of opening its stores and addresses; over the network it asks
 * the Directory where recipients are looked up, and the public endpoints as others see them.
 */
import { lookup } from "node:dns/promises";
import { accessSync, constants, existsSync, readFileSync, statfsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname } from "node:path";
import type { Command } from "commander";
import { failed, failedInResult } from "../app/failure.ts";
import { rolesOf } from "../app/serving.ts";
import { storesOf } from "../app/stores.ts";
import { type Config, isPublicEndpoint } from "../config/schema.ts";
import { minuteMs } from "../core/codec/time.ts";
import { errorText } from "../core/fault.ts";
import { parseListenAddress } from "../core/message/address.ts";
import { sameEndpoint } from "../core/message/proof.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import type { OpenStep } from "../storage/bind.ts";
import { StoreError } from "../storage/contract.ts";
import { version } from "../version.ts";
import { askJson, createReport, type JsonReply, probeTimeoutMs, renderBytes } from "./command.ts";
import { checkEnvironment, defaultConfigFile, foldersOf, nearestFolder, readConfig, warningsOf } from "./config.ts";

/** A warning may be intended, or can't be checked while no node runs. */
type Finding = {
  readonly name: string;
  readonly ok: boolean;
  readonly warning?: boolean;
  readonly detail: string;
};

export function registerDoctorCommand(program: Command): void {
  program
    .command("doctor")
    .description("check machine, configuration, stores, addresses and public endpoints without serving")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print the findings as JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const config = await readConfig(options.config, { toServe: true });
      const findings = await examine(config, options.config);
      const labelOf = ({ ok, warning }: Finding) => (ok ? (warning ? "warn" : "ok  ") : "FAIL");
      const lines = findings.map((one) => `${labelOf(one)}  ${one.name}: ${one.detail}`);
      createReport(options.json === true).result(findings, lines.join("\n"));
      if (findings.some(({ ok }) => !ok)) throw failedInResult("some checks failed");
    });
}

async function examine(config: Config, file: string): Promise<Finding[]> {
  const running = await runningNode(config);
  const program = `waypost ${version}, Bun ${Bun.version}, ${process.platform}-${process.arch}`;
  const here = await Promise.all([
    { name: "program", ok: true, detail: program },
    { name: "configuration", ok: true, detail: `${file}, with its certificate and keys` },
    ...warningsOf(config, file).map(({ setting, message: detail }) => {
      return { name: `setting ${setting}`, ok: true, warning: true, detail };
    }),
    check("open files", () => openFiles(config)),
    check("environment", environment),
    ...foldersOf(config).map(([store, , folder]) => check(`disk of store ${store}`, () => disk(folder))),
    ...(running === null
      ? [
          ...addresses(config),
          ...(await storesOf(config)).map((step) => check(`store ${step.name}`, () => store(step))),
        ]
      : [check("running node", () => readiness(running))]),
  ]);
  const { recipients } = config.server;
  // Afterwards: until then, the check of an address listens there.
  const elsewhere = await Promise.all([
    ...(isPublicEndpoint(recipients) ? [check(`directory ${recipients}`, () => directory(recipients))] : []),
    ...publicEndpoints(config, running !== null),
  ]);
  return [...here, ...elsewhere];
}

/** What the work returns is the detail; what it throws is why the check fails. */
async function check(name: string, work: () => string | Promise<string>): Promise<Finding> {
  try {
    return { name, ok: true, detail: await work() };
  } catch (error) {
    // The innermost reason of a store: the finding already names it.
    const reason = error instanceof StoreError && error.cause instanceof StoreError ? error.cause : error;
    return { name, ok: false, detail: errorText(reason) };
  }
}

// ------------------------------------------------------------------------------------------------- the machine

function environment(): string {
  const unused = checkEnvironment({ ...process.env }).map(({ message }) => message);
  return unused.join("; ") || "nothing weakens outbound requests";
}

/** Each connection is an open file; below this many the node refuses clients early. */
const openFilesMin = 4_096;

function openFiles({ relay }: Config): string {
  const limits = existsSync("/proc/self/limits") ? readFileSync("/proc/self/limits", "utf8") : "";
  const most = /^Max open files\s+(\d+|unlimited)/m.exec(limits)?.[1];
  if (most === undefined) return "this system does not say";
  const needed = Math.max(openFilesMin, relay.enabled ? relay.sessions_max + 1_024 : 0);
  if (most === "unlimited" || Number(most) >= needed) return `at most ${most}`;
  throw failed(`at most ${most}; set LimitNOFILE=${needed} or more`);
}

const freeBytesMin = 2 ** 30;

function disk(folder: string): string {
  const at = nearestFolder(folder);
  if (!statSync(at).isDirectory()) throw failed(`${at} is a file, not a folder`);
  accessSync(at, constants.R_OK | constants.W_OK | constants.X_OK);
  const { bavail, bsize } = statfsSync(at);
  const detail = `${renderBytes(bavail * bsize)} free for ${folder}`;
  if (bavail * bsize >= freeBytesMin) return detail;
  throw failed(`${detail}: less than ${renderBytes(freeBytesMin)}`);
}

function addresses({ server }: Config): Promise<Finding>[] {
  return [...server.listen, ...server.admin_listen].map((address) =>
    check(`address ${address}`, () => canListen(address)),
  );
}

function canListen(address: string): Promise<string> {
  const place = parseListenAddress(address);
  if (place === null) return Promise.resolve("free");
  if ("unix" in place) {
    const folder = dirname(place.unix);
    if (!existsSync(folder)) throw failed(`there is no folder ${folder}: install -d -m 700 -o waypost ${folder}`);
    accessSync(folder, constants.W_OK);
    return Promise.resolve("free");
  }
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(place.port, place.hostname, () => server.close(() => resolve("free")));
  });
}

/** A missing store is not a failure. The check does not create it: it would belong to the user who runs the check. */
async function store({ absence, open }: OpenStep): Promise<string> {
  const reason = absence();
  if (reason !== null) return `${reason}; a node creates it at its start`;
  const store = await open({ now: Date.now, log: () => undefined, fatal: () => undefined });
  try {
    await store.probe();
    // Block times only grow, so nothing can be registered until the clock has passed the last one.
    const { timeMs } = (await store.capabilities.ledger?.head())?.finalized ?? { timeMs: 0 };
    if (timeMs <= Date.now() + minuteMs) return `${store.plugin}, offers ${Object.keys(store.capabilities).join(", ")}`;
    const time = new Date(timeMs).toISOString();
    throw failed(`the ledger's last block has the time ${time}, which is ahead of this machine's clock`);
  } finally {
    await store.close();
  }
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

/** Of the running node, which holds the addresses and the stores. */
async function readiness({ url, unix }: RunningNode): Promise<string> {
  const reply = await askJson(url, "/readyz", { unix, isOwn: true });
  const at = unix ?? url;
  if (typeof reply === "string") throw failed(`${at}: ${reply}`);
  if (reply.status === 200) return `${at} is ready; its stores were not opened`;
  throw failed(`${at}: ${String(reply.json["detail"] ?? "not ready")}`);
}

// ------------------------------------------------------------------------------------------------- elsewhere

const skewMsMax = 30_000;

/** Where recipients are looked up. */
async function directory(url: string): Promise<string> {
  const reply = await askJson(url, "/readyz");
  if (typeof reply === "string") throw failed(reply);
  if (reply.status !== 200) throw failed(`answers ${reply.status}: it is not ready`);
  const skewMs = reply.dateMs === null ? 0 : Date.now() - reply.dateMs;
  if (Math.abs(skewMs) <= skewMsMax) return "is ready, and the clocks agree";
  throw failed(`its clock and this one differ by ${Math.round(skewMs / 1_000)} s`);
}

/**
 * Each public endpoint as this machine reaches it: its name resolves, its certificate holds, and a node
 * with the published role answers there and names the same endpoint. While no node runs, a failure is only a
 * warning: nothing can answer yet.
 */
function publicEndpoints(config: Config, isRunning: boolean): Promise<Finding>[] {
  return (["relay", "cache"] as const).flatMap((role) =>
    (config[role].enabled ? config[role].public_endpoints : []).map(async (endpoint) => {
      const finding = await check(`public endpoint ${endpoint} (${role})`, () => publicEndpoint(endpoint, role));
      return finding.ok || isRunning ? finding : { ...finding, ok: true, warning: true };
    }),
  );
}

async function publicEndpoint(endpoint: string, role: "relay" | "cache"): Promise<string> {
  const { hostname } = new URL(endpoint);
  const isNamed = lookup(hostname.replace(/^\[|\]$/g, "")).then(
    () => true,
    () => false,
  );
  // The system's resolver asks silent servers again for most of a minute.
  const found = await withDeadline(isNamed, probeTimeoutMs);
  if (found === late) throw failed(`DNS does not answer for ${hostname}`);
  if (!found) throw failed(`${hostname} has no address: publish it in DNS`);
  const reply = await askJson(endpoint, "/node");
  if (typeof reply === "string") throw failed(reply);
  if (reply.status === 404) throw failed("answers, but not as this version");
  const { roles, [`${role}_endpoints`]: own } = reply.json;
  if (!Array.isArray(roles) || !roles.includes(role)) throw failed(`no ${role} answers there`);
  const named = Array.isArray(own) ? own.map(String) : [];
  if (named.some((one) => sameEndpoint(one, endpoint))) return "answers under this address";
  throw failed(
    `the ${role} there ${named.length === 0 ? "has no public endpoint" : `calls itself ${named.join(", ")}`}`,
  );
}
