/**
 * Checks of settings that are valid one by one. A broken relation between settings is a
 * problem, which keeps a node from starting. What loses data, exposes something or makes
 * all clients one is a warning: `config check` prints it, and the node logs it at its
 * start.
 * Source: rules sections 4 ("unsigned_updates"), 5, 6, 7 and 9.
 */
import { isAbsolute, normalize } from "node:path";
import { dayMs } from "../core/codec/time.ts";
import {
  isLoopbackAddress,
  isLoopbackListener,
  isPublicAddress,
  networkHolds,
  parseAddress,
  parseListenAddress,
  parseNetwork,
} from "../core/message/address.ts";
import { type InputProblem, renderSizeSetting } from "../storage/setting-problem.ts";
import { isPublicEndpoint, renderDurationSetting } from "./kinds.ts";
import { listSettings, renderValue } from "./reference.ts";
import { type Config, configSchema } from "./schema.ts";

type Remark = readonly [setting: string, message: string];

const remarksOf =
  (...checks: readonly ((config: Config) => Iterable<Remark>)[]) =>
  (config: Config): InputProblem[] =>
    checks
      .flatMap((check) => [...check(config)])
      .map(([setting, message]) => ({ setting, message }));

/** Of settings that are valid one by one. */
export const relationProblems = remarksOf(
  serverRelations,
  pathRelations,
  limitRelations,
  nodeRelations,
  appRelations,
);
export const configWarnings = remarksOf(
  networkWarnings,
  endpointWarnings,
  storeWarnings,
  sizeWarnings,
  reportWarnings,
);

// --------------------------------------------------------------------------------------- relations

function* serverRelations({ server, directory }: Config): Generator<Remark> {
  const { listen, admin_listen, tls_cert_file: cert, tls_key_file: key } = server;
  if (
    directory.enabled &&
    directory.unsigned_updates === "allow" &&
    !listen.every(isLoopbackListener)
  )
    yield [
      "directory.unsigned_updates",
      '"allow" lets anyone rewrite anyone\'s policy: every listener must be loopback or a Unix socket',
    ];
  if ((cert === null) !== (key === null))
    yield [
      "server.tls_cert_file",
      "is set without its counterpart: set both tls_cert_file and tls_key_file",
    ];
  for (const address of admin_listen.filter((one) =>
    listen.some((other) => isSameAddress(one, other)),
  ))
    yield [
      "server.admin_listen",
      `${address} is also in listen: an admin listener needs a separate address`,
    ];
}

/** Whether two listeners would meet at an address. Port 0 is a free one each time. */
function isSameAddress(one: string, other: string): boolean {
  const [a, b] = [parseListenAddress(one), parseListenAddress(other)];
  if (a === null || b === null || "unix" in a || "unix" in b) return one === other;
  const hosts = [a, b].map(({ hostname }) => (hostname === "localhost" ? "127.0.0.1" : hostname));
  const isShared =
    hosts[0] === hosts[1] || hosts.some((host) => host === "0.0.0.0" || host === "::");
  return a.port !== 0 && a.port === b.port && isShared;
}

/** Files and folders that settings name. Options of a store name a path by these. */
function pathsOf({
  server,
  directory,
  cache,
  witness,
  stores,
}: Config): (readonly [setting: string, path: string])[] {
  const paths: (readonly [setting: string, path: unknown])[] = [
    ...(["listen", "admin_listen"] as const).flatMap((list) =>
      server[list].map((address, i) => [`server.${list}.${i}`, address.split("unix:")[1]] as const),
    ),
    ["server.tls_cert_file", server.tls_cert_file],
    ["server.tls_key_file", server.tls_key_file],
    ["cache.signing_key_file", cache.signing_key_file],
    ["directory.log_key_file", directory.log_key_file],
    ["witness.key_file", witness.key_file],
    ...Object.entries(stores).flatMap(([store, options]) =>
      Object.entries(options)
        .filter(([option]) => /^(path|outbox)$|_file$/.test(option))
        .map(([option, path]) => [`stores.${store}.${option}`, path] as const),
    ),
  ];
  return paths.flatMap(([setting, path]) =>
    typeof path === "string" ? [[setting, path] as const] : [],
  );
}

