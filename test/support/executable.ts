/**
 * The compiled executable for tests: built when it is missing or older than a source, run in
 * folders of their own without node_modules, and asked over sockets only.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { builtOnce, isNewer, repository } from "./built.ts";

const program = join(repository, "dist", "waypost");

let built: Promise<string> | null = null;

/** Path of the executable. */
export function executable(): Promise<string> {
  built ??= build();
  return built;
}

async function build(): Promise<string> {
  const isCurrent = () => isNewer(program, ["build.ts", "bun.lock", "src/**/*"]);
  await builtOnce("build", isCurrent, async () => {
    const child = Bun.spawn([process.execPath, "build.ts"], {
      cwd: repository,
      stdout: "pipe",
      stderr: "pipe",
    });
    const [code, output] = await Promise.all([child.exited, new Response(child.stderr).text()]);
    if (code !== 0) throw new Error(`the build failed: ${output}`);
  });
  return program;
}

/** An empty folder of its own; `remove` is for afterAll. */
export function scratchFolder(): { readonly path: string; readonly remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), "waypost-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/**
 * Below the ports that the system gives to outgoing connections. Each worker of
 * `bun test --parallel` has a thousand of its own, so that no other takes a port before it is used;
 * programs without a number share the rest.
 */
const worker = Number(process.env["BUN_TEST_WORKER_ID"] ?? 0);
const ports =
  worker >= 1 && worker <= 10
    ? { from: 11_000 + worker * 1_000, count: 1_000 }
    : { from: 22_000, count: 8_000 };

/**
 * A port that was free a moment ago, and is not given again. The first of `count` that follow each
 * other.
 */
export function freePort(count = 1): number {
  for (let tries = 0; tries < 100; tries++) {
    const first = ports.from + Math.floor(Math.random() * (ports.count - count + 1));
    const wanted = Array.from({ length: count }, (_, n) => first + n);
    if (wanted.every(isFree)) return first;
  }
  throw new Error("no port is free");
}

const given = new Set<number>();

/** A port is given once: its user may listen on it later. */
function isFree(port: number): boolean {
  if (given.has(port)) return false;
  try {
    void Bun.serve({ port, hostname: "127.0.0.1", fetch: () => new Response() }).stop(true);
    given.add(port);
    return true;
  } catch {
    return false;
  }
}

export type Ran = { readonly code: number; readonly stdout: string; readonly stderr: string };

export type RunOptions = { readonly cwd: string; readonly env?: Readonly<Record<string, string>> };

/** What a program may see of the environment: nothing that would help it find this repository. */
function bareEnvironment(cwd: string): Record<string, string> {
  return { PATH: "/usr/bin:/bin", HOME: cwd, TMPDIR: tmpdir() };
}

/** Runs the executable to its end. */
export async function run(args: readonly string[], options: RunOptions): Promise<Ran> {
  const child = Bun.spawn([await executable(), ...args], {
    cwd: options.cwd,
    env: { ...bareEnvironment(options.cwd), ...options.env },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [code, stdout, stderr] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code, stdout, stderr };
}

export type RunningNode = {
  readonly url: string;
  readonly pid: number;
  /** Everything that it printed, once it has ended. */
  readonly output: () => Promise<string>;
  /** What it printed on standard output up to now. */
  readonly printed: () => string;
  /** Sends a signal and waits for the end. */
  readonly kill: (signal: "SIGTERM" | "SIGKILL" | "SIGINT") => Promise<number>;
  /** Its exit code, once it ends by itself. */
  readonly ended: () => Promise<number>;
  /** Sends a signal that does not end it. */
  readonly hangUp: () => void;
};

type NodeOptions = RunOptions & { readonly url: string; readonly descriptorsMax?: number };

/**
 * Starts the executable as a server and waits until `url` is served; what it depends on may be
 * elsewhere.
 */
export async function startNode(
  args: readonly string[],
  options: NodeOptions,
): Promise<RunningNode> {
  const { descriptorsMax } = options;
  const limited =
    descriptorsMax === undefined ? [] : ["sh", "-c", `ulimit -n ${descriptorsMax}; exec "$0" "$@"`];
  const prints = mkdtempSync(join(tmpdir(), "waypost-prints-"));
  const [out, err] = [join(prints, "out"), join(prints, "err")];
  const child = Bun.spawn([...limited, await executable(), ...args], {
    cwd: options.cwd,
    env: { ...bareEnvironment(options.cwd), ...options.env },
    // Not pipes: Bun 1.4.5 was seen to read one no further while it started other programs.
    stdout: Bun.file(out),
    stderr: Bun.file(err),
  });
  let kept: readonly string[] | null = null;
  const texts = () => kept ?? [out, err].map((path) => readFileSync(path, "utf8"));
  void child.exited.then(() => {
    kept = texts();
    rmSync(prints, { recursive: true });
  });
  const output = async (): Promise<string> => {
    await child.exited;
    return texts().join("\n");
  };
  await untilServing(options.url, child, output);
  return {
    url: options.url,
    pid: child.pid,
    output,
    printed: () => texts()[0] ?? "",
    ended: () => child.exited,
    hangUp: () => child.kill("SIGHUP"),
    kill: async (signal) => {
      child.kill(signal);
      return child.exited;
    },
  };
}

/** A hang, not a slow machine: with twenty others at work a start was seen to take 15 s. */
const servedWithinMs = 60_000;

async function untilServing(
  url: string,
  child: Subprocess,
  output: () => Promise<string>,
): Promise<void> {
  const endsAtMs = performance.now() + servedWithinMs;
  while (performance.now() < endsAtMs) {
    if (child.exitCode !== null)
      throw new Error(`it ended with ${child.exitCode}: ${await output()}`);
    const served = await fetch(`${url}/healthz`).then(
      (response) => response.ok,
      () => false,
    );
    if (served) return;
    await Bun.sleep(25);
  }
  child.kill("SIGKILL");
  throw new Error(`${url} was not served in time: ${await output()}`);
}
