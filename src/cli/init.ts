/**
 * `waypost init`: from the executable on an empty server to a configuration that runs. It asks for what it needs, or takes
 * it from flags, and writes the configuration, the signing key, a unit for systemd and a configuration of a proxy. No
 * existing file is replaced.
 */
import { chmod, mkdir, readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { createInterface } from "node:readline/promises";
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Command } from "commander";
import { CommandFailure, failed } from "../app/failure.ts";
import { parseConfig } from "../config/config.ts";
import { isPublicEndpoint } from "../config/schema.ts";
import { isLoopbackListener, parseListenAddress } from "../core/message/address.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { createReport } from "./command.ts";
import { createDurably } from "./files/files.ts";

const nodeNames = ["directory", "relay", "cache"] as const;
type NodeName = (typeof nodeNames)[number];

type InitAnswers = {
  /** The URL by which others reach the nodes. */
  readonly url: string;
  readonly nodes: readonly NodeName[];
  /** The Directory that a Relay or a Cache asks when this process is none. */
  readonly directory: string | null;
  /** Folder of the data, absolute. */
  readonly data: string;
  /** Whether a proxy on this machine ends TLS. */
  readonly proxy: boolean;
  /** Files with which the node ends TLS, where no proxy does. */
  readonly tls: { readonly certificate: string; readonly key: string } | null;
  readonly listen: string;
};

type InitFlags = {
  readonly out: string;
  readonly url?: string;
  readonly nodes?: string;
  readonly directory?: string;
  readonly data?: string;
  readonly listen?: string;
  readonly proxy: boolean;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly yes?: boolean;
  readonly json?: boolean;
};

export function registerInitCommand(program: Command): void {
  program
    .command("init")
    .description("write a configuration, a signing key, a systemd unit and a proxy file")
    .option("-o, --out <folder>", "folder for the files", ".")
    .option("--url <url>", "URL by which others reach the nodes, such as https://waypost.example.org")
    .option("--nodes <list>", `which nodes to run (default: ${defaults.nodes})`)
    .option("--directory <url>", "the Directory to ask, unless this process is one")
    .option("--data <folder>", `folder of the data (default: ${defaults.data})`)
    .option("--listen <address>", `address to listen on (default: ${defaults.listen})`)
    .option("--no-proxy", "no proxy is in front of the nodes")
    .option("--tls-cert <file>", "without a proxy: certificate of the nodes, PEM")
    .option("--tls-key <file>", "without a proxy: key of the certificate, PEM")
    .option("-y, --yes", "ask no questions; use defaults for flags that are not given")
    .option("--json", "print the result as JSON")
    .action(async (flags: InitFlags) => {
      const answers = flags.yes === true ? answersOf(flags) : await askAnswers(flags);
      const folder = resolve(flags.out);
      const files = await writeFiles(answers, folder);
      const steps = nextSteps(answers, folder, await foundHere(answers, folder));
      const text = `${files.map((file) => `wrote ${file}`).join("\n")}\n\n${steps}`;
      createReport(flags.json === true).result({ files, url: answers.url, nodes: answers.nodes }, text);
    });
}

// ----------------------------------------------------------------------------------------------- answers

const defaults = { nodes: nodeNames.join(","), data: "/var/lib/waypost", listen: "127.0.0.1:7400" };

/** What `--yes` and an empty line stand for; the URL and a Directory elsewhere have no default. */
function answersOf(flags: InitFlags): InitAnswers {
  if (flags.url === undefined) throw failed("--url is missing: the URL by which others reach the nodes");
  const nodes = of("--nodes", parseNodes, flags.nodes ?? defaults.nodes);
  const elsewhere = !nodes.includes("directory");
  if (elsewhere && flags.directory === undefined)
    throw failed("--directory is missing: a Relay or a Cache without a Directory asks one by its URL");
  const url = of("--url", parsePublicUrl, flags.url);
  const { proxy, tlsCert, tlsKey } = flags;
  const hasTls = tlsCert !== undefined && tlsKey !== undefined;
  if (needsTls(url, proxy) && !hasTls)
    throw failed("--tls-cert and --tls-key are missing: without a proxy, the node itself ends TLS");
  return {
    url,
    nodes,
    directory: elsewhere ? of("--directory", parsePublicUrl, flags.directory ?? "") : null,
    data: resolve(flags.data ?? defaults.data),
    proxy,
    tls: hasTls && !proxy ? { certificate: resolve(tlsCert), key: resolve(tlsKey) } : null,
    listen: of("--listen", parseListen, flags.listen ?? listenDefault(url, proxy)),
  };
}

