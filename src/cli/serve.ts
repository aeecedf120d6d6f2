/**
 * `waypost serve` runs the nodes of a configuration file until a signal. After SIGTERM or SIGINT it accepts nothing new,
 * finishes requests in flight and exits with 0; a second signal ends it at once. SIGHUP reads the file again. When a store
 * can no longer keep its promises, the process exits with 1, so that a supervisor starts it again. `waypost dev` runs all
 * three nodes on one loopback listener without a configuration, for trying and developing.
 * Source: rules section 9.
 */
import { delimiter, join, resolve } from "node:path";
import type { Command } from "commander";
import { type RunningNodes, type StartOptions, startNodes } from "../app/compose.ts";
import { endAtOnce, failed, logLibraryOutput, logUncaught, logUnexpectedEnd } from "../app/failure.ts";
import { checkConfig } from "../config/config.ts";
import type { Config, ConfigInput } from "../config/schema.ts";
import { createLog, type LogSink } from "../nodes/http/log.ts";
import { checkOutboundEnvironment } from "../nodes/relay/egress.ts";
import { StoreError } from "../storage/contract.ts";
import { version } from "../version.ts";
import { parseBetween } from "./command.ts";
import { defaultConfigFile, environmentProblems, readConfig, warningsOf } from "./config.ts";
import { devFolder, devSocketName } from "./operations.ts";

export function registerServeCommands(program: Command): void {
  registerServe(program);
  registerDev(program);
}

function registerServe(program: Command): void {
  program
    .command("serve")
    .description("run the nodes of a configuration file")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .action(async (options: { config: string }) => {
      const config = await readConfig(options.config, { toServe: true });
      refuseWeakEnvironment(config);
      const sink = logTo(process.stdout, config);
      for (const warning of warningsOf(config))
        sink.log("warn", "a setting needs attention", { setting: warning.setting, reason: warning.message });
      const reloading = reloadOnHangup();
      const readAgain = (): Promise<Config> => readConfig(options.config, { toServe: true });
      await runUntilSignal(config, sink, { readConfig: readAgain }, (running) => {
        reloading.begin(running);
        const { urls, adminUrls } = running;
        sink.log("info", "waypost is ready", { version, urls, admin_urls: adminUrls });
      });
      reloading.end();
      // Everything is written and closed; no timer that is still set may delay the end.
      process.exit(0);
    });
}

/** Runs until a signal or a fatal store. `onReady` gets the running nodes. */
async function runUntilSignal(
  config: Config,
  sink: LogSink,
  options: Pick<StartOptions, "readConfig">,
  onReady: (running: RunningNodes) => void,
): Promise<void> {
  const signals = catchSignals();
  logUncaught(sink);
  const endsAsExpected = logUnexpectedEnd();
  const restoreConsole = logLibraryOutput(sink);
  try {
    await runNodes(config, { ...options, sink, signals, onReady });
  } finally {
    await sink.flush();
    restoreConsole();
    signals.release();
    endsAsExpected();
  }
}

type Run = Pick<StartOptions, "readConfig"> & {
  readonly sink: LogSink;
  readonly signals: Signals;
  readonly onReady: (running: RunningNodes) => void;
};

async function runNodes(config: Config, { sink, signals, onReady, ...options }: Run): Promise<void> {
  const starting = startNodes(config, {
    ...options,
    log: sink.log,
    onReload: (next) => sink.setLevel(next.server.log_level),
    onFatal: (reason) => {
      sink.log("error", "the node must stop", { reason });
      endAtOnce(sink);
    },
  });
  // The start may be waiting for a store. Nothing was answered yet, so it can be abandoned.
  const running = await Promise.race([starting, signals.first]);
  if (typeof running === "string") {
    sink.log("info", "stopped before the start", { signal: running });
    return;
  }
  onReady(running);
  const signal = await signals.first;
  sink.log("info", "stopping", { signal });
  await running.stop().catch((error: unknown) => {
    throw error instanceof StoreError ? failed(error.message) : error;
  });
  sink.log("info", "stopped");
}

