/**
 * The servers that are compared, each started here with the setting under which it answers only
 * what is on disk, in a folder and on a port of its own. What this machine does not have is left
 * out, and said.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { postgresOptions, postgresPlugin } from "../../src/plugins/postgres/postgres.ts";
import { natsAbsence, startNats } from "../../test/support/nats.ts";
import { postgresAbsence, startPostgres } from "../../test/support/postgres.ts";
import { registered } from "../registered.ts";
import type { Protocol } from "./load.ts";
import { http, jetStream, postgres, redis } from "./protocols.ts";

export type Peer = {
  readonly name: string;
  /** What happens before it answers. */
  readonly promise: string;
  readonly ports: readonly number[];
  readonly protocol: Protocol;
  /** Processor time of all its processes so far, in seconds. */
  readonly cpuSeconds: () => number;
  readonly end: () => Promise<void>;
};

export type Starter = { readonly name: string; readonly start: () => Promise<Peer | string> };

/** `start` answers a peer, or why there is none. */
export const starters: readonly Starter[] = [
  { name: "floor", start: () => startOwn("bare") },
  { name: "waypost", start: () => startOwn("lmdb") },
  { name: "waypost-memory", start: () => startOwn("memory") },
  { name: "waypost-postgres", start: () => startCluster(1) },
  { name: "waypost-cluster", start: () => startCluster(3) },
  { name: "redis", start: startRedis },
  { name: "sqlite", start: startSqlite },
  { name: "postgres", start: startPostgresPeer },
  { name: "jetstream", start: startJetStream },
];

const recipients = 256;
const recipientsAtOnce = 16;

type Process = { readonly url: string; readonly pid: number; readonly end: () => Promise<void> };

/** `bench/http-server.ts` with these arguments. */
function startNode(...args: readonly string[]): Promise<Process> {
  const [server, checkout] = ["../http-server.ts", "../.."].map((to) => join(import.meta.dir, to));
  return startProcess(server!, checkout!, ...args);
}

