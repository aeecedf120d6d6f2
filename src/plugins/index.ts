/**
 * The drivers that are built in, by their names in the configuration. A new one is one row here.
 * Registration is this table and nothing else, so that it can be read and survives any bundler.
 */
import { type ConfigurablePlugin, configurable } from "../storage/bind.ts";
import { chainPlugin } from "./chain/chain.ts";
import { lmdbPlugin } from "./lmdb/lmdb.ts";
import { memoryPlugin } from "./memory/memory.ts";
import { postgresPlugin } from "./postgres/postgres.ts";

export const builtInPlugins: readonly ConfigurablePlugin[] = [
  configurable(memoryPlugin),
  configurable(lmdbPlugin),
  configurable(chainPlugin),
  configurable(postgresPlugin),
];
