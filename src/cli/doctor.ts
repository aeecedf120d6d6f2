/**
 * `waypost doctor`: whether this machine can run a configuration, as a list of findings. Beside a running node it asks that
 * node instead of opening its stores and addresses; over the network it asks the Directory where recipients are looked up,
 * and the public endpoints as others see them.
 */
import { lookup } from "node:dns/promises";
import { accessSync, constants, readFileSync, statfsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { resolve } from "node:path";
import type { Command } from "commander";
import { exposedText, isExposed, loadCertificate, openEventKey } from "../app/credentials.ts";
import { failedInResult } from "../app/failure.ts";
import { rolesOf } from "../app/serving.ts";
import { storesOf } from "../app/stores.ts";
import type { Config } from "../config/schema.ts";
import { minuteMs } from "../core/codec/time.ts";
import { errorText } from "../core/fault.ts";
import { parseListenAddress } from "../core/message/address.ts";
import type { OpenStep } from "../storage/bind.ts";
import { type Store, StoreError } from "../storage/contract.ts";
import { version } from "../version.ts";
import { askJson, checkEndpoint, createReport, type JsonReply, probeTimeoutMs, renderBytes } from "./command.ts";
import { defaultConfigFile, environmentProblems, nearestFolder, readConfig, warningsOf } from "./config.ts";

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

export function registerDoctorCommand(program: Command): void {
  program
    .command("doctor")
    .description("check machine, configuration, stores, addresses and public endpoints without serving")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print the findings as JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const config = await readConfig(options.config);
      const running = await runningNode(config);
      const program = `waypost ${version}, Bun ${Bun.version}, ${process.platform}-${process.arch}`;
      const findings: Finding[] = [
        { name: "program", ok: true, detail: program },
        { name: "configuration", ok: true, detail: options.config },
        ...settingWarnings(config),
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
        ...(await Promise.all([directories(config), publicEndpoints(config, running !== null)])).flat(),
      ];
      const lines = findings.map(
        (one) => `${one.ok ? (one.warning === true ? "warn" : "ok  ") : "FAIL"}  ${one.name}: ${one.detail}`,
      );
      createReport(options.json === true).result(findings, lines.join("\n"));
      if (findings.some((finding) => !finding.ok)) throw failedInResult("some checks failed");
    });
}

function settingWarnings(config: Config): Finding[] {
  return warningsOf(config).map(({ setting, message: detail }) => ({
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
    const at = nearestFolder(folder);
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

/** The system's resolver asks silent servers again for most of a minute. */
function resolveName(hostname: string): Promise<"found" | "none" | "silent"> {
  return Promise.race([
    lookup(hostname).then(
      () => "found" as const,
      () => "none" as const,
    ),
    Bun.sleep(probeTimeoutMs).then(() => "silent" as const),
  ]);
}

async function endpointFinding(published: { role: "relay" | "cache"; endpoint: string }): Promise<Finding> {
  const { role, endpoint } = published;
  const name = `public endpoint ${endpoint} (${role})`;
  const { hostname } = new URL(endpoint);
  const resolution = await resolveName(hostname.replace(/^\[|\]$/g, ""));
  if (resolution === "none") return { name, ok: false, detail: `${hostname} has no address: publish it in DNS` };
  if (resolution === "silent") return { name, ok: false, detail: `DNS does not answer for ${hostname}` };
  const check = await checkEndpoint(endpoint, role);
  if (check.state === "ok") return { name, ok: true, detail: "answers under this address" };
  return { name, ok: false, detail: check.state === "unknown" ? "answers, but not as this version" : check.reason };
}
