/**
 * The drivers that a configuration can name: the built-in ones, by name (a new one is a row here),
 * and external ones, by the path of their module. A module exports a `StoragePlugin`, or a function
 * that gets the classes of the running program and answers one: errors and refusals are recognised
 * by their class, and a module on the disk can't import from a compiled executable. Modules run
 * with all rights of the program, so only the operator's configuration names them.
 */
import { existsSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { errorText, fault } from "../core/fault.ts";
import type { StoreSettings } from "../storage/bind.ts";
import { type CapabilityName, type StoragePlugin, StoreError } from "../storage/contract.ts";
import type { InputProblem } from "../storage/setting-problem.ts";
import { chainOptions, chainPluginOver } from "./chain/chain.ts";
import { lmdbOptions, lmdbPlugin, openLocalTable } from "./lmdb/lmdb.ts";
import { memoryOptions, memoryPlugin } from "./memory/memory.ts";
import { postgresOptions, postgresPlugin } from "./postgres/postgres.ts";

/** Its outbox is a table of LMDB. */
export const chainPlugin = chainPluginOver(openLocalTable);

/** Each is opened with the options that it parsed itself, so their types are hidden here. */
export const builtInPlugins = [
  memoryPlugin,
  lmdbPlugin,
  chainPlugin,
  postgresPlugin,
] as readonly StoragePlugin[];

/** What editors get of the options of each. */
export const optionSchemas = {
  memory: memoryOptions,
  lmdb: lmdbOptions,
  chain: chainOptions,
  postgres: postgresOptions,
};

// -------------------------------------------------------------------------------- external plugins

type LoadedPlugins = {
  /** Under the names by which the configuration calls them: their paths as written. */
  readonly plugins: StoragePlugin[];
  readonly problems: InputProblem[];
};

/** What a module can't import and needs: `StoreError` to throw, `fault` to refuse a cursor. */
export type PluginKit = { readonly StoreError: typeof StoreError; readonly fault: typeof fault };

export type PluginModule = StoragePlugin | ((kit: PluginKit) => StoragePlugin);

/** Whether a plugin is named by path. A built-in one is a bare word. */
export function isModulePath(plugin: string): boolean {
  return plugin.startsWith("./") || plugin.startsWith("../") || isAbsolute(plugin);
}

/**
 * Loads every module that the stores name, once each. Relative paths are resolved against `base`.
 */
export async function loadPlugins(
  stores: Readonly<Record<string, StoreSettings>>,
  base: string,
): Promise<LoadedPlugins> {
  const plugins: StoragePlugin[] = [];
  const problems: InputProblem[] = [];
  const loaded = new Map<string, StoragePlugin | string>();
  for (const [name, { plugin }] of Object.entries(stores)) {
    if (!isModulePath(plugin)) continue;
    let found = loaded.get(plugin);
    if (found === undefined) {
      found = await loadPlugin(plugin, base);
      loaded.set(plugin, found);
      if (typeof found !== "string") plugins.push(found);
    }
    if (typeof found === "string")
      problems.push({ setting: `stores.${name}.plugin`, message: found });
  }
  return { plugins, problems };
}

/** The plugin, or what is wrong with the module. */
async function loadPlugin(path: string, base: string): Promise<StoragePlugin | string> {
  const file = resolve(base, path);
  if (!existsSync(file)) return `there is no file ${file}`;
  let exported: unknown;
  try {
    const module: { readonly default?: unknown } = await import(pathToFileURL(file).href);
    exported =
      typeof module.default === "function" ? module.default({ StoreError, fault }) : module.default;
  } catch (error) {
    return `the module ${path} can't be loaded: ${errorText(error)}`;
  }
  const wrong = wrongMember(exported);
  if (wrong === undefined) return { ...(exported as StoragePlugin), name: path };
  return `the default export of ${path} is not a storage plugin: it needs a right "${wrong}" (docs/plugins.md)`;
}

const capabilityNames: readonly CapabilityName[] = [
  "mailbox",
  "replay",
  "receipts",
  "ledger",
  "logs",
];
const isFunction = (value: unknown) => typeof value === "function";
const isFunctionOrNull = (value: unknown) => value === null || isFunction(value);

const members: Readonly<Record<keyof StoragePlugin, (value: unknown) => boolean>> = {
  name: (value) => typeof value === "string" && value !== "",
  provides: (value) =>
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((name) => capabilityNames.includes(name)),
  parseOptions: isFunction,
  open: isFunction,
  migrate: isFunctionOrNull,
  maintenance: isFunctionOrNull,
};

/** The first member that is missing or something else. */
function wrongMember(exported: unknown): string | undefined {
  const own = (exported ?? {}) as Partial<Record<keyof StoragePlugin, unknown>>;
  return (Object.keys(members) as (keyof StoragePlugin)[]).find(
    (name) => !members[name](own[name]),
  );
}
