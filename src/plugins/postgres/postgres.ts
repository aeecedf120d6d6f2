/**
 * The PostgreSQL driver: every capability in one schema of a database that several nodes share. What it
 * answers survives the death of the database's machine, and with a synchronous standby the loss of it.
 */
import type { StoragePlugin } from "../../storage/contract.ts";
import { parseWith } from "../options.ts";
import { type PostgresOptions, postgresOptions } from "./options.ts";

export const postgresPlugin: StoragePlugin<PostgresOptions> = {
  name: "postgres",
  provides: ["mailbox", "replay", "receipts", "ledger"],
  parseOptions: (input) => parseWith(postgresOptions, input),
  async open(options, environment) {
    const { openPostgres } = await import("./store.ts");
    return openPostgres(options, environment);
  },
  async migrate(options) {
    const { migratePostgres } = await import("./store.ts");
    return migratePostgres(options);
  },
};
