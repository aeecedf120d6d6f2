/**
 * Checks across settings that are valid one by one. Problems keep a node from starting; warnings, for settings that are
 * valid and probably not meant, are printed by `config check` and logged at the start.
 * Source: rules sections 4 ("unsigned_updates"), 5, 6, 7 and 9.
 */
import { isDid } from "../core/codec/did.ts";
import { isLoopbackListener, parseListenAddress } from "../core/message/address.ts";
import type { InputProblem } from "../storage/contract.ts";
import { type Config, renderSizeSetting } from "./schema.ts";

/** `reported`: settings already found invalid. They hold defaults here, so relations with them are not checked. */
export function relationProblems(config: Config, reported: readonly InputProblem[]): InputProblem[] {
  const broken = [...serverProblems(config), ...limitProblems(config), ...nodeProblems(config)];
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

// ----------------------------------------------------------------------------------------------------------- warnings

export function configWarnings(config: Config): InputProblem[] {
  return [...listWarnings(config), ...exampleWarnings(config), ...storeWarnings(config), ...listenerWarnings(config)];
}

const listNames = ["allow_recipients", "deny_recipients", "allow_senders", "deny_senders"] as const;

function* listWarnings(config: Config): Generator<InputProblem> {
  for (const [i, network] of config.server.trusted_proxies.entries()) {
    const message = `${network} trusts every client: anybody can choose the address that rate limits see`;
    if (/\/0+$/.test(network)) yield { setting: `server.trusted_proxies.${i}`, message };
  }
  for (const node of ["relay", "cache"] as const) {
    for (const list of listNames) {
      for (const [i, entry] of config[node][list].entries()) {
        const message = `${entry} is not a DID: the entry matches no DID`;
        if (!isDid(entry)) yield { setting: `${node}.${list}.${i}`, message };
      }
    }
  }
}

/** Names of examples (RFC 2606) that were left in a file. */
function* exampleWarnings(config: Config): Generator<InputProblem> {
  for (const node of ["relay", "cache"] as const) {
    if (!config[node].enabled) continue;
    for (const [i, endpoint] of config[node].public_endpoints.entries()) {
      const message = `${endpoint} is a name from an example: this node can't be reached by it`;
      const isExample = /(^|\.)example(\.(org|com|net))?$/.test(new URL(endpoint).hostname);
      if (isExample) yield { setting: `${node}.public_endpoints.${i}`, message };
    }
  }
}

function* storeWarnings({ cache, directory, stores }: Config): Generator<InputProblem> {
  const isMemory = (store: string): boolean => stores[store]?.plugin === "memory";
  if (cache.enabled && isMemory(cache.store)) {
    const message = "keeps envelopes in memory: every envelope is lost when the process ends";
    yield { setting: "cache.store", message };
  }
  if (directory.enabled && isMemory(directory.ledger)) {
    const message = "keeps identities in memory: every identity is lost when the process ends";
    yield { setting: "directory.ledger", message };
  }
}

function* listenerWarnings({ server, relay, cache }: Config): Generator<InputProblem> {
  const isPublic = (relay.enabled || cache.enabled) && server.admin_listen.length === 0;
  const isOpen = server.listen.some((address) => /^(0\.0\.0\.0|\[::\]):/.test(address));
  const message = "is empty: /metrics is public on the addresses of listen";
  if (isPublic && isOpen) yield { setting: "server.admin_listen", message };
}