/** A server that prints its URL first, in a process of its own. */
async function startProcess(...program: readonly string[]): Promise<Process> {
  const command = [process.execPath, ...program];
  const child = Bun.spawn(command, { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  let text = "";
  for await (const chunk of child.stdout) {
    text += new TextDecoder().decode(chunk);
    if (text.endsWith("\n")) break;
  }
  const end = async (): Promise<void> => {
    await child.stdin.end();
    await child.exited;
  };
  return { url: text.trim(), pid: child.pid, end };
}

function portOf({ url }: Process): number {
  return Number(new URL(url).port);
}

async function recipientsAt({ url }: Process): Promise<string[]> {
  const names: string[] = [];
  while (names.length < recipients) {
    const some = Array.from({ length: recipientsAtOnce }, async () => (await registered(url)).did);
    names.push(...(await Promise.all(some)));
  }
  return names;
}

/**
 * The node as `serve` composes it, or a bare server that parses the same bodies and answers 202.
 */
async function startOwn(driver: "bare" | "lmdb" | "memory"): Promise<Peer> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-peer-"));
  const node = await startNode(driver, join(folder, "store"));
  const names = driver === "bare" ? [`did:svc:${"7".repeat(44)}`] : await recipientsAt(node);
  return {
    name: driver === "bare" ? "bare HTTP server" : `waypost, ${driver}`,
    promise: {
      bare: "parses the body, keeps nothing",
      memory: "keeps it in memory",
      lmdb: "syncs",
    }[driver],
    ports: [portOf(node)],
    protocol: http("/cache/store", names),
    cpuSeconds: () => cpuOfTree(node.pid),
    end: async () => {
      await node.end();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** So many nodes on one database and one bus. */
async function startCluster(count: number): Promise<Peer | string> {
  const absence = postgresAbsence() ?? natsAbsence();
  if (absence !== null) return absence;
  const database = await startDatabase();
  const bus = await startNats();
  const options = postgresOptions.parse({ urls: [database.url] });
  await postgresPlugin.migrate?.(options);
  const args = ["postgres", database.url, bus.url];
  const first = await startNode(...args);
  const others = await Promise.all(
    Array.from({ length: count - 1 }, () => startNode(...args, first.url)),
  );
  const nodes = [first, ...others];
  return {
    name: `waypost, ${count} ${count === 1 ? "node" : "nodes"} on PostgreSQL`,
    promise: "syncs",
    ports: nodes.map(portOf),
    protocol: http("/cache/store", await recipientsAt(first)),
    cpuSeconds: () =>
      [...nodes.map(({ pid }) => pid), bus.pid(), database.pid]
        .map(cpuOfTree)
        .reduce((a, b) => a + b),
    end: async () => {
      for (const { end } of nodes) await end();
      await bus.end();
      await database.end();
    },
  };
}

async function startRedis(): Promise<Peer | string> {
  const binary = Bun.which("redis-server");
  if (binary === null)
    return "no redis-server on this machine (Debian: apt-get install redis-server)";
  const folder = mkdtempSync(join(tmpdir(), "waypost-redis-"));
  const port = freePort();
  const settings = [
    "--dir",
    folder,
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
  ];
  const child = Bun.spawn([binary, "--port", String(port), "--bind", "127.0.0.1", ...settings], {
    stdout: "ignore",
    stderr: "inherit",
  });
  await listening(port);
  return {
    name: "Redis, XADD",
    promise: "syncs (appendfsync always)",
    ports: [port],
    protocol: redis(),
    cpuSeconds: () => cpuOfTree(child.pid),
    end: async () => {
      child.kill("SIGKILL");
      await child.exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function startSqlite(): Promise<Peer> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-sqlite-"));
  const program = join(import.meta.dir, "sqlite-queue.ts");
  const queue = await startProcess(program, join(folder, "queue.sqlite"));
  const names = Array.from({ length: recipients }, (_, n) => `box:${n}`);
  return {
    name: "SQLite queue over HTTP, insert",
    promise: "syncs (WAL, synchronous=FULL)",
    ports: [portOf(queue)],
    protocol: http("/", names),
    cpuSeconds: () => cpuOfTree(queue.pid),
    end: async () => {
      await queue.end();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function startDatabase() {
  const server = await startPostgres([
    "fsync=on",
    "max_connections=600",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
  ]);
  const pid = Number(
    readFileSync(join(server.folder, "data/postmaster.pid"), "utf8").split("\n")[0],
  );
  return { ...server, pid };
}

async function startPostgresPeer(): Promise<Peer | string> {
  const absence = postgresAbsence();
  if (absence !== null) return absence;
  const server = await startDatabase();
  await server.sql(
    "create table mail (box int, id uuid, arrived bigserial, body text, primary key (box, id))",
  );
  return {
    name: "PostgreSQL, insert",
    promise: "syncs",
    ports: [server.port],
    protocol: postgres("waypost", "postgres"),
    cpuSeconds: () => cpuOfTree(server.pid),
    end: server.end,
  };
}

async function startJetStream(): Promise<Peer | string> {
  const binary = process.env["NATS_SERVER"] ?? Bun.which("nats-server");
  if (binary === null)
    return "no nats-server on this machine (Debian: apt-get install nats-server)";
  const [, major = "0", minor = "0"] =
    /v(\d+)\.(\d+)/.exec(Bun.spawnSync([binary, "--version"]).stdout.toString()) ?? [];
  if (Number(major) < 2 || (Number(major) === 2 && Number(minor) < 10))
    return "nats-server before 2.10 can't sync before it answers; NATS_SERVER names another one";
  const folder = mkdtempSync(join(tmpdir(), "waypost-jetstream-"));
  const server = await startNats(
    [`jetstream: { store_dir: "${folder}", sync_interval: always }`],
    binary,
  );
  await createStream(server.port);
  return {
    name: "NATS JetStream, publish",
    promise: "syncs (sync_interval always)",
    ports: [server.port],
    protocol: jetStream(),
    cpuSeconds: () => cpuOfTree(server.pid()),
    end: async () => {
      await server.end();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function createStream(port: number): Promise<void> {
  const config = JSON.stringify({
    name: "mail",
    subjects: ["mail.*"],
    storage: "file",
    retention: "limits",
  });
  const ask = `PUB $JS.API.STREAM.CREATE.mail _INBOX.create ${config.length}\r\n${config}\r\n`;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let text = "";
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: (opened) =>
        void opened.write(`CONNECT {"verbose":false}\r\nSUB _INBOX.create 1\r\n${ask}`),
      data: (_, chunk) => {
        text += chunk.toString();
        if (text.includes('"error"')) reject(new Error(text));
        else if (text.includes("STREAM_CREATE") || text.includes('"config"')) resolve();
      },
    },
  });
  await promise;
  socket.end();
}

function freePort(): number {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data: () => {} } });
  const { port } = listener;
  listener.stop(true);
  return port;
}

async function listening(port: number): Promise<void> {
  for (let tried = 0; tried < 400; tried++, await Bun.sleep(25)) {
    const opened = await Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: { data: () => {} },
    }).catch(() => null);
    opened?.end();
    if (opened !== null) return;
  }
  throw new Error(`nobody listens on ${port}`);
}

/** Linux only: 0 elsewhere. A process that has ended counts for its parent. */
function cpuOfTree(root: number): number {
  if (!existsSync("/proc/self/stat")) return 0;
  const processes = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => statOf(Number(name)) ?? []);
  const members = new Set([root]);
  for (let grown = -1; grown !== members.size; ) {
    grown = members.size;
    for (const { pid, parent } of processes) if (members.has(parent)) members.add(pid);
  }
  return (
    processes.filter(({ pid }) => members.has(pid)).reduce((sum, { ticks }) => sum + ticks, 0) / 100
  );
}

function statOf(
  pid: number,
): { readonly pid: number; readonly parent: number; readonly ticks: number } | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const ticks = [11, 12, 13, 14].reduce((sum, field) => sum + Number(fields[field]), 0);
    return { pid, parent: Number(fields[1]), ticks };
  } catch {
    return null;
  }
}
