/**
 * Checks of settings that are valid one by one. A broken relation between settings is a problem, which keeps a node from
 * starting. What is probably a mistake is a warning: `config check` prints it, and the node logs it at its start.
 * Source: rules sections 4 ("unsigned_updates"), 5, 6, 7 and 9.
 */
import { isAbsolute, normalize } from "node:path";
import {
  isLoopbackListener,
  isPublicAddress,
  networkHolds,
  parseAddress,
  parseListenAddress,
  parseNetwork,
} from "../core/message/address.ts";
import { sameEndpoint, withoutTrailingSlashes } from "../core/message/proof.ts";
import type { InputProblem } from "../storage/contract.ts";
import { listSettings } from "./reference.ts";
import { type Config, configSchema, isPublicEndpoint, renderDurationSetting, renderSizeSetting } from "./schema.ts";

type Remark = readonly [setting: string, message: string];

const problemOf = ([setting, message]: Remark): InputProblem => ({ setting, message });

/** Of settings that are valid one by one. */
export function relationProblems(config: Config): InputProblem[] {
  const checks = [serverRelations, pathRelations, limitRelations, nodeRelations, appRelations, pushRelations];
  return checks.flatMap((check) => [...check(config)]).map(problemOf);
}

export function configWarnings(config: Config): InputProblem[] {
  const checks = [
    ...[networkWarnings, exampleWarnings, endpointWarnings, nodeWarnings],
    ...[storeWarnings, listenerWarnings, limitWarnings],
  ];
  const found = checks.flatMap((check) => [...check(config)]).map(problemOf);
  const isNew = ({ setting }: InputProblem) => !found.some((one) => one.setting === setting);
  return [...found, ...[...sizeWarnings(config)].map(problemOf).filter(isNew)];
}

/** Far from its default, a number is rather a slip of a unit than a wish. */
const farFactor = 100;
/** Compared with the machine, where there is one. */
const ofMachine: readonly string[] = ["cache.store_bytes_max", "server.body_bytes_in_flight"];
const defaults = configSchema.parse({});

function* sizeWarnings(config: Config): Generator<Remark> {
  for (const { section, name, form } of listSettings()) {
    const [value, usual] = [config, defaults].map((one): unknown => Reflect.get(one[section], name));
    if (ofMachine.includes(`${section}.${name}`)) continue;
    if (typeof value !== "number" || typeof usual !== "number" || value === 0 || usual === 0) continue;
    if (value <= usual * farFactor && value * farFactor >= usual) continue;
    const render = form === "duration" ? renderDurationSetting : form === "size" ? renderSizeSetting : String;
    const far = value > usual ? "more than a hundred times" : "less than a hundredth of";
    yield [`${section}.${name}`, `${render(value)} is ${far} the default, ${render(usual)}: is the unit right?`];
  }
}

// ------------------------------------------------------------------------------------------------ relations

function* serverRelations({ server, directory }: Config): Generator<Remark> {
  const { listen, admin_listen, tls_cert_file: cert, tls_key_file: key } = server;
  if (directory.enabled && directory.unsigned_updates === "allow" && !listen.every(isLoopbackListener))
    yield [
      "directory.unsigned_updates",
      '"allow" lets anyone rewrite anyone\'s policy: every listener must be loopback or a Unix socket',
    ];
  if ((cert === null) !== (key === null))
    yield ["server.tls_cert_file", "is set without its counterpart: set both tls_cert_file and tls_key_file"];
  for (const address of admin_listen.filter((one) => listen.some((other) => isSameAddress(one, other))))
    yield ["server.admin_listen", `${address} is also in listen: an admin listener needs a separate address`];
}

/** Whether two listeners would meet at an address. Port 0 is a free one each time. */
function isSameAddress(one: string, other: string): boolean {
  const [a, b] = [parseListenAddress(one), parseListenAddress(other)];
  if (a === null || b === null || "unix" in a || "unix" in b) return one === other;
  const [host, otherHost] = [a, b].map(({ hostname }) => (hostname === "localhost" ? "127.0.0.1" : hostname));
  const isShared = host === otherHost || [host, otherHost].some((name) => name === "0.0.0.0" || name === "::");
  return a.port !== 0 && a.port === b.port && isShared;
}

