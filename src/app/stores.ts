/**
 * The stores and the bus of a process, out of its configuration: the stores with their
 * plugins and the needs of the nodes that are enabled, each under the setting that names
 * its store; and the bus that `[bus]` names.
 */
import type { Config } from "../config/schema.ts";
import type { Metrics } from "../nodes/http/metrics.ts";
import { openLocalBus } from "../plugins/bus/local.ts";
import { type NatsBusOptions, natsOptions, openNatsBus } from "../plugins/bus/nats.ts";
import { builtInPlugins, loadPlugins } from "../plugins/load.ts";
import { parseWith } from "../plugins/shared/drivers.ts";
import {
  type Need,
  type OpenStep,
  type OpenStores,
  openStores,
  planStores,
  type StoreConfiguration,
} from "../storage/bind.ts";
import type { Bus, BusEnvironment } from "../storage/bus.ts";
import { type StoreEnvironment, StoreError } from "../storage/contract.ts";
import type { InputProblem, ParsedOptions } from "../storage/setting-problem.ts";
import { failed } from "./failure.ts";

/** External modules are loaded on the way; relative paths start at the working folder. */
async function storeConfiguration(config: Config): Promise<StoreConfiguration> {
  const stores = Object.fromEntries(
    Object.entries(config.stores).map(([name, { plugin, ...options }]) => [
      name,
      { plugin, options },
    ]),
  );
  const { plugins, problems } = await loadPlugins(stores, process.cwd());
  return {
    stores,
    plugins: [...builtInPlugins, ...plugins],
    needs: needsOf(config),
    pluginProblems: problems,
  };
}

/** Every problem of the stores, found without opening one. */
export async function checkStores(config: Config): Promise<InputProblem[]> {
  return planStores(await storeConfiguration(config)).problems;
}

/**
 * Opens what the nodes need. Throws one failure that lists all problems of the
 * configuration and of the stores.
 */
export async function openConfiguredStores(
  config: Config,
  environment: StoreEnvironment,
): Promise<OpenStores> {
  const opened = await openStores(await storeConfiguration(config), environment).catch(toFailure);
  if (!Array.isArray(opened)) return opened;
  throw failed(opened.map(({ setting, message }) => `${setting}: ${message}`).join("\n"));
}

/** A store that can't be opened is reported to the person who runs the command, without a stack. */
export function toFailure(error: unknown): never {
  throw error instanceof StoreError ? failed(error.message) : error;
}

/** The stores that the nodes of a configuration need, to be looked at one by one. */
export async function storesOf(config: Config): Promise<OpenStep[]> {
  return planStores(await storeConfiguration(config)).steps;
}

type NeedRow = readonly [
  isNeeded: boolean,
  setting: string,
  store: string | null,
  ...names: Need["capability"][],
];

function needsOf({ server, directory, relay, cache, witness }: Config): Need[] {
  const rows: readonly NeedRow[] = [
    [witness.key_file !== null, "witness.store", witness.store, "logs", "receipts"],
    [directory.enabled, "directory.ledger", directory.ledger, "ledger"],
    [
      directory.enabled && directory.log_key_file !== null,
      "directory.ledger",
      directory.ledger,
      "logs",
    ],
    [directory.enabled, "directory.store", directory.store, "receipts", "replay"],
    [relay.enabled, "relay.store", relay.store, "receipts", "replay"],
    [cache.enabled, "cache.store", cache.store, "mailbox", "replay", "receipts"],
    [true, "server.recipients", ledgerOfRecipients(server.recipients), "ledger"],
  ];
  return rows.flatMap(([isNeeded, setting, store, ...names]) =>
    isNeeded && store !== null
      ? names.map((capability): Need => ({ setting, store, capability }))
      : [],
  );
}

/** The store that `ledger:<store>` names, or `null` for another source of recipients. */
function ledgerOfRecipients(recipients: string): string | null {
  return recipients.startsWith("ledger:") ? recipients.slice("ledger:".length) : null;
}

// --------------------------------------------------------------------------------------------- bus

/**
 * Every problem of the bus's options, found without connecting. Options of the bus that is
 * not used may stay.
 */
export function checkBus({ bus }: Config): InputProblem[] {
  const parsed = parseOptions(bus);
  const problems = parsed.ok ? [] : parsed.problems;
  const counting =
    bus.plugin === "nats" ? problems : problems.filter(({ setting }) => setting !== "servers");
  return counting.map(({ setting, message }) => ({ setting: `bus.${setting}`, message }));
}

function parseOptions({ plugin: _, ...options }: Config["bus"]): ParsedOptions<NatsBusOptions> {
  return parseWith(natsOptions, options);
}

export async function openConfiguredBus(
  { bus }: Config,
  environment: BusEnvironment,
): Promise<Bus> {
  if (bus.plugin === "local") return openLocalBus(environment);
  const parsed = parseOptions(bus);
  if (parsed.ok) return openNatsBus(parsed.options, environment);
  throw failed(
    parsed.problems.map(({ setting, message }) => `bus.${setting}: ${message}`).join("\n"),
  );
}

export function registerBusMetrics(metrics: Metrics, bus: Bus): void {
  const gauge = (name: string, help: string, read: () => number): void =>
    metrics.gauge({ name, help }, read);
  gauge("bus_connected", "1 while messages reach other processes.", () =>
    Number(bus.stats().connected),
  );
  gauge(
    "bus_subscriptions",
    "Subjects that this process listens to.",
    () => bus.stats().subscriptions,
  );
  metrics.count(
    { name: "bus_messages_dropped_total", help: "Messages lost here since the start." },
    () => bus.stats().dropped,
  );
}
