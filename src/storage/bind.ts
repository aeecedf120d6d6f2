/**
 * From the configured stores to what the nodes need: opens each named store that is used,
 * with its plugin and options, and hands every need the capability of the store that it
 * names. All problems are reported at once, each with the setting that causes it, before
 * anything is opened.
 */
import { errorText } from "../core/fault.ts";
import {
  type Capabilities,
  type CapabilityName,
  type PlaceMove,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
  type StoreMaintenance,
} from "./contract.ts";
import type { RegisterGauge } from "./gauge.ts";
import { type InputProblem, meant, type ParsedOptions } from "./setting-problem.ts";

/** One configured store: the plugin's name, and the plugin's own options. */
export type StoreSettings = { readonly plugin: string; readonly options: unknown };

/** One thing a node needs, and the store that the configuration names for it. */
export type Need = {
  /** The setting that names the store: `cache.mailbox`. */
  readonly setting: string;
  readonly store: string;
  readonly capability: CapabilityName;
};

export type StoreConfiguration = {
  /** By name; problems are reported under `stores.<name>`. */
  readonly stores: Readonly<Record<string, StoreSettings>>;
  readonly plugins: readonly StoragePlugin[];
  readonly needs: readonly Need[];
  /**
   * What was wrong with external plugins, under `stores.<name>.plugin`; reported with
   * everything else.
   */
  readonly pluginProblems?: readonly InputProblem[];
};

export type OpenStores = {
  /** The capability that answers a need; the setting and capability must be among the needs. */
  capability<Name extends CapabilityName>(
    setting: string,
    name: Name,
  ): NonNullable<Capabilities[Name]>;
  /** Every open store by name. */
  readonly stores: ReadonlyMap<string, Store>;
  /** Resolves when every store works; throws the first `StoreError` otherwise. */
  probe(): Promise<void>;
  /** Closes all, each even when another fails, and throws what failed first. */
  close(): Promise<void>;
};

/** One store that a need names, with its options, before it is opened. */
export type OpenStep = {
  readonly name: string;
  readonly open: (environment: StoreEnvironment) => Promise<Store>;
  /** `null` when the plugin has nothing to prepare. */
  readonly migrate: ((move?: PlaceMove) => Promise<string>) | null;
  readonly maintenance: StoreMaintenance | null;
};

/**
 * Opens every store that a need names. Returns a list when the configuration has problems.
 * When a store can't be opened, throws its `StoreError` after closing the others.
 */
export async function openStores(
  configuration: StoreConfiguration,
  environment: StoreEnvironment,
): Promise<OpenStores | InputProblem[]> {
  const { steps, problems } = planStores(configuration);
  if (problems.length > 0) return problems;
  const stores = new Map<string, Store>();
  try {
    for (const { name, open } of steps) stores.set(name, await open(environment));
  } catch (error) {
    await closeAll(stores.values()).catch(() => {});
    throw error;
  }
  return bindStores(configuration.needs, stores);
}

/**
 * The stores that are needed, one by one, and all problems of every configured store. Opens
 * nothing.
 */
export function planStores({ stores, plugins, needs, pluginProblems = [] }: StoreConfiguration): {
  steps: OpenStep[];
  problems: InputProblem[];
} {
  const steps: OpenStep[] = [];
  const problems = [
    ...needs.flatMap((need) => needProblems(need, stores, plugins)),
    ...pluginProblems,
  ];
  for (const [name, settings] of Object.entries(stores)) {
    const place = `stores.${name}`;
    const plugin = plugins.find((known) => known.name === settings.plugin);
    if (plugin === undefined) {
      if (pluginProblems.some(({ setting }) => setting === `${place}.plugin`)) continue;
      const known = plugins.map((one) => one.name);
      const message = `no plugin "${settings.plugin}"; there are ${known.join(", ")}${meant(settings.plugin, known)}`;
      problems.push({ setting: `${place}.plugin`, message });
      continue;
    }
    const parsed = parsedBy(plugin, settings.options);
    if (!parsed.ok) {
      for (const { setting, message } of parsed.problems)
        problems.push({ setting: setting === "" ? place : `${place}.${setting}`, message });
    } else if (needs.some((need) => need.store === name))
      steps.push(stepOf(name, plugin, parsed.options));
  }
  return { steps, problems: onlyOnce(problems) };
}

