/**
 * Checks across settings that are valid one by one. A problem keeps a node from starting.
 * Source: rules sections 4 ("unsigned_updates"), 5, 6, 7 and 9.
 */
import { normalize } from "node:path";
import { isLoopbackListener, parseListenAddress } from "../core/message/address.ts";
import type { InputProblem } from "../storage/contract.ts";
import { type Config, renderSizeSetting } from "./schema.ts";

/** `reported`: settings already found invalid. They hold defaults here, so relations with them are not checked. */
export function relationProblems(config: Config, reported: readonly InputProblem[]): InputProblem[] {
  const broken = [
    ...serverProblems(config),
    ...pathProblems(config),
    ...limitProblems(config),
    ...nodeProblems(config),
  ];
  return broken
    .filter(({ settings }) => !settings.some((setting) => isReported(setting, reported)))
    .map(({ settings: [setting], message }) => ({ setting, message }));
}

/** Reported under the first of its settings. */
type Broken = { readonly settings: readonly [string, ...string[]]; readonly message: string };

function* serverProblems(config: Config): Generator<Broken> {
  const { server, directory } = config;
  if (directory.enabled && directory.unsigned_updates === "allow" && !server.listen.every(isLoopbackListener)) {
    yield {
      settings: ["directory.unsigned_updates", "server.listen"],
      message: '"allow" lets anyone rewrite anyone\'s policy: every listener must be loopback or a Unix socket',
    };
  }
  if ((server.tls_cert_file === null) !== (server.tls_key_file === null)) {
    yield {
      settings: ["server.tls_cert_file", "server.tls_key_file"],
      message: "is set without its counterpart: set both tls_cert_file and tls_key_file",
    };
  }
  for (const address of server.admin_listen.filter((one) => server.listen.some((other) => isSameAddress(one, other)))) {
    yield {
      settings: ["server.admin_listen", "server.listen"],
      message: `${address} is also in listen: an admin listener needs an address of its own`,
    };
  }
  for (const list of ["listen", "admin_listen"] as const) {
    const again = server[list].find((one, i) => server[list].some((other, j) => j < i && isSameAddress(one, other)));
    if (again !== undefined)
      yield { settings: [`server.${list}`], message: `${again} is listed twice, or is a part of another address` };
  }
  if (!server.share_port) return;
  if (process.platform !== "linux") {
    yield { settings: ["server.share_port"], message: "only Linux spreads the connections of a port over processes" };
  }
  const lonely = lonelyStores(config);
  if (lonely.length === 0) return;
  yield {
    settings: ["server.share_port", "directory.enabled", "cache.enabled"],
    message: `needs postgres stores: ${lonely.join(", ")} belongs to one process, but requests for a Directory or a Cache reach several`,
  };
}

/** Whether two listeners would meet at an address. Port 0 is a free one each time. */
function isSameAddress(one: string, other: string): boolean {
  const [a, b] = [parseListenAddress(one), parseListenAddress(other)];
  if (a === null || b === null || "unix" in a || "unix" in b) return one === other;
  const [host, otherHost] = [a, b].map(({ hostname }) => (hostname === "localhost" ? "127.0.0.1" : hostname));
  const isShared = host === otherHost || [host, otherHost].some((name) => name === "0.0.0.0" || name === "::");
  return a.port !== 0 && a.port === b.port && isShared;
}

/**
 * Stores of a Directory or a Cache that several processes can't share. The stores of a Relay may differ for a while.
 */
function lonelyStores({ directory, cache, stores }: Config): string[] {
  const used = [
    ...(directory.enabled ? [directory.store, directory.ledger] : []),
    ...(cache.enabled ? [cache.store] : []),
  ];
  return [...new Set(used)].filter((name) => stores[name]?.plugin !== "postgres").map((name) => `stores.${name}`);
}

