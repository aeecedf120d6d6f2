/**
 * A PostgreSQL server of a test's own in a temporary folder: the machine's (Debian's package) where
 * there is one, started as a user that is not root, since the server refuses root.
 */
import {
  appendFileSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./executable.ts";

export type PostgresServer = {
  readonly url: string;
  readonly port: number;
  readonly folder: string;
  /** `immediate` is what a killed server is like: the next start recovers from the log. */
  readonly stop: (mode?: "fast" | "immediate") => Promise<void>;
  readonly start: () => Promise<void>;
  /** Runs a statement as the administrator and answers its output. */
  readonly sql: (text: string) => Promise<string>;
  /** A new server that follows this one until it is promoted. */
  readonly standby: () => Promise<PostgresServer>;
  readonly promote: () => Promise<void>;
  /** Forgets what it has, and follows another server from now on. */
  readonly follow: (primary: PostgresServer) => Promise<void>;
  /** Its processes stand still: connections stay open, and nothing answers. */
  readonly freeze: () => void;
  readonly thaw: () => void;
  /** Its machine is lost, also where it was frozen. */
  readonly kill: () => Promise<void>;
  /** Dumps a schema, drops it, and makes it again from the dump. */
  readonly restore: (schema: string) => Promise<void>;
  /**
   * From now on its log is archived in its folder, by the lines that docs/run.md has. Restarts it.
   */
  readonly archive: () => Promise<void>;
  /** What `recover` begins with. */
  readonly baseBackup: () => Promise<void>;
  /**
   * Forgets its data, and starts from the base backup and the archive as it was at a time of the
   * database.
   */
  readonly recover: (time: string) => Promise<void>;
  readonly end: () => Promise<void>;
};

function binaries(): string | null {
  const base = "/usr/lib/postgresql";
  const versions = existsSync(base) ? readdirSync(base).sort((a, b) => Number(b) - Number(a)) : [];
  const folders = versions.map((version) => join(base, version, "bin"));
  return (
    folders.find(
      (folder) => existsSync(join(folder, "initdb")) && existsSync(join(folder, "postgres")),
    ) ?? null
  );
}

/** Why there is no server, or null. */
export function postgresAbsence(): string | null {
  if (binaries() === null)
    return "no PostgreSQL server on this machine (Debian: apt-get install postgresql)";
  if (process.getuid?.() === 0 && Bun.spawnSync(["id", "-u", "postgres"]).exitCode !== 0) {
    return "PostgreSQL refuses root, and there is no user named postgres";
  }
  return null;
}

async function run(command: readonly string[]): Promise<string> {
  const asRoot = process.getuid?.() === 0;
  const full = asRoot ? ["runuser", "-u", "postgres", "--", ...command] : [...command];
  const child = Bun.spawn(full, {
    stdout: "pipe",
    stderr: "pipe",
    cwd: "/",
    env: { ...process.env, LC_ALL: "C" },
  });
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (code !== 0) throw new Error(`${command.join(" ")}: ${err}${out}`);
  return out;
}

/**
 * `settings` are lines of the server's configuration, such as `max_connections=20`. In the folder
 * `folderInMemory` a sync costs nothing.
 */
export async function startPostgres(
  settings: readonly string[] = [],
  within = tmpdir(),
): Promise<PostgresServer> {
  const bin = binaries();
  if (bin === null) throw new Error("no PostgreSQL server");
  const folder = newFolder(within);
  await run(["cp", "-a", await freshCluster(bin), join(folder, "data")]);
  return startIn({ bin, folder, settings });
}

/**
 * A cluster as `initdb` leaves it, made once on a machine for all workers of all runs: a copy takes
 * a tenth of its processor time. Each program of the server has its own, for all users that may run
 * it.
 */
async function freshCluster(bin: string): Promise<string> {
  const { mtimeMs } = statSync(join(bin, "postgres"));
  const uid = process.getuid?.() ?? 0;
  const cluster = join(tmpdir(), `waypost-cluster-${uid}-${Bun.hash(`${bin} ${mtimeMs}`)}`);
  if (existsSync(cluster)) return cluster;
  const folder = newFolder();
  const data = join(folder, "data");
  const who = ["-U", "waypost", "--auth=trust"];
  await run([join(bin, "initdb"), "-D", data, ...who, "-E", "UTF8", "--no-locale", "-N"]);
  try {
    renameSync(data, cluster);
  } catch (error) {
    // Another worker was faster.
    if (!existsSync(cluster)) throw error;
  }
  rmSync(folder, { recursive: true });
  return cluster;
}

function newFolder(within = tmpdir()): string {
  const folder = mkdtempSync(join(within, "waypost-pg-"));
  if (process.getuid?.() === 0)
    chownSync(folder, Number(Bun.spawnSync(["id", "-u", "postgres"]).stdout.toString()), 0);
  return folder;
}

/** The main process first, so that it starts no other; returns all. */
function freeze(data: string): number[] {
  process.kill(mainOf(data), "SIGSTOP");
  const all = processesOf(data);
  for (const pid of all) signal(pid, "SIGSTOP");
  return all;
}

/** One that has ended meanwhile needs none. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

function mainOf(data: string): number {
  return Number(readFileSync(join(data, "postmaster.pid"), "utf8").split("\n")[0]);
}

function processesOf(data: string): number[] {
  const main = mainOf(data);
  const others = readFileSync(`/proc/${main}/task/${main}/children`, "utf8").match(/\d+/g) ?? [];
  return [main, ...others.map(Number)];
}

function isAlive(pid: number): boolean {
  const status = existsSync(`/proc/${pid}/stat`)
    ? readFileSync(`/proc/${pid}/stat`, "utf8")
    : ") Z";
  return !/\) [ZX]/.test(status);
}

/** Of the server at the port; `more` is `-R` for what a standby begins with. */
async function copyInto(
  bin: string,
  data: string,
  port: number,
  more: readonly string[] = [],
): Promise<void> {
  const server = ["-h", "127.0.0.1", "-p", String(port), "-U", "waypost"];
  const how = ["-X", "stream", "-c", "fast", ...more];
  await run([join(bin, "pg_basebackup"), ...server, "-D", data, ...how]);
}

/** What `ALTER SYSTEM` writes, also for a server that does not run. */
function configure(data: string, lines: readonly string[]): void {
  appendFileSync(join(data, "postgresql.auto.conf"), `${lines.join("\n")}\n`);
}

async function startIn(given: {
  readonly bin: string;
  readonly folder: string;
  readonly settings: readonly string[];
}): Promise<PostgresServer> {
  const { bin, folder, settings } = given;
  const data = join(folder, "data");
  const [archive, base] = [join(folder, "archive"), join(folder, "base")];
  const port = freePort();
  const all = [
    "listen_addresses=127.0.0.1",
    `port=${port}`,
    "unix_socket_directories=",
    ...settings,
  ];
  const control = (...words: string[]) => run([join(bin, "pg_ctl"), "-D", data, "-s", ...words]);
  const start = async () => {
    const log = join(folder, "log");
    await control("-w", "-l", log, "-o", all.map((one) => `-c ${one}`).join(" "), "start").catch(
      (error: unknown) => {
        throw new Error(`${error} ${readFileSync(log, "utf8").slice(-2_000)}`);
      },
    );
  };
  const stop = async (mode: "fast" | "immediate" = "fast") => {
    await control("-m", mode, "stop");
  };
  await start();
  const server = ["-h", "127.0.0.1", "-p", String(port), "-U", "waypost"];
  const sql = (text: string) => run([join(bin, "psql"), ...server, "-Atc", text, "postgres"]);
  return {
    url: `postgres://waypost@127.0.0.1:${port}/postgres`,
    port,
    folder,
    start,
    stop,
    sql,
    restore: async (schema) => {
      const dump = join(folder, `${schema}.sql`);
      await run([join(bin, "pg_dump"), ...server, "-n", schema, "-f", dump, "postgres"]);
      await sql(`DROP SCHEMA ${schema} CASCADE`);
      await run([
        join(bin, "psql"),
        ...server,
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-f",
        dump,
        "postgres",
      ]);
    },
    standby: async () => {
      const copy = newFolder();
      await copyInto(bin, join(copy, "data"), port, ["-R"]);
      return startIn({ bin, folder: copy, settings });
    },
    promote: () => control("-w", "promote").then(() => {}),
    follow: async (primary) => {
      rmSync(data, { recursive: true, force: true });
      await copyInto(bin, data, primary.port, ["-R"]);
      await start();
    },
    archive: async () => {
      await run(["mkdir", archive]);
      const file = `${archive}/%f`;
      const copy = `cp %p ${file}.part && sync ${file}.part && mv ${file}.part ${file}`;
      const command = `cmp -s %p ${file} || (test ! -f ${file} && ${copy})`;
      configure(data, ["archive_mode = on", `archive_command = '${command}'`]);
      await stop();
      await start();
    },
    baseBackup: async () => {
      rmSync(base, { recursive: true, force: true });
      await copyInto(bin, base, port);
    },
    recover: async (time) => {
      rmSync(data, { recursive: true, force: true });
      await run(["cp", "-a", base, data]);
      configure(data, [
        `restore_command = 'cp ${archive}/%f %p'`,
        `recovery_target_time = '${time}'`,
        "recovery_target_timeline = current",
        "recovery_target_action = promote",
      ]);
      await run(["touch", join(data, "recovery.signal")]);
      const recovering = async () => (await sql("select pg_is_in_recovery()")) !== "f\n";
      try {
        await start();
        while (await recovering()) await Bun.sleep(50);
      } catch {
        // One that can't go on ends by itself, after it has taken connections to read.
        while (existsSync(join(data, "postmaster.pid"))) await Bun.sleep(50);
        throw new Error(readFileSync(join(folder, "log"), "utf8").slice(-2_000));
      }
    },
    freeze: () => void freeze(data),
    thaw: () => {
      for (const pid of processesOf(data)) signal(pid, "SIGCONT");
    },
    kill: async () => {
      const pids = freeze(data);
      for (const pid of pids) signal(pid, "SIGKILL");
      while (pids.some(isAlive)) await Bun.sleep(5);
      // The dead keep their number until somebody asks for how they ended.
      rmSync(join(data, "postmaster.pid"));
    },
    end: async () => {
      await stop("immediate").catch(() => {});
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
