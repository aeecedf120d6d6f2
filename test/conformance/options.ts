/** Options of a plugin as its own schema reads them. */
import type { StoragePlugin } from "../../src/storage/contract.ts";

export function optionsOf<Options>(plugin: StoragePlugin<Options>, input: unknown): Options {
  const parsed = plugin.parseOptions(input);
  if (!parsed.ok) throw new Error(parsed.problems.map(({ setting, message }) => `${setting}: ${message}`).join("; "));
  return parsed.options;
}
