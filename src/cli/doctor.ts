/**
 * `waypost doctor`: whether this machine and this configuration can run the nodes, told as a list of what
 * was looked at. It opens the stores, so it must not run beside the nodes themselves.
 */
import { accessSync, constants, existsSync, statfsSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import type { Config } from "../config.ts";
import { checkOutboundEnvironment } from "../nodes/relay/courier.ts";
import { parseListenAddress } from "../nodes/shell/listen.ts";
import type { OpenStep } from "../storage/bind.ts";
import { version } from "../version.ts";
import { storesOf } from "./compose-stores.ts";
import { defaultConfigFile, readConfig } from "./config.ts";
import { failedAsShown } from "./outcome.ts";
import { createReport } from "./report.ts";

type Finding = { readonly name: string; readonly ok: boolean; readonly detail: string };

const freeBytesMin = 2 ** 30;

export function registerDoctorCommand(program: Command): void {
  program
    .command("doctor")
    .description("check machine, configuration, stores and addresses without serving")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .option("--json", "print the findings as JSON")
    .action(async (options: { config: string; json?: boolean }) => {
      const config = await readConfig(options.config);
      const findings = [
        {
          name: "program",
          ok: true,
          detail: `waypost ${version}, Bun ${Bun.version}, ${process.platform}-${process.arch}`,
        },
        { name: "configuration", ok: true, detail: options.config },
        clock(),
        environment(),
        ...disks(config),
        ...(await addresses(config)),
        ...(await stores(config)),
      ];
      const lines = findings.map(({ name, ok, detail }) => `${ok ? "ok  " : "FAIL"}  ${name}: ${detail}`);
      createReport(options.json === true).result(findings, lines.join("\n"));
      if (findings.some((finding) => !finding.ok)) throw failedAsShown("not everything is in order");
    });
}

/** A clock of long ago makes every proof too late; nothing here can tell a small skew. */
function clock(): Finding {
  const nowMs = Date.now();
  return { name: "clock", ok: nowMs > Date.UTC(2026, 0), detail: new Date(nowMs).toISOString() };
}

function environment(): Finding {
  const problems = checkOutboundEnvironment({ ...process.env }, { allowProxyVariables: false });
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
    accessSync(at, constants.R_OK | constants.W_OK | constants.X_OK);
    const { bavail, bsize } = statfsSync(at);
    const gibibytes = ((bavail * bsize) / 2 ** 30).toFixed(1);
    return { ok: bavail * bsize >= freeBytesMin, detail: `${gibibytes} GiB free for ${folder}` };
  } catch (error) {
    return { ok: false, detail: error instanceof Error ? error.message : String(error) };
  }
}

/** The folder, or the nearest above it that is there: where it will be made. */
function nearest(folder: string): string {
  return existsSync(folder) || dirname(folder) === folder ? folder : nearest(dirname(folder));
}

function addresses(config: Config): Promise<Finding[]> {
  const all = [...config.server.listen, ...config.server.admin_listen];
  return Promise.all(
    all.map(async (address) => {
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

/** A store that is not there is no fault and is not made here: it would belong to whoever runs this. */
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
      return { ok: true, detail: `${store.plugin}, offers ${Object.keys(store.capabilities).join(", ")}` };
    } finally {
      await store.close();
    }
  } catch (error) {
    return { ok: false, detail: error instanceof Error ? error.message : String(error) };
  }
}
