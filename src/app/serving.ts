/**
 * What answers requests: the apps of a process and its listeners.
 * Source: rules section 9.
 */
import type { ReloadPlan } from "../config/config.ts";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { isLoopbackListener, isPrivateHost } from "../core/message/address.ts";
import { dashboardRoute } from "../nodes/dashboard/dashboard.ts";
import { forOwnPage, newPageToken } from "../nodes/dashboard/own-page.ts";
import { listenForPeers } from "../nodes/http/admin-socket.ts";
import { type App, createApp } from "../nodes/http/app.ts";
import { httpMetrics } from "../nodes/http/metrics.ts";
import type { AppOptions } from "../nodes/http/pipeline.ts";
import type { CorsOrigins, Route } from "../nodes/http/route.ts";
import { type Certificate, type HttpListener, listen, type Site } from "../nodes/http/server.ts";
import { aboutRoute, checkProbes, statusRoutes } from "../nodes/http/status.ts";
import { operationRoutes } from "../nodes/operations/operations.ts";
import { version } from "../version.ts";
import { aboutOf } from "./about.ts";
import { failed } from "./failure.ts";
import { collectByRequests } from "./garbage.ts";
import { registerHttpGauges } from "./metrics.ts";
import type { ComposedNodes, ComposeParts } from "./nodes.ts";
import { appUrl, doorRoute, notANode, siteHeaders, siteRoutes } from "./site.ts";

type AppParts = ComposeParts & {
  readonly nodes: ComposedNodes;
  /** Reads the configuration again; a text gives the reason why it was not applied. */
  readonly reload: () => Promise<ReloadPlan | string>;
};

type Apps = {
  readonly main: App;
  /** Of the admin listeners, when there are any. */
  readonly admin: App | null;
  /** The same with what changes the node: of those admin listeners that are Unix sockets. */
  readonly operator: App | null;
  readonly site: Site | null;
};

export async function createApps(config: Config, parts: AppParts): Promise<Apps> {
  const { server } = config;
  const { metrics, nodes, now, log } = parts;
  const measured = httpMetrics(metrics);
  const answered = collectByRequests();
  const hasAdmin = server.admin_listen.length > 0;
  const apart = hasAdmin && !server.shows_status;

  let main: App | null = null;
  const ofStores = [...parts.stores.stores].map(
    ([name, store]) => [`store ${name}`, () => store.probe()] as const,
  );
  const common = {
    version,
    limits: nodes.limits,
    readsLedger: config.directory.enabled,
    renderMetrics: metrics.render,
    probes: { ...Object.fromEntries(ofStores), ...nodes.probes },
    draining: () => main?.draining() ?? false,
  };

  const build = (routes: readonly Route[], origins: CorsOrigins, rules: Rules = {}): App =>
    createApp({
      routes,
      ...rules,
      settings: server,
      corsOrigins: origins,
      now,
      log,
      metrics: measured,
      answered,
      results: nodes.results,
    });

  // The page is for the operator: on the admin listener, or on a node that only this
  // machine reaches.
  const isPrivate = !apart && server.listen.every(isLoopbackListener);
  const about = aboutRoute(() => aboutOf(config, parts, nodes));
  const routes = [...nodes.routes, about, doorRoute(config)];
  const shown = isPrivate ? [...routes, dashboardRoute()] : routes;
  const servers = [
    ...new Set([...config.relay.public_endpoints, ...config.cache.public_endpoints]),
  ];
  const statusOfMain = statusRoutes({ ...common, routes, servers, withMetrics: !apart });
  main = build([...shown, ...statusOfMain], corsOrigins(config), rulesOfMain(config, nodes));

  const buildSite = async (host: string): Promise<Site> => {
    const rules = { headers: siteHeaders(config), elsewhere: notANode(config) };
    return { host, app: build(await siteRoutes(config), [], rules) };
  };
  const site = server.app === null ? null : await buildSite(server.app);

  const statusApart = (operations: readonly Route[]) =>
    statusRoutes({ ...common, routes: operations, withMetrics: true });
  const rulesApart = { acceptsHost: isPrivateHost };
  const buildAdmin = (): App =>
    build([dashboardRoute(), ...statusApart([])], "loopback", rulesApart);
  // No page of another origin reads the token in the page, also not one of this machine.
  const buildOperator = (operations: readonly Route[]): App => {
    const token = newPageToken();
    const own = [about, ...forOwnPage(operations, token)];
    return build([dashboardRoute(token), ...own, ...statusApart(own)], [], rulesApart);
  };

  registerHttpGauges(metrics, main);
  const ready = async () => Number((await checkProbes(common.probes)).every(({ ok }) => ok));
  metrics.gauge({ name: "ready", help: "1 while everything that /readyz asks answers." }, ready);
  const operator = server.admin_listen.some(isSocket)
    ? buildOperator(operationsOf(config, parts))
    : null;
  return { main, admin: hasAdmin ? buildAdmin() : null, operator, site };
}

