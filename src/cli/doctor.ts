/**
 * `waypost doctor`: what `config check` checks, and then whether this machine can run the
 * configuration, as a list of findings: its disks, its stores (opened to read: format, schema,
 * reachability), the addresses to listen on, the Directory where recipients are looked up, and the
 * public endpoints as others see them. It changes nothing, and a running node may use the same
 * stores and addresses. `--start` leaves out what keeps no node from starting: a package asks so
 * before it restarts a node.
 */
import { lookup } from "node:dns/promises";
import { accessSync, constants, existsSync, readdirSync, statfsSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import { publishedOf } from "../app/about.ts";
import { failed, failedInResult } from "../app/failure.ts";
import { isSystemError } from "../app/files.ts";
import { eventKeysOf } from "../app/keys.ts";
import { storesOf } from "../app/stores.ts";
import { isPublicEndpoint } from "../config/kinds.ts";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { type ListenAddress, parseListenAddress } from "../core/message/address.ts";
import { sameEndpoint } from "../core/message/proof.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import { groupId, namesPeers, userId } from "../nodes/http/peer.ts";
import { removeStaleSocket } from "../nodes/http/server.ts";
import type { OpenStep } from "../storage/bind.ts";
import {
  askJson,
  createReport,
  defaultConfigFile,
  type JsonReply,
  probeTimeoutMs,
  renderBytes,
} from "./command.ts";
import { foldersOf, nearestFolder, readConfig, warningsOf } from "./config.ts";

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
    .option("--start", "check only what keeps a node from starting")
    .option("--json", "print the findings as JSON")
    .action(async (options: { config: string; json?: boolean; start?: true }) => {
      const config = await readConfig(options.config, { toServe: true });
      const startOnly = options.start === true;
      const findings = await examine(config, { file: options.config, startOnly });
      const labelOf = ({ ok, warning }: Finding) => {
        if (!ok) return "FAIL";
        return warning ? "warn" : "ok  ";
      };
      const lines = findings.map((one) => `${labelOf(one)}  ${one.name}: ${one.detail}`);
      createReport(options.json === true).result(findings, lines.join("\n"));
      if (findings.some(({ ok }) => !ok)) throw failedInResult("some checks failed");
    });
}

type Examining = { readonly file: string; readonly startOnly: boolean };

async function examine(config: Config, { file, startOnly }: Examining): Promise<Finding[]> {
  const { recipients, listen, admin_listen } = config.server;
  const stores = await storesOf(config);
  const starting = [
    ...stores.map((step) => checkStore(config, step)),
    ...listen.map((address) => finding(`address ${address}`, () => checkAddress(config, address))),
    ...admin_listen.map((address) =>
      finding(`address ${address}`, () => checkAdminAddress(config, address)),
    ),
    ...unknownGroups(config),
  ];
  if (startOnly) return Promise.all(starting);
  return Promise.all([
    { name: "configuration", ok: true, detail: `${file}, with its certificate and keys` },
    ...warningsOf(config, file).map(({ setting, message: detail }) => {
      return { name: `setting ${setting}`, ok: true, warning: true, detail };
    }),
    ...foldersOf(config).map(([store, , folder]) =>
      finding(`disk of store ${store}`, () => disk(folder)),
    ),
    ...starting,
    ...(isPublicEndpoint(recipients)
      ? [finding(`directory ${recipients}`, () => directory(recipients))]
      : []),
    ...publicEndpoints(config),
  ]);
}

/** What is as it should be, unless the operator knows better. */
type Doubt = { readonly doubt: string };

/** What the work returns is the detail; what it throws is why the check fails. */
async function finding(
  name: string,
  work: () => string | Promise<string | Doubt>,
): Promise<Finding> {
  try {
    const found = await work();
    if (typeof found === "string") return { name, ok: true, detail: found };
    return { name, ok: true, warning: true, detail: found.doubt };
  } catch (error) {
    return { name, ok: false, detail: errorText(error) };
  }
}

// ------------------------------------------------------------------------------------- the machine

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

// ------------------------------------------------------------------------------------------ stores

const lookMsMax = 15_000;

/**
 * The first record is read, as an export would: that takes the right format or schema, and
 * a database that answers.
 */
async function checkStore(config: Config, { name, maintenance }: OpenStep): Promise<Finding> {
  const title = `store ${name}`;
  const settings = config.stores[name];
  const [plugin, path] = [settings?.plugin, settings?.["path"]];
  if (plugin === "memory") return { name: title, ok: true, detail: "is in memory" };
  if (maintenance === null) {
    const detail = `the plugin ${plugin} can't look into a store without opening it to write`;
    return { name: title, ok: true, warning: true, detail };
  }
  if (typeof path === "string" && isEmptyFolder(path))
    return { name: title, ok: true, detail: `will be created in ${path}` };
  return finding(title, async () => {
    const records = maintenance.records(() => {})[Symbol.asyncIterator]();
    const look = records.next().then(
      () => "opened",
      (error: unknown) => errorText(error),
    );
    const found = await withDeadline(look, lookMsMax);
    if (found === late) throw failed(`does not answer within ${lookMsMax / 1_000} s`);
    await withDeadline(Promise.resolve(records.return?.(undefined)), lookMsMax);
    if (found !== "opened") throw failed(found);
    return "opens, with the format of this program";
  });
}

function isEmptyFolder(path: string): boolean {
  if (!existsSync(path)) return true;
  return statSync(path).isDirectory() && readdirSync(path).length === 0;
}

