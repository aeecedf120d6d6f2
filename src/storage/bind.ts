/**
 * From the configured stores to what the nodes need: opens each named store that is used, with its
 * plugin and options, and hands every need the capability of the store that it names. All problems are
 * reported at once, each with the setting that causes it, before anything is opened.
 */
import { errorText } from "../core/fault.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import {
  type Capabilities,
  type CapabilityName,
  type Durability,
  type InputProblem,
  type PlaceMove,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
  type StoreMaintenance,
} from "./contract.ts";
import { meant } from "./setting-problem.ts";

/** One store with its options, before it is opened. */
type ConfiguredStore = {
  readonly open: (environment: StoreEnvironment) => Promise<Store>;
  /** Why the store does not exist yet, or `null`. Creates nothing. */
  readonly absence: () => string | null;
  /** `null` when the plugin has nothing to prepare. */
  readonly migrate: ((move?: PlaceMove) => Promise<string>) | null;
  readonly maintenance: StoreMaintenance | null;
};

/** A plugin whose option type is hidden: options are parsed and opened in two steps. */
export type ConfigurablePlugin = {
  readonly name: string;
  readonly provides: readonly CapabilityName[];
  configure(
    options: unknown,
  ): ({ readonly ok: true } & ConfiguredStore) | { readonly ok: false; readonly problems: InputProblem[] };
};

export function configurable<Options>(plugin: StoragePlugin<Options>): ConfigurablePlugin {
  return {
    name: plugin.name,
    provides: plugin.provides,
    configure(input) {
      const parsed = parsedOptions(() => plugin.parseOptions(input));
      if (!parsed.ok) return parsed;
      const options = parsed.options as Options;
      const { migrate, maintenance } = plugin;
      return {
        ok: true,
        open: (environment) => plugin.open(options, environment),
        absence: () => plugin.absence(options),
        migrate: migrate === null ? null : (move) => migrate(options, move),
        maintenance: maintenance === null ? null : maintenance(options),
      };
    },
  };
}

/** One configured store: the plugin's name, and the plugin's own options. */
export type StoreSettings = { readonly plugin: string; readonly options: unknown };

/** One thing a node needs, and the store that the configuration names for it. */
export type Need = {
  /** The setting that names the store: `cache.mailbox`. */
  readonly setting: string;
  readonly store: string;
  readonly capability: CapabilityName;
  /**
   * The weakest durability that is enough. A store of a plugin that is volatile by nature (`memory`) is accepted all
   * the same: naming it in the configuration is the explicit choice.
   */
  readonly durability: Durability;
};

export type StoreConfiguration = {
  /** By name; problems are reported under `stores.<name>`. */
  readonly stores: Readonly<Record<string, StoreSettings>>;
  readonly plugins: readonly ConfigurablePlugin[];
  readonly needs: readonly Need[];
  /** What was wrong with external plugins, under `stores.<name>.plugin`; reported with everything else. */
  readonly pluginProblems?: readonly InputProblem[];
};

export type OpenStores = {
  /** The capability that answers a need; the setting and capability must be among the needs. */
  capability<Name extends CapabilityName>(setting: string, name: Name): NonNullable<Capabilities[Name]>;
  /** Every open store by name. */
  readonly stores: ReadonlyMap<string, Store>;
  /** Resolves when every store works; throws the first `StoreError` otherwise. */
  probe(): Promise<void>;
  /** Closes all, each even when another fails, and throws what failed first. */
  close(): Promise<void>;
};

/** One store that a need names. */
export type OpenStep = ConfiguredStore & { readonly name: string };

/**
 * Opens every store that a need names. Returns a list when the configuration has problems or a store is not durable
 * enough. When a store can't be opened, throws its `StoreError` after closing the others.
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
  const weak = configuration.needs.flatMap((need) => unmet(need, stores.get(need.store)!));
  if (weak.length > 0) {
    await closeAll(stores.values()).catch(() => {});
    return onlyOnce(weak);
  }
  return bindStores(configuration.needs, stores);
}

/** The stores that are needed, one by one, and all problems of the configuration. Opens nothing. */
export function planStores(configuration: StoreConfiguration): { steps: OpenStep[]; problems: InputProblem[] } {
  const needs = needProblems(configuration);
  const { steps, problems } = checkedStores(configuration);
  return { steps, problems: [...onlyOnce(needs), ...problems] };
}