/** A plugin of somebody else may throw instead. */
function parsedBy(plugin: StoragePlugin, options: unknown): ParsedOptions<unknown> {
  try {
    return plugin.parseOptions(options);
  } catch (error) {
    const message = `the plugin ${plugin.name} fails on its options: ${errorText(error)}`;
    return { ok: false, problems: [{ setting: "", message }] };
  }
}

function stepOf(name: string, plugin: StoragePlugin, options: unknown): OpenStep {
  const { migrate, maintenance } = plugin;
  return {
    name,
    open: (environment) => openNamed(name, (named) => plugin.open(options, named), environment),
    migrate: migrate === null ? null : (move) => migrate(options, move),
    maintenance: maintenance === null ? null : maintenance(options),
  };
}

/** Several needs may name one missing store. */
function onlyOnce(problems: readonly InputProblem[]): InputProblem[] {
  return [...new Map(problems.map((one) => [`${one.setting} ${one.message}`, one])).values()];
}

function needProblems(
  { setting, store, capability }: Need,
  stores: StoreConfiguration["stores"],
  plugins: StoreConfiguration["plugins"],
): InputProblem[] {
  const settings = Object.hasOwn(stores, store) ? stores[store] : undefined;
  if (settings === undefined) {
    const message = `there is no store named "${store}": add [stores.${store}]${meant(store, Object.keys(stores))}`;
    return [{ setting, message }];
  }
  const plugin = plugins.find(({ name }) => name === settings.plugin);
  if (plugin === undefined || plugin.provides.includes(capability)) return [];
  return [
    { setting, message: `plugin "${plugin.name}" of store "${store}" provides no ${capability}` },
  ];
}

/** Hands each need the capability of its store. */
function bindStores(needs: readonly Need[], stores: ReadonlyMap<string, Store>): OpenStores {
  return {
    stores,
    capability(setting, name) {
      const need = needs.find((one) => one.setting === setting && one.capability === name);
      const capability = need && stores.get(need.store)?.capabilities[name];
      if (!capability) throw new Error(`nothing was bound for ${setting} (${name})`);
      return capability;
    },
    async probe() {
      for (const store of stores.values()) await store.probe();
    },
    close: () => closeAll(stores.values()),
  };
}

async function closeAll(stores: Iterable<Store>): Promise<void> {
  const closed = await Promise.allSettled([...stores].map((store) => store.close()));
  const failed = closed.find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** Failures of opening, log lines and a fatal reason name the store. */
async function openNamed(
  name: string,
  open: (environment: StoreEnvironment) => Promise<Store>,
  environment: StoreEnvironment,
): Promise<Store> {
  const log: StoreEnvironment["log"] = (level, message, fields) =>
    environment.log(level, message, { store: name, ...fields });
  const fatal = (reason: string) => environment.fatal(`store "${name}": ${reason}`);
  const gauge: RegisterGauge = (family, read) =>
    environment.gauge?.(family, () => read().map(([labels, value]) => [[name, ...labels], value]));
  const slow = setInterval(
    () => log("warn", "the plugin of a store has not opened it yet; the node waits"),
    slowOpenMs,
  );
  try {
    return await open({ ...environment, log, fatal, gauge });
  } catch (error) {
    const code = error instanceof StoreError ? error.code : "unavailable";
    throw new StoreError(code, `store "${name}" can't be opened: ${errorText(error)}`, {
      cause: error,
    });
  } finally {
    clearInterval(slow);
  }
}

/** An operator sees soon what a start waits for. */
const slowOpenMs = 3_000;
