/**
 * One process out of a configuration: stores, nodes, apps, listeners, sweepers, and how all of it ends.
 * `serve`, `dev` and the tests start nodes through `startNodes` and nothing else.
 * Source: rules section 9.
 */

import { applyReload, decideReload, type ReloadPlan } from "../config/reload.ts";
import type { Config } from "../config/schema.ts";
import { isLoopbackListener, parseListenAddress } from "../core/message/client-address.ts";
import type { About } from "../core/schema/node.ts";
import { errorText } from "../core/std/error-text.ts";
import { dashboardRoutes } from "../nodes/dashboard/dashboard.ts";
import type { History } from "../nodes/dashboard/history.ts";
import { aboutRoute } from "../nodes/http/about.ts";
import { type App, createApp } from "../nodes/http/app.ts";
import { type ConnectionGuard, connectionsMaxHere, startConnectionGuard } from "../nodes/http/connections.ts";
import type { Log } from "../nodes/http/log.ts";
import { createMetrics, type Metrics } from "../nodes/http/metrics.ts";
import { httpMetrics } from "../nodes/http/pipeline.ts";
import type { CorsOrigins } from "../nodes/http/render.ts";
import type { Route } from "../nodes/http/route.ts";
import { type Listener, listen, removeStaleSocket } from "../nodes/http/server.ts";
import { statusRoutes } from "../nodes/http/status.ts";
import { operationRoutes } from "../nodes/operations/operations.ts";
import type { OpenStores } from "../storage/bind.ts";
import { version } from "../version.ts";
import { openConfiguredBus, registerBusMetrics } from "./bus.ts";
import { type CertificateWatch, type LoadedCertificate, loadCertificate, watchCertificate } from "./certificates.ts";
import { checksOf, factsOf, startHistory } from "./dashboard.ts";
import { failed } from "./failure.ts";
import { registerHttpGauges, registerProcessMetrics, registerStoreMetrics } from "./metrics.ts";
import { type ComposedNodes, composeNodes, type NodeOverrides } from "./nodes.ts";
import { type EventKey, openEventKey } from "./signing-key.ts";
import { openConfiguredStores } from "./stores.ts";
import { startSweepers } from "./sweep.ts";

/** What `serve` fixes and tests may set. */
export type StartOptions = NodeOverrides & {
  readonly log: Log;
  readonly now?: () => number;
  /** Reads the configuration again; throws a `CommandFailure` that says what is wrong with it. */
  readonly readConfig?: () => Promise<Config>;
  /** After a reload: what is held outside of the nodes follows. */
  readonly onReload?: (next: Config) => void;
  /** The process must end: a store can no longer keep its promises. */
  readonly onFatal: (reason: string) => void;
};

export type RunningNodes = {
  /** Base URL of the first listener. */
  readonly url: string;
  readonly urls: readonly string[];
  readonly adminUrls: readonly string[];
  readonly stores: OpenStores;
  /** Takes over what can change while running; names the rest. */
  readonly reload: (next: Config) => ReloadPlan;
  /** Reads the configuration again and takes it over; a text says why not. */
  readonly reloadFile: () => Promise<ReloadPlan | string>;
  /** Takes nothing new, finishes what is in flight, closes the stores. Idempotent. */
  readonly stop: () => Promise<void>;
};

export async function startNodes(config: Config, options: StartOptions): Promise<RunningNodes> {
  const now = options.now ?? Date.now;
  const certificate = certificateOf(config, now());
  const metrics = createMetrics();
  const history = startHistory(metrics, now);
  const log = history.watch(options.log);
  const eventKey = await openEventKey(config.cache.enabled ? config.cache.signing_key_file : null, log);
  const stores = await openConfiguredStores(config, { now, log, fatal: options.onFatal });
  const bus = await openConfiguredBus(config, { log });
  let composed: ComposedNodes | null = null;
  try {
    composed = await composeNodes(config, { ...options, log, stores, bus, now, metrics, eventKey });
    const nodes = composed;
    registerProcessMetrics(metrics, { startedAtMs: now(), loopLagSeconds: history.loopLagSeconds });
    registerStoreMetrics(metrics, { config, stores, now });
    registerBusMetrics(metrics, bus);
    const readAgain = (): Promise<ReloadPlan | string> => reloadFile(options, { log, reload, eventKey });
    const operations = operationRoutes({ ...nodes.operated, reload: readAgain, now, log });
    const apps = createApps(config, { nodes, stores, metrics, now, log, history, eventKey, operations });
    const allApps = [apps.main, apps.admin, apps.operator].filter((app) => app !== null);
    const reload = (next: Config): ReloadPlan => {
      const plan = decideReload(config, next);
      applyReload(config, next, plan);
      for (const app of allApps) app.readSettings();
      watch?.renew();
      return plan;
    };
    await Promise.all([...config.server.listen, ...config.server.admin_listen].map(removeStaleSocket));
    const listeners = bindListeners(config, { nodes, ...apps, now, certificate });
    const watch = certificate === null ? null : watchListeners(config, certificate, { listeners, now, log, metrics });
    const sweepers = startSweepers(stores, { now, log });
    const guard = guardConnections(config, { listeners, metrics, now, log });
    let ended: Promise<void> | null = null;
    const end = async (): Promise<void> => {
      const drained = [...listeners.main, ...listeners.admin].map((one) => one.drain(config.server.drain_timeout));
      nodes.endLasting();
      watch?.close();
      guard?.close();
      await Promise.all(drained);
      nodes.close();
      history.close();
      await bus.close();
      await sweepers.stop();
      await stores.close();
    };
    return {
      url: listeners.main[0]?.url ?? "",
      urls: listeners.main.map((one) => one.url),
      adminUrls: listeners.admin.map((one) => one.url),
      stores,
      reload,
      reloadFile: readAgain,
      stop: () => {
        ended ??= end();
        return ended;
      },
    };
  } catch (error) {
    composed?.close();
    history.close();
    await bus.close();
    await stores.close();
    throw error;
  }
}

