/**
 * `waypost doctor`: whether this machine and this configuration can run the nodes, told as a list of what
 * was looked at. It opens the stores, so it must not run beside the nodes themselves.
 */
import { statfsSync } from "node:fs";
import { createServer } from "node:net";
import type { Command } from "commander";
import type { Config } from "../config.ts";
import { checkOutboundEnvironment } from "../nodes/relay/courier.ts";
import { parseListenAddress } from "../nodes/shell/listen.ts";
import { version } from "../version.ts";
import { openConfiguredStores } from "./compose-stores.ts";
import { defaultConfigFile, readConfig } from "./config.ts";
import { failed } from "./outcome.ts";

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
        await stores(config),
      ];
      if (options.json) console.log(JSON.stringify(findings, null, 2));
      else for (const { name, ok, detail } of findings) console.log(`${ok ? "ok  " : "FAIL"}  ${name}: ${detail}`);
      if (findings.some((finding) => !finding.ok)) throw failed("not everything is in order");
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

/** Every store option that is called `path` names a place on a disk. */
function disks(config: Config): Finding[] {
  const paths = Object.entries(config.stores).flatMap(([name, options]) =>
    typeof options["path"] === "string" ? [[name, options["path"]] as const] : [],
  );
  return paths.map(([name, path]) => {
    const freeBytes = freeSpace(path);
    if (freeBytes === null) return { name: `disk of store ${name}`, ok: false, detail: `${path} can't be read` };
    const ok = freeBytes >= freeBytesMin;
    return { name: `disk of store ${name}`, ok, detail: `${(freeBytes / 2 ** 30).toFixed(1)} GiB free for ${path}` };
  });
}

/** Free bytes where the path lies or will lie. */
function freeSpace(path: string): number | null {
  for (let at = path; at !== ""; at = at.includes("/") ? at.slice(0, at.lastIndexOf("/")) : "") {
    try {
      const { bavail, bsize } = statfsSync(at);
      return bavail * bsize;
    } catch {
      // The path does not stand yet: its parent decides.
    }
  }
  const { bavail, bsize } = statfsSync(path.startsWith("/") ? "/" : ".");
  return bavail * bsize;
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

async function stores(config: Config): Promise<Finding> {
  const quiet = { now: Date.now, log: () => undefined, fatal: () => undefined };
  try {
    const opened = await openConfiguredStores(config, quiet);
    try {
      await opened.probe();
      return { name: "stores", ok: true, detail: [...opened.stores.keys()].join(", ") || "none" };
    } finally {
      await opened.close();
    }
  } catch (error) {
    return { name: "stores", ok: false, detail: error instanceof Error ? error.message : String(error) };
  }
}
