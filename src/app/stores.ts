/**
 * From the configuration to what `storage/bind.ts` binds: the stores with their plugins, and the needs of
 * the nodes that are enabled, each under the setting that names its store.
 */

import type { Config } from "../config/schema.ts";
import { builtInPlugins } from "../plugins/index.ts";
import { loadPlugins } from "../plugins/load.ts";
import {
  bindStores,
  type Need,
  neededStores,
  type OpenStep,
  type OpenStores,
  openStores,
  type StoreConfiguration,
  storeProblems,
} from "../storage/bind.ts";
import { type InputProblem, type Store, type StoreEnvironment, StoreError } from "../storage/contract.ts";
import { failed } from "./failure.ts";

/** External modules are loaded on the way; relative paths start at the working folder. */
async function storeConfiguration(config: Config): Promise<StoreConfiguration> {
  const stores = Object.fromEntries(
    Object.entries(config.stores).map(([name, { plugin, ...options }]) => [name, { plugin, options }]),
  );
  const { plugins, problems } = await loadPlugins(stores, process.cwd());
  return { stores, plugins: [...builtInPlugins, ...plugins], needs: needsOf(config), pluginProblems: problems };
}

/** Every problem of the stores, found without opening one. */
export async function checkStores(config: Config): Promise<InputProblem[]> {
  return storeProblems(await storeConfiguration(config));
}

/** Opens what the nodes need. Throws one failure that lists all problems of the configuration and of the stores. */
export async function openConfiguredStores(config: Config, environment: StoreEnvironment): Promise<OpenStores> {
  const opened = await openStores(await storeConfiguration(config), environment).catch(toFailure);
  if (!Array.isArray(opened)) return opened;
  throw failed(opened.map(({ setting, message }) => `${setting}: ${message}`).join("\n"));
}

/** Stores that are open elsewhere, as the nodes of a configuration need them. */
export function bindOpenStores(config: Config, stores: ReadonlyMap<string, Store>): OpenStores {
  return bindStores(needsOf(config), stores);
}

/** What a store says when it can't be opened is for the person who runs the command. */
export function toFailure(error: unknown): never {
  throw error instanceof StoreError ? failed(error.message) : error;
}

/** The stores that the nodes of a configuration need, to be looked at one by one. */
export async function storesOf(config: Config): Promise<OpenStep[]> {
  return neededStores(await storeConfiguration(config));
}

/** What a `202` promises must survive the death of the machine, so every need asks for `flushed`. */
function needsOf(config: Config): Need[] {
  const needs: Need[] = [];
  const need = (setting: string, store: string, capability: Need["capability"]): void => {
    needs.push({ setting, store, capability, durability: "flushed" });
  };
  const { directory, relay, cache } = config;
  if (directory.enabled) {
    need("directory.ledger", directory.ledger, "ledger");
    need("directory.store", directory.store, "receipts");
    need("directory.store", directory.store, "replay");
  }
  if (relay.enabled) {
    need("relay.store", relay.store, "receipts");
    need("relay.store", relay.store, "replay");
  }
  if (cache.enabled) {
    need("cache.store", cache.store, "mailbox");
    need("cache.store", cache.store, "replay");
    need("cache.store", cache.store, "receipts");
  }
  for (const node of ["relay", "cache"] as const) {
    const ledger = config[node].enabled ? ledgerOfRecipients(config[node].recipients) : null;
    if (ledger !== null) need(`${node}.recipients`, ledger, "ledger");
  }
  return needs;
}

/** The store that `ledger:<store>` names, or `null` for another source of recipients. */
export function ledgerOfRecipients(recipients: string): string | null {
  return recipients.startsWith("ledger:") ? recipients.slice("ledger:".length) : null;
}
