/**
 * `waypost doctor`: what `config check` checks, and then whether this machine can run the configuration, as a list of
 * findings: its disks, the Directory where recipients are looked up, and the public endpoints as others see
 * them. An address that is in use, or a store that can't be opened, is what `waypost serve` reports before it serves.
 */
import { lookup } from "node:dns/promises";
import { accessSync, constants, statfsSync, statSync } from "node:fs";
import type { Command } from "commander";
import { failed, failedInResult } from "../app/failure.ts";
import { type Config, isPublicEndpoint } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { sameEndpoint } from "../core/message/proof.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import { askJson, createReport, type JsonReply, probeTimeoutMs, renderBytes } from "./command.ts";
import { defaultConfigFile, foldersOf, nearestFolder, readConfig, warningsOf } from "./config.ts";

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
    .description("check configuration, machine, Directory and public endpoints without serving")
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

function examine(config: Config, file: string): Promise<Finding[]> {
  const { recipients } = config.server;
  return Promise.all([
    { name: "configuration", ok: true, detail: `${file}, with its certificate and keys` },
    ...warningsOf(config, file).map(({ setting, message: detail }) => {
      return { name: `setting ${setting}`, ok: true, warning: true, detail };
    }),
    ...foldersOf(config).map(([store, , folder]) =>
      check(`disk of store ${store}`, () => disk(folder)),
    ),
    ...(isPublicEndpoint(recipients)
      ? [check(`directory ${recipients}`, () => directory(recipients))]
      : []),
    ...publicEndpoints(config),
  ]);
}

/** What the work returns is the detail; what it throws is why the check fails. */
async function check(name: string, work: () => string | Promise<string>): Promise<Finding> {
  try {
    return { name, ok: true, detail: await work() };
  } catch (error) {
    return { name, ok: false, detail: errorText(error) };
  }
}

// ------------------------------------------------------------------------------------------------- the machine

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
 * Each public endpoint as this machine reaches it: its name resolves, its certificate holds, and a node with the published
 * role answers there and names the same endpoint. Before the start nothing answers there, so silence is only a warning.
 */
function publicEndpoints(config: Config): Promise<Finding>[] {
  return (["relay", "cache"] as const).flatMap((role) =>
    (config[role].enabled ? config[role].public_endpoints : []).map(
      async (endpoint): Promise<Finding> => {
        const name = `public endpoint ${endpoint} (${role})`;
        const reply = await askNamed(endpoint);
        if (typeof reply === "string")
          return {
            name,
            ok: true,
            warning: true,
            detail: `${reply}: if the node is running, others can't reach it there`,
          };
        return check(name, () => checkIdentity(reply, endpoint, role));
      },
    ),
  );
}

/** What a node says there, or why none answers. */
async function askNamed(endpoint: string): Promise<JsonReply | string> {
  const { hostname } = new URL(endpoint);
  const isNamed = lookup(hostname.replace(/^\[|\]$/g, "")).then(
    () => true,
    () => false,
  );
  // The system's resolver asks silent servers again for most of a minute.
  const found = await withDeadline(isNamed, probeTimeoutMs);
  if (found === late) return `DNS does not answer for ${hostname}`;
  return found ? askJson(endpoint, "/node") : `${hostname} has no address: publish it in DNS`;
}

function checkIdentity(
  { status, json }: JsonReply,
  endpoint: string,
  role: "relay" | "cache",
): string {
  if (status === 404) throw failed("answers, but not as this version");
  const { roles, [`${role}_endpoints`]: own } = json;
  if (!Array.isArray(roles) || !roles.includes(role)) throw failed(`no ${role} answers there`);
  const named = Array.isArray(own) ? own.map(String) : [];
  if (named.some((one) => sameEndpoint(one, endpoint))) return "answers under this address";
  throw failed(
    `the ${role} there ${named.length === 0 ? "has no public endpoint" : `calls itself ${named.join(", ")}`}`,
  );
}