/** A flag's value; a refusal names the flag. */
function of<T>(flag: string, parse: (text: string) => T, text: string): T {
  try {
    return parse(text);
  } catch (error) {
    throw error instanceof CommandFailure ? failed(`${flag}: ${error.message}`) : error;
  }
}

/** Asks until the answer parses. `given`: the flag's value, not asked for unless it is refused; `standard`: an empty line. */
type Ask = <T>(text: string, given: string | undefined, standard: string, parse: (text: string) => T) => Promise<T>;

async function askAnswers(flags: InitFlags): Promise<InitAnswers> {
  if (!process.stdin.isTTY) throw failed("standard input is not a terminal: give the flags and --yes");
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const ask: Ask = async (text, given, standard, parse) => {
    const prompt = `${text}${standard === "" ? "" : ` [${standard}]`}: `;
    for (let preset = given; ; preset = undefined) {
      const answer = (preset ?? (await terminal.question(prompt))).trim();
      try {
        return parse(answer === "" ? standard : answer);
      } catch (error) {
        if (!(error instanceof CommandFailure)) throw error;
        process.stderr.write(`  ${error.message}\n`);
      }
    }
  };
  try {
    return await askInTurn(ask, flags);
  } catch (error) {
    // Ctrl-C and Ctrl-D.
    throw error instanceof Error && error.name === "AbortError" ? failed("\nstopped; nothing was written") : error;
  } finally {
    terminal.close();
  }
}

async function askInTurn(ask: Ask, flags: InitFlags): Promise<InitAnswers> {
  const url = await ask("URL by which others reach the nodes (https://…)", flags.url, "", parsePublicUrl);
  const nodes = await ask("Which nodes: directory, relay, cache", flags.nodes, defaults.nodes, parseNodes);
  const isAlone = !nodes.includes("directory");
  const directory = isAlone ? await ask("URL of the Directory to ask", flags.directory, "", parsePublicUrl) : null;
  const data = await ask("Folder of the data", flags.data, defaults.data, (text) => resolve(text));
  const proxy =
    flags.proxy && (await ask("Does a proxy on this machine end TLS? (yes/no)", undefined, "yes", parseYes));
  const tls = needsTls(url, proxy)
    ? {
        certificate: await ask("Certificate of the nodes (PEM file)", flags.tlsCert, "", parsePath),
        key: await ask("Key of the certificate (PEM file)", flags.tlsKey, "", parsePath),
      }
    : null;
  const listen = await ask("Address to listen on", flags.listen, listenDefault(url, proxy), parseListen);
  return { url, nodes, directory, data, proxy, tls, listen };
}

/** Without a proxy, the node itself answers at an address of https. */
function needsTls(url: string, proxy: boolean): boolean {
  return !proxy && url.startsWith("https:");
}

function listenDefault(url: string, proxy: boolean): string {
  if (proxy || !url.startsWith("https:")) return defaults.listen;
  return `0.0.0.0:${new URL(url).port || 443}`;
}

function parsePath(text: string): string {
  if (text === "") throw failed("a file is needed");
  return resolve(text);
}

function parseNodes(text: string): NodeName[] {
  const names = text.split(/[\s,]+/).map((name) => name.toLowerCase());
  const unknown = names.find((name) => !nodeNames.some((one) => one === name));
  if (unknown !== undefined) throw failed(`${unknown || "(nothing)"} is not directory, relay or cache`);
  return nodeNames.filter((name) => names.includes(name));
}

function parsePublicUrl(text: string): string {
  const url = withoutTrailingSlashes(text);
  if (isPublicEndpoint(url)) return url;
  throw failed(`${text || "(nothing)"} must begin with https:// (or http://), such as https://${hostIn(text)}`);
}

/** What of a text could be a host. */
function hostIn(text: string): string {
  return /[a-z0-9.-]+\.[a-z]{2,}/i.exec(text)?.[0].toLowerCase() ?? "waypost.example.org";
}

function parseListen(text: string): string {
  if (parseListenAddress(text) !== null) return text;
  throw failed(`${text} is not an address such as 127.0.0.1:7400, [::1]:7400 or unix:/run/waypost.sock`);
}

function parseYes(text: string): boolean {
  if (/^y(es)?$/i.test(text)) return true;
  if (/^no?$/i.test(text)) return false;
  throw failed("answer yes or no");
}

// ------------------------------------------------------------------------------------------------- files

