/**
 * Taking the addresses over from a node that runs with the same configuration (`waypost serve --take-over`), so that an
 * upgrade refuses no request. The running node closes each connection after its next answer; the new one listens on the
 * same ports and is given all new connections, whose requests wait until the running node has closed its stores. If the
 * new process ends before it serves, the running node opens them again. Linux only: elsewhere no two processes share a
 * port. Source: D207, D212.
 */
import { FFIType, ptr } from "bun:ffi";
import { existsSync, readFileSync } from "node:fs";
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { parseListenAddress } from "../core/message/address.ts";
import { openLibc, sharedAddresses } from "../nodes/http/connections.ts";
import { type AheadListener, listenAhead, removeStaleSocket } from "../nodes/http/server.ts";
import type { SessionSocket } from "../nodes/relay/live/registry.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { StoreEnvironment } from "../storage/contract.ts";
import { certificateOf } from "./credentials.ts";
import { endingMsMax, failed } from "./failure.ts";

/** By address of `server.listen`. */
export type Ahead = ReadonlyMap<string, AheadListener<SessionSocket>>;

/** Active clients reconnect within it; connections that are silent for longer are closed. */
const leavingMs = 2_000;
/** Time for handshakes with the running node to end, and for it to accept the connections that the kernel has for it. */
const settlingMs = 250;
/** Below the 30 s after which a silent connection is cut. */
const waitMsMax = 25_000;
/** A node on a busy machine may take seconds; one that answers no longer must be found by its operator. */
const askTimeoutMs = 20_000;
const freeMsMax = 5_000;
const againMs = 20;

type Steps = {
  readonly log: StoreEnvironment["log"];
  /** In every thread that will answer; it resolves when all listen. */
  readonly listen: () => Promise<void>;
  /** `mayRetry` says whether to try again while another process has a store. */
  readonly open: (mayRetry: () => Promise<boolean>) => Promise<OpenStores>;
};

/** The stores; `null` when no node runs with the configuration: then this is an ordinary start. */
export async function takeOver(config: Config, { log, listen, open }: Steps): Promise<OpenStores | null> {
  if (process.platform !== "linux") throw failed("--take-over: only Linux lets two processes share a port");
  const socket = adminSocketOf(config);
  const pid = await askToLeave(socket, false);
  if (pid === null) return null;
  log("info", "taking over", { pid });
  await Bun.sleep(leavingMs);
  const follow = async () => {
    await listen();
    const release = directConnectionsHere(config.server);
    await Bun.sleep(settlingMs);
    await askToLeave(socket, true);
    log("info", "waiting until the running node has closed its stores", { pid });
    return { release, byMs: performance.now() + config.server.drain_timeout + endingMsMax };
  };
  let followed: Awaited<ReturnType<typeof follow>> | null = null;
  const stores = await open(async () => {
    followed ??= await follow();
    await Bun.sleep(againMs);
    return performance.now() < followed.byMs;
  });
  try {
    followed ??= await follow();
    await untilFree(config, freeMsMax);
    followed.release();
    return stores;
  } catch (error) {
    await stores.close();
    throw error;
  }
}

function adminSocketOf({ server }: Config): string {
  const address = server.admin_listen.find((one) => one.startsWith("unix:"));
  if (address !== undefined) return address.slice("unix:".length);
  throw failed("--take-over asks the running node over a Unix socket of server.admin_listen, and there is none");
}

/** The process id of the node; `null` when nobody listens. */
async function askToLeave(socket: string, now: boolean): Promise<number | null> {
  const response = await fetch("http://localhost/operations/leave", {
    unix: socket,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ now, pid: process.pid }),
    signal: AbortSignal.timeout(askTimeoutMs),
  }).catch((error: unknown) => {
    if (!now && isRefused(error)) return null;
    throw failed(`--take-over: the running node does not answer: ${errorText(error)}`);
  });
  if (response === null) return null;
  const answer = (await response.json().catch(() => ({}))) as Readonly<Record<string, unknown>>;
  if (response.ok && answer["ok"] === true) return Number(answer["pid"]);
  const reason = answer["reason"] ?? answer["detail"] ?? response.status;
  throw failed(`--take-over: the running node refuses: ${String(reason)}`);
}

/** Nobody listens. A node that is late or ends the connection may still have the stores. */
function isRefused(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ECONNREFUSED");
}

// ------------------------------------------------------------------------------------------------ listeners