function* pathRelations(config: Config): Generator<Remark> {
  const folders = new Map<string, string>();
  for (const [setting, path] of pathsOf(config)) {
    if (/^~|\$[A-Za-z{]/.test(path))
      yield [setting, `${path} is not expanded as in a shell: write the path in full`];
    if (!/\.(path|outbox)$/.test(setting)) continue;
    const folder = normalize(`${path}/`);
    for (const [other, one] of folders)
      if (folder.startsWith(one) || one.startsWith(folder))
        yield [setting, `is also ${other}, or in it: each store needs a folder of its own`];
    folders.set(setting, folder);
  }
}

function* limitRelations({ limits, server }: Config): Generator<Remark> {
  const [chunk, unchunked, body] = [
    "chunk_bytes_max",
    "unchunked_bytes_max",
    "body_bytes_max",
  ] as const;
  const shown = [chunk, unchunked, body]
    .map((name) => `${name} (${renderSizeSetting(limits[name])})`)
    .join(" <= ");
  for (const [smaller, larger] of [[chunk, unchunked] as const, [unchunked, body] as const])
    if (limits[smaller] > limits[larger]) yield [`limits.${smaller}`, `must hold: ${shown}`];
  if (2 * limits[body] > server.body_bytes_in_flight)
    yield [
      "server.body_bytes_in_flight",
      `is less than twice limits.body_bytes_max: one client gets half, so a body of that size could never be read; set at least "${renderSizeSetting(2 * limits[body])}"`,
    ];
}

function* nodeRelations({
  server,
  directory,
  relay,
  cache,
  push,
  witness,
}: Config): Generator<Remark> {
  const takesEnvelopes = relay.enabled || cache.enabled;
  if (!directory.enabled && !takesEnvelopes && witness.key_file === null)
    yield [
      "(file)",
      "no node is enabled: set enabled = true under [directory], [relay] or [cache], or key_file under [witness]",
    ];
  if (!directory.enabled && takesEnvelopes && server.recipients === "local")
    yield [
      "server.recipients",
      'is "local", but no Directory runs in this process: name a Directory\'s URL or a ledger',
    ];
  if (
    directory.enabled &&
    directory.self_certifying_only &&
    directory.registration_proofs?.includes("v3") === false
  )
    yield [
      "directory.registration_proofs",
      "lacks v3, the only proof of self-certifying DIDs: no one can register",
    ];
  if (cache.enabled && cache.public_endpoints.length === 0)
    yield [
      "cache.public_endpoints",
      "a Cache needs at least one: the URL that recipients publish and sign",
    ];
  if (!push.enabled) return;
  if (!cache.enabled)
    yield ["push.enabled", "needs a Cache in this process: it pushes what it stores"];
  if (push.contact === null)
    yield [
      "push.contact",
      'is missing: push services ask for one, such as "mailto:you@example.org"',
    ];
  if (cache.signing_key_file === null)
    yield [
      "cache.signing_key_file",
      "is missing: the key of pushes is made next to it (waypost key new <file>)",
    ];
}

/** The app makes identities at these nodes, and its host has nothing else. */
function* appRelations({ server, directory, relay, cache }: Config): Generator<Remark> {
  if (server.app === null) return;
  const endpoints = [...relay.public_endpoints, ...cache.public_endpoints];
  if (!relay.enabled || !cache.enabled || relay.public_endpoints.length === 0)
    yield ["server.app", "needs a Relay with a public endpoint and a Cache in this process"];
  if (!directory.enabled && server.recipients.startsWith("ledger:"))
    yield ["server.app", "needs a Directory: enable it, or name its URL in server.recipients"];
  if (/:(80|443)$/.test(server.app))
    yield ["server.app", "browsers leave 80 and 443 out of a host: write it without the port"];
  if (endpoints.some((endpoint) => new URL(endpoint).host === server.app))
    yield ["server.app", "is a public endpoint: name another host"];
}

// ---------------------------------------------------------------------------------------- warnings

/** Far from its default, a number is rather a slip of a unit than a wish. */
const farFactor = 100;
/** Compared with the machine, where there is one. */
const ofMachine: readonly string[] = ["store_bytes_max", "body_bytes_in_flight"];
const defaults = configSchema.parse({});

function* sizeWarnings(config: Config): Generator<Remark> {
  for (const { section, name, form } of listSettings()) {
    const [value, usual] = [config, defaults].map((one): unknown =>
      Reflect.get(one[section], name),
    );
    if (typeof value !== "number" || typeof usual !== "number" || ofMachine.includes(name))
      continue;
    // Without a limit as the default, no number is far from it.
    if (value === 0 || usual === 0 || (value <= usual * farFactor && value * farFactor >= usual))
      continue;
    const [shown, expected] = [value, usual].map((one) => renderValue(form, one));
    yield [
      `${section}.${name}`,
      `${shown} is far from the default, ${expected}: is the unit right?`,
    ];
  }
}

const metadata = parseAddress("169.254.169.254");
const ownAddresses = [parseAddress("127.0.0.1"), parseAddress("::1")];

/** The SDK asks for the longest life that the protocol has. */
const reportLifeMs = 30 * dayMs;

function* reportWarnings({ operator, limits }: Config): Generator<Remark> {
  if (operator.did === null || limits.ttl_max >= reportLifeMs) return;
  const life = renderDurationSetting(limits.ttl_max);
  yield [
    "limits.ttl_max",
    `reports to operator.did are lost after ${life} unless \`waypost reports\` runs before: "30d" is the most`,
  ];
}

function* networkWarnings({ server, relay }: Config): Generator<Remark> {
  for (const [i, network] of server.trusted_proxies.entries())
    if (/\/0+$/.test(network))
      yield [
        `server.trusted_proxies.${i}`,
        `${network} trusts every client: each can choose the address that rates see`,
      ];
  for (const [i, text] of relay.allow_private.entries()) {
    const network = parseNetwork(text);
    const holds = (address: typeof metadata) =>
      network !== null && address !== null && networkHolds(network, address);
    if (ownAddresses.some(holds))
      yield [
        `relay.allow_private.${i}`,
        `${text} is this machine: senders reach everything that listens on it`,
      ];
    else if (holds(metadata))
      yield [
        `relay.allow_private.${i}`,
        `${text} holds 169.254.169.254, where clouds give credentials to every client`,
      ];
  }
  for (const [i, address] of server.admin_listen.entries())
    if (!isLoopbackListener(address))
      yield [
        `server.admin_listen.${i}`,
        `${address} is open to other machines: they read the metrics`,
      ];
}

/** Whether a proxy runs on this machine. */
function isOwnMachine(proxy: string): boolean {
  return proxy === "unix" || isLoopbackAddress(proxy.replace(/\/.*$/, ""));
}

/** Whether no one outside the local network reaches a host. */
function isLocalName(hostname: string): boolean {
  const address = parseAddress(hostname.replace(/^\[|\]$/g, ""));
  return address === null ? !/\.[^.]/.test(hostname) : !isPublicAddress(address);
}

function* endpointWarnings({ server, relay, cache }: Config): Generator<Remark> {
  const {
    listen,
    admin_listen,
    recipients,
    tls_cert_file: cert,
    trusted_proxies: proxies,
  } = server;
  const isOpen = !listen.every(isLoopbackListener);
  if (admin_listen.length === 0 && listen.some((address) => /^(0\.0\.0\.0|\[::\]):/.test(address)))
    yield ["server.admin_listen", "is empty: /metrics is public on the addresses of listen"];
  if (
    isPublicEndpoint(recipients) &&
    recipients.startsWith("http:") &&
    !isLocalName(new URL(recipients).hostname)
  )
    yield [
      "server.recipients",
      `${recipients} is not encrypted: others on the way can name other recipients' keys`,
    ];
  for (const [name, node] of [["relay", relay] as const, ["cache", cache] as const])
    for (const [i, endpoint] of (node.enabled ? node.public_endpoints : []).entries()) {
      const setting = `${name}.public_endpoints.${i}`;
      const { protocol, pathname, hostname } = new URL(endpoint);
      if (pathname !== "/")
        yield [setting, `${endpoint} has a path: a proxy must remove it, this node serves none`];
      if (protocol === "http:" && !isLocalName(hostname))
        yield [setting, `${endpoint} is not encrypted: others on the way see who writes to whom`];
    }
  const endpoints = [relay, cache].flatMap((node) => (node.enabled ? node.public_endpoints : []));
  const isPublic = (endpoint: string) => !isLocalName(new URL(endpoint).hostname);
  if (relay.enabled && relay.allow_http && relay.public_endpoints.some(isPublic))
    yield [
      "relay.allow_http",
      "lets a public Relay forward unencrypted: others see who writes to whom",
    ];
  const isBeside = proxies.length > 0 && proxies.every(isOwnMachine);
  if (cert === null && isBeside && endpoints.some((one) => one.startsWith("https:")))
    for (const [i, address] of listen.entries())
      if (!isLoopbackListener(address))
        yield [
          `server.listen.${i}`,
          `${address} is open to other machines without TLS, around the proxy: listen on 127.0.0.1`,
        ];
  const proxied = endpoints.find((one) => one.startsWith("https:") || (!isOpen && isPublic(one)));
  if (proxied !== undefined && cert === null && proxies.length === 0)
    yield [
      "server.trusted_proxies",
      `is empty, but a proxy must be in front for ${proxied}: all its clients count as one, and share one rate`,
    ];
}

/** The stores that the enabled nodes name. */
function usedStores({ server, directory, relay, cache, witness }: Config): string[] {
  return [
    ...(directory.enabled ? [directory.ledger, directory.store] : []),
    ...(relay.enabled ? [relay.store] : []),
    ...(cache.enabled ? [cache.store] : []),
    ...(witness.key_file === null ? [] : [witness.store]),
    ...(server.recipients.startsWith("ledger:") ? [server.recipients.slice("ledger:".length)] : []),
  ];
}

function* storeWarnings(config: Config): Generator<Remark> {
  const { cache, directory, stores } = config;
  for (const [setting, path] of pathsOf(config)) {
    if (!isAbsolute(path))
      yield [
        setting,
        `${path} starts at the folder in which the node is started: write the path in full`,
      ];
    // Secrets are often mounted below /run.
    const isFolder = /\.(path|outbox)$/.test(setting);
    if ((isFolder ? /^\/(tmp|var\/tmp|run|dev\/shm)\// : /^\/(var\/)?tmp\//).test(path))
      yield [setting, `${path} is among temporary files, which the system deletes`];
  }
  const used = usedStores(config);
  for (const store of Object.keys(stores))
    if (!used.includes(store)) yield [`stores.${store}`, "no node uses this store"];
  const ids = stores[cache.store]?.["message_ids_max"];
  if (cache.enabled && typeof ids === "number" && ids < cache.store_entries_max)
    yield [
      `stores.${cache.store}.message_ids_max`,
      `is less than cache.store_entries_max (${cache.store_entries_max}): the store is full before`,
    ];
  const isMemory = (store: string): boolean => stores[store]?.plugin === "memory";
  if (cache.enabled && isMemory(cache.store))
    yield [
      "cache.store",
      "keeps envelopes in memory: every envelope is lost when the process ends",
    ];
  if (directory.enabled && isMemory(directory.ledger))
    yield [
      "directory.ledger",
      "keeps identities in memory: every identity is lost when the process ends",
    ];
}
