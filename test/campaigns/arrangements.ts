/**
 * The tests of whole nodes in the arrangements that operators run: over LMDB, and over PostgreSQL
 * and nats-server as three nodes that have two of the three kinds each. `bun
 * test/campaigns/arrangements.ts [lmdb|cluster [part of a file's name]]` prints what fails; needs
 * Debian's postgresql and nats-server. Test files that make their own processes, or only a part of
 * a node, are the same in every arrangement and left out.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { natsAbsence, startNats } from "../support/nats.ts";
import { postgresAbsence, startPostgres } from "../support/postgres.ts";

const [wanted, part = ""] = process.argv.slice(2);
const root = join(import.meta.dir, "..", "..");
const folder = join("test", "http");
const files = readdirSync(join(root, folder), { recursive: true })
  .map((name) => join(folder, String(name)))
  .filter(
    (name) =>
      name.endsWith(".test.ts") &&
      readFileSync(join(root, name), "utf8").includes("startTestNodes("),
  );

/** What three nodes with two kinds each can't answer as one, and why. */
const leftOut: Readonly<Record<string, string>> = {
  "status.test.ts": "the description of a node names its own kinds only",
  "signing.test.ts": "the description of a node names its own kinds only",
  "metrics.test.ts": "a node has the metrics of its own kinds and counts its own writes only",
  "cache-wake.test.ts": "every Cache has an interval of its own",
  "directory/pace.test.ts": "every Directory has a pace of its own",
  "explained-proofs.test.ts": "the router of the tests passes no proof of a session in headers",
  "homes.test.ts": "a node that reads a ledger without a Directory knows nobody of other homes",
  "homes-lasting.test.ts":
    "a node that reads a ledger without a Directory knows nobody of other homes",
  "push-nodes.test.ts": "each process that pushes needs a Cache",
  "app-host.test.ts": "the app needs a Directory beside it",
  "hosts.test.ts": "the router of the tests answers for the nodes' limits",
  "chain-nodes.test.ts": "its ledger is a chain",
  "reload.test.ts": "every node has a configuration of its own",
};

type Given = {
  readonly env: Readonly<Record<string, string>>;
  readonly without: Readonly<Record<string, string>>;
};

async function run(name: string, { env, without }: Given): Promise<number> {
  const chosen = files.filter(
    (file) => file.includes(part) && without[relative(folder, file)] === undefined,
  );
  console.log(`${name}: ${chosen.length} of ${files.length} files`);
  for (const [file, reason] of Object.entries(without)) console.log(`  not ${file}: ${reason}`);
  const command = [process.execPath, "test", ...chosen, "--timeout", "120000"];
  return Bun.spawn(command, {
    cwd: root,
    env: { ...process.env, ...env },
    stdout: "inherit",
    stderr: "inherit",
  }).exited;
}

async function runCluster(): Promise<number> {
  const absence = postgresAbsence() ?? natsAbsence();
  if (absence !== null) throw new Error(absence);
  const database = await startPostgres(["fsync=on", "max_connections=300", "shared_buffers=128MB"]);
  const bus = await startNats();
  try {
    const env = { WAYPOST_TEST_POSTGRES: database.url, WAYPOST_TEST_NATS: bus.url };
    return await run("three nodes", { env, without: leftOut });
  } finally {
    await bus.end();
    await database.end();
  }
}

const codes: number[] = [];
const lmdb = { WAYPOST_TEST_STORE: "lmdb" };
if (wanted !== "cluster") codes.push(await run("lmdb", { env: lmdb, without: {} }));
if (wanted !== "lmdb") codes.push(await runCluster());
process.exit(codes.every((code) => code === 0) ? 0 : 1);
