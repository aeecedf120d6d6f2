/**
 * Checks across settings that are valid one by one. Problems keep a node from starting; warnings, for settings that are
 * valid and probably not meant, are printed by `config check` and logged at the start.
 * Source: rules sections 4 ("unsigned_updates"), 5, 6, 7 and 9.
 */
import { isDid } from "../core/codec/did.ts";
import { isLoopbackListener } from "../core/message/address.ts";
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

function unless(holds: boolean, settings: Broken["settings"], message: string): Broken[] {
  return holds ? [] : [{ settings, message }];
}

function serverProblems(config: Config): Broken[] {
  const { server, directory } = config;
  const loopback = server.listen.every(isLoopbackListener);
  return [
    ...unless(
      !directory.enabled || directory.unsigned_updates === "deny" || loopback,
      ["directory.unsigned_updates", "server.listen"],
      '"allow" lets anyone rewrite anyone\'s policy: every listener must be loopback or a Unix socket',
    ),
    ...unless(
      (server.tls_cert_file === null) === (server.tls_key_file === null),
      ["server.tls_cert_file", "server.tls_key_file"],
      "is set without its counterpart: set both tls_cert_file and tls_key_file",
    ),
    ...unless(
      !server.share_port || process.platform === "linux",
      ["server.share_port"],
      "only Linux spreads the connections of a port over processes",
    ),
    ...unless(
      !server.share_port || lonelyStores(config).length === 0,
      ["server.share_port", "directory.enabled", "cache.enabled"],
      `needs postgres stores: ${lonelyStores(config).join(", ")} belongs to one process, but requests for a Directory or a Cache reach several`,
    ),
  ];
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

function limitProblems({ limits, server }: Config): Broken[] {
  const [chunk, unchunked, body] = [limits.chunk_bytes_max, limits.unchunked_bytes_max, limits.body_bytes_max].map(
    (bytes) => renderSizeSetting(bytes),
  );
  const order = `must hold: chunk_bytes_max (${chunk}) <= unchunked_bytes_max (${unchunked}) <= body_bytes_max (${body})`;
  return [
    ...unless(
      limits.chunk_bytes_max <= limits.unchunked_bytes_max,
      ["limits.chunk_bytes_max", "limits.unchunked_bytes_max"],
      order,
    ),
    ...unless(
      limits.unchunked_bytes_max <= limits.body_bytes_max,
      ["limits.unchunked_bytes_max", "limits.body_bytes_max"],
      order,
    ),
    ...unless(
      limits.header_bytes_max <= limits.body_bytes_max,
      ["limits.header_bytes_max", "limits.body_bytes_max"],
      `is above body_bytes_max (${body})`,
    ),
    ...unless(
      2 * limits.body_bytes_max <= server.body_bytes_in_flight,
      ["server.body_bytes_in_flight", "limits.body_bytes_max"],
      `is less than twice limits.body_bytes_max: one client gets half, so a body of that size could never be read; set at least "${renderSizeSetting(2 * limits.body_bytes_max)}"`,
    ),
  ];
}

function nodeProblems(config: Config): Broken[] {
  const { directory, relay, cache } = config;
  const needsSource = (node: "relay" | "cache"): Broken[] =>
    unless(
      !config[node].enabled || directory.enabled || config[node].recipients !== "local",
      [`${node}.recipients`, "directory.enabled"],
      'is "local", but no Directory runs in this process: name a Directory\'s URL or a ledger',
    );
  return [
    ...unless(
      directory.enabled || relay.enabled || cache.enabled,
      ["(file)", "directory.enabled", "relay.enabled", "cache.enabled"],
      "no node is enabled: set enabled = true under [directory], [relay] or [cache]",
    ),
    ...needsSource("relay"),
    ...needsSource("cache"),
    ...unless(
      !cache.enabled || cache.public_endpoints.length > 0,
      ["cache.public_endpoints"],
      "a Cache needs at least one: the URL that recipients publish and sign",
    ),
    ...unless(
      cache.recipient_bytes_max <= cache.store_bytes_max,
      ["cache.recipient_bytes_max", "cache.store_bytes_max"],
      `is above store_bytes_max (${renderSizeSetting(cache.store_bytes_max)})`,
    ),
  ];
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
  return [
    ...proxyWarnings(config),
    ...listWarnings(config),
    ...exampleWarnings(config),
    ...volatileWarnings(config),
    ...listenerWarnings(config),
  ];
}

function proxyWarnings({ server }: Config): InputProblem[] {
  return server.trusted_proxies.flatMap((network, index) =>
    /\/0+$/.test(network)
      ? [
          {
            setting: `server.trusted_proxies.${index}`,
            message: `${network} trusts every client: anybody can choose the address that rate limits see`,
          },
        ]
      : [],
  );
}

const listNames = ["allow_recipients", "deny_recipients", "allow_senders", "deny_senders"] as const;

function listWarnings(config: Config): InputProblem[] {
  return (["relay", "cache"] as const).flatMap((node) =>
    listNames.flatMap((list) =>
      config[node][list].flatMap((entry, index) =>
        isDid(entry)
          ? []
          : [{ setting: `${node}.${list}.${index}`, message: `${entry} is not a DID: the entry matches nobody` }],
      ),
    ),
  );
}

/** Names of examples (RFC 2606) that were left in a file. */
function exampleWarnings(config: Config): InputProblem[] {
  return (["relay", "cache"] as const).flatMap((node) =>
    !config[node].enabled
      ? []
      : config[node].public_endpoints.flatMap((endpoint, index) =>
          /(^|\.)example(\.(org|com|net))?$/.test(new URL(endpoint).hostname)
            ? [
                {
                  setting: `${node}.public_endpoints.${index}`,
                  message: `${endpoint} is a name from an example: nobody can reach this node by it`,
                },
              ]
            : [],
        ),
  );
}

function volatileWarnings({ cache, directory, stores }: Config): InputProblem[] {
  const isMemory = (store: string): boolean => stores[store]?.plugin === "memory";
  const warnings: InputProblem[] = [];
  if (cache.enabled && isMemory(cache.store)) {
    const message = "keeps envelopes in memory: every envelope is lost when the process ends";
    warnings.push({ setting: "cache.store", message });
  }
  if (directory.enabled && isMemory(directory.ledger)) {
    const message = "keeps identities in memory: every identity is lost when the process ends";
    warnings.push({ setting: "directory.ledger", message });
  }
  return warnings;
}

function listenerWarnings({ server, relay, cache }: Config): InputProblem[] {
  const isPublic = (relay.enabled || cache.enabled) && server.admin_listen.length === 0;
  const open = server.listen.some((address) => /^(0\.0\.0\.0|\[::\]):/.test(address));
  if (!isPublic || !open) return [];
  return [{ setting: "server.admin_listen", message: "is empty: /metrics is public on the addresses of listen" }];
}