type Reloading = {
  readonly log: Log;
  readonly reload: (next: Config) => ReloadPlan;
  readonly eventKey: EventKey;
};

/** The same for SIGHUP and for `waypost reload`, whose answer it is; the log has it in either case. */
async function reloadFile(
  { readConfig, onReload }: StartOptions,
  { log, reload, eventKey }: Reloading,
): Promise<ReloadPlan | string> {
  if (readConfig === undefined) return "this process was started without a configuration file";
  try {
    const next = await readConfig();
    const hasNewKey = await eventKey.read();
    const taken = reload(next);
    const plan = hasNewKey ? { ...taken, changed: [...taken.changed, "cache.signing_key_file"] } : taken;
    log("warn", "the configuration was read again", { changed: plan.changed, needs_restart: plan.needsRestart });
    onReload?.(next);
    return plan;
  } catch (error) {
    const reason = errorText(error);
    log("error", "the configuration was not taken over", { reason });
    return reason;
  }
}

function certificateOf(config: Config, nowMs: number): LoadedCertificate | null {
  const loaded = loadCertificate(config, nowMs);
  if (loaded === null || loaded.ok) return loaded?.certificate ?? null;
  throw failed(`${loaded.problem.setting}: ${loaded.problem.message}`);
}

type Listeners = { readonly main: readonly Listener[]; readonly admin: readonly Listener[] };
type WatchParts = Pick<AppParts, "now" | "log" | "metrics"> & { readonly listeners: Listeners };

function watchListeners(config: Config, first: LoadedCertificate, parts: WatchParts): CertificateWatch {
  const { listeners, now, log, metrics } = parts;
  const watch = watchCertificate({
    config,
    first,
    apply: (certificate) => {
      for (const listener of listeners.main) listener.renew(certificate);
    },
    now,
    log,
  });
  const help = "End of the certificate in use, as Unix time.";
  metrics.gauge({ name: "tls_certificate_not_after_seconds", help }, watch.notAfterSeconds);
  return watch;
}

/** The descriptors are those of the process: where workers serve, one thread watches for all. */
function guardConnections(config: Config, { listeners, metrics, now, log }: WatchParts): ConnectionGuard | null {
  if (!Bun.isMainThread) return null;
  const places = [...config.server.listen, ...config.server.admin_listen].map(parseListenAddress);
  const bound = [...listeners.main, ...listeners.admin].map(({ url }) => Number(URL.parse(url)?.port));
  const set = places.flatMap((place) => (place !== null && "port" in place ? [place.port] : []));
  return startConnectionGuard({
    ports: [...new Set([...bound, ...set])].filter((port) => port > 0),
    connectionsMax: connectionsMaxHere(),
    trustedProxies: () => config.server.trusted_proxies,
    log,
    metrics,
    now,
  });
}

type AppParts = {
  readonly nodes: ComposedNodes;
  readonly stores: OpenStores;
  readonly metrics: Metrics;
  readonly now: () => number;
  readonly log: Log;
  readonly history: History;
  readonly eventKey: EventKey;
  readonly operations: readonly Route[];
};

type Apps = {
  readonly main: App;
  /** Of the admin listeners, when there are any. */
  readonly admin: App | null;
  /** The same with what changes the node: of those admin listeners that are Unix sockets. */
  readonly operator: App | null;
};

