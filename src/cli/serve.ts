/**
 * `waypost serve` runs the nodes of a configuration file until a signal. After SIGTERM or SIGINT it
 * accepts nothing new, finishes requests in flight and exits with 0; a second signal ends it at
 * once. SIGHUP reads the file again. When a store can no longer keep its promises, the process
 * exits with 1, so that a supervisor starts it again. `waypost dev` runs all three nodes and the
 * chat app on loopback listeners without a configuration, for trying and developing.
 * Source: rules section 9.
 */
import { createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { join, resolve } from "node:path";
import type { Command } from "commander";
import { renderUnicodeCompact } from "uqr";
import { type RunningNodes, type StartOptions, startNodes } from "../app/compose.ts";
import { endAtOnce, failed, logLibraryOutput, logUncaught } from "../app/failure.ts";
import { toFailure } from "../app/stores.ts";
import { checkConfig } from "../config/config.ts";
import type { Config, ConfigInput } from "../config/schema.ts";
import { isPublicAddress, parseAddress } from "../core/message/address.ts";
import { createLog, type LogSink } from "../nodes/http/log.ts";
import { version } from "../version.ts";
import { defaultConfigFile, isCompiled, parseBetween } from "./command.ts";
import { checkEnvironment, readConfig, warningsOf } from "./config.ts";
import { devFolder, devSocketName } from "./operations.ts";

export function registerServeCommands(program: Command): void {
  program
    .command("serve")
    .description("run the nodes of a configuration file")
    .option("-c, --config <file>", "configuration file", defaultConfigFile)
    .action(({ config }: { config: string }) => runServer(config));
  program
    .command("dev")
    .description("run all three nodes on this machine, without any configuration")
    .option(
      "-p, --port <number>",
      "port of the nodes; the app has the next one; 0: free ones",
      parseBetween(0, 65_534),
      usualPort,
    )
    .option("-d, --data <folder>", "folder for data", devFolder)
    .option("--memory", "keep all data in memory, until the end", false)
    .option("--lan", "let other devices of the local network in, unencrypted", false)
    .option("--json", "print the addresses as one line of JSON", false)
    .action(async ({ port, data, memory, lan, json }: DevFlags) => {
      const [nodePort, appPort] = port === 0 ? await freePorts() : [port, port + 1];
      const host = lan ? lanAddress() : hostname;
      const folder = memory ? null : resolve(data);
      await serveForDevelopers({ host, port: nodePort, appPort, folder }, json);
    });
}

type DevFlags = {
  readonly port: number;
  readonly data: string;
  readonly memory: boolean;
  readonly lan: boolean;
  readonly json: boolean;
};

async function runServer(file: string): Promise<void> {
  const readAgain = (): Promise<Config> => readConfig(file, { toServe: true });
  const config = await readAgain();
  const sink = logTo(process.stdout, config);
  checkEnvironment(process.env);
  for (const { setting, message } of warningsOf(config, file))
    sink.log("warn", "a setting needs attention", { setting, reason: message });
  // A signal before the nodes run takes effect when they do; the log says what changed.
  const running = Promise.withResolvers<RunningNodes>();
  process.on("SIGHUP", () => void running.promise.then((nodes) => nodes.reloadFile()));
  await runUntilSignal(config, { sink, readConfig: readAgain }, (nodes) => {
    running.resolve(nodes);
    sink.log("info", "waypost is ready", {
      version,
      urls: nodes.urls,
      admin_urls: nodes.adminUrls,
    });
  });
}

type Run = Pick<StartOptions, "readConfig"> & { readonly sink: LogSink };

/**
 * Runs until a signal or a fatal store, and ends the process in order; a
 * second signal ends it at once.
 */
async function runUntilSignal(
  config: Config,
  { sink, ...options }: Run,
  onReady: (nodes: RunningNodes) => void,
) {
  const { promise: signalled, resolve } = Promise.withResolvers<string>();
  let caught = 0;
  for (const name of ["SIGTERM", "SIGINT"])
    process.on(name, () => {
      caught += 1;
      if (caught > 1) process.exit(1);
      resolve(name);
    });
  logUncaught(sink);
  const restoreConsole = logLibraryOutput(sink);
  const onFatal = (reason: string) => {
    sink.log("error", "the node must stop", { reason });
    endAtOnce(sink);
  };
  const onReload = ({ server }: Config) => sink.setLevel(server.log_level);
  try {
    const starting = startNodes(config, { ...options, log: sink.log, onReload, onFatal });
    // The start may be waiting for a store. Nothing was answered yet, so it can be abandoned.
    const running = await Promise.race([starting, signalled]);
    if (typeof running === "string")
      return sink.log("info", "stopped before the start", { signal: running });
    onReady(running);
    sink.log("info", "stopping", { signal: await signalled });
    await running.stop().catch(toFailure);
    sink.log("info", "stopped");
  } finally {
    await sink.flush();
    restoreConsole();
  }
}

// ---------------------------------------------------------- waypost dev: data stay under .waypost/

const hostname = "127.0.0.1";
const usualPort = 7_400;
/** Default URL of client commands. */
const usualUrl = `http://${hostname}:${usualPort}`;

type DevPlace = {
  readonly host: string;
  readonly port: number;
  readonly appPort: number;
  /** `null`: all data are in memory. */
  readonly folder: string | null;
};

async function serveForDevelopers(place: DevPlace, isJson: boolean): Promise<void> {
  checkEnvironment(process.env);
  const config = devConfig(place);
  const sink = logTo(process.stderr, config);
  const text = isJson ? JSON.stringify({ ...urlsOf(place), data: place.folder }) : welcome(place);
  await runUntilSignal(config, { sink }, () => console.log(text));
  if (isJson) return;
  const isKept = place.folder !== null;
  console.log(isKept ? "Stopped. All data is kept for the next start." : "Stopped.");
}

const urlsOf = ({ host, port, appPort }: DevPlace) => ({
  url: `http://${host}:${port}`,
  app: `http://${host}:${appPort}`,
});

/**
 * Two ports that the system gives away at this moment: the nodes' own address
 * stands in the configuration.
 */
async function freePorts(): Promise<[number, number]> {
  const servers = [createServer(), createServer()];
  const ports = await Promise.all(
    servers.map(
      (server) =>
        new Promise<number>((resolve, reject) => {
          server.once("error", reject);
          server.listen(0, hostname, () => {
            const address = server.address();
            resolve(typeof address === "object" && address !== null ? address.port : 0);
          });
        }),
    ),
  );
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports as [number, number];
}

/** Networks inside of this machine, which no phone reaches. */
const virtualNetwork = /^(docker|br-|veth|virbr|vmnet|vboxnet|utun|tun|tailscale)/;

/** The first private IPv4 address of this machine. */
function lanAddress(): string {
  const outside = Object.entries(networkInterfaces()).filter(
    ([name]) => !virtualNetwork.test(name),
  );
  const found = outside
    .flatMap(([, list]) => list ?? [])
    .find(({ family, internal, address }) => {
      const parsed = family === "IPv4" && !internal ? parseAddress(address) : null;
      return parsed !== null && !isPublicAddress(parsed);
    });
  if (found === undefined) throw failed("this machine has no address in a local network");
  return found.address;
}

/** The configuration of `waypost dev`. */
export function devConfig(place: DevPlace): Config {
  const { host, port, appPort, folder } = place;
  const { url } = urlsOf(place);
  const isLan = host !== hostname;
  const listenOn = isLan ? "0.0.0.0" : hostname;
  const input: ConfigInput = {
    server: {
      listen: [`${listenOn}:${port}`, `${listenOn}:${appPort}`],
      admin_listen: folder === null ? [] : adminListen(folder),
      app: `${host}:${appPort}`,
      log_level: "warn",
    },
    stores: {
      main:
        folder === null
          ? { plugin: "memory", block_time_ms: 50 }
          : { plugin: "lmdb", path: folder, block_time_ms: 500 },
    },
    directory: {
      enabled: true,
      unsigned_updates: isLan ? "deny" : "allow",
      rate_limit_loopback: false,
      ...(isLan ? {} : { public_endpoint: url }),
    },
    relay: {
      enabled: true,
      public_id: "dev",
      public_endpoints: [url],
      allow_http: true,
      // Relay and Cache of this process are reached without a connection. What else listens
      // on this machine is the developer's own, and everybody in a local network can
      // register an inbox there.
      allow_private: isLan ? [] : ["127.0.0.0/8", "::1/128"],
      rate_limit_loopback: false,
    },
    cache: { enabled: true, public_endpoints: [url] },
  };
  const result = checkConfig(input);
  if (!result.ok)
    throw failed(
      result.problems.map(({ setting, message }) => `${setting}: ${message}`).join("\n"),
    );
  // A developer of a client must see which bytes were verified.
  const forDevelopers = isLan ? {} : { show_signed_text: true, shows_status: true };
  return { ...result.config, server: { ...result.config.server, ...forDevelopers } };
}

/** The longest path of a socket that systems accept, without its end. */
const socketPathBytesMax = 100;

/** For `waypost block` and its like in the same folder. */
function adminListen(folder: string): string[] {
  const path = join(folder, devSocketName);
  const fits = process.platform !== "win32" && Buffer.byteLength(path) <= socketPathBytesMax;
  return fits ? [`unix:${path}`] : [];
}

function welcome(place: DevPlace): string {
  const { host, folder } = place;
  const waypost = typedCommand();
  const { url, app } = urlsOf(place);
  const data = folder === null ? "Data is in memory only." : `Data is kept in ${folder}.`;
  const elsewhere = url === usualUrl ? "" : `  export WAYPOST_URL=${url}\n`;
  const shown =
    host === hostname
      ? ""
      : `\n${renderUnicodeCompact(app)}\nEverybody in this network can use it, and it is not encrypted on the way. For trials only.\n`;
  return `Write to somebody:  ${app}
${shown}
Directory, Relay and Cache run on ${url}, for development only.
${data} Ctrl-C stops it.

  Interface    ${url}/openapi.json
  Readiness    ${url}/readyz${host === hostname ? `\n  Status       ${url}/status` : ""}

Try it in another terminal, in this folder:

${elsewhere}  ${waypost} did create --name alice
  ${waypost} did create --name bob
  echo "Meet me at noon." > note.txt
  ${waypost} send --as alice --to bob --file note.txt
  ${waypost} receive --as bob --out inbox
`;
}

/**
 * What the user can type to start another command: the executable itself, or the package script.
 */
function typedCommand(): string {
  return isCompiled() ? process.execPath : "npx -y bun@1.4.5 run waypost";
}

function logTo(stream: NodeJS.WriteStream, { server }: Config): LogSink {
  const writeText = (text: string): Promise<void> =>
    new Promise((resolve) => stream.write(text, () => resolve()));
  return createLog({ level: server.log_level, now: Date.now, write: writeText });
}
