/**
 * The servers that are compared, each started here with the setting under which it answers only what is on disk, in a
 * folder and on a port of its own. What this machine does not have is left out, and said.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startNats } from "../../test/support/nats.ts";
import { postgresAbsence, startPostgres } from "../../test/support/postgres.ts";
import { registered } from "../registered.ts";
import type { Protocol } from "./load.ts";
import { http, jetStream, postgres, redis } from "./protocols.ts";

export type Peer = {
  readonly name: string;
  /** What happens before it answers. */
  readonly promise: string;
  readonly port: number;
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
  { name: "redis", start: startRedis },
  { name: "postgres", start: startPostgresPeer },
  { name: "jetstream", start: startJetStream },
];

const recipients = 16;

/** The node as `serve` composes it, or a bare server that parses the same bodies and answers 202. */
async function startOwn(driver: "bare" | "lmdb" | "memory"): Promise<Peer> {
  const folder = mkdtempSync(join(tmpdir(), "waypost-peer-"));
  const script = join(import.meta.dir, "../http-server.ts");
  const command = [process.execPath, script, join(import.meta.dir, "../.."), driver, join(folder, "store")];
  const child = Bun.spawn(command, { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  let text = "";
  for await (const chunk of child.stdout) {
    text += new TextDecoder().decode(chunk);
    if (text.endsWith("\n")) break;
  }
  const url = text.trim();
  const names = [`did:svc:${"7".repeat(44)}`];
  if (driver !== "bare") for (let i = 0; i < recipients; i++) names[i] = (await registered(url)).did;
  return {
    name: driver === "bare" ? "bare HTTP server" : `waypost, ${driver}`,
    promise: { bare: "parses the body, keeps nothing", memory: "keeps it in memory", lmdb: "syncs" }[driver],
    port: Number(new URL(url).port),
    protocol: http("/cache/store", names),
    cpuSeconds: () => cpuOfTree(child.pid),
    end: async () => {
      await child.stdin.end();
      await child.exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function startRedis(): Promise<Peer | string> {
  const binary = Bun.which("redis-server");
  if (binary === null) return "no redis-server on this machine (Debian: apt-get install redis-server)";
  const folder = mkdtempSync(join(tmpdir(), "waypost-redis-"));
  const port = freePort();
  const settings = ["--dir", folder, "--appendonly", "yes", "--appendfsync", "always", "--save", ""];
  const child = Bun.spawn([binary, "--port", String(port), "--bind", "127.0.0.1", ...settings], {
    stdout: "ignore",
    stderr: "inherit",
  });
  await listening(port);
  return {
    name: "Redis, XADD",
    promise: "syncs (appendfsync always)",
    port,
    protocol: redis(),
    cpuSeconds: () => cpuOfTree(child.pid),
    end: async () => {
      child.kill("SIGKILL");
      await child.exited;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function startPostgresPeer(): Promise<Peer | string> {
  const absence = postgresAbsence();
  if (absence !== null) return absence;
  const server = await startPostgres(["fsync=on", "max_connections=600", "shared_buffers=256MB", "max_wal_size=4GB"]);
  await server.sql("create table mail (box int, id uuid, arrived bigserial, body text, primary key (box, id))");
  const pid = Number(readFileSync(join(server.folder, "data/postmaster.pid"), "utf8").split("\n")[0]);
  return {
    name: "PostgreSQL, insert",
    promise: "syncs",
    port: server.port,
    protocol: postgres("waypost", "postgres"),
    cpuSeconds: () => cpuOfTree(pid),
    end: server.end,
  };
}

async function startJetStream(): Promise<Peer | string> {
  const binary = process.env["NATS_SERVER"] ?? Bun.which("nats-server");
  if (binary === null) return "no nats-server on this machine (Debian: apt-get install nats-server)";
  const [, major = "0", minor = "0"] =
    /v(\d+)\.(\d+)/.exec(Bun.spawnSync([binary, "--version"]).stdout.toString()) ?? [];
  if (Number(major) < 2 || (Number(major) === 2 && Number(minor) < 10))
    return "nats-server before 2.10 can't sync before it answers; NATS_SERVER names another one";
  const folder = mkdtempSync(join(tmpdir(), "waypost-jetstream-"));
  const server = await startNats([`jetstream: { store_dir: "${folder}", sync_interval: always }`], binary);
  await createStream(server.port);
  return {
    name: "NATS JetStream, publish",
    promise: "syncs (sync_interval always)",
    port: server.port,
    protocol: jetStream(),
    cpuSeconds: () => cpuOfTree(server.pid()),
    end: async () => {
      await server.end();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function createStream(port: number): Promise<void> {
  const config = JSON.stringify({ name: "mail", subjects: ["mail.*"], storage: "file", retention: "limits" });
  const ask = `PUB $JS.API.STREAM.CREATE.mail _INBOX.create ${config.length}\r\n${config}\r\n`;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let text = "";
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      open: (opened) => void opened.write(`CONNECT {"verbose":false}\r\nSUB _INBOX.create 1\r\n${ask}`),
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
    const opened = await Bun.connect({ hostname: "127.0.0.1", port, socket: { data: () => {} } }).catch(() => null);
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
  return processes.filter(({ pid }) => members.has(pid)).reduce((sum, { ticks }) => sum + ticks, 0) / 100;
}

function statOf(pid: number): { readonly pid: number; readonly parent: number; readonly ticks: number } | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const ticks = [11, 12, 13, 14].reduce((sum, field) => sum + Number(fields[field]), 0);
    return { pid, parent: Number(fields[1]), ticks };
  } catch {
    return null;
  }
}
