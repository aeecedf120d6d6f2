/**
 * `waypost init`: from the executable on an empty server to a configuration of all three nodes that
 * runs behind a proxy: files of `examples/` with the URL, the folders and a new signing key in
 * their places. No existing file is replaced.
 */
import { chmod, mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { createInterface } from "node:readline/promises";
import { ed25519 } from "@noble/curves/ed25519.js";
import type { Command } from "commander";
import configExample from "../../examples/all-in-one.toml" with { type: "text" };
import proxyExample from "../../examples/Caddyfile" with { type: "text" };
import unitExample from "../../examples/waypost.service" with { type: "text" };
import { failed } from "../app/failure.ts";
import { createDurably } from "../app/files.ts";
import { homeOfUrl } from "../core/ledger/home.ts";
import { withoutTrailingSlashes } from "../core/message/proof.ts";
import { createReport } from "./command.ts";
import { renderSchema } from "./config.ts";

/** As the examples name them. */
const example = { host: "waypost.example.org", data: "/var/lib/waypost", folder: "/etc/waypost" };
const usualProgram = "/usr/local/bin/waypost";
const packagedUnit = "/usr/lib/systemd/system/waypost.service";

type InitFlags = {
  readonly out: string;
  readonly url?: string;
  readonly data?: string;
  readonly json?: boolean;
};
/** The URL by which others reach the nodes, and absolute folders. */
type Places = { readonly url: string; readonly data: string; readonly folder: string };

export function registerInitCommand(program: Command): void {
  program
    .command("init")
    .description("write a configuration, a signing key, a systemd unit and a proxy file")
    .option("-o, --out <folder>", "folder for the files", ".")
    .option(
      "--url <url>",
      "URL by which others reach the nodes, such as https://waypost.example.org (default: ask)",
    )
    .option("--data <folder>", `folder of the data (default: ${example.data})`)
    .option("--json", "print the result as JSON")
    .action(async ({ out, json, ...flags }: InitFlags) => {
      const { url, data = example.data } =
        flags.url === undefined ? await askAnswers(flags) : flags;
      const places = { url: parsePublicUrl(url ?? ""), data: resolve(data), folder: resolve(out) };
      const files = await writeFiles(places);
      const text = `${files.map((file) => `wrote ${file}`).join("\n")}\n\n${nextSteps(places)}`;
      createReport(json === true).result({ files, url: places.url }, text);
    });
}

function parsePublicUrl(text: string): string {
  const url = withoutTrailingSlashes(text.trim());
  if (homeOfUrl(url) !== null) return url;
  throw failed(
    `${text || "(nothing)"} must be https:// and a host name, such as https://${example.host}`,
  );
}

/** A wrong URL is asked for again. */
async function askAnswers({
  data,
}: Pick<InitFlags, "data">): Promise<Pick<InitFlags, "url" | "data">> {
  if (!process.stdin.isTTY) throw failed("standard input is not a terminal: give --url");
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const askUrl = async (): Promise<string> => {
    const text = await terminal.question("URL by which others reach the nodes (https://…): ");
    try {
      return parsePublicUrl(text);
    } catch (error) {
      process.stderr.write(`  ${(error as Error).message}\n`);
      return askUrl();
    }
  };
  try {
    const url = await askUrl();
    return {
      url,
      data:
        data ??
        ((await terminal.question(`Folder of the data [${example.data}]: `)) || example.data),
    };
  } catch (error) {
    // Ctrl-C and Ctrl-D.
    throw error instanceof Error && error.name === "AbortError"
      ? failed("\nstopped; nothing was written")
      : error;
  } finally {
    terminal.close();
  }
}

// ------------------------------------------------------------------------------------------- files

async function writeFiles(places: Places): Promise<string[]> {
  const { folder } = places;
  // The service reads the configuration as another user.
  if ((await mkdir(folder, { recursive: true })) !== undefined) await chmod(folder, 0o755);
  const written: string[] = [];
  for (const [name, content] of Object.entries(filesOf(places))) {
    const path = `${folder}/${name}`;
    if (!(await createDurably(path, content)))
      throw failed(`${path} already exists; ${writtenText(written)}`);
    // Only the key is a secret.
    if (name !== "signing.key") await chmod(path, 0o644);
    written.push(path);
  }
  return written;
}

function writtenText(written: readonly string[]): string {
  return written.length === 0 ? "nothing was written" : `written before: ${written.join(", ")}`;
}

export function filesOf({ url, data, folder }: Places): Readonly<Record<string, string>> {
  const host = new URL(url).host;
  // In one pass: what is put in may contain what is looked for.
  const puts: readonly (readonly [string, string])[] = [
    [`https://${example.host}`, url],
    [example.host, host],
    [example.data, data],
    [example.folder, folder],
    [usualProgram, installedProgram()],
  ];
  const names = new RegExp(puts.map(([name]) => name.replaceAll(".", "\\.")).join("|"), "g");
  const placed = (text: string) =>
    text
      // The unit can name only a folder there as the service's own.
      .replace(/StateDirectory=.*\n.*\n/, (own) =>
        data.startsWith("/var/lib/")
          ? own.replace("waypost", () => data.slice(9))
          : `ReadWritePaths=${data}\n`,
      )
      .replace(names, (name) => puts.find(([one]) => one === name)?.[1] ?? name);
  return {
    "waypost.toml": `${placed(configExample)}signing_key_file = ${JSON.stringify(`${folder}/signing.key`)}\n`,
    "waypost.schema.json": `${renderSchema()}\n`,
    "waypost.service": placed(unitExample),
    "signing.key": `${ed25519.utils.randomSecretKey().toHex()}\n`,
    Caddyfile: placed(proxyExample),
  };
}

/** Where the Debian package has put this program, or where the first step puts it. */
function installedProgram(): string {
  return process.execPath === "/usr/bin/waypost" ? process.execPath : usualProgram;
}

export function nextSteps({ url, data, folder }: Places): string {
  const [program, unit] = [installedProgram(), `${folder}/waypost.service`];
  const steps = [
    `test -x ${program} || install -m 755 waypost ${program}`,
    `id waypost || useradd --system --home-dir ${data} --shell /usr/sbin/nologin waypost`,
    `install -d -m 700 -o waypost ${data}`,
    `chown waypost: ${folder}/signing.key`,
    `waypost doctor --config ${folder}/waypost.toml`,
    // A copy of the package's own unit would hide that of its next version.
    `cmp -s ${unit} ${packagedUnit} || cp ${unit} /etc/systemd/system/`,
    "systemctl enable --now waypost",
    `cp ${folder}/Caddyfile /etc/caddy/Caddyfile && systemctl reload caddy`,
    `waypost health ${url}`,
  ];
  // By `ProtectHome` and `PrivateTmp`.
  const isHidden = [folder, data].some((path) =>
    /^\/(home|root|run\/user|tmp|var\/tmp)(\/|$)/.test(path),
  );
  const hidden =
    "\nThe unit hides /home, /root and /tmp from the service: keep files and data elsewhere.";
  return [
    "Next, as root:",
    ...steps.map((step) => `  ${step}`),
    ...(isHidden ? [hidden] : []),
  ].join("\n");
}
