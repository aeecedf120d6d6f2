/** Moves places in a thread that a test ends in the middle. */
import type { PostgresOptions } from "../../src/plugins/postgres/postgres.ts";
import { migratePostgres } from "../../src/plugins/postgres/store.ts";
import type { PlaceMove } from "../../src/storage/contract.ts";

declare const self: Worker;

self.onmessage = ({
  data,
}: MessageEvent<{ readonly options: PostgresOptions; readonly move: PlaceMove }>) => {
  self.postMessage("begun");
  migratePostgres(data.options, data.move).catch(() => {});
};