/** The listeners of one of `threads` threads, on the ports that the running node still has. */
export function listenOnAll(config: Config, threads: number): Ahead {
  const tls = certificateOf(config, Date.now());
  const ahead = new Map<string, AheadListener<SessionSocket>>();
  const bounds = { waitMs: waitMsMax, waitingMax: Math.ceil(config.server.requests_max / threads) };
  for (const address of config.server.listen) {
    const place = parseListenAddress(address);
    // A Unix socket can't be shared: it is made again when the running node has ended.
    if (place === null || "unix" in place) continue;
    try {
      ahead.set(address, listenAhead({ address, ...(tls === null ? {} : { certificate: tls }), ...bounds }));
    } catch (error) {
      giveUp(ahead);
      throw failed(`${address} can't be shared with the running node: ${errorText(error)}`);
    }
  }
  return ahead;
}

/** Refuses the requests that wait. */
export function giveUp(ahead: Ahead | null): void {
  for (const listener of ahead?.values() ?? []) listener.close();
}

/** Addresses that can't be shared: the running node gives them up as soon as it leaves. */
async function untilFree({ server }: Config, patienceMs: number): Promise<void> {
  const unix = server.listen.filter((address) => address.startsWith("unix:"));
  for (const endsAtMs = performance.now() + patienceMs; performance.now() < endsAtMs; await Bun.sleep(againMs)) {
    const free = await Promise.all([...unix, ...server.admin_listen].map(isFree));
    if (!free.includes(false)) return;
  }
}

async function isFree(address: string): Promise<boolean> {
  const place = parseListenAddress(address);
  if (place === null) return true;
  if ("unix" in place) {
    await removeStaleSocket(address);
    return !existsSync(place.unix);
  }
  try {
    void Bun.serve({ ...place, fetch: () => new Response() }).stop(true);
    return true;
  } catch {
    return false;
  }
}

// ----------------------------------------------------------------------------------------- new connections

const [solSocket, attachProgram, detachProgram] = [1, 51, 68];

/**
 * Has the kernel give all new connections of the shared ports to this process, so that none waits in the queue of the
 * running node when that stops listening: the kernel would reset it (unless `net.ipv4.tcp_migrate_req` is set). Where
 * the kernel takes no program it goes on spreading them over both. The returned function ends it.
 * Source: socket(7), SO_ATTACH_REUSEPORT_CBPF.
 */
function directConnectionsHere({ listen }: Config["server"]): () => void {
  const { i32, ptr: pointer, u32 } = FFIType;
  const libc = openLibc({ setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 } });
  const ports = listen
    .map(parseListenAddress)
    .flatMap((place) => (place !== null && "port" in place ? place.port : []));
  const shared = sharedAddresses(ports).filter(({ others }) => others > 0);
  for (const { own, others } of libc === null ? [] : shared) {
    // `struct sock_fprog`: how many instructions, and where they are.
    const program = socketFilter(others, own.length);
    const head = new BigUint64Array([BigInt(program.length / 2), BigInt(ptr(program))]);
    libc?.setsockopt(own[0] ?? -1, solSocket, attachProgram, ptr(head), head.byteLength);
  }
  return () => {
    const none = new Int32Array(1);
    for (const { own } of shared) libc?.setsockopt(own[0] ?? -1, solSocket, detachProgram, ptr(none), none.byteLength);
  };
}

/**
 * A program of the socket filter that chooses by chance one of the `count` sockets which began to listen after `first`
 * others. A choice that does not exist, after the end of one of them, is made by the kernel as usual.
 */
function socketFilter(first: number, count: number): Uint32Array {
  const [loadWord, modulo, add, returnIt, random] = [0x20, 0x94, 0x04, 0x16, 0xfffff038];
  return new Uint32Array([loadWord, random, modulo, count, add, first, returnIt, 0]);
}

// ---------------------------------------------------------------------------------------- the running node

const followMsMax = 120_000;
const healthTimeoutMs = 5_000;

/**
 * For the process that has left: whether the one with this id serves now. `false` when that ended before.
 */
export async function isFollowed(config: Config, pid: number): Promise<boolean> {
  const unix = adminSocketOf(config);
  for (const endsAtMs = performance.now() + followMsMax; performance.now() < endsAtMs; await Bun.sleep(againMs)) {
    const signal = AbortSignal.timeout(healthTimeoutMs);
    const healthy = await fetch("http://localhost/healthz", { unix, signal }).then(
      ({ ok }) => ok,
      () => false,
    );
    if (healthy) return true;
    if (!isAlive(pid)) return false;
  }
  return true;
}

/** Where /proc/<pid>/stat has the number of threads, counted from the state of the first one. Source: proc(5). */
const threadsField = 17;

/**
 * A process that has ended is listed until its parent has taken notice. Its first thread may end before the others,
 * which have its ports and files until the last of them has ended.
 */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return !/^[ZX]/.test(fields[0] ?? "") || Number(fields[threadsField]) > 1;
  } catch {
    return false;
  }
}