/** Reads the file again on SIGHUP; the log says what changed. A signal before the nodes run takes effect when they do. */
function reloadOnHangup() {
  let nodes: RunningNodes | null = null;
  let isWaiting = false;
  const listener = (): void => {
    if (nodes === null) isWaiting = true;
    else void nodes.reloadFile();
  };
  process.on("SIGHUP", listener);
  return {
    begin: (running: RunningNodes): void => {
      nodes = running;
      if (isWaiting) listener();
    },
    end: () => void process.off("SIGHUP", listener),
  };
}

function refuseWeakEnvironment(config: Config): void {
  const problems = environmentProblems(config, process.env);
  if (problems.length > 0) throw failed(problems.join("\n"));
}

type Signals = { readonly first: Promise<string>; readonly release: () => void };

/** The first signal resolves, the second ends the process at once. */
function catchSignals(): Signals {
  const { promise, resolve } = Promise.withResolvers<string>();
  let caught = 0;
  const onSignal = (signal: string): void => {
    caught += 1;
    if (caught > 1) process.exit(1);
    resolve(signal);
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  const release = (): void => {
    process.off("SIGTERM", onSignal);
    process.off("SIGINT", onSignal);
  };
  return { first: promise, release };
}

// ------------------------------------------------------------------------------ waypost dev: data stay under .waypost/

const hostname = "127.0.0.1";
const usualPort = 7_400;
/** Default URL of client commands. */
const usualUrl = `http://${hostname}:${usualPort}`;

type DevOptions = { readonly port: number; readonly folder: string };

/** The configuration of `waypost dev`. */
function devConfig({ port, folder }: DevOptions): Config {
  const url = `http://${hostname}:${port}`;
  const input: ConfigInput = {
    server: { listen: [`${hostname}:${port}`], admin_listen: adminListen(folder), log_level: "warn" },
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
  // A developer of a client must see which bytes were verified.
  const forDevelopers = { show_signed_text: true, shows_status: true };
  if (result.ok) return { ...result.config, server: { ...result.config.server, ...forDevelopers } };
  throw failed(result.problems.map(({ setting, message }) => `${setting}: ${message}`).join("\n"));
}

/** The longest path of a socket that systems accept, without its end. */
const socketPathBytesMax = 100;

/** For `waypost block` and `purge --recipient` in the same folder. */
function adminListen(folder: string): string[] {
  const path = join(folder, devSocketName);
  const fits = process.platform !== "win32" && Buffer.byteLength(path) <= socketPathBytesMax;
  return fits ? [`unix:${path}`] : [];
}

function registerDev(program: Command): void {
  program
    .command("dev")
    .description("run all three nodes on this machine, without any configuration")
    .option("-p, --port <number>", "port on 127.0.0.1", parseBetween(1, 65_535), usualPort)
    .option("-d, --data <folder>", "folder for data", devFolder)
    .action(async (options: { port: number; data: string }) => {
      checkOutboundEnvironment(process.env, { allowProxyVariables: true });
      const folder = resolve(options.data);
      const config = devConfig({ port: options.port, folder });
      const sink = logTo(process.stderr, config);
      await runUntilSignal(config, sink, {}, ({ url }) => console.log(welcome(url, folder)));
      console.log("Stopped. All data is kept for the next start.");
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
  Status       ${url}/status

Try it in another terminal, in this folder:

${elsewhere}  ${waypost} did create --name alice
  ${waypost} did create --name bob
  echo "Meet me at noon." > note.txt
  ${waypost} send --as alice --to bob --file note.txt
  ${waypost} receive --as bob --out inbox
`;
}

/** What the user can type to start another command: the executable itself, or the package script. */
function ownCommand(): string {
  const compiled = Bun.main.startsWith("/$bunfs/") || Bun.main.includes("~BUN");
  if (compiled) return process.execPath;
  return hasBun() ? "bun run waypost" : "npx -y bun@1.4.5 run waypost";
}

/** Whether the user has bun; package scripts and npx put folders of their own in front of the PATH. */
function hasBun(): boolean {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => !folder.includes("node_modules"));
  return Bun.which("bun", { PATH: folders.join(delimiter) }) !== null;
}

function logTo(stream: NodeJS.WriteStream, { server }: Config): LogSink {
  const write = (text: string): Promise<void> => new Promise((resolve) => stream.write(text, () => resolve()));
  return createLog({ level: server.log_level, now: Date.now, write });
}
