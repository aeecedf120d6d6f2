/**
 * The plain commands of `examples/cluster` on the executable: two nodes on one PostgreSQL,
 * nats-server and a proxy. What is sent through node A is received through node B; node A is killed
 * in the middle, then the primary of the database, and nothing that was answered is lost or
 * doubled. Says so where the servers are missing.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { executable, freePort, type Ran, run, scratchFolder } from "../support/executable.ts";
import { natsAbsence } from "../support/nats.ts";
import { postgresAbsence } from "../support/postgres.ts";
import { pause } from "../support/wait.ts";

const missing = ["caddy", "curl", "pg_autoctl"].filter((name) => Bun.which(name) === null);
const absence =
  postgresAbsence() ?? natsAbsence() ?? (missing.length > 0 ? `no ${missing.join(", ")}` : null);

const names = ["PUBLIC", "A", "B", "SQL", "NATS"];
/**
 * The nodes' admin ports lie next to theirs, and the standby's and the monitor's next to the
 * primary's.
 */
const ports = Object.fromEntries(names.map((name) => [`${name}_PORT`, String(freePort(3))]));

const url = (name: string): string => `http://127.0.0.1:${ports[`${name}_PORT`]}`;
const script = join(import.meta.dir, "..", "..", "examples", "cluster", "plain.sh");

