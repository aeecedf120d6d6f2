/**
 * Settings that are valid and probably not meant: `config check` prints a warning for each, and the node logs it at its
 * start.
 * Source: rules sections 5, 6, 7 and 9.
 */
import { isDid } from "../core/codec/did.ts";
import { hourMs, secondMs } from "../core/codec/time.ts";
import {
  type Address,
  isLoopbackListener,
  isPublicAddress,
  networkHolds,
  parseAddress,
  parseNetwork,
} from "../core/message/address.ts";
import { sameEndpoint, withoutTrailingSlashes } from "../core/message/proof.ts";
import type { InputProblem } from "../storage/contract.ts";
import { type Config, renderDurationSetting, renderSizeSetting } from "./schema.ts";

/** `TimeoutStopSec` of the unit that `waypost init` writes. */
const unitStopMs = 45 * secondMs;

export function configWarnings(config: Config): InputProblem[] {
  return [
    ...networkWarnings(config),
    ...listWarnings(config),
    ...endpointWarnings(config),
    ...nodeWarnings(config),
    ...sourceWarnings(config),
    ...storeWarnings(config),
    ...listenerWarnings(config),
    ...limitWarnings(config),
  ];
}

const listNames = ["allow_recipients", "deny_recipients", "allow_senders", "deny_senders"] as const;

function* listWarnings(config: Config): Generator<InputProblem> {
  for (const node of ["relay", "cache"] as const) {
    for (const list of listNames) {
      const denied = list === "allow_recipients" ? config[node].deny_recipients : config[node].deny_senders;
      for (const [i, entry] of config[node][list].entries()) {
        const setting = `${node}.${list}.${i}`;
        if (!isDid(entry)) yield { setting, message: `${entry} is not a DID: the entry matches no DID` };
        if (list.startsWith("allow") && denied.includes(entry))
          yield { setting, message: `${entry} is denied too, and that counts` };
      }
    }
  }
}

function* networkWarnings({ server, relay }: Config): Generator<InputProblem> {
  const isLocal = server.listen.every(isLoopbackListener);
  for (const [i, network] of server.trusted_proxies.entries()) {
    const setting = `server.trusted_proxies.${i}`;
    if (/\/0+$/.test(network))
      yield { setting, message: `${network} trusts every client: each can choose the address that rate limits see` };
    else if (isLocal && network !== "unix" && !/^(127\.|::1)/.test(network))
      yield { setting, message: `${network} is another machine, but only this one reaches the listeners` };
  }
  const metadata = parseAddress("169.254.169.254") as Address;
  for (const [i, text] of relay.allow_private.entries()) {
    const setting = `relay.allow_private.${i}`;
    const network = parseNetwork(text);
    if (network === null) continue;
    if (isPublicAddress(network.address))
      yield { setting, message: `${text} is public: the Relay reaches it without permission` };
    else if (networkHolds(network, metadata))
      yield { setting, message: `${text} holds 169.254.169.254, where clouds give credentials to every client` };
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

const isOwnName = (hostname: string): boolean => /^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname);

function* endpointDoubts(endpoint: string, { listen, tls_cert_file: cert }: Config["server"]): Generator<string> {
  const { protocol, hostname, pathname } = new URL(endpoint);
  const isOpen = !listen.every(isLoopbackListener);
  const isOwn = isOwnName(hostname);
  // Names of examples (RFC 2606) that were left in a file.
  if (/(^|\.)example(\.(org|com|net))?$/.test(hostname))
    yield `${endpoint} is a name from an example: this node can't be reached by it`;
  const normal = withoutTrailingSlashes(new URL(endpoint).href);
  if (normal !== withoutTrailingSlashes(endpoint))
    yield `${endpoint} is ${normal} to clients, and recipients sign the exact text: write it so`;
  if (pathname !== "/") yield `${endpoint} has a path: a proxy must remove it, since this node serves none below it`;
  if (/^(0\.0\.0\.0|\[::\])$/.test(hostname)) yield `${endpoint} is an address to listen on: clients can't reach it`;
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
    yield { setting: "relay.public_endpoints", message: "is empty: recipients can't receive live here" };
}

function* sourceWarnings({ directory, relay, cache }: Config): Generator<InputProblem> {
  for (const [name, node] of [["relay", relay] as const, ["cache", cache] as const]) {
    if (!node.enabled || !URL.canParse(node.recipients) || node.recipients.startsWith("ledger:")) continue;
    const setting = `${name}.recipients`;
    const { protocol, hostname } = new URL(node.recipients);
    if (/(^|\.)example(\.(org|com|net))?$/.test(hostname))
      yield { setting, message: `${node.recipients} is a name from an example` };
    if (protocol === "http:" && !isOwnName(hostname))
      yield {
        setting,
        message: `${node.recipients} is not encrypted: others on the way can name other recipients' keys`,
      };
    if (directory.enabled && node.public_endpoints.some((endpoint) => sameEndpoint(endpoint, node.recipients)))
      yield { setting, message: `${node.recipients} is this process: write "local"` };
  }
}

function* storeWarnings({ cache, directory, relay, stores }: Config): Generator<InputProblem> {
  const used = new Set([
    ...(directory.enabled ? [directory.store, directory.ledger] : []),
    ...[relay, cache].flatMap((node) => (node.enabled ? [node.store, node.recipients.replace(/^ledger:/, "")] : [])),
  ]);
  for (const store of Object.keys(stores).filter((name) => !used.has(name)))
    yield { setting: `stores.${store}`, message: "is used by no node: name it in store or ledger of one" };
  for (const [store, { path }] of Object.entries(stores))
    if (typeof path === "string" && /^\/(tmp|run|dev\/shm)\//.test(path))
      yield { setting: `stores.${store}.path`, message: `${path} is lost when the machine restarts` };
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

function* limitWarnings({ limits, server, cache }: Config): Generator<InputProblem> {
  if (cache.enabled && cache.recipient_bytes_max < limits.unchunked_bytes_max) {
    const message = `is less than one envelope of limits.unchunked_bytes_max (${renderSizeSetting(limits.unchunked_bytes_max)})`;
    yield { setting: "cache.recipient_bytes_max", message };
  }
  if (server.drain_timeout > unitStopMs) {
    const message = `is longer than TimeoutStopSec=45 of the unit that \`waypost init\` writes: systemd ends the node before`;
    yield { setting: "server.drain_timeout", message };
  }
  if (limits.clock_skew > hourMs) {
    const message = `${renderDurationSetting(limits.clock_skew)} lets a recorded proof be used for as long`;
    yield { setting: "limits.clock_skew", message: `${message}; clocks that NTP sets differ by less than a second` };
  }
  if (server.requests_max < 16) {
    const message = `${server.requests_max} requests at once: one client gets half of them, and most get 503`;
    yield { setting: "server.requests_max", message };
  }
}