async function writeFiles(answers: InitAnswers, folder: string): Promise<string[]> {
  const keyFile = `${folder}/signing.key`;
  const text = renderConfiguration(answers, keyFile);
  const checked = parseConfig(text);
  if (!checked.ok) {
    const problems = checked.problems.map(({ setting, message }) => `${setting}: ${message}`);
    throw failed(problems.join("\n"));
  }
  const files: [name: string, text: string][] = [["waypost.toml", text]];
  const { listen } = answers;
  const unit = unitFile({ config: `${folder}/waypost.toml`, data: answers.data, listen });
  const ownUnit = isPackaged() ? unit.replace("/usr/local/bin/", "/usr/bin/") : unit;
  if (!hasPackagedUnit(answers, folder)) files.push(["waypost.service", ownUnit]);
  if (answers.nodes.includes("cache")) files.push(["signing.key", `${ed25519.utils.randomSecretKey().toHex()}\n`]);
  // The service reads the configuration as another user.
  if ((await mkdir(folder, { recursive: true })) !== undefined) await chmod(folder, 0o755);
  if (answers.proxy) files.push(["Caddyfile", proxyFile(new URL(answers.url).host, answers.listen)]);
  const written: string[] = [];
  for (const [name, content] of files) {
    const path = `${folder}/${name}`;
    if (!(await createDurably(path, content))) throw failed(`${path} already exists; nothing after it was written`);
    // Only the key is a secret; the service reads the rest as another user.
    if (name !== "signing.key") await chmod(path, 0o644);
    written.push(path);
  }
  return written;
}

/** The configuration file that the answers lead to. */
export function renderConfiguration(answers: InitAnswers, keyFile: string): string {
  const { url, nodes, directory, data, listen, proxy, tls } = answers;
  const runs = (node: NodeName): boolean => nodes.includes(node);
  const quoted = (text: string): string => JSON.stringify(text);
  const recipients = runs("directory") ? [] : [`recipients = ${quoted(directory ?? "")}`];
  const endpoints = [`public_endpoints = [${quoted(url)}]`];
  const name = new URL(url).hostname;
  const sections: [name: string, lines: readonly string[]][] = [
    [
      "server",
      [
        `listen = [${quoted(listen)}]`,
        "# Metrics and the status page for this machine; the socket is for waypost reload, block and purge.",
        `admin_listen = [${quoted(metricsListen(listen))}, ${quoted(`unix:${data}/admin.sock`)}]`,
        ...(proxy ? ['trusted_proxies = ["127.0.0.1", "::1"]'] : []),
        ...(tls === null ? [] : [`tls_cert_file = ${quoted(tls.certificate)}`, `tls_key_file = ${quoted(tls.key)}`]),
      ],
    ],
    ["stores.main", ['plugin = "lmdb"', `path = ${quoted(`${data}/store`)}`]],
  ];
  if (runs("directory")) sections.push(["directory", ["enabled = true"]]);
  if (runs("relay"))
    sections.push(["relay", ["enabled = true", `public_id = ${quoted(name)}`, ...endpoints, ...recipients]]);
  if (runs("cache"))
    sections.push(["cache", ["enabled = true", ...endpoints, ...recipients, `signing_key_file = ${quoted(keyFile)}`]]);
  const body = sections.map(([section, lines]) => [`[${section}]`, ...lines, ""].join("\n")).join("\n");
  return `# Every other setting has its default: waypost config show, waypost config reference.\n\n${body}`;
}

/** Where `examples/prometheus` scrapes, or beside another port of this machine. */
function metricsListen(listen: string): string {
  const place = parseListenAddress(listen);
  const isUsual = !isLoopbackListener(listen) || place === null || "unix" in place;
  return `127.0.0.1:${isUsual ? 7_401 : place.port + 1}`;
}

/** Whether this is the executable of the Debian package, which brings a unit and a user. */
function isPackaged(): boolean {
  return process.execPath === "/usr/bin/waypost";
}

/** Which of the next steps are already done. */
type Found = { readonly isInstalled: boolean; readonly hasUser: boolean; readonly hasUnit: boolean };

/** The unit of the package names these two. */
function hasPackagedUnit({ data, listen }: InitAnswers, folder: string): boolean {
  return isPackaged() && folder === "/etc/waypost" && data === defaults.data && !isPrivileged(listen);
}

