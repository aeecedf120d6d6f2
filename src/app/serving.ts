/**
 * What answers requests: the nodes, their apps and the listeners.
 * Source: rules section 9.
 */
import type { ReloadPlan } from "../config/config.ts";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { isLoopbackListener, isPrivateHost } from "../core/message/address.ts";
import type { About } from "../core/schema/schema.ts";
import { dashboardRoute } from "../nodes/dashboard/dashboard.ts";
import { type App, createApp } from "../nodes/http/app.ts";
import { httpMetrics } from "../nodes/http/metrics.ts";
import type { AppOptions } from "../nodes/http/pipeline.ts";
import type { CorsOrigins, Route } from "../nodes/http/route.ts";
import { type Listener, listen, type Site } from "../nodes/http/server.ts";
import { aboutRoute, checkProbes, statusRoutes } from "../nodes/http/status.ts";
import { operationRoutes } from "../nodes/operations/operations.ts";
import { version } from "../version.ts";
import type { LoadedCertificate } from "./certificate.ts";
import { failed } from "./failure.ts";
import { registerHttpGauges } from "./metrics.ts";
import { type ComposedNodes, type ComposeParts, composeNodes, unavailableOf } from "./nodes.ts";
import { siteHeaders, siteRoutes } from "./site.ts";
import { toFailure } from "./stores.ts";

/** The process, as its listeners see it. */
export type ProcessView = {
  readonly renderMetrics: () => Promise<string>;
  /** Reads the configuration again; a text gives the reason why it was not applied. */
  readonly reloadFile: () => Promise<ReloadPlan | string>;
};

type ServingParts = ComposeParts & { readonly view: ProcessView; readonly certificate: LoadedCertificate | null };

export type Serving = {
  readonly urls: readonly string[];
  readonly adminUrls: readonly string[];
  /** Applies the settings that a reload has changed. */
  readonly readSettings: () => void;
  /** Accepts nothing new, and finishes requests in flight. */
  readonly drain: () => Promise<void>;
};

export async function startServing(config: Config, parts: ServingParts): Promise<Serving> {
  const { now, metrics, log } = parts;
  const { certificate } = parts;
  const nodes = await composeNodes(config, parts).catch(toFailure);
  try {
    const operations = operationRoutes({ ...nodes.operated, reload: parts.view.reloadFile, now, log });
    const apps = createApps(config, { ...parts, nodes, operations, site: await siteRoutes(config) });
    const listeners = bindListeners(config, { ...parts, nodes, ...apps, certificate });
    const help = "End of the certificate in use, as Unix time.";
    if (certificate !== null)
      metrics.gauge({ name: "tls_certificate_not_after_seconds", help }, () => certificate.notAfterMs / 1_000);
    return {
      urls: listeners.main.map(({ url }) => url),
      adminUrls: listeners.admin.map(({ url }) => url),
      readSettings: () => {
        for (const app of [apps.main, apps.admin, apps.operator, apps.site?.app]) app?.readSettings();
      },
      drain: async () => {
        const all = [...listeners.main, ...listeners.admin];
        const drained = all.map((one) => one.drain(config.server.drain_timeout));
        nodes.endLasting();
        await Promise.all(drained);
        nodes.close();
      },
    };
  } catch (error) {
    nodes.close();
    throw error;
  }
}

type AppParts = ServingParts & {
  readonly nodes: ComposedNodes;
  readonly operations: readonly Route[];
  /** The files of the chat app. */
  readonly site: readonly Route[];
};

type Apps = {
  readonly main: App;
  /** Of the admin listeners, when there are any. */
  readonly admin: App | null;
  /** The same with what changes the node: of those admin listeners that are Unix sockets. */
  readonly operator: App | null;
  readonly site: Site | null;
};

function createApps(config: Config, parts: AppParts): Apps {
  const { server } = config;
  const measured = httpMetrics(parts.metrics);
  const hasAdmin = server.admin_listen.length > 0;
  const apart = hasAdmin && !server.shows_status;
  let main: App | null = null;
  const ofStores = [...parts.stores.stores].map(([name, store]) => [`store ${name}`, () => store.probe()] as const);
  const common = {
    version,
    limits: parts.nodes.limits,
    unavailable: unavailableOf(config),
    renderMetrics: parts.view.renderMetrics,
    probes: { ...Object.fromEntries(ofStores), ...parts.nodes.probes },
    draining: () => main?.draining() ?? false,
  };
  type Rules = Pick<AppOptions, "acceptsHost" | "headers">;
  const build = (routes: readonly Route[], origins: () => CorsOrigins, rules: Rules = {}): App =>
    createApp({
      routes,
      ...rules,
      settings: server,
      corsOrigins: origins,
      now: parts.now,
      log: parts.log,
      metrics: measured,
      results: parts.nodes.results,
    });
  // The page is for the operator: on the admin listener, or on a node that only this machine reaches.
  const isPrivate = !apart && server.listen.every(isLoopbackListener);
  const routes = [...parts.nodes.routes, aboutRoute(() => aboutOf(config, parts))];
  const shown = isPrivate ? [...routes, dashboardRoute()] : routes;
  const servers = [...new Set([...config.relay.public_endpoints, ...config.cache.public_endpoints])];
  const statusOfMain = statusRoutes({ ...common, routes, servers, withMetrics: !apart });
  main = build([...shown, ...statusOfMain], () => corsOrigins(config), hostRule(config));
  const site =
    server.app === null
      ? null
      : { host: server.app, app: build(parts.site, () => [], { headers: siteHeaders(config) }) };
  const buildApart = (operations: readonly Route[]): App => {
    const status = statusRoutes({ ...common, routes: operations, withMetrics: true });
    return build([dashboardRoute(), ...operations, ...status], () => "loopback", { acceptsHost: isPrivateHost });
  };
  registerHttpGauges(parts.metrics, main);
  const ready = async () => Number((await checkProbes(common.probes)).every(({ ok }) => ok));
  parts.metrics.gauge({ name: "ready", help: "1 while everything that /readyz asks answers." }, ready);
  const operator = server.admin_listen.some(isSocket) ? buildApart(parts.operations) : null;
  return { main, admin: hasAdmin ? buildApart([]) : null, operator, site };
}

