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
import { failed } from "../app/failure.ts";
import { parseConfig } from "../config/config.ts";
import { isPublicEndpoint } from "../config/schema.ts";
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
    .option("-y, --yes", "ask no questions; use defaults for flags that are not given")
    .option("--json", "print the result as JSON")
    .action(async (flags: InitFlags) => {
      const answers = checkAnswers(flags.yes === true ? answersOf(flags) : await askAnswers(flags));
      const folder = resolve(flags.out);
      const files = await writeFiles(answers, folder);
      const steps = nextSteps(answers, folder, await foundHere(answers, folder));
      const text = `${files.map((file) => `wrote ${file}`).join("\n")}\n\n${steps}`;
      createReport(flags.json === true).result({ files, url: answers.url, nodes: answers.nodes }, text);
    });
}

// ----------------------------------------------------------------------------------------------- answers

const defaults = { nodes: nodeNames.join(","), data: "/var/lib/waypost", listen: "127.0.0.1:7400" };

type RawAnswers = Omit<InitAnswers, "nodes"> & { readonly nodes: string };

function answersOf(flags: InitFlags): RawAnswers {
  if (flags.url === undefined) throw failed("--url is missing: the URL by which others reach the nodes");
  return {
    url: flags.url,
    nodes: flags.nodes ?? defaults.nodes,
    directory: flags.directory ?? null,
    data: resolve(flags.data ?? defaults.data),
    proxy: flags.proxy,
    listen: flags.listen ?? defaults.listen,
  };
}

async function askAnswers(flags: InitFlags): Promise<RawAnswers> {
  if (!process.stdin.isTTY) throw failed("standard input is not a terminal: give the flags and --yes");
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const ask = async (question: string, preset: string | undefined, standard: string): Promise<string> => {
    if (preset !== undefined) return preset;
    const answer = (await terminal.question(`${question}${standard === "" ? "" : ` [${standard}]`}: `)).trim();
    return answer === "" ? standard : answer;
  };
  try {
    const url = await ask("URL by which others reach the nodes (https://…)", flags.url, "");
    const nodes = await ask("Which nodes: directory, relay, cache", flags.nodes, defaults.nodes);
    const needsDirectory = !parseNodes(nodes).includes("directory");
    const directory = needsDirectory ? await ask("URL of the Directory to ask", flags.directory, "") : null;
    const data = await ask("Folder of the data", flags.data, defaults.data);
    const listen = await ask("Address to listen on", flags.listen, defaults.listen);
    const proxy = flags.proxy && (await ask("Does a proxy on this machine end TLS? (yes/no)", undefined, "yes"));
    return { url, nodes, directory, data: resolve(data), listen, proxy: proxy === "yes" || proxy === "y" };
  } finally {
    terminal.close();
  }
}

function parseNodes(text: string): NodeName[] {
  const names = text.split(",").map((name) => name.trim().toLowerCase());
  const unknown = names.find((name) => !nodeNames.some((one) => one === name));
  if (unknown !== undefined) throw failed(`--nodes: ${unknown || "(nothing)"} is not directory, relay or cache`);
  return nodeNames.filter((name) => names.includes(name));
}

/** What of a text could be a host. */
function hostIn(text: string): string {
  return /[a-z0-9.-]+\.[a-z]{2,}/i.exec(text)?.[0].toLowerCase() ?? "waypost.example.org";
}

function checkAnswers(raw: RawAnswers): InitAnswers {
  const url = withoutTrailingSlashes(raw.url);
  if (!isPublicEndpoint(url))
    throw failed(`--url: ${raw.url} must begin with https:// (or http://), such as https://${hostIn(raw.url)}`);
  const nodes = parseNodes(raw.nodes);
  const directory = raw.directory === null ? null : withoutTrailingSlashes(raw.directory);
  if (!nodes.includes("directory") && (directory === null || !isPublicEndpoint(directory)))
    throw failed("--directory is missing: a Relay or a Cache without a Directory asks one by its URL");
  return { ...raw, url, nodes, directory };
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
  const unit = unitFile({ config: `${folder}/waypost.toml`, data: answers.data });
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
  const { url, nodes, directory, data, listen, proxy } = answers;
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
        `admin_listen = [${quoted(`unix:${data}/admin.sock`)}]`,
        ...(proxy ? ['trusted_proxies = ["127.0.0.1", "::1"]'] : []),
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

/** Whether this is the executable of the Debian package, which brings a unit and a user. */
function isPackaged(): boolean {
  return process.execPath === "/usr/bin/waypost";
}

/** Which of the next steps are already done. */
type Found = { readonly isInstalled: boolean; readonly hasUser: boolean; readonly hasUnit: boolean };

/** The unit of the package names these two. */
function hasPackagedUnit({ data }: InitAnswers, folder: string): boolean {
  return isPackaged() && folder === "/etc/waypost" && data === defaults.data;
}

async function foundHere(answers: InitAnswers, folder: string): Promise<Found> {
  const users = await readFile("/etc/passwd", "utf8").catch(() => "");
  const isInstalled = isPackaged() || process.execPath === "/usr/local/bin/waypost";
  return { isInstalled, hasUser: /^waypost:/m.test(users), hasUnit: hasPackagedUnit(answers, folder) };
}

export function nextSteps({ url, data, nodes, proxy }: InitAnswers, folder: string, found: Found): string {
  const { isInstalled, hasUser, hasUnit } = found;
  const unit = hasUnit ? "" : `cp ${folder}/waypost.service /etc/systemd/system/ && `;
  return [
    "Next, as root:",
    ...(isInstalled ? [] : ["  cp waypost /usr/local/bin/waypost      # the executable"]),
    ...(hasUser ? [] : [`  useradd --system --home-dir ${data} --shell /usr/sbin/nologin waypost`]),
    ...(isStateFolder(data) ? [] : [`  install -d -m 700 -o waypost ${data}`]),
    ...(nodes.includes("cache") ? [`  chown waypost: ${folder}/signing.key`] : []),
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

/** A hardened unit for systemd; `systemd-analyze security` rates it 1.5 ("OK"). */
export function unitFile({ config, data }: { readonly config: string; readonly data: string }): string {
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
CapabilityBoundingSet=
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

/** Caddy gets and renews the certificate by itself, and delays requests while the node restarts. */
export function proxyFile(host: string, listen: string): string {
  return `# A proxy that ends TLS in front of all nodes. Caddy gets and renews the certificate by itself.

${host} {
  # At least limits.body_bytes_max.
  request_body {
    max_size 26MiB
  }
  reverse_proxy ${listen} {
    # A restart of the node is a short wait for clients, not a refusal.
    lb_try_duration 10s
    lb_try_interval 100ms
    # Streams of the Cache: no buffering.
    flush_interval -1
    # Replaces the client's own header.
    header_up X-Forwarded-For {remote_host}
  }
}
`;
}