// --------------------------------------------------------------------------------------- addresses

/** Listens there for a moment, unless a node of this configuration does. */
async function checkAddress(config: Config, address: string): Promise<string | Doubt> {
  const place = parseListenAddress(address);
  if (place === null) throw failed("is not an address to listen on");
  const about = await aboutNode(place);
  if (about !== null) return checkOwn(config, about);
  await removeStaleSocket(address);
  const server = createServer();
  const bound = new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(
      "unix" in place ? { path: place.unix } : { host: place.hostname, port: place.port },
      resolve,
    );
  });
  await bound.catch((error: unknown) => {
    const isTaken = isSystemError(error, "EADDRINUSE");
    throw failed(isTaken ? "is in use by another program" : errorText(error));
  });
  await new Promise<void>((resolve) => void server.close(() => resolve()));
  return "is free";
}

/**
 * With a group, the node makes the folder of a socket; a store is made first,
 * with the folders above it.
 */
async function checkAdminAddress(config: Config, address: string): Promise<string | Doubt> {
  const folder = address.startsWith("unix:") ? dirname(address.slice("unix:".length)) : null;
  if (folder === null || existsSync(folder)) return checkAddress(config, address);
  if (config.server.admin_group !== null) return `${folder} will be made`;
  const above = `${resolve(folder)}/`;
  const made = foldersOf(config).find(([, , path]) => `${path}/`.startsWith(above));
  if (made === undefined) throw failed(`its folder ${folder} does not exist`);
  return `${folder} will be made, with store ${made[0]}`;
}

/**
 * A group that may open the socket must be there; a name that is given rights may be
 * that of somebody to come.
 */
function* unknownGroups({ server }: Config): Generator<Finding> {
  const { admin_group: group, admin_groups: rights } = server;
  const named = "setting server.admin_group";
  if (group !== null && groupId(group) === null)
    yield { name: named, ok: false, detail: `this system has no group ${group}` };
  if (group !== null && Object.keys(rights).length === 0) {
    const detail = `${group} may open the socket, and do nothing: give it rights there`;
    yield { name: `${named}s`, ok: true, warning: true, detail };
  }
  for (const name of Object.keys(rights)) {
    const user = name.startsWith("user:") ? name.slice("user:".length) : null;
    if ((user === null ? groupId(name) : userId(user)) !== null) continue;
    const kind = user === null ? `group ${name}` : `user ${user}`;
    const detail = `this system has no ${kind}; one of a directory service is named by its number`;
    yield { name: `${named}s`, ok: true, warning: true, detail };
  }
  if (Object.keys(rights).length > 0 && !namesPeers)
    yield {
      name: `${named}s`,
      ok: true,
      warning: true,
      detail: "this system does not name the user of a socket: everybody is refused",
    };
}

/**
 * What a node says of itself there; empty on an address that says nothing of that, and `null` where
 * no node answers.
 */
async function aboutNode(place: ListenAddress): Promise<Record<string, unknown> | null> {
  const urls = "unix" in place ? ["http://localhost"] : probedUrls(place);
  const unix = "unix" in place ? { unix: place.unix } : {};
  for (const url of urls) {
    const ask = (path: string): Promise<Record<string, unknown> | null> =>
      fetch(`${url}${path}`, {
        ...unix,
        // Its certificate is for another name.
        tls: { rejectUnauthorized: false },
        headers: { connection: "close" },
        signal: AbortSignal.timeout(2_000),
      })
        .then((reply) => reply.json())
        .catch(() => null);
    const health = await ask("/healthz");
    // Other programs answer with a status, too.
    if (health?.["status"] === "ok" && typeof health["version"] === "string")
      return (await ask("/node")) ?? {};
  }
  return null;
}

/** Another node answers where its key is another one. Other roles and addresses may be changed. */
async function checkOwn(config: Config, about: Record<string, unknown>): Promise<string | Doubt> {
  const key = about["event_proof_key"];
  const own = await eventKeysOf(config);
  if (typeof key === "string" && own.length > 0 && !own.includes(key) && !isFormer(about, own))
    throw failed(`another node answers there: its key for events is ${key}, not ${own[0]}`);
  const wanted: Record<string, unknown> = publishedOf(config);
  const others = Object.keys(wanted).filter(
    (name) => name in about && JSON.stringify(about[name]) !== JSON.stringify(wanted[name]),
  );
  if (others.length === 0) return "a node answers there";
  const said = others.map((name) => `${name} ${JSON.stringify(about[name])}`).join(", ");
  const doubt = `a node with other settings answers there (${said}): another one, or this one before its next start`;
  return { doubt };
}

/** A rotation that the node has not read so far, or that this file has not. */
const isFormer = ({ previous_event_proof_keys: keys }: Record<string, unknown>, own: string[]) =>
  Array.isArray(keys) && keys.some((one) => own[0] === one?.key);

function probedUrls({ hostname, port }: { readonly hostname: string; readonly port: number }) {
  const own = { "0.0.0.0": "127.0.0.1", "::": "::1" }[hostname] ?? hostname;
  const host = own.includes(":") ? `[${own}]` : own;
  return [`http://${host}:${port}`, `https://${host}:${port}`];
}

// --------------------------------------------------------------------------------------- elsewhere

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
 * Each public endpoint as this machine reaches it: its name resolves, its certificate holds, and a
 * node with the published role answers there and names the same endpoint. Before the start nothing
 * answers there, so silence is only a warning.
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
        return finding(name, () => checkIdentity(reply, endpoint, role));
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