/** What changes the running node, for its operator. */
function operationsOf(config: Config, { nodes, reload, now, log }: AppParts): readonly Route[] {
  const { operated } = nodes;
  const membership = { ...operated.membership, now };
  return operationRoutes({ ...operated, membership, reload, app: appUrl(config), now, log });
}

function isSocket(address: string): boolean {
  return address.startsWith("unix:");
}

/**
 * Where anybody may change policies without a proof, a page of a stranger must not do it
 * through a person's browser.
 */
function corsOrigins({ server, directory }: Config): CorsOrigins {
  if (directory.enabled && directory.unsigned_updates === "allow") return "loopback";
  const own = server.app === null ? [] : [`https://${server.app}`, `http://${server.app}`];
  return [...server.cors_origins, ...own];
}

type Rules = Pick<AppOptions, "acceptsHost" | "headers" | "elsewhere" | "maintenance">;

function rulesOfMain(config: Config, { maintenance }: ComposedNodes): Rules {
  return { ...hostRule(config), maintenance: maintenance.check };
}

/**
 * There, a stranger's page must not pass for one of this machine under the stranger's host
 * name (DNS rebinding).
 */
function hostRule({ directory, relay, cache }: Config): {
  acceptsHost?: (host: string) => boolean;
} {
  if (!directory.enabled || directory.unsigned_updates !== "allow") return {};
  const hosts = [...relay.public_endpoints, ...cache.public_endpoints].map(
    (endpoint) => new URL(endpoint).host,
  );
  // Nearly all requests name the same one, and to read an address costs more than the rest
  // of the head.
  let accepted = "";
  return {
    acceptsHost: (host) => {
      if (host === accepted) return true;
      if (!hosts.includes(host) && !isPrivateHost(host)) return false;
      accepted = host;
      return true;
    },
  };
}

type ListenParts = Apps &
  Pick<ComposedNodes, "websocket"> & { readonly certificate: Certificate | null };

export type Listeners = {
  readonly main: readonly HttpListener[];
  readonly admin: readonly HttpListener[];
};

/** Binds every address; when one can't be bound, those before it are given up again. */
export async function bindListeners(config: Config, parts: ListenParts): Promise<Listeners> {
  const { main, admin, operator } = parts;
  const tls = parts.certificate === null ? {} : { certificate: parts.certificate };
  const bound = { main: [] as HttpListener[], admin: [] as HttpListener[] };
  const bind = async (
    address: string,
    open: () => HttpListener | Promise<HttpListener>,
  ): Promise<HttpListener> => {
    try {
      return await open();
    } catch (error) {
      for (const listener of [...bound.main, ...bound.admin]) void listener.drain(0);
      throw failed(`${address} can't be listened on: ${errorText(error)}`);
    }
  };
  const websocket = parts.websocket === undefined ? {} : { websocket: parts.websocket };
  const site = parts.site === null ? {} : { site: parts.site };
  for (const address of config.server.listen) {
    bound.main.push(
      await bind(address, () => listen({ app: main, address, ...websocket, ...site, ...tls })),
    );
  }
  for (const address of config.server.admin_listen) {
    bound.admin.push(
      await bind(address, () =>
        listenForOperator({ admin, operator, group: config.server.admin_group }, address),
      ),
    );
  }
  return bound;
}

function listenForOperator(
  { admin, operator, group }: Pick<Apps, "admin" | "operator"> & { readonly group: string | null },
  address: string,
): HttpListener | Promise<HttpListener> {
  const app = isSocket(address) ? operator : admin;
  if (app === null) throw new Error("there is an admin listener without an app");
  if (!isSocket(address)) return listen({ app, address });
  return listenForPeers({ app, path: address.slice("unix:".length), group });
}