/** Several needs may name one missing store. */
function onlyOnce(problems: readonly InputProblem[]): InputProblem[] {
  return problems.filter(
    ({ setting, message }, at) =>
      problems.findIndex((one) => one.setting === setting && one.message === message) === at,
  );
}

function needProblems({ stores, plugins, needs }: StoreConfiguration): InputProblem[] {
  const problems: InputProblem[] = [];
  for (const need of needs) {
    const settings = Object.hasOwn(stores, need.store) ? stores[need.store] : undefined;
    if (settings === undefined) {
      problems.push({
        setting: need.setting,
        message: `there is no store named "${need.store}": add [stores.${need.store}]${meant(need.store, Object.keys(stores)).replace("did you mean", "or is it called")}`,
      });
      continue;
    }
    const plugin = plugins.find(({ name }) => name === settings.plugin);
    if (plugin === undefined) continue;
    if (!plugin.provides.includes(need.capability)) {
      const message = `plugin "${plugin.name}" of store "${need.store}" provides no ${need.capability}`;
      problems.push({ setting: need.setting, message });
    }
  }
  return problems;
}

/** Every configured store is checked, and only those that are needed are opened. */
function checkedStores({ stores, plugins, needs, pluginProblems = [] }: StoreConfiguration) {
  const steps: OpenStep[] = [];
  const problems: InputProblem[] = [...pluginProblems];
  for (const [name, settings] of Object.entries(stores)) {
    const plugin = plugins.find((known) => known.name === settings.plugin);
    if (plugin === undefined) {
      if (pluginProblems.some(({ setting }) => setting === `stores.${name}.plugin`)) continue;
      const known = plugins.map((one) => one.name);
      problems.push({
        setting: `stores.${name}.plugin`,
        message: `no plugin "${settings.plugin}"${meant(settings.plugin, known)}; there are ${known.join(", ")}`,
      });
      continue;
    }
    const configured = plugin.configure(settings.options);
    if (!configured.ok) {
      for (const { setting, message } of configured.problems) {
        problems.push({ setting: setting === "" ? `stores.${name}` : `stores.${name}.${setting}`, message });
      }
    } else if (needs.some((need) => need.store === name)) {
      const open = (environment: StoreEnvironment) => openNamed(name, configured.open, named(environment, name));
      steps.push({ ...configured, name, open });
    }
  }
  return { steps, problems };
}

const strength: Readonly<Record<Durability, number>> = { volatile: 0, committed: 1, flushed: 2 };

function unmet(need: Need, store: Store): InputProblem[] {
  if (store.capabilities[need.capability] === undefined) {
    const message = `store "${need.store}" (plugin "${store.plugin}") opened without ${need.capability}`;
    return [{ setting: need.setting, message }];
  }
  if (store.durability === "volatile" || strength[store.durability] >= strength[need.durability]) return [];
  const message = `store "${need.store}" (plugin "${store.plugin}") is ${store.durability}, this needs ${need.durability}`;
  return [{ setting: need.setting, message }];
}