async function foundHere(answers: InitAnswers, folder: string): Promise<Found> {
  const users = await readFile("/etc/passwd", "utf8").catch(() => "");
  const isInstalled = isPackaged() || process.execPath === "/usr/local/bin/waypost";
  return { isInstalled, hasUser: /^waypost:/m.test(users), hasUnit: hasPackagedUnit(answers, folder) };
}

export function nextSteps({ url, data, nodes, proxy, tls }: InitAnswers, folder: string, found: Found): string {
  const { isInstalled, hasUser, hasUnit } = found;
  const unit = hasUnit ? "" : `cp ${folder}/waypost.service /etc/systemd/system/ && `;
  return [
    "Next, as root:",
    ...(isInstalled ? [] : ["  cp waypost /usr/local/bin/waypost      # the executable"]),
    ...(hasUser ? [] : [`  useradd --system --home-dir ${data} --shell /usr/sbin/nologin waypost`]),
    ...(isStateFolder(data) ? [] : [`  install -d -m 700 -o waypost ${data}`]),
    ...(nodes.includes("cache") ? [`  chown waypost: ${folder}/signing.key`] : []),
    ...(tls === null ? [] : [`  chgrp waypost ${tls.certificate} ${tls.key} && chmod 640 ${tls.key}`]),
    `  waypost doctor --config ${folder}/waypost.toml`,
    `  ${unit}systemctl enable --now waypost`,
    ...(proxy ? [`  cp ${folder}/Caddyfile /etc/caddy/Caddyfile && systemctl reload caddy`] : []),
    `  waypost health ${url} --wait 60s`,
    ...(isHidden(folder) || isHidden(data)
      ? [
          "",
          "The unit hides /home, /root and /tmp from the service: keep files and data elsewhere, such as",
          "--out /etc/waypost --data /var/lib/waypost.",
        ]
      : []),
  ].join("\n");
}

// ----------------------------------------------------------------------------------------- unit and proxy

/** Whether systemd creates the folder for the service's user. */
function isStateFolder(path: string): boolean {
  return path.startsWith("/var/lib/");
}

/** By `ProtectHome` and `PrivateTmp` of the unit. */
function isHidden(path: string): boolean {
  return /^\/(home|root|run\/user|tmp|var\/tmp)(\/|$)/.test(path);
}

type UnitFacts = { readonly config: string; readonly data: string; readonly listen: string };

/** Whether only a process with the capability may listen there. */
function isPrivileged(listen: string): boolean {
  const place = parseListenAddress(listen);
  return place !== null && "port" in place && place.port < 1_024;
}

/** A hardened unit for systemd; `systemd-analyze security` rates it 1.5 ("OK"). */
export function unitFile({ config, data, listen }: UnitFacts): string {
  const state = isStateFolder(data)
    ? [`StateDirectory=${data.slice("/var/lib/".length)}`, "StateDirectoryMode=0700"]
    : [`ReadWritePaths=${data}`];
  return `# A unit for systemd. Create the user first: useradd --system --home-dir ${data}
# --shell /usr/sbin/nologin waypost. Relative paths of the configuration start at WorkingDirectory.

[Unit]
Description=Waypost
Wants=network-online.target
After=network-online.target

[Service]
User=waypost
${state.join("\n")}
WorkingDirectory=${data}
ExecStart=/usr/local/bin/waypost serve --config ${config}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# Longer than server.drain_timeout.
TimeoutStopSec=45
LimitNOFILE=65536
# The runtime collects garbage as on a machine of 256 MiB: the memory in use stays nearer to what is needed.
Environment=BUN_JSC_forceRAMSize=268435456
UMask=0077
# The native addon is unpacked into this private folder.
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
NoNewPrivileges=yes
${isPrivileged(listen) ? "AmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE" : "CapabilityBoundingSet="}
LockPersonality=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
# No MemoryDenyWriteExecute: the runtime compiles JavaScript to machine code.

[Install]
WantedBy=multi-user.target
`;
}

/** Caddy gets and renews the certificate, replaces `X-Forwarded-For`, and delays requests while the node restarts. */
export function proxyFile(host: string, listen: string): string {
  return `# A proxy that ends TLS in front of all nodes. Caddy gets and renews the certificate by itself.

${host} {
\t# At least limits.body_bytes_max.
\trequest_body {
\t\tmax_size 26MiB
\t}
\treverse_proxy ${listen} {
\t\t# A restart of the node is a short wait for clients, not a refusal.
\t\tlb_try_duration 10s
\t\tlb_try_interval 100ms
\t\t# Streams of the Cache: no buffering.
\t\tflush_interval -1
\t}
}
`;
}
