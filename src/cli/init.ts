/**
 * `waypost init`: from the executable on an empty server to a configuration of all three nodes that runs. It asks for what
 * it needs, or takes it from flags, and writes the configuration with its schema for editors, the signing key, a unit for
 * systemd and a configuration of a proxy. No existing file is replaced.
 */
import { chmod, mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { createInterface } from "node:readline/promises";
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Command } from "commander";
import proxyExample from "../../examples/Caddyfile" with { type: "text" };
import unitExample from "../../examples/waypost.service" with { type: "text" };
import { CommandFailure, failed } from "../app/failure.ts";
import { createDurably } from "../app/files.ts";
import { parseConfig } from "../config/config.ts";
import { isPublicEndpoint } from "../config/schema.ts";
import { isLoopbackListener, parseListenAddress } from "../core/message/address.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { homeOfUrl } from "../core/trust/home.ts";
import { createReport } from "./command.ts";
import { renderSchema, schemaLine } from "./config.ts";

type InitAnswers = {
  /** The URL by which others reach the nodes. */
  readonly url: string;
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
  readonly data?: string;
  readonly listen?: string;
  readonly proxy: boolean;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly yes?: boolean;
  readonly json?: boolean;
};

const usualProgram = "/usr/local/bin/waypost";
const packaged = { program: "/usr/bin/waypost", unit: "/usr/lib/systemd/system/waypost.service" };
const defaults = { data: "/var/lib/waypost", listen: "127.0.0.1:7400" };

export function registerInitCommand(program: Command): void {
  program
    .command("init")
    .description("write a configuration, a signing key, a systemd unit and a proxy file")
    .option("-o, --out <folder>", "folder for the files", ".")
    .option("--url <url>", "URL by which others reach the nodes, such as https://waypost.example.org")
    .option("--data <folder>", `folder of the data (default: ${defaults.data})`)
    .option("--listen <address>", `address to listen on (default: ${defaults.listen})`)
    .option("--no-proxy", "no proxy is in front of the nodes")
    .option("--tls-cert <file>", "without a proxy: certificate of the nodes, PEM")
    .option("--tls-key <file>", "without a proxy: key of the certificate, PEM")
    .option("-y, --yes", "ask no questions; use defaults for flags that are not given")
    .option("--json", "print the result as JSON")
    .action(async (flags: InitFlags) => {
      const answers = flags.yes === true ? await answersOf(flags, takeDefault) : await askAnswers(flags);
      const folder = resolve(flags.out);
      const files = await writeFiles(answers, folder);
      const text = `${files.map((file) => `wrote ${file}`).join("\n")}\n\n${nextSteps(answers, folder)}`;
      createReport(flags.json === true).result({ files, url: answers.url }, text);
    });
}

// ----------------------------------------------------------------------------------------------- answers

type Question<T> = {
  readonly text: string;
  readonly flag: string;
  readonly given: string | undefined;
  /** What an empty line stands for; `null` when an answer is needed. */
  readonly standard: string | null;
  readonly parse: (text: string) => T;
};
type Ask = <T>(question: Question<T>) => Promise<T>;

async function answersOf({ proxy: mayHaveProxy, ...flags }: InitFlags, ask: Ask): Promise<InitAnswers> {
  const question = <T>(
    flag: "url" | "data" | "listen" | "tlsCert" | "tlsKey",
    text: string,
    standard: string | null,
    parse: (text: string) => T,
  ) => ask({ flag: flag.replace("tls", "tls-").toLowerCase(), given: flags[flag], text, standard, parse });
  const url = await question("url", "URL by which others reach the nodes (https://…)", null, parsePublicUrl);
  const data = await question("data", "Folder of the data", defaults.data, (text) => resolve(text));
  const text = "Does a proxy on this machine end TLS? (yes/no)";
  const proxy =
    mayHaveProxy && (await ask({ flag: "proxy", given: undefined, text, standard: "yes", parse: parseYes }));
  // Without a proxy, the node itself answers at an address of https.
  const endsTls = !proxy && url.startsWith("https:");
  const tls = endsTls
    ? {
        certificate: await question("tlsCert", "Certificate of the nodes (PEM file)", null, parsePath),
        key: await question("tlsKey", "Key of the certificate (PEM file)", null, parsePath),
      }
    : null;
  const place = endsTls ? `0.0.0.0:${new URL(url).port || 443}` : defaults.listen;
  const listen = await question("listen", "Address to listen on", place, parseListen);
  return { url, data, proxy, tls, listen };
}