/** Files and folders that settings name. Options of a store name a path by these. */
function pathsOf({ server, cache, stores }: Config): (readonly [setting: string, path: string])[] {
  const sockets = (["listen", "admin_listen"] as const).flatMap((list) =>
    server[list].flatMap((text, i) =>
      text.startsWith("unix:") ? [[`server.${list}.${i}`, text.slice(5)] as const] : [],
    ),
  );
  const files = [
    ["server.tls_cert_file", server.tls_cert_file],
    ["server.tls_key_file", server.tls_key_file],
    ["cache.signing_key_file", cache.signing_key_file],
    ...Object.entries(stores).flatMap(([store, options]) =>
      Object.entries(options)
        .filter(([option]) => /^(path|outbox)$|_file$/.test(option))
        .map(([option, value]) => [`stores.${store}.${option}`, value] as const),
    ),
  ] as const;
  return [
    ...sockets,
    ...files.flatMap(([setting, path]) => (typeof path === "string" ? [[setting, path] as const] : [])),
  ];
}

function* pathProblems(config: Config): Generator<Broken> {
  const folders = new Map<string, string>();
  for (const [setting, path] of pathsOf(config)) {
    if (/^~|\$[A-Za-z{]/.test(path))
      yield { settings: [setting], message: `${path} is not expanded as in a shell: write the path in full` };
    if (!/\.(path|outbox)$/.test(setting)) continue;
    const folder = normalize(`${path}/`);
    const other = folders.get(folder);
    if (other !== undefined)
      yield { settings: [setting, other], message: `is also ${other}: each store needs a folder of its own` };
    folders.set(folder, setting);
  }
}

function* limitProblems({ limits, server }: Config): Generator<Broken> {
  const {
    chunk_bytes_max: chunk,
    unchunked_bytes_max: unchunked,
    body_bytes_max: body,
    header_bytes_max: header,
  } = limits;
  const size = renderSizeSetting;
  const message = `must hold: chunk_bytes_max (${size(chunk)}) <= unchunked_bytes_max (${size(unchunked)}) <= body_bytes_max (${size(body)})`;
  if (chunk > unchunked) yield { settings: ["limits.chunk_bytes_max", "limits.unchunked_bytes_max"], message };
  if (unchunked > body) yield { settings: ["limits.unchunked_bytes_max", "limits.body_bytes_max"], message };
  if (header > body) {
    const settings = ["limits.header_bytes_max", "limits.body_bytes_max"] as const;
    yield { settings, message: `is above body_bytes_max (${size(body)})` };
  }
  if (2 * body > server.body_bytes_in_flight) {
    yield {
      settings: ["server.body_bytes_in_flight", "limits.body_bytes_max"],
      message: `is less than twice limits.body_bytes_max: one client gets half, so a body of that size could never be read; set at least "${size(2 * body)}"`,
    };
  }
}

function* nodeProblems(config: Config): Generator<Broken> {
  const { directory, relay, cache } = config;
  if (!directory.enabled && !relay.enabled && !cache.enabled) {
    yield {
      settings: ["(file)", "directory.enabled", "relay.enabled", "cache.enabled"],
      message: "no node is enabled: set enabled = true under [directory], [relay] or [cache]",
    };
  }
  for (const node of ["relay", "cache"] as const) {
    if (!config[node].enabled || directory.enabled || config[node].recipients !== "local") continue;
    yield {
      settings: [`${node}.recipients`, "directory.enabled"],
      message: 'is "local", but no Directory runs in this process: name a Directory\'s URL or a ledger',
    };
  }
  if (cache.enabled && cache.public_endpoints.length === 0) {
    const message = "a Cache needs at least one: the URL that recipients publish and sign";
    yield { settings: ["cache.public_endpoints"], message };
  }
  if (cache.recipient_bytes_max > cache.store_bytes_max) {
    yield {
      settings: ["cache.recipient_bytes_max", "cache.store_bytes_max"],
      message: `is above store_bytes_max (${renderSizeSetting(cache.store_bytes_max)})`,
    };
  }
}

/** Whether a setting was already reported: itself, a part of it, or the table around it. */
export function isReported(setting: string, reported: readonly InputProblem[]): boolean {
  return reported.some((one) => {
    const [longer, shorter] = one.setting.length > setting.length ? [one.setting, setting] : [setting, one.setting];
    return longer === shorter || longer.startsWith(`${shorter}.`);
  });
}
