/**
 * One process out of a configuration: stores, bus, nodes, listeners, sweepers and metrics,
 * and how all of it ends. `serve`, `dev` and the tests start nodes through `startNodes` and
 * nothing else.
 * Source: rules section 9.
 */

import { availableParallelism } from "node:os";
import { type ReloadPlan, reload } from "../config/config.ts";
import type { Config } from "../config/schema.ts";
import { createPoolVerifier, createVerifier } from "../core/codec/native.ts";
import { errorText } from "../core/fault.ts";
import { joinOutages, type Log, onceAMinute } from "../nodes/http/log.ts";
import { createMetrics } from "../nodes/http/metrics.ts";
import { type HttpListener, removeStaleSocket } from "../nodes/http/server.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { StoreEnvironment } from "../storage/contract.ts";
import { RemovalTime } from "../storage/removal-time.ts";
import { certificateOf } from "./certificate.ts";
import { watchDescriptors } from "./descriptors.ts";
import { endInTime, endingMsMax } from "./failure.ts";
import { type Keys, openKeys } from "./keys.ts";
import { checkLog } from "./log-key.ts";
import { registerProcessMetrics, registerStoreMetrics, storeGauges } from "./metrics.ts";
import { type ComposedNodes, composeNodes } from "./nodes.ts";
import type { NodeOverrides } from "./outbound.ts";
import { bindListeners, createApps, type Listeners } from "./serving.ts";
import {
  openConfiguredBus,
  openConfiguredStores,
  registerBusMetrics,
  toFailure,
} from "./stores.ts";
import { startSweeps } from "./sweeps.ts";

/** Tests set other clocks and another resolver. */
export type StartOptions = NodeOverrides & {
  readonly log: Log;
  readonly now?: () => number;
  /** Monotonic. */
  readonly uptimeMs?: () => number;
  /** Between two sweeps. */
  readonly sweepRoundMs?: number;
  /** Reads the configuration again; throws a `CommandFailure` that names what is wrong with it. */
  readonly readConfig?: () => Promise<Config>;
  /** After a reload: the level counts outside of the nodes too. */
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
  /**
   * Reads the configuration again, applies what can change while running, and names the
   * rest; a text: why not.
   */
  readonly reloadFile: () => Promise<ReloadPlan | string>;
  /** Accepts nothing new, finishes requests in flight, closes the stores. Idempotent. */
  readonly stop: () => Promise<void>;
};

export async function startNodes(config: Config, options: StartOptions): Promise<RunningNodes> {
  const now = options.now ?? Date.now;
  const startedAtMs = now();
  const metrics = createMetrics();
  const descriptors = watchDescriptors(metrics);
  const log = joinOutages(options.log, now);
  const keys = await openKeys(config, log);
  const certificate = certificateOf(config, startedAtMs);
  const bus = await openConfiguredBus(config, { log });
  const removal = new RemovalTime({ now, uptimeMs: options.uptimeMs ?? (() => performance.now()) });

  const environment = {
    now,
    log,
    fatal: options.onFatal,
    removableMs: () => removal.recordsMs(),
    bus,
    gauge: storeGauges(metrics),
    ...logKeyOf(config, keys),
  };

  const closeBus = async (error: unknown) => {
    await bus.close();
    throw error;
  };
  const stores = await openConfiguredStores(config, environment).catch(closeBus);
  await checkLog(stores, keys.logKey, now).catch(async (error: unknown) => {
    await stores.close();
    return closeBus(error);
  });

  let nodes: ComposedNodes | null = null;
  try {
    registerStoreMetrics(metrics, { config, stores, now });
    registerBusMetrics(metrics, bus);
    await Promise.all(
      [...config.server.listen, ...config.server.admin_listen].map(removeStaleSocket),
    );

    // On one core the threads of the pool would only take turns with the event loop.
    const verify = availableParallelism() > 1 ? createPoolVerifier() : createVerifier();
    const parts = { ...options, log, stores, bus, verify, now, metrics, ...keys };
    const composed = await composeNodes(config, parts).catch(toFailure);
    nodes = composed;
    const readAgain = () => reloadFile(config, options, log);
    const apps = await createApps(config, { ...parts, nodes, reload: readAgain });

    const listeners = await bindListeners(config, { ...apps, ...nodes, certificate });
    descriptors.guard({ ...listeners, log, isDue: onceAMinute(now) });
    const sweepers = startSweeps(stores, {
      removal,
      log,
      ...(options.sweepRoundMs === undefined ? {} : { roundMs: options.sweepRoundMs }),
    });
    registerProcessMetrics(metrics, {
      startedAtMs,
      loopLagSeconds: sweepers.loopLagSeconds,
      certificate,
    });

    const drainMs = config.server.drain_timeout;
    const endAll = async (): Promise<void> => {
      descriptors.close();
      await endInTime(log, "requests", drain(listeners, composed, drainMs), drainMs + partMsMax);
      await endInTime(log, "bus", bus.close(), partMsMax);
      await endInTime(log, "sweeps", sweepers.stop(), partMsMax);
      await endInTime(log, "stores", stores.close(), endingMsMax);
    };
    const stop = once(endAll);
    const [urls, adminUrls] = [listenerUrls(listeners.main), listenerUrls(listeners.admin)];
    return { url: urls[0] ?? "", urls, adminUrls, stores, reloadFile: readAgain, stop };
  } catch (error) {
    descriptors.close();
    nodes?.close();
    await bus.close();
    await stores.close();
    throw error;
  }
}

/**
 * By which key a store knows its ledger's log: the key of this process, or that the log is
 * kept elsewhere.
 */
function logKeyOf(
  { directory }: Config,
  { logKey }: Keys,
): { readonly logKey?: NonNullable<StoreEnvironment["logKey"]> } {
  if (!directory.enabled) return { logKey: "elsewhere" };
  return logKey === null ? {} : { logKey: logKey.key };
}

/** The same promise for each call. */
function once(work: () => Promise<void>): () => Promise<void> {
  let begun: Promise<void> | null = null;
  return () => {
    begun ??= work();
    return begun;
  };
}

const listenerUrls = (listeners: readonly HttpListener[]) => listeners.map(({ url }) => url);

/** Accepts nothing new, and finishes requests in flight. */
async function drain(
  { main, admin }: Listeners,
  nodes: ComposedNodes,
  timeoutMs: number,
): Promise<void> {
  const drained = [...main, ...admin].map((one) => one.drain(timeoutMs));
  nodes.endLasting();
  await Promise.all(drained);
  nodes.close();
}

/** Limit of one step of the shutdown; stores have a longer one. */
const partMsMax = 4_000;

/**
 * The same for SIGHUP and for `waypost reload`, whose answer it is; the log has it in
 * either case.
 */
async function reloadFile(
  config: Config,
  { readConfig, onReload }: Pick<StartOptions, "readConfig" | "onReload">,
  log: Log,
): Promise<ReloadPlan | string> {
  if (readConfig === undefined) return "this process was started without a configuration file";
  try {
    const next = await readConfig();
    const plan = reload(config, next);
    const isNew = plan.changed.length + plan.needsRestart.length > 0;
    log(isNew ? "warn" : "info", "the configuration was reloaded", {
      changed: plan.changed,
      needs_restart: plan.needsRestart,
    });
    onReload?.(next);
    return plan;
  } catch (error) {
    const reason = errorText(error);
    log("error", "the configuration was not reloaded", { reason });
    return reason;
  }
}