/** For `--yes`: a refusal names the flag. */
const takeDefault: Ask = async ({ text, flag, given, standard, parse }) => {
  const answer = given ?? standard;
  if (answer === null) throw failed(`--${flag} is missing: ${text}`);
  try {
    return parse(answer);
  } catch (error) {
    throw error instanceof CommandFailure ? failed(`--${flag}: ${error.message}`) : error;
  }
};

/** Asks for what no flag gives, until the answer parses. */
async function askAnswers(flags: InitFlags): Promise<InitAnswers> {
  if (!process.stdin.isTTY) throw failed("standard input is not a terminal: give the flags and --yes");
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const ask: Ask = async ({ text, given, standard, parse }) => {
    const prompt = `${text}${standard === null ? "" : ` [${standard}]`}: `;
    for (let preset = given; ; preset = undefined) {
      const answer = (preset ?? (await terminal.question(prompt))).trim();
      try {
        return parse(answer === "" ? (standard ?? "") : answer);
      } catch (error) {
        if (!(error instanceof CommandFailure)) throw error;
        process.stderr.write(`  ${error.message}\n`);
      }
    }
  };
  try {
    return await answersOf(flags, ask);
  } catch (error) {
    // Ctrl-C and Ctrl-D.
    throw error instanceof Error && error.name === "AbortError" ? failed("\nstopped; nothing was written") : error;
  } finally {
    terminal.close();
  }
}

function parsePath(text: string): string {
  if (text === "") throw failed("a file is needed");
  return resolve(text);
}

function parsePublicUrl(text: string): string {
  const url = withoutTrailingSlashes(text);
  if (isPublicEndpoint(url)) return url;
  const host = /[a-z0-9.-]+\.[a-z]{2,}/i.exec(text)?.[0].toLowerCase() ?? "waypost.example.org";
  throw failed(`${text || "(nothing)"} must begin with https:// (or http://), such as https://${host}`);
}

function parseListen(text: string): string {
  if (parseListenAddress(text) !== null) return text;
  throw failed(`${text} is not an address such as 127.0.0.1:7400, [::1]:7400 or unix:/run/waypost.sock`);
}

function parseYes(text: string): boolean {
  if (/^y(es)?$/i.test(text)) return true;
  if (/^n(o|one)?$/i.test(text)) return false;
  throw failed("answer yes or no");
}

// ------------------------------------------------------------------------------------------------- files

async function writeFiles(answers: InitAnswers, folder: string): Promise<string[]> {
  const { data, listen, url } = answers;
  const text = renderConfiguration(answers, `${folder}/signing.key`);
  const checked = parseConfig(text);
  if (!checked.ok) throw failed(checked.problems.map(({ setting, message }) => `${setting}: ${message}`).join("\n"));
  const files: [name: string, text: string][] = [
    ["waypost.toml", text],
    ["waypost.schema.json", `${renderSchema()}\n`],
    ["waypost.service", unitFile({ config: `${folder}/waypost.toml`, data, listen, program: installedProgram() })],
    ["signing.key", `${ed25519.utils.randomSecretKey().toHex()}\n`],
  ];
  if (answers.proxy) files.push(["Caddyfile", proxyFile(new URL(url).host, listen)]);
  // The service reads the configuration as another user.
  if ((await mkdir(folder, { recursive: true })) !== undefined) await chmod(folder, 0o755);
  const written: string[] = [];
  for (const [name, content] of files) {
    const path = `${folder}/${name}`;
    if (!(await createDurably(path, content))) throw failed(`${path} already exists; nothing after it was written`);
    // Only the key is a secret.
    if (name !== "signing.key") await chmod(path, 0o644);
    written.push(path);
  }
  return written;
}

/** The configuration file that the answers lead to. */
export function renderConfiguration(answers: InitAnswers, keyFile: string): string {
  const { url, data, listen, proxy, tls } = answers;
  const quoted = (text: string): string => JSON.stringify(text);
  const published = ["enabled = true", `public_endpoints = [${quoted(url)}]`];
  const sections: [name: string, lines: readonly string[]][] = [
    [
      "server",
      [
        `listen = [${quoted(listen)}]`,
        "# Metrics and the status page for this machine; the socket is for waypost reload, block and invite.",
        `admin_listen = [${quoted(metricsListen(listen))}, ${quoted(`unix:${data}/admin.sock`)}]`,
        ...(proxy ? ['trusted_proxies = ["127.0.0.1", "::1"]'] : []),
        ...(tls === null ? [] : [`tls_cert_file = ${quoted(tls.certificate)}`, `tls_key_file = ${quoted(tls.key)}`]),
      ],
    ],
    ["stores.main", ['plugin = "lmdb"', `path = ${quoted(`${data}/store`)}`]],
    ["directory", ["enabled = true", ...(homeOfUrl(url) === null ? [] : [`public_endpoint = ${quoted(url)}`])]],
    ["relay", [...published, `public_id = ${quoted(new URL(url).hostname)}`]],
    ["cache", [...published, `signing_key_file = ${quoted(keyFile)}`]],
  ];
  const body = sections.map(([section, lines]) => [`[${section}]`, ...lines, ""].join("\n")).join("\n");
  const comment = "# Every other setting has its default: waypost config show, waypost config reference.";
  return `${schemaLine}\n${comment}\n\n${body}`;
}