function isSocket(address: string): boolean {
  return address.startsWith("unix:");
}

function rolesOf(config: Config): About["roles"] {
  const nodes = (["directory", "relay", "cache"] as const).filter((node) => config[node].enabled);
  return config.witness.key_file === null ? nodes : [...nodes, "witness"];
}

function aboutOf(config: Config, { eventKey, pushKey, now }: ComposeParts): About {
  const { directory, relay, cache } = config;
  const home = directory.enabled ? directory.public_endpoint : null;
  return {
    roles: rolesOf(config),
    version,
    relay_endpoints: relay.enabled ? relay.public_endpoints : [],
    relay_public_id: relay.enabled ? relay.public_id : null,
    cache_endpoints: cache.enabled ? cache.public_endpoints : [],
    directory_endpoints: home === null ? [] : [home],
    event_proof_key: eventKey.publicKey(),
    push_key: pushKey?.publicKey ?? null,
    previous_event_proof_keys: eventKey
      .previous(now())
      .map(({ publicKey, untilMs }) => ({ key: publicKey, valid_until: new Date(untilMs).toISOString() })),
  };
}

/** Where anybody may change policies without a proof, a page of a stranger must not do it through a person's browser. */
function corsOrigins({ server, directory }: Config): CorsOrigins {
  if (directory.enabled && directory.unsigned_updates === "allow") return "loopback";
  const own = server.app === null ? [] : [`https://${server.app}`, `http://${server.app}`];
  return [...server.cors_origins, ...own];
}

/** There, a stranger's page must not pass for one of this machine under the stranger's host name (DNS rebinding). */
function hostRule({ directory, relay, cache }: Config): { acceptsHost?: (host: string) => boolean } {
  if (!directory.enabled || directory.unsigned_updates !== "allow") return {};
  const hosts = [...relay.public_endpoints, ...cache.public_endpoints].map((endpoint) => new URL(endpoint).host);
  return { acceptsHost: (host) => isPrivateHost(host) || hosts.includes(host) };
}

type ListenParts = Apps & Pick<AppParts, "nodes"> & { readonly certificate: LoadedCertificate | null };

/** Binds every address; when one can't be bound, those before it are given up again. */
function bindListeners(config: Config, parts: ListenParts): { main: Listener[]; admin: Listener[] } {
  const { main, admin, operator, nodes } = parts;
  const tls = parts.certificate === null ? {} : { certificate: parts.certificate };
  const bound = { main: [] as Listener[], admin: [] as Listener[] };
  const bind = (address: string, open: () => Listener): Listener => {
    try {
      return open();
    } catch (error) {
      for (const listener of [...bound.main, ...bound.admin]) void listener.drain(0);
      throw failed(`${address} can't be listened on: ${listenReason(address, error)}`);
    }
  };
  const websocket = nodes.websocket === undefined ? {} : { websocket: nodes.websocket };
  const site = parts.site === null ? {} : { site: parts.site };
  for (const address of config.server.listen) {
    bound.main.push(bind(address, () => listen({ app: main, address, ...websocket, ...site, ...tls })));
  }
  for (const address of admin === null ? [] : config.server.admin_listen) {
    const app = (isSocket(address) ? operator : admin) ?? main;
    bound.admin.push(bind(address, () => listen({ app, address, isPrivate: true })));
  }
  return bound;
}

/** What the system's codes mean, for a port and for a Unix socket. */
const listenReasons: Readonly<Record<string, readonly [port: string, socket: string]>> = {
  EADDRINUSE: ["it is in use", "it is in use, or a file that is no socket"],
  EADDRNOTAVAIL: ["this machine does not have the address", "the path is too long"],
  EACCES: ["a port below 1024 needs CAP_NET_BIND_SERVICE", "this user may not write in its folder"],
  ENOENT: ["the host name has no address", "there is no such folder"],
};

function listenReason(address: string, error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return listenReasons[code]?.[isSocket(address) ? 1 : 0] ?? errorText(error);
}