function createApps(config: Config, parts: AppParts): Apps {
  const { server } = config;
  const measured = httpMetrics(parts.metrics);
  const apart = server.admin_listen.length > 0;
  let main: App | null = null;
  const common = {
    version,
    limits: parts.nodes.limits,
    metrics: parts.metrics,
    probes: { ...probesOf(parts.stores), ...parts.nodes.probes },
    draining: () => main?.draining() ?? false,
  };
  const build = (routes: readonly Route[], origins: () => CorsOrigins): App =>
    createApp({
      routes,
      settings: server,
      corsOrigins: origins,
      now: parts.now,
      log: parts.log,
      metrics: measured,
    });
  const notes = parts.nodes.upgrade === undefined ? [] : [liveSessionsNote];
  const dashboard = dashboardRoutes({
    version,
    roles: rolesOf(config),
    startedAtMs: parts.now(),
    history: parts.history,
    checks: () => checksOf(common.probes),
    facts: () => factsOf(config, parts.stores),
  });
  // The page is the operator's: on a listener of its own, or where only this machine can ask.
  const isPrivate = !apart && server.listen.every(isLoopbackListener);
  const routes = [...parts.nodes.routes, aboutRoute(() => aboutOf(config, parts.eventKey, parts.now()))];
  const shown = isPrivate ? [...routes, ...dashboard] : routes;
  const servers = [...new Set([...config.relay.public_endpoints, ...config.cache.public_endpoints])];
  main = build([...shown, ...statusRoutes({ ...common, routes, notes, servers, withMetrics: !apart })], () =>
    corsOrigins(config),
  );
  const buildApart = (operations: readonly Route[]): App => {
    const own = [...dashboard, ...operations];
    return build(
      [...own, ...statusRoutes({ ...common, routes: operations, notes: [], withMetrics: true })],
      () => "loopback",
    );
  };
  registerHttpGauges(parts.metrics, main);
  const operator = server.admin_listen.some(isSocket) ? buildApart(parts.operations) : null;
  return { main, admin: apart ? buildApart([]) : null, operator };
}

function isSocket(address: string): boolean {
  return address.startsWith("unix:");
}

function rolesOf(config: Config): About["roles"] {
  return (["directory", "relay", "cache"] as const).filter((node) => config[node].enabled);
}

function aboutOf(config: Config, eventKey: EventKey, nowMs: number): About {
  const { relay, cache } = config;
  return {
    roles: rolesOf(config),
    version,
    relay_endpoints: relay.enabled ? relay.public_endpoints : [],
    relay_public_id: relay.enabled ? relay.public_id : null,
    cache_endpoints: cache.enabled ? cache.public_endpoints : [],
    event_proof_key: eventKey.publicKey(),
    previous_event_proof_keys: eventKey
      .previous(nowMs)
      .map(({ publicKey, untilMs }) => ({ key: publicKey, valid_until: new Date(untilMs).toISOString() })),
  };
}

/** Where anybody may change policies without a proof, a page of a stranger must not do it through a person's browser. */
function corsOrigins({ server, directory }: Config): CorsOrigins {
  return directory.enabled && directory.unsigned_updates === "allow" ? "loopback" : server.cors_origins;
}

const liveSessionsNote =
  "Live sessions are WebSockets at `/ws/{did}/{deviceId}`: the first frame, or the proof headers, prove the " +
  "recipient with the operation `connect`; then one envelope a frame, each answered by " +
  '`{"type":"ack","message_id":"…"}`.';

function probesOf(stores: OpenStores): Record<string, () => Promise<unknown>> {
  return Object.fromEntries([...stores.stores].map(([name, store]) => [`store ${name}`, () => store.probe()]));
}

type ListenParts = {
  readonly nodes: ComposedNodes;
  readonly main: App;
  readonly admin: App | null;
  readonly operator: App | null;
  readonly now: () => number;
  readonly certificate: LoadedCertificate | null;
};

/** Binds every address; when one can't be bound, those before it are given up again. */
function bindListeners(config: Config, parts: ListenParts): { main: Listener[]; admin: Listener[] } {
  const { main, admin, operator, nodes, now } = parts;
  const tls = parts.certificate === null ? {} : { certificate: parts.certificate };
  const bound = { main: [] as Listener[], admin: [] as Listener[] };
  const bind = (address: string, open: () => Listener): Listener => {
    try {
      return open();
    } catch (error) {
      for (const listener of [...bound.main, ...bound.admin]) void listener.drain(0);
      throw failed(`${address} can't be listened on: ${errorText(error)}`);
    }
  };
  const upgrade = nodes.upgrade === undefined ? {} : { upgrade: nodes.upgrade };
  for (const address of config.server.listen) {
    const sharePort = config.server.share_port;
    bound.main.push(bind(address, () => listen({ app: main, address, now, sharePort, ...upgrade, ...tls })));
  }
  for (const address of admin === null ? [] : config.server.admin_listen) {
    const app = (isSocket(address) ? operator : admin) ?? main;
    bound.admin.push(bind(address, () => listen({ app, address, now })));
  }
  return bound;
}
