/**
 * Settings that are valid and probably not meant: `config check` prints a warning for each, and the node logs it at its
 * start.
 * Source: rules sections 5, 6, 7 and 9.
 */
import { isDid } from "../core/codec/did.ts";
import { hourMs } from "../core/codec/time.ts";
import { isLoopbackListener } from "../core/message/address.ts";
import type { InputProblem } from "../storage/contract.ts";
import { type Config, renderDurationSetting } from "./schema.ts";

export function configWarnings(config: Config): InputProblem[] {
  return [
    ...listWarnings(config),
    ...endpointWarnings(config),
    ...nodeWarnings(config),
    ...storeWarnings(config),
    ...listenerWarnings(config),
    ...limitWarnings(config),
  ];
}

const listNames = ["allow_recipients", "deny_recipients", "allow_senders", "deny_senders"] as const;

function* listWarnings(config: Config): Generator<InputProblem> {
  for (const [i, network] of config.server.trusted_proxies.entries()) {
    const message = `${network} trusts every client: each can choose the address that rate limits see`;
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

function* endpointWarnings(config: Config): Generator<InputProblem> {
  for (const node of ["relay", "cache"] as const) {
    if (!config[node].enabled) continue;
    for (const [i, endpoint] of config[node].public_endpoints.entries())
      for (const message of endpointDoubts(endpoint, config.server))
        yield { setting: `${node}.public_endpoints.${i}`, message };
  }
}

function* endpointDoubts(endpoint: string, { listen, tls_cert_file: cert }: Config["server"]): Generator<string> {
  const { protocol, hostname, pathname } = new URL(endpoint);
  const isOpen = !listen.every(isLoopbackListener);
  const isOwn = /^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname);
  // Names of examples (RFC 2606) that were left in a file.
  if (/(^|\.)example(\.(org|com|net))?$/.test(hostname))
    yield `${endpoint} is a name from an example: this node can't be reached by it`;
  if (pathname !== "/") yield `${endpoint} has a path: a proxy must remove it, since this node serves none below it`;
  if (/^(0\.0\.0\.0|\[::\])$/.test(hostname)) yield `${endpoint} is an address to listen on, and nobody's address`;
  if (isOwn && isOpen) yield `${endpoint} is reached from this machine alone, but the node listens for others`;
  if (protocol === "http:" && isOpen && !isOwn)
    yield `${endpoint} is not encrypted: others on the way see who writes to whom, and pages of https can't use it`;
  if (protocol === "http:" && cert !== null) yield `${endpoint} is http, but the listeners use TLS: write https`;
}

/** Settings of a node that does not run, and a Relay that forwards alone. */
function* nodeWarnings({ relay, cache }: Config): Generator<InputProblem> {
  for (const [name, node] of [["relay", relay] as const, ["cache", cache] as const])
    if (!node.enabled && node.public_endpoints.length > 0)
      yield { setting: `${name}.enabled`, message: `is false: the settings of [${name}] have no effect` };
  if (relay.enabled && relay.public_endpoints.length === 0)
    yield { setting: "relay.public_endpoints", message: "is empty: nobody can receive live here" };
}

function* storeWarnings({ cache, directory, relay, stores }: Config): Generator<InputProblem> {
  const used = new Set([
    ...(directory.enabled ? [directory.store, directory.ledger] : []),
    ...[relay, cache].flatMap((node) => (node.enabled ? [node.store, node.recipients.replace(/^ledger:/, "")] : [])),
  ]);
  for (const store of Object.keys(stores).filter((name) => !used.has(name)))
    yield { setting: `stores.${store}`, message: "is used by no node: name it in store or ledger of one" };
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
  const hasEndpoints = relay.enabled || cache.enabled;
  const isOpen = server.listen.some((address) => /^(0\.0\.0\.0|\[::\]):/.test(address));
  if (hasEndpoints && server.admin_listen.length === 0 && isOpen)
    yield { setting: "server.admin_listen", message: "is empty: /metrics is public on the addresses of listen" };
  for (const [i, address] of server.admin_listen.entries()) {
    const message = `${address} is open to other machines: they read the metrics and the status page`;
    if (!isLoopbackListener(address)) yield { setting: `server.admin_listen.${i}`, message };
  }
  const endpoints = [relay, cache].flatMap((node) => (node.enabled ? node.public_endpoints : []));
  const isBehindProxy = server.tls_cert_file === null && endpoints.some((endpoint) => endpoint.startsWith("https:"));
  if (!isBehindProxy || server.trusted_proxies.length > 0) return;
  const message =
    "is empty, but a proxy must end TLS for the https endpoints: all its clients count as one, and share one rate";
  yield { setting: "server.trusted_proxies", message };
}

function* limitWarnings({ limits, server }: Config): Generator<InputProblem> {
  if (limits.clock_skew > hourMs) {
    const message = `${renderDurationSetting(limits.clock_skew)} lets a recorded proof be used for as long`;
    yield { setting: "limits.clock_skew", message: `${message}; clocks that NTP sets differ by less than a second` };
  }
  if (server.requests_max < 16) {
    const message = `${server.requests_max} requests at once: one client gets half of them, and most get 503`;
    yield { setting: "server.requests_max", message };
  }
}