/** Files and folders that settings name. Options of a store name a path by these. */
function pathsOf({ server, directory, cache, witness, stores }: Config): (readonly [setting: string, path: unknown])[] {
  const isPath = ([option]: readonly [string, unknown]) => /^(path|outbox)$|_file$/.test(option);
  return [
    ...(["listen", "admin_listen"] as const).flatMap((list) =>
      server[list].map((text, i) => [`server.${list}.${i}`, text.split("unix:")[1]] as const),
    ),
    ["server.tls_cert_file", server.tls_cert_file],
    ["server.tls_key_file", server.tls_key_file],
    ["cache.signing_key_file", cache.signing_key_file],
    ["directory.log_key_file", directory.log_key_file],
    ["witness.key_file", witness.key_file],
    ...Object.entries(stores).flatMap(([store, options]) =>
      Object.entries(options)
        .filter(isPath)
        .map(([option, path]) => [`stores.${store}.${option}`, path] as const),
    ),
  ];
}

const systemFolder = /^\/(|bin|boot|dev|etc|home|lib|opt|proc|root|run|sbin|srv|sys|tmp|usr|var|var\/lib)\/?$/;

function* pathRelations(config: Config): Generator<Remark> {
  const folders = new Map<string, string>();
  for (const [setting, path] of pathsOf(config)) {
    if (typeof path !== "string") continue;
    const isFolder = /\.(path|outbox)$/.test(setting);
    const wanted = isFolder ? "a folder of its own, such as /var/lib/waypost/store" : "a file in a folder of your own";
    if (systemFolder.test(normalize(path))) yield [setting, `${path} is a folder of the system: name ${wanted}`];
    if (/^~|\$[A-Za-z{]/.test(path)) yield [setting, `${path} is not expanded as in a shell: write the path in full`];
    if (!isFolder) continue;
    const folder = normalize(`${path}/`);
    for (const [other, one] of folders)
      if (folder.startsWith(one) || one.startsWith(folder))
        yield [setting, `is also ${other}, or in it: each store needs a folder of its own`];
    folders.set(setting, folder);
  }
}

function* limitRelations({ limits, server, cache }: Config): Generator<Remark> {
  const [chunk, unchunked, body] = ["chunk_bytes_max", "unchunked_bytes_max", "body_bytes_max"] as const;
  const shown = [chunk, unchunked, body].map((name) => `${name} (${renderSizeSetting(limits[name])})`).join(" <= ");
  for (const [smaller, larger] of [[chunk, unchunked] as const, [unchunked, body] as const])
    if (limits[smaller] > limits[larger]) yield [`limits.${smaller}`, `must hold: ${shown}`];
  if (limits.header_bytes_max > limits[body])
    yield ["limits.header_bytes_max", `is above ${body} (${renderSizeSetting(limits[body])})`];
  if (2 * limits[body] > server.body_bytes_in_flight)
    yield [
      "server.body_bytes_in_flight",
      `is less than twice limits.body_bytes_max: one client gets half, so a body of that size could never be read; set at least "${renderSizeSetting(2 * limits[body])}"`,
    ];
  const ofCache = [["bytes", renderSizeSetting] as const, ["entries", String] as const];
  for (const [unit, render] of ofCache) {
    const [one, all] = [cache[`recipient_${unit}_max`], cache[`store_${unit}_max`]];
    if (one > all) yield [`cache.recipient_${unit}_max`, `is above store_${unit}_max (${render(all)})`];
  }
}

function* nodeRelations(config: Config): Generator<Remark> {
  const { server, directory, relay, cache, witness } = config;
  if (!directory.enabled && !relay.enabled && !cache.enabled && witness.key_file === null)
    yield [
      "(file)",
      "no node is enabled: set enabled = true under [directory], [relay] or [cache], or key_file under [witness]",
    ];
  if (!directory.enabled && consumers(config).length > 0 && server.recipients === "local")
    yield [
      "server.recipients",
      'is "local", but no Directory runs in this process: name a Directory\'s URL or a ledger',
    ];
  if (directory.enabled && directory.self_certifying_only && directory.registration_proofs?.includes("v3") === false)
    yield ["directory.registration_proofs", "lacks v3, the only proof of self-certifying DIDs: nobody can register"];
  if (cache.enabled && cache.public_endpoints.length === 0)
    yield ["cache.public_endpoints", "a Cache needs at least one: the URL that recipients publish and sign"];
}

function* pushRelations({ push, cache }: Config): Generator<Remark> {
  if (!push.enabled) return;
  if (!cache.enabled) yield ["push.enabled", "needs a Cache in this process: it pushes what it stores"];
  if (push.contact === null)
    yield ["push.contact", 'is missing: push services ask for one, such as "mailto:you@example.org"'];
  if (cache.signing_key_file === null)
    yield [
      "cache.signing_key_file",
      "is missing: the key of pushes is made beside it; create one: waypost key new <file>",
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
  if (endpoints.some((endpoint) => new URL(endpoint).host === server.app))
    yield ["server.app", "is a public endpoint: name another host"];
}

/** The enabled ones of the nodes that take envelopes. */
function consumers({ relay, cache }: Config): (readonly ["relay" | "cache", Config["relay"] | Config["cache"]])[] {
  return [["relay", relay] as const, ["cache", cache] as const].filter(([, node]) => node.enabled);
}

// ------------------------------------------------------------------------------------------------- warnings

/** Names of an example (RFC 2606) that were left in a file. */
function* exampleWarnings(config: Config): Generator<Remark> {
  for (const { section, name } of listSettings()) {
    const value: unknown = Reflect.get(config[section], name);
    for (const [i, one] of [value].flat().entries())
      if (typeof one === "string" && /^[^ ]*\bexample(\.(org|com|net))?(:\d+)?(\/.*)?$/.test(one))
        yield [`${section}.${name}${Array.isArray(value) ? `.${i}` : ""}`, `${one} is a name from an example`];
  }
}

function* networkWarnings({ server, relay }: Config): Generator<Remark> {
  for (const [i, network] of server.trusted_proxies.entries()) {
    const setting = `server.trusted_proxies.${i}`;
    if (/\/0+$/.test(network))
      yield [setting, `${network} trusts every client: each can choose the address that rate limits see`];
  }
  const metadata = parseAddress("169.254.169.254");
  const own = [parseAddress("127.0.0.1"), parseAddress("::1")];
  for (const [i, text] of relay.allow_private.entries()) {
    const setting = `relay.allow_private.${i}`;
    const network = parseNetwork(text);
    if (network === null || metadata === null) continue;
    if (own.some((address) => address !== null && networkHolds(network, address)))
      yield [setting, `${text} is this machine: senders reach everything that listens on it, the admin listener too`];
    else if (networkHolds(network, metadata))
      yield [setting, `${text} holds 169.254.169.254, where clouds give credentials to every client`];
  }
}

/** A port 0 and a Unix socket may lead to any port, but not surely. */
function listensOn(listen: readonly string[], port: number, how: "surely" | "perhaps" = "perhaps"): boolean {
  const ports = listen.map(parseListenAddress).map((place) => (place === null || "unix" in place ? 0 : place.port));
  return ports.includes(port) || (how === "perhaps" && ports.includes(0));
}

const isOwnName = (hostname: string): boolean => /^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname);

/** Whether nobody outside the local network reaches a host. */
function isLocalName(hostname: string): boolean {
  const address = parseAddress(hostname.replace(/^\[|\]$/g, ""));
  return address === null ? !/\.[^.]/.test(hostname) : !isPublicAddress(address);
}

function* endpointWarnings(config: Config): Generator<Remark> {
  const home = config.directory.enabled ? config.directory.public_endpoint : null;
  const endpoints = consumers(config).flatMap(([, { public_endpoints }]) => public_endpoints);
  const isOwn = (url: string) => isOwnName(new URL(url).hostname);
  if (home !== null && isOwn(home) && endpoints.some((url) => !isOwn(url)))
    yield [
      "directory.public_endpoint",
      `${home} is reached from this machine alone: no other Directory finds its people`,
    ];
  for (const [name, node] of consumers(config))
    for (const [i, endpoint] of node.public_endpoints.entries())
      for (const message of endpointDoubts(endpoint, config.server)) yield [`${name}.public_endpoints.${i}`, message];
  const { recipients } = config.server;
  if (!isPublicEndpoint(recipients)) return;
  const { protocol, hostname } = new URL(recipients);
  const doubt = (message: string): Remark => ["server.recipients", message];
  if (protocol === "http:" && !isOwnName(hostname))
    yield doubt(`${recipients} is not encrypted: others on the way can name other recipients' keys`);
  if (endpoints.some((endpoint) => sameEndpoint(endpoint, recipients)))
    yield doubt(`${recipients} is this process: write "local" if a Directory runs in it, else the Directory's URL`);
  else if (config.directory.enabled)
    yield doubt('is elsewhere, but a Directory runs in this process: "local" serves its people');
}

function* endpointDoubts(endpoint: string, server: Config["server"]): Generator<string> {
  const { listen, tls_cert_file: cert, trusted_proxies: proxies } = server;
  const { protocol, hostname, pathname, href, port } = new URL(endpoint);
  const isOpen = !listen.every(isLoopbackListener);
  const isOwn = isOwnName(hostname);
  const isListened = /^(0\.0\.0\.0|\[::\])$/.test(hostname);
  const normal = withoutTrailingSlashes(href);
  if (normal !== withoutTrailingSlashes(endpoint))
    yield `${endpoint} is ${normal} to clients, and recipients sign the exact text: write it so`;
  if (pathname !== "/") yield `${endpoint} has a path: a proxy must remove it, since this node serves none below it`;
  if (isOwn && isOpen) yield `${endpoint} is reached from this machine alone, but the node listens for others`;
  if (protocol === "http:" && isOpen && !isOwn)
    yield `${endpoint} is not encrypted: others on the way see who writes to whom, and pages of https can't use it`;
  if (isListened) yield `${endpoint} is an address to listen on: clients can't reach it`;
  else if (!isOwn && isLocalName(hostname))
    yield `${endpoint} is an address of a local network: nobody outside reaches it`;
  const wanted = Number(port || (protocol === "https:" ? 443 : 80));
  const isDirect = isOwn ? protocol === "http:" && !isOpen : cert !== null && isOpen;
  if (isDirect && proxies.length === 0 && !listensOn(listen, wanted))
    yield `${endpoint} has port ${wanted}, on which nothing listens here`;
  if (protocol === "https:" && cert === null && proxies.length > 0 && listensOn(listen, wanted, "surely"))
    yield `${endpoint} has port ${wanted}, on which this node listens without TLS: name the port of the proxy`;
  if (protocol === "http:" && cert !== null) yield `${endpoint} is http, but the listeners use TLS: write https`;
}

/** Settings of a node that does not run, a Relay that forwards alone, and half of a log. */
function* nodeWarnings(config: Config): Generator<Remark> {
  const { bus, directory, relay, cache, server, witness } = config;
  for (const name of ["directory", "relay", "cache", "push"] as const)
    if (!config[name].enabled && JSON.stringify(config[name]) !== JSON.stringify(defaults[name]))
      yield [`${name}.enabled`, `is false: the settings of [${name}] have no effect`];
  if (directory.enabled && directory.registration_proofs?.includes("v3") === false)
    yield [
      "directory.registration_proofs",
      "lacks v3: new DIDs are unproven, and without v2 the app and the commands register none",
    ];
  if (directory.log_witnesses.length > 0 && directory.log_key_file === null)
    yield ["directory.log_witnesses", "there is no log to cosign: set log_key_file"];
  if (witness.key_file !== null && witness.logs.length === 0)
    yield ["witness.logs", "is empty: this witness cosigns nothing"];
  if (bus.plugin === "local" && Object.keys(bus).length > 1)
    yield ["bus.plugin", 'is "local": the other settings of [bus] have no effect'];
  if (cache.enabled && cache.network_share >= cache.stranger_share)
    yield [
      "cache.network_share",
      "lets one client network use up stranger_share, all that a mailbox has for strangers",
    ];
  if (relay.enabled && relay.public_endpoints.length === 0)
    yield ["relay.public_endpoints", "is empty: recipients can't receive live here"];
  if (relay.enabled && relay.allow_http && relay.public_endpoints.some((url) => !isLocalName(new URL(url).hostname)))
    yield ["relay.allow_http", "lets a public Relay forward unencrypted: others on the way see who writes to whom"];
  const [, app = "", appPort = 80] = /^(.*?)(?::(\d+))?$/.exec(server.app ?? "") ?? [];
  if (parseAddress(app) !== null && !isOwnName(app))
    yield ["server.app", `${app} is an address: browsers run the app on https alone, whose certificates name hosts`];
  if (isOwnName(app) && server.trusted_proxies.length === 0 && !listensOn(server.listen, Number(appPort)))
    yield ["server.app", `${server.app} has port ${appPort}, on which nothing listens here`];
}

function* storeWarnings(config: Config): Generator<Remark> {
  const { cache, directory, stores } = config;
  const ids = stores[cache.store]?.["message_ids_max"];
  if (cache.enabled && typeof ids === "number" && ids < cache.store_entries_max)
    yield [
      `stores.${cache.store}.message_ids_max`,
      `${ids} is less than cache.store_entries_max: the store is full before`,
    ];
  for (const [setting, path] of pathsOf(config)) {
    if (typeof path !== "string") continue;
    const isOfStore = setting.startsWith("stores.");
    if (!isAbsolute(path))
      yield [setting, `${path} starts at the folder in which the node is started: write the path in full`];
    if (/^\/(tmp|var\/tmp)\//.test(path) || (isOfStore && /^\/(run|dev\/shm)\//.test(path)))
      yield [
        setting,
        `${path} is among temporary files, which the system deletes: name a place below /var/lib/waypost`,
      ];
  }
  const isMemory = (store: string): boolean => stores[store]?.plugin === "memory";
  if (cache.enabled && isMemory(cache.store))
    yield ["cache.store", "keeps envelopes in memory: every envelope is lost when the process ends"];
  if (directory.enabled && isMemory(directory.ledger))
    yield ["directory.ledger", "keeps identities in memory: every identity is lost when the process ends"];
}

function* listenerWarnings(config: Config): Generator<Remark> {
  const { listen, admin_listen, tls_cert_file, trusted_proxies } = config.server;
  const nodes = consumers(config);
  for (const address of listen) {
    const place = parseListenAddress(address);
    if (place === null) continue;
    const kind = "unix" in place ? /^unix$/ : place.hostname.includes(":") ? /:/ : /\./;
    if (isLoopbackListener(address) && trusted_proxies.length > 0 && !trusted_proxies.some((one) => kind.test(one)))
      yield ["server.trusted_proxies", `names no proxy that can reach ${address}: all its clients count as one`];
  }
  const isOpen = listen.some((address) => /^(0\.0\.0\.0|\[::\]):/.test(address));
  if (nodes.length > 0 && admin_listen.length === 0 && isOpen)
    yield ["server.admin_listen", "is empty: /metrics is public on the addresses of listen"];
  for (const [i, address] of admin_listen.entries())
    if (!isLoopbackListener(address))
      yield [`server.admin_listen.${i}`, `${address} is open to other machines: they read the metrics`];
  const isAlone = listen.every(isLoopbackListener);
  const needsProxy = (endpoint: string) =>
    endpoint.startsWith("https:") || (isAlone && !isLocalName(new URL(endpoint).hostname));
  const proxied = nodes.flatMap(([, node]) => node.public_endpoints).find(needsProxy);
  if (proxied !== undefined && tls_cert_file === null && trusted_proxies.length === 0)
    yield [
      "server.trusted_proxies",
      `is empty, but a proxy must be in front for ${proxied}: all its clients count as one, and share one rate`,
    ];
}

function* limitWarnings({ limits, cache }: Config): Generator<Remark> {
  const { unchunked_bytes_max: unchunked, header_bytes_max: header } = limits;
  const inBase64 = Math.ceil((4 * (unchunked + header)) / 3);
  if (inBase64 > limits.body_bytes_max)
    yield [
      "limits.unchunked_bytes_max",
      `takes ${Math.ceil(inBase64 / 2 ** 20)} MiB in Base64, more than body_bytes_max (${renderSizeSetting(limits.body_bytes_max)}): such an envelope is refused`,
    ];
  if (cache.enabled && cache.recipient_bytes_max < unchunked)
    yield [
      "cache.recipient_bytes_max",
      `is less than one envelope of limits.unchunked_bytes_max (${renderSizeSetting(unchunked)})`,
    ];
}
