/**
 * The setup of the chain tests: nodes of the reference runtime as processes that tests may kill,
 * and chain stores with an outbox of their own. Everything is closed in `afterAll`.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WsProvider } from "@polkadot/api";
import { openChain } from "../../src/plugins/chain/driver.ts";
import { openLocalTable } from "../../src/plugins/lmdb/lmdb.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { hangMs, inTime } from "./wait.ts";

const base = join(tmpdir(), `waypost-chain-${crypto.randomUUID()}`);
let count = 0;
const running = new Set<ReturnType<typeof Bun.spawn>>();

export function freshPath(name: string): string {
  return join(base, `${name}-${count++}`);
}

/** The first development account, which the genesis block endows. */
export const operatorKeyFile = join(base, "operator");

export type Node = {
  readonly endpoint: string;
  readonly port: number;
  /** A call of the node's own API; `dev_*` drive the chain. */
  readonly ask: <T>(method: string, params?: unknown[]) => Promise<T>;
  /** Ends the process at once, as a crash does. */
  readonly kill: () => Promise<void>;
};

/** The build of the reference runtime that breaks rules on command. */
export const canaryRuntime = new URL(
  "../../runtime/canary/waypost-canary.compact.compressed.wasm",
  import.meta.url,
).pathname;

export type NodeOptions = {
  readonly port?: number;
  readonly manual?: true;
  readonly intervalMs?: number;
  readonly idleMs?: number;
  /** A wasm file, instead of the reference runtime. */
  readonly runtime?: string;
  /** A file of `before.ts`: a state that another version made. */
  readonly state?: string;
  /** The chain takes proofs of version 3 alone, as the kept specification says. */
  readonly strict?: true;
};

export async function startNode(options: NodeOptions = {}): Promise<Node> {
  const mode = options.manual
    ? ["--manual"]
    : ["--interval", String(options.intervalMs ?? 25), "--idle", String(options.idleMs ?? 0)];
  const runtime = options.runtime === undefined ? [] : ["--runtime", options.runtime];
  const command = [
    process.execPath,
    "run",
    "node.ts",
    "--port",
    String(options.port ?? 0),
    ...mode,
    ...runtime,
  ];
  if (options.state !== undefined) command.push("--state", options.state);
  if (options.strict) command.push("--strict");
  const child = Bun.spawn(command, {
    cwd: import.meta.dir,
    env: { ...process.env, LOG_LEVEL: "fatal", POLKADOTJS_DISABLE_ESM_CJS_WARNING: "1" },
    stdout: "pipe",
    stderr: "ignore",
  });
  running.add(child);
  const endpoint = await inTime("the node to listen", listening(child));
  let provider: WsProvider | null = null;
  return {
    endpoint,
    port: Number(new URL(endpoint).port),
    async ask(method, params = []) {
      provider ??= new WsProvider(endpoint, 100, {}, hangMs);
      await inTime("a connection to the node", provider.isReady);
      return provider.send(method, params);
    },
    async kill() {
      void provider?.disconnect().catch(() => {});
      child.kill("SIGKILL");
      await child.exited;
      running.delete(child);
    },
  };
}

async function listening(child: ReturnType<typeof Bun.spawn>): Promise<string> {
  let text = "";
  const reader = (child.stdout as ReadableStream<Uint8Array>).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`the node ended: ${text}`);
    text += new TextDecoder().decode(value);
    const found = /ws:\/\/\S+/.exec(text);
    if (found !== null) return found[0].replace("0.0.0.0", "127.0.0.1");
  }
}

/** One block of what waits, at the present time. */
export async function makeBlock(node: Node): Promise<string> {
  await node.ask("dev_timeTravel", [Date.now() - 6_000]);
  return node.ask<string>("dev_newBlock");
}

export type ChainSettings = {
  readonly endpoints: readonly string[];
  readonly outbox?: string;
} & Record<string, unknown>;

export async function openStore(
  environment: StoreEnvironment,
  settings: ChainSettings,
): Promise<Store> {
  // Several test files share this stand in one process, and each leaves nothing behind.
  mkdirSync(base, { recursive: true });
  writeFileSync(operatorKeyFile, "//Alice\n", { mode: 0o600 });
  const parsed = chainPlugin.parseOptions({
    operator_key_file: operatorKeyFile,
    outbox: freshPath("outbox"),
    // Heads are looked for twice a block time.
    block_time_ms: 20,
    request_timeout_ms: 60_000,
    resend_ms: 2_000,
    free_space_floor_bytes: 0,
    ...settings,
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  return openChain(parsed.options, environment, openLocalTable);
}

export async function until<T>(
  what: string,
  ask: () => Promise<T | null | false>,
  patienceMs = hangMs,
): Promise<T> {
  for (const end = Date.now() + patienceMs; Date.now() < end; await Bun.sleep(10)) {
    const answer = await ask();
    if (answer !== null && answer !== false) return answer;
  }
  throw new Error(`waited too long for ${what}`);
}

export async function endStand(): Promise<void> {
  for (const child of running) child.kill("SIGKILL");
  await Promise.all([...running].map((child) => child.exited));
  rmSync(base, { recursive: true, force: true });
}
