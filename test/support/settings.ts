/**
 * Settings for tests: the defaults of the schema, with whole-value overrides in the form after
 * parsing.
 */
import { type Config, type ConfigInput, configSchema } from "../../src/config/schema.ts";

/**
 * The parsed defaults; `input` is in the form of a file. Relations between settings are not
 * checked.
 */
export function settings(input: ConfigInput = {}): Config {
  return configSchema.parse(input);
}

const defaults = settings();
export const limitsDefault: Config["limits"] = defaults.limits;
export const relayDefault: Config["relay"] = defaults.relay;
export const cacheDefault: Config["cache"] = defaults.cache;
export const directoryDefault: Config["directory"] = defaults.directory;