/** Hands each need the capability of its store. */
export function bindStores(needs: readonly Need[], stores: ReadonlyMap<string, Store>): OpenStores {
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

/** A store that does not close must not keep the process alive. Everything that was answered is already durable. */
const closingMsMax = 30_000;

async function closeAll(stores: Iterable<Store>): Promise<void> {
  const closed = await Promise.allSettled([...stores].map(closeInTime));
  const failed = closed.find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

async function closeInTime(store: Store): Promise<void> {
  const closed = await withDeadline(store.close(), closingMsMax);
  if (closed === late) throw new StoreError("unavailable", `a store of "${store.plugin}" did not close in time`);
}

/** The environment of one store: its log lines and its fatal reason name it. */
function named(environment: StoreEnvironment, name: string): StoreEnvironment {
  return {
    ...environment,
    log: (level, message, fields) => environment.log(level, message, { store: name, ...fields }),
    fatal: (reason) => environment.fatal(`store "${name}": ${reason}`),
  };
}

const openingPatienceMs = 10_000;

/** Failures and delays of opening are reported with the name of the store. */
async function openNamed(
  name: string,
  open: (environment: StoreEnvironment) => Promise<Store>,
  environment: StoreEnvironment,
): Promise<Store> {
  const slow = setInterval(() => environment.log("warn", "the store is still being opened"), openingPatienceMs);
  try {
    const store = await open(environment);
    const problem = storeShapeProblem(store);
    if (problem !== null) throw new Error(`its plugin breaks the contract: ${problem}`);
    return store;
  } catch (error) {
    const code = error instanceof StoreError ? error.code : "unavailable";
    const reason = errorText(error);
    throw new StoreError(code, `store "${name}" can't be opened: ${reason}`, { cause: error });
  } finally {
    clearInterval(slow);
  }
}

// -------------------------------------------------------------------------------------------------- checks of plugins

// What an external plugin returns is checked at the start, because no type checker has compared it with this program.
// An older contract, a forgotten method or a missing `await` is reported under the plugin's name, not at the first
// request as a 500.

/** Every method of every capability; a method that the contract gains or loses is a type error here. */
export const capabilityMethods = {
  mailbox: {
    store: 1,
    list: 1,
    summary: 1,
    read: 1,
    group: 1,
    message: 1,
    remove: 1,
    claimAndRemove: 1,
    expire: 1,
    stats: 1,
  },
  replay: { claim: 1, expire: 1 },
  receipts: { put: 1, putIfAbsent: 1, get: 1, remove: 1, scan: 1, expire: 1 },
  ledger: {
    head: 1,
    bounds: 1,
    account: 1,
    keyProof: 1,
    aliasHolder: 1,
    aliasReserve: 1,
    policy: 1,
    submit: 1,
    submission: 1,
    operator: 1,
    proofs: 1,
  },
  logs: {
    head: 1,
    genesisSeed: 1,
    tile: 1,
    inclusion: 1,
    consistency: 1,
    inMap: 1,
    copy: 1,
    adopt: 1,
    restart: 1,
    note: 1,
    keepNote: 1,
  },
} as const satisfies {
  readonly [Name in CapabilityName]: Record<keyof NonNullable<Capabilities[Name]>, 1>;
};

export const capabilityNames = Object.keys(capabilityMethods) as CapabilityName[];

/** Why a value is not an opened store, or `null`. */
export function storeShapeProblem(opened: unknown): string | null {
  if (!isRecord(opened)) return "open returned no store";
  const missing = ["probe", "close"].find((method) => typeof opened[method] !== "function");
  if (missing !== undefined) return `the store has no ${missing}()`;
  if (typeof opened["plugin"] !== "string") return "the store does not name its plugin";
  const { durability, capabilities } = opened;
  if (durability !== "volatile" && durability !== "committed" && durability !== "flushed") {
    return `the store has the durability "${String(durability)}", which is not volatile, committed or flushed`;
  }
  if (!isRecord(capabilities)) return "the store has no capabilities";
  return capabilityProblem(capabilities);
}

function capabilityProblem(capabilities: { readonly [Name in keyof Capabilities]: unknown }): string | null {
  for (const name of capabilityNames) {
    const capability = capabilities[name];
    if (capability === undefined) continue;
    if (!isRecord(capability)) return `its ${name} is not an object`;
    const missing = Object.keys(capabilityMethods[name]).find((method) => typeof capability[method] !== "function");
    if (missing !== undefined) return `its ${name} has no ${missing}()`;
  }
  return null;
}

type ParsedOptions =
  | { readonly ok: true; readonly options: unknown }
  | { readonly ok: false; readonly problems: InputProblem[] };

/** What `parse` answers; when it throws or returns something else, that is the problem of the whole table. */
function parsedOptions(parse: () => unknown): ParsedOptions {
  const wrong = (message: string): ParsedOptions => ({ ok: false, problems: [{ setting: "", message }] });
  let answer: unknown;
  try {
    answer = parse();
  } catch (error) {
    return wrong(`parseOptions of the plugin threw: ${errorText(error)}`);
  }
  if (answer instanceof Promise) {
    answer.catch(() => {});
    return wrong("parseOptions of the plugin returned a promise; it must return the result itself");
  }
  if (isRecord(answer) && answer["ok"] === true) return { ok: true, options: answer["options"] };
  const problems = isRecord(answer) && answer["ok"] === false ? answer["problems"] : undefined;
  if (Array.isArray(problems) && problems.length > 0 && problems.every(isProblem)) return { ok: false, problems };
  return wrong("parseOptions of the plugin returned neither options nor problems");
}

function isProblem(value: unknown): value is InputProblem {
  return isRecord(value) && typeof value["setting"] === "string" && typeof value["message"] === "string";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
