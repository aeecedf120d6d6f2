/**
 * A nats-server of a test's own on the loopback interface (Debian's package), or the reason why
 * there is none.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./executable.ts";

export type NatsServer = {
  readonly url: string;
  readonly port: number;
  readonly pid: () => number;
  readonly stop: () => Promise<void>;
  readonly start: () => Promise<void>;
  /** The process stands still: connections stay open and nothing is read. */
  readonly freeze: () => Promise<void>;
  readonly thaw: () => void;
  readonly end: () => Promise<void>;
};

const found = ["/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"].find(
  existsSync,
);
const binary = found ?? Bun.which("nats-server");

/** Why there is no server, or null. */
export function natsAbsence(): string | null {
  return binary === null
    ? "no nats-server on this machine (Debian: apt-get install nats-server)"
    : null;
}

/**
 * `settings` are lines of its configuration file, `program` another server than the one of the
 * machine.
 */
export async function startNats(
  settings: readonly string[] = [],
  program = binary,
): Promise<NatsServer> {
  if (program === null) throw new Error("no nats-server");
  const folder = mkdtempSync(join(tmpdir(), "waypost-nats-"));
  const port = freePort();
  const file = join(folder, "nats.conf");
  await Bun.write(file, [`listen: "127.0.0.1:${port}"`, ...settings].join("\n"));
  let child: Bun.Subprocess | null = null;
  const start = async () => {
    child = Bun.spawn([program, "-c", file], { stdout: "ignore", stderr: "ignore" });
    for (let tried = 0; tried < 200; tried++, await Bun.sleep(25)) if (await isOpen(port)) return;
    throw new Error("nats-server does not listen");
  };
  const stop = async () => {
    child?.kill("SIGKILL");
    await child?.exited;
  };
  await start();
  return {
    url: `nats://127.0.0.1:${port}`,
    port,
    start,
    stop,
    pid: () => child?.pid ?? 0,
    freeze: async () => {
      child?.kill("SIGSTOP");
      while (isRunning(child?.pid ?? 0)) await Bun.sleep(5);
    },
    thaw: () => child?.kill("SIGCONT"),
    end: async () => {
      child?.kill("SIGCONT");
      await stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function isOpen(port: number): Promise<boolean> {
  try {
    const socket = await Bun.connect({ hostname: "127.0.0.1", port, socket: { data: () => {} } });
    socket.end();
    return true;
  } catch {
    return false;
  }
}

/**
 * Whether a thread of it still runs: a signal to stop comes late on a busy machine. `false` where
 * `/proc` is missing.
 */
function isRunning(pid: number): boolean {
  const tasks = `/proc/${pid}/task`;
  if (!existsSync(tasks)) return false;
  // The state stands behind the name, which is in brackets.
  const stateOf = (task: string) =>
    /\) (\w)/.exec(readFileSync(`${tasks}/${task}/stat`, "utf8"))?.[1];
  try {
    return readdirSync(tasks).some((task) => stateOf(task) !== "T");
  } catch {
    // A thread ended meanwhile.
    return true;
  }
}