/** Where `examples/prometheus` scrapes, or beside another port of this machine. */
function metricsListen(listen: string): string {
  const place = parseListenAddress(listen);
  const isUsual = !isLoopbackListener(listen) || place === null || "unix" in place;
  return `127.0.0.1:${isUsual ? 7_401 : place.port + 1}`;
}

/** Where the Debian package has put this program, or where the first step puts it. */
function installedProgram(): string {
  return process.execPath === packaged.program ? packaged.program : usualProgram;
}

export function nextSteps({ url, data, proxy, tls }: InitAnswers, folder: string): string {
  const [program, unit] = [installedProgram(), `${folder}/waypost.service`];
  const steps = [
    `test -x ${program} || install -m 755 waypost ${program}`,
    `id waypost || useradd --system --home-dir ${data} --shell /usr/sbin/nologin waypost`,
    `install -d -m 700 -o waypost ${data}`,
    `chown waypost: ${folder}/signing.key`,
    ...(tls === null ? [] : [`chgrp waypost ${tls.certificate} ${tls.key} && chmod 640 ${tls.key}`]),
    `waypost doctor --config ${folder}/waypost.toml`,
    // A copy of the package's own unit would hide that of its next version.
    `cmp -s ${unit} ${packaged.unit} || cp ${unit} /etc/systemd/system/`,
    "systemctl enable --now waypost",
    ...(proxy ? [`cp ${folder}/Caddyfile /etc/caddy/Caddyfile && systemctl reload caddy`] : []),
    `waypost health ${url} --wait 60s`,
  ];
  const hidden =
    "\nThe unit hides /home, /root and /tmp from the service: keep files and data elsewhere, such as\n--out /etc/waypost --data /var/lib/waypost.";
  return [
    "Next, as root:",
    ...steps.map((step) => `  ${step}`),
    ...(isHidden(folder) || isHidden(data) ? [hidden] : []),
  ].join("\n");
}

// ----------------------------------------------------------------------------------------- unit and proxy

const stateRoot = "/var/lib/";

/** Whether the unit can name it as the service's own. */
function isStateFolder(path: string): boolean {
  return path.startsWith(stateRoot);
}

/** By `ProtectHome` and `PrivateTmp` of the unit. */
function isHidden(path: string): boolean {
  return /^\/(home|root|run\/user|tmp|var\/tmp)(\/|$)/.test(path);
}

/** Whether only a process with the capability may listen there. */
function isPrivileged(listen: string): boolean {
  const place = parseListenAddress(listen);
  return place !== null && "port" in place && place.port < 1_024;
}

type UnitFacts = {
  readonly config: string;
  readonly data: string;
  readonly listen: string;
  readonly program: string;
};

/** `examples/waypost.service` for other places: a hardened unit, which `systemd-analyze security` rates 1.5 ("OK"). */
export function unitFile({ config, data, listen, program }: UnitFacts): string {
  const state = isStateFolder(data) ? `StateDirectory=${data.slice(stateRoot.length)}` : `ReadWritePaths=${data}`;
  const capability = "CAP_NET_BIND_SERVICE";
  const capabilities = `AmbientCapabilities=${capability}\nCapabilityBoundingSet=${capability}`;
  return unitExample
    .replace("StateDirectory=waypost", () => state)
    .replace(isStateFolder(data) ? "" : "StateDirectoryMode=0700\n", "")
    .replaceAll(defaults.data, () => data)
    .replaceAll("/etc/waypost/waypost.toml", () => config)
    .replaceAll(usualProgram, () => program)
    .replace("CapabilityBoundingSet=", isPrivileged(listen) ? capabilities : "CapabilityBoundingSet=");
}

/** `examples/Caddyfile` for another host: the proxy gets the certificate and delays requests while the node restarts. */
export function proxyFile(host: string, listen: string): string {
  return proxyExample.replace("waypost.example.org", () => host).replace(defaults.listen, () => listen);
}
