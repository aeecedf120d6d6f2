/**
 * `waypost dev`: all three nodes on one loopback listener without any configuration, for trying and
 * developing. Data stay under `.waypost/`, so starting again finds everything.
 */
import { delimiter, join, resolve } from "node:path";
import type { Command } from "commander";
import { failed } from "../app/failure.ts";
import { checkConfig } from "../config/config.ts";
import type { Config, ConfigInput } from "../config/schema.ts";
import { createLog } from "../nodes/http/log.ts";
import { checkOutboundEnvironment } from "../nodes/relay/egress.ts";
import { parseBetween } from "./arguments.ts";
import { devFolder, devSocketName } from "./operations.ts";
import { runUntilSignal } from "./serve.ts";

const hostname = "127.0.0.1";
const usualPort = 7_400;
/** Default URL of client commands. */
const usualUrl = `http://${hostname}:${usualPort}`;

type DevOptions = { readonly port: number; readonly folder: string };

/** What `dev` runs, as a file would say it. */
function devConfig({ port, folder }: DevOptions): Config {
  const url = `http://${hostname}:${port}`;
  const input: ConfigInput = {
    server: { listen: [`${hostname}:${port}`], admin_listen: adminListen(folder), workers: 1, log_level: "warn" },
    stores: { main: { plugin: "lmdb", path: folder, block_time_ms: 500 } },
    directory: { enabled: true, unsigned_updates: "allow", rate_limit_loopback: false },
    relay: {
      enabled: true,
      public_id: "dev",
      public_endpoints: [url],
      allow_http: true,
      allow_private: ["127.0.0.0/8", "::1/128"],
      rate_limit_loopback: false,
      ignore_proxy_variables: true,
    },
    cache: { enabled: true, public_endpoints: [url] },
  };
  const result = checkConfig(input);
  // Whoever develops a client sees which bytes were verified.
  const forDevelopers = { show_signed_text: true, shows_status: true };
  if (result.ok) return { ...result.config, server: { ...result.config.server, ...forDevelopers } };
  throw failed(result.problems.map(({ setting, message }) => `${setting}: ${message}`).join("\n"));
}

/** The longest path of a socket that systems take, without its end. */
const socketPathBytesMax = 100;

/** For `waypost top`, `block` and `purge --recipient` in the same folder. */
function adminListen(folder: string): string[] {
  const path = join(folder, devSocketName);
  const fits = process.platform !== "win32" && Buffer.byteLength(path) <= socketPathBytesMax;
  return fits ? [`unix:${path}`] : [];
}

export function registerDevCommand(program: Command): void {
  program
    .command("dev")
    .description("run all three nodes on this machine, without any configuration")
    .option("-p, --port <number>", "port on 127.0.0.1", parseBetween(1, 65_535), usualPort)
    .option("-d, --data <folder>", "folder for data", devFolder)
    .action(async (options: { port: number; data: string }) => {
      checkOutboundEnvironment(process.env, { allowProxyVariables: true });
      const folder = resolve(options.data);
      const config = devConfig({ port: options.port, folder });
      const sink = createLog({ level: config.server.log_level, now: Date.now, write: writeToStderr });
      await runUntilSignal(config, sink, {}, ({ url }) => console.log(welcome(url, folder)));
      console.log("Stopped. Everything is kept; starting again finds it.");
      process.exit(0);
    });
}

function welcome(url: string, folder: string): string {
  const waypost = ownCommand();
  const elsewhere = url === usualUrl ? "" : `  export WAYPOST_URL=${url}\n`;
  return `Waypost runs on ${url}: Directory, Relay and Cache, for development only.
Data is kept in ${folder}. Ctrl-C stops it.

  Interface    ${url}/docs
  Readiness    ${url}/readyz
  Metrics      ${url}/metrics
  Status       ${url}/status, or in a terminal: ${waypost} top

Try it in another terminal, in this folder:

${elsewhere}  ${waypost} did create --name alice
  ${waypost} did create --name bob
  echo "Meet me at noon." > note.txt
  ${waypost} send --as alice --to bob --file note.txt
  ${waypost} receive --as bob --out inbox
`;
}

/** How the person who started this can start another command: the executable itself, or the package script. */
function ownCommand(): string {
  const compiled = Bun.main.startsWith("/$bunfs/") || Bun.main.includes("~BUN");
  if (compiled) return process.execPath;
  return hasBun() ? "bun run waypost" : "npx -y bun@1.4.5 run waypost";
}

/** Whether the person has bun: package scripts and npx put folders of their own in front of the PATH. */
function hasBun(): boolean {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => !folder.includes("node_modules"));
  return Bun.which("bun", { PATH: folders.join(delimiter) }) !== null;
}

function writeToStderr(text: string): Promise<void> {
  return new Promise((done) => {
    process.stderr.write(text, () => done());
  });
}
