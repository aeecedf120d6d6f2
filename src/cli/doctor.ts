/**
 * `waypost doctor`: whether this machine and this configuration can run the nodes, as a list of findings.
 * Beside a running node it asks that node instead of opening its stores and addresses.
 */

import { accessSync, constants, existsSync, readFileSync, statfsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import { loadCertificate } from "../app/certificates.ts";
import { failedInResult } from "../app/failure.ts";
import { exposedText, isExposed, readSigner } from "../app/signing-key.ts";
import { storesOf } from "../app/stores.ts";
import type { Config } from "../config/schema.ts";
import { minuteMs } from "../core/codec/time.ts";
import { parseListenAddress } from "../core/message/client-address.ts";
import { errorText } from "../core/std/error-text.ts";
import type { OpenStep } from "../storage/bind.ts";
import { type InputProblem, type Store, StoreError } from "../storage/contract.ts";
import { version } from "../version.ts";
import { defaultConfigFile, readConfigFile, warningsOf } from "./config.ts";
import { directories, findingsOfNode, operatorKeys, publicEndpoints, runningNode } from "./doctor-network.ts";
import { createReport, renderBytes } from "./report.ts";
import { environmentProblems } from "./serve.ts";

/** A warning is a finding that may be meant so, or that can't be checked while no node runs. */
export type Finding = {
  readonly name: string;
  readonly ok: boolean;
  readonly warning?: true;
  /** What is wrong, for programs. */
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
      const { config, retired } = await readConfigFile(options.config);
      const running = await runningNode(config);
      const program = `waypost ${version}, Bun ${Bun.version}, ${process.platform}-${process.arch}`;
      const findings: Finding[] = [
        { name: "program", ok: true, detail: program },
        { name: "configuration", ok: true, detail: options.config },
        ...(await settingWarnings(config, retired)),
        clock(),
        openFiles(config),
        environment(config),
        ...disks(config),
        ...(running === null
          ? [...(await addresses(config)), ...(await stores(config))]
          : await findingsOfNode(running)),
        ...certificate(config),
        ...(await signingKey(config)),
        ...(await operatorKeys(config)),
        ...(await directories(config)),
        ...(await publicEndpoints(config, running !== null)),
      ];
      const lines = findings.map((one) => `${gradeOf(one)}  ${one.name}: ${one.detail}`);
      createReport(options.json === true).result(findings, lines.join("\n"));
      if (findings.some((finding) => !finding.ok)) throw failedInResult("not everything is in order");
    });
}

function gradeOf({ ok, warning }: Finding): string {
  if (!ok) return "FAIL";
  return warning === true ? "warn" : "ok  ";
}

async function settingWarnings(config: Config, retired: readonly InputProblem[]): Promise<Finding[]> {
  const warnings = await warningsOf(config, retired);
  return warnings.map(({ setting, message }) => ({
    name: `setting ${setting}`,
    ok: true,
    warning: true,
    detail: message,
  }));
}

/** A clock of long ago makes every proof too late; a small skew shows only against a Directory. */
function clock(): Finding {
  const nowMs = Date.now();
  const ok = nowMs > Date.UTC(2026, 0);
  return { name: "clock", ok, detail: `${new Date(nowMs).toISOString()}${ok ? "" : ": before this program was made"}` };
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
  const problems = environmentProblems(config, { ...process.env });
  return {
    name: "environment",
    ok: problems.length === 0,
    detail: problems.join("; ") || "nothing weakens outbound requests",
  };
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
    if (!statSync(at).isDirectory()) return { ok: false, detail: `${at} is a file and no folder` };
    accessSync(at, constants.R_OK | constants.W_OK | constants.X_OK);
    const { bavail, bsize } = statfsSync(at);
    const ok = bavail * bsize >= freeBytesMin;
    const detail = `${renderBytes(bavail * bsize)} free for ${folder}`;
    return { ok, detail: ok ? detail : `${detail}: less than ${renderBytes(freeBytesMin)}` };
  } catch (error) {
    return { ok: false, detail: reasonOf(error) };
  }
}

/** The folder, or the nearest above it that is there: where it will be made. */
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
    await readSigner(file);
    return [isExposed(file) ? { name, ok: false, detail: exposedText(file) } : { name, ok: true, detail: file }];
  } catch (error) {
    return [{ name, ok: false, detail: reasonOf(error) }];
  }
}

/** A missing store is not a fault. It is not made here: it would belong to the user who runs the check. */
async function stores(config: Config): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const step of await storesOf(config)) {
    const absence = step.absence();
    findings.push({
      name: `store ${step.name}`,
      ...(absence === null ? await openOnce(step) : { ok: true, detail: `${absence}; it is made when a node starts` }),
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

/** Blocks never go back, so nothing can be registered until the clock has passed the last one. */
async function ledgerAhead({ capabilities }: Store): Promise<string | null> {
  const head = (await capabilities.ledger?.head())?.finalized;
  if (head === undefined || head.timeMs <= Date.now() + minuteMs) return null;
  return `the ledger's last block is of ${new Date(head.timeMs).toISOString()}, ahead of this machine's clock`;
}

/** The innermost reason: the finding already names the store. */
function reasonOf(error: unknown): string {
  if (error instanceof StoreError && error.cause instanceof StoreError) return error.cause.message;
  return errorText(error);
}
