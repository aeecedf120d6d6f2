/**
 * The PostgreSQL driver and its options: every capability in one schema of a database that several
 * nodes share, or in several (places.ts). What it answers survives the death of the database's
 * machine, and with a synchronous standby the loss of it.
 */
import { z } from "zod";
import { hourMs } from "../../core/codec/time.ts";
import type { StoragePlugin } from "../../storage/contract.ts";
import { parseWith } from "../shared/drivers.ts";

const databaseUrl = z
  .string()
  .max(1_024)
  .refine(
    isDatabaseUrl,
    "must be a URL such as postgres://user@host:5432/database, without password and options",
  );

function isDatabaseUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, hostname, pathname, search, hash } = new URL(text);
  const known = protocol === "postgres:" || protocol === "postgresql:";
  return (
    known &&
    username !== "" &&
    hostname !== "" &&
    /^\/[^/]+$/.test(pathname) &&
    password + search + hash === ""
  );
}

const urls = z
  .array(databaseUrl)
  .min(1)
  .max(8)
  .describe(
    "Servers of one database; the first that accepts writes is used, also after a failover",
  );
const name = z.string().regex(/^[a-z][a-z0-9_]{0,40}$/, "must be a name of a-z, 0-9 and _");
const schema = name.default("waypost");

export const postgresOptions = z.strictObject({
  urls,
  password: z
    .string()
    .min(1)
    .max(1_024)
    .nullable()
    .default(null)
    .describe("Password of the user; `password_file` names a file with it"),
  tls_ca_file: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe(
      "File with the certificates (PEM) that must have issued the server's; connections are encrypted when it is set",
    ),
  schema: schema.describe("Schema of the tables; `waypost storage migrate` creates it"),
  shards: z
    .record(name, z.strictObject({ urls, schema }))
    .refine(
      (shards) => Object.keys(shards).length < 256 && shards["home"] === undefined,
      "must be at most 255 names, and not `home`",
    )
    .default({})
    .describe(
      "More databases, by name, that share the mailboxes; the first, named `home`, also has the ledger. `waypost storage move-places` moves mailboxes",
    ),
  standby: z
    .enum(["wanted", "required"])
    .default("wanted")
    .describe(
      "With several `urls`, a primary that waits for no standby is warned of. `required` refuses writes there, and so retrieval, too",
    ),
  connections: z.int().min(2).max(100).default(8).describe("Connections of this process"),
  statement_timeout_ms: z
    .int()
    .min(100)
    .max(600_000)
    .default(10_000)
    .describe("Longest time of one statement, in milliseconds"),
  partition_ms: z
    .int()
    .min(1)
    .max(240 * hourMs)
    .default(6 * hourMs)
    .describe(
      "Time span of one partition in milliseconds; its messages are dropped together; takes effect only when the schema is created",
    ),
  block_time_ms: z
    .int()
    .min(10)
    .max(3_600_000)
    .default(6_000)
    .describe("Milliseconds between two blocks"),
});

/** A schema that two shards name would hold each place twice. */
const distinctShards = postgresOptions.refine(
  ({ shards, ...home }) => {
    const schemas = [home, ...Object.values(shards)].flatMap((one) =>
      one.urls.map((url) => `${url} ${one.schema}`),
    );
    return new Set(schemas).size === schemas.length;
  },
  { path: ["shards"], message: "names a schema of a database twice" },
);

export type PostgresOptions = z.output<typeof postgresOptions>;

export const postgresPlugin: StoragePlugin<PostgresOptions> = {
  name: "postgres",
  provides: ["mailbox", "replay", "receipts", "ledger", "logs"],
  parseOptions: (input) => parseWith(distinctShards, input),
  async open(options, environment) {
    const { openPostgres } = await import("./store.ts");
    return openPostgres(options, environment);
  },
  maintenance: (options) => ({
    async *records() {
      yield* (await import("./transfer.ts")).postgresRecords(options);
    },
    import: async (...work) => (await import("./transfer.ts")).importPostgres(options, ...work),
    files: null,
  }),
  async migrate(options, move) {
    const { migratePostgres } = await import("./store.ts");
    return migratePostgres(options, move);
  },
};