function declareCluster(): void {
  const scratch = scratchFolder();
  const cwd = scratch.path;
  const cluster = join(cwd, "cluster");
  const waypost = (through: string, ...args: string[]): Promise<Ran> =>
    run(args, { cwd, env: { WAYPOST_URL: url(through) } });
  const done = async (through: string, ...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await waypost(through, ...args);
    if (code !== 0) throw new Error(`${args.join(" ")}: ${code} ${stdout}${stderr}`);
    return stdout;
  };
  /** Only the first start says the ports. */
  const plain = async (command: string): Promise<string> => {
    const env = {
      ...(command === "start" ? ports : {}),
      PATH: `${process.env["PATH"]}:/usr/sbin`,
      HOME: cwd,
      WAYPOST: await executable(),
    };
    const child = Bun.spawn([script, command, cluster], {
      cwd,
      env: { ...env, BLOCK_TIME_MS: "300" },
      stderr: "pipe",
    });
    const [code, out, err] = await Promise.all([
      child.exited,
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    if (code !== 0) throw new Error(`${command}: ${out}${err}`);
    return out;
  };
  /** A file keeps its temporary name next to its own for a moment. */
  const received = (folder: string): string[] => {
    const names = existsSync(join(cwd, folder)) ? readdirSync(join(cwd, folder)) : [];
    return names
      .filter((name) => !name.startsWith("."))
      .map((name) => readFileSync(join(cwd, folder, name), "utf8"))
      .sort();
  };

  beforeAll(async () => {
    // Another user's server reads its folder in it.
    chmodSync(cwd, 0o755);
    mkdirSync(cluster);
    expect(await plain("start")).toContain("The cluster runs");
  }, 180_000);
  afterAll(async () => {
    await plain("stop");
    scratch.remove();
  }, 90_000);

  test("an identity made at one node is known at the other", async () => {
    await done("A", "did", "create", "--name", "alice");
    await done("B", "did", "create", "--name", "bob");
    for (const node of ["A", "B"]) {
      for (const name of ["alice", "bob"])
        expect(await done(node, "did", "show", "--as", name)).toContain("did:svc:");
    }
  }, 60_000);

  test("what is sent through A is received through B, once", async () => {
    writeFileSync(join(cwd, "note.txt"), "through A");
    await done("A", "send", "--as", "alice", "--to", "bob", "--file", "note.txt");
    await done("B", "receive", "--as", "bob", "--out", "first");
    expect(received("first")).toEqual(["through A"]);
    await done("A", "receive", "--as", "bob", "--out", "again");
    expect(received("again")).toEqual([]);
  }, 60_000);

  test("who waits at B hears within seconds of what is sent through A", async () => {
    const args = ["receive", "--as", "bob", "--out", "followed", "--follow"];
    const env = { PATH: "/usr/bin:/bin", HOME: cwd, WAYPOST_URL: url("B") };
    const following = Bun.spawn([await executable(), ...args], {
      cwd,
      env,
      stdout: "ignore",
      stderr: "ignore",
    });
    try {
      await pause(3_000, "it is connected; if not, the message waits for it");
      writeFileSync(join(cwd, "live.txt"), "heard at B");
      await done("A", "send", "--as", "alice", "--to", "bob", "--file", "live.txt");
      const sentMs = performance.now();
      // A file that is being written is there and empty for a moment.
      while (received("followed").join("") === "" && performance.now() - sentMs < 60_000)
        await Bun.sleep(50);
      expect(received("followed")).toEqual(["heard at B"]);
      // Without the bus the stream would hear of it at its next heartbeat, up to 15 s later.
      expect(performance.now() - sentMs).toBeLessThan(10_000);
    } finally {
      following.kill("SIGKILL");
      await following.exited;
    }
  }, 90_000);

  test("node A is killed while files are sent, and nothing that was answered is lost or doubled", async () => {
    const sent: string[] = [];
    const pid = Number(readFileSync(join(cluster, "node-a.pid"), "utf8"));
    for (let n = 0; n < 12; n++) {
      writeFileSync(join(cwd, `${n}.txt`), `file ${n}`);
      const sending = waypost(
        "PUBLIC",
        "send",
        "--as",
        "alice",
        "--to",
        "bob",
        "--file",
        `${n}.txt`,
      );
      // While the fourth is on its way.
      if (n === 3) process.kill(pid, "SIGKILL");
      if ((await sending).code === 0) sent.push(`file ${n}`);
    }
    expect(sent.length).toBeGreaterThan(8);
    await done("B", "receive", "--as", "bob", "--out", "after");
    expect(received("after")).toEqual(expect.arrayContaining(sent));
    expect(new Set(received("after")).size).toBe(received("after").length);
    await done("B", "did", "create", "--name", "carol");
  }, 120_000);

  test("the primary is killed, the standby takes over and then the other way round, and nothing that was answered is lost", async () => {
    const [before, after] = ["before the failover", "after the failover"];
    for (const folder of ["failover", "failover back"]) {
      writeFileSync(join(cwd, "before.txt"), before);
      await done("B", "send", "--as", "alice", "--to", "bob", "--file", "before.txt");
      console.log(await plain("failover"));
      writeFileSync(join(cwd, "after.txt"), after);
      await done("B", "send", "--as", "alice", "--to", "bob", "--file", "after.txt");
      await done("B", "receive", "--as", "bob", "--out", folder);
      expect(received(folder)).toEqual([after, before]);
      expect(await done("B", "did", "show", "--as", "carol")).toContain("did:svc:");
    }
  }, 240_000);

  test("is stopped whole, also when a keeper has died, and a failover of nothing kills nothing", async () => {
    const [dead, kept] = ["second", "first"].map((name) =>
      Number(readFileSync(join(cluster, `${name}.pid`), "utf8")),
    );
    // The keeper and what it started to watch the server, but not the server.
    process.kill(-dead!, 9);
    const data = (name: string) => join(cluster, "database", name, "postmaster.pid");
    const servers = ["first", "second", "monitor"].map((name) =>
      Number(readFileSync(data(name), "utf8").split("\n")[0]),
    );
    const isAlive = (pid: number) => existsSync(`/proc/${pid}`);
    expect(servers.filter(isAlive)).toEqual(servers);
    await plain("stop");
    expect([...servers, kept!].filter(isAlive)).toEqual([]);
    await expect(plain("failover")).rejects.toThrow("nothing was killed");
  }, 120_000);
}

if (absence === null) declareCluster();
else test(`skipped: ${absence}`, () => {});
