/**
 * Bounds connections, in all and for each client network. The server gives no hook before a request's head, so
 * a guard checks once a second: when this process holds many descriptors, it counts the connections to its ports
 * (`/proc`), and shuts down the newest of clients with too many. A connection that never sends a byte is left
 * to the kernel, which hands it over only with the first one. Between two looks strangers can take the last
 * descriptor: the guard needs none of its own then, and whatever else opens files must do without for that time.
 * Cost: one directory read a second; 30 ms for 10,000 connections once there are that many. Linux only.
 * Source: D171.
 */
import { dlopen, type FFIFunction, FFIType } from "bun:ffi";
import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from "node:fs";
import { minuteMs, secondMs } from "../../core/codec/time.ts";
import { clientAddress, clientNetwork, isLoopbackAddress } from "../../core/message/address.ts";
import { type Log, maskAddress } from "./log.ts";
import type { Metrics } from "./metrics.ts";

export type ConnectionGuard = { readonly close: () => void };

type GuardOptions = {
  /** The TCP ports of this process, as soon as it listens. */
  readonly ports: () => readonly number[];
  /** In all; one client network gets half. */
  readonly connectionsMax: number;
  /** Proxies and loopback addresses have many clients behind them: their connections count only in all. */
  readonly trustedProxies: () => readonly string[];
  readonly log: Log;
  readonly metrics: Metrics;
  readonly now: () => number;
};

/** More than sessions, streams and arriving bodies may take together with their defaults. */
const connectionsUsualMax = 65_536;
/** The rest is for stores and outbound requests. */
const descriptorPart = 0.75;

/** The number of connections that the limit of descriptors allows. */
export function connectionsMaxHere(): number {
  return Math.min(connectionsUsualMax, Math.floor(descriptorsMaxHere() * descriptorPart));
}

function descriptorsMaxHere(): number {
  const limits = readText("/proc/self/limits");
  return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
}

const lookEveryMs = secondMs;

/**
 * `null` where connections can't be counted or shut down. Begins before the process listens: strangers may take all
 * descriptors at once, and then nothing can be read of what it needs.
 */
export function startConnectionGuard(options: GuardOptions): ConnectionGuard | null {
  const shutDown = openShutdown();
  if (shutDown === null) return null;
  const closed = options.metrics.counter({
    name: "http_connections_closed_total",
    help: "Connections shut down because there were too many, in all or of one client network.",
    labels: ["scope"],
  });
  const sockets = openSocketTables();
  const descriptorsMax = Math.min(descriptorsMaxHere(), 2 * connectionsUsualMax);
  let warnedMs = Number.NEGATIVE_INFINITY;
  const look = (): void => {
    const { connectionsMax } = options;
    const open = descriptors() ?? Array.from({ length: descriptorsMax }, (_, i) => String(i));
    if (open.length <= connectionsMax / 2) return;
    const held = connectionsTo(options.ports(), sockets.read());
    const surplus = decideSurplus(held, connectionsMax, options.trustedProxies());
    if (surplus.length === 0) return;
    const inodes = new Map(surplus.map(({ connection, scope }) => [connection.inode, scope]));
    for (const descriptor of open) {
      const scope = inodes.get(inodeOf(descriptor));
      if (scope !== undefined && shutDown(Number(descriptor)) === 0) closed.add([scope]);
    }
    if (options.now() - warnedMs < minuteMs) return;
    warnedMs = options.now();
    const networks = [...new Set(surplus.map(({ connection }) => maskAddress(connection.address)))].slice(0, 10);
    options.log("warn", "too many connections; the newest are closed", { held: held.length, networks });
  };
  const timer = setInterval(look, lookEveryMs);
  timer.unref();
  const close = (): void => {
    clearInterval(timer);
    sockets.close();
  };
  return { close };
}

// ------------------------------------------------------------------------------------------------ decide

export type HeldConnection = { readonly inode: string; readonly address: string };
type Surplus = { readonly connection: HeldConnection; readonly scope: "network" | "total" };

/** The newest of each network beyond half of `max`; then, while the total is too large, of the largest networks. */
export function decideSurplus(
  held: readonly HeldConnection[],
  max: number,
  trustedProxies: readonly string[],
): readonly Surplus[] {
  const isTrusted = trustOf(trustedProxies);
  const groups = Map.groupBy(held, ({ address }) => clientNetwork(address));
  const kept = [...groups.values()].map((group) => {
    const sorted = group.toSorted((a, b) => Number(a.inode) - Number(b.inode));
    const bound = isTrusted(sorted[0]?.address ?? "") ? sorted.length : Math.floor(max / 2);
    return { sorted, keep: Math.min(sorted.length, bound), bound };
  });
  const level = levelOf(
    kept.map(({ keep }) => keep),
    max,
  );
  return kept.flatMap(({ sorted, keep, bound }) =>
    sorted.slice(Math.min(keep, level)).map((connection, place) => ({
      connection,
      scope: place + Math.min(keep, level) >= bound ? ("network" as const) : ("total" as const),
    })),
  );
}

/** The largest number per network with which all together keep at most `max`. */
function levelOf(counts: readonly number[], max: number): number {
  let left = max;
  let waiting = counts.length;
  for (const count of counts.toSorted((a, b) => a - b)) {
    if (count * waiting > left) return Math.floor(left / waiting);
    left -= count;
    waiting--;
  }
  return Number.POSITIVE_INFINITY;
}

/**
 * Which connections may have many clients behind them: a trusted proxy, and processes of this machine. With a header
 * that names a client, only a trusted connection may name it.
 */
function trustOf(trustedProxies: readonly string[]): (address: string) => boolean {
  if (trustedProxies.length === 0) return isLoopbackAddress;
  const addressOf = clientAddress(trustedProxies);
  const [one, other] = ["192.0.2.1", "192.0.2.2"];
  return (address) => isLoopbackAddress(address) || addressOf(address === one ? other : one, address) !== address;
}

// -------------------------------------------------------------------------------------------------- /proc

function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** The descriptors of this process; `null` when none is free to read the list with. */
function descriptors(): readonly string[] | null {
  try {
    return readdirSync("/proc/self/fd");
  } catch {
    return null;
  }
}

const socketTables = ["tcp", "tcp6"];
type SocketTables = { readonly read: () => readonly string[]; readonly close: () => void };

/** The kernel's lists of sockets, opened beforehand: at the limit of descriptors they could not be opened. */
function openSocketTables(): SocketTables {
  const opened = socketTables.flatMap((table) => {
    try {
      return openSync(`/proc/self/net/${table}`, "r");
    } catch {
      return [];
    }
  });
  return { read: () => opened.map(readAgain), close: () => opened.forEach(closeSync) };
}

/** From the start to the end; a file of `/proc` has no size. */
function readAgain(descriptor: number): string {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const part = Buffer.allocUnsafe(65_536);
    const length = readSync(descriptor, part, 0, part.length, at);
    if (length === 0) return Buffer.concat(parts).toString("latin1");
    parts.push(part.subarray(0, length));
    at += length;
  }
}

/** The inode of a socket; empty for anything else, and for a descriptor that was closed meanwhile. */
function inodeOf(descriptor: string): string {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${descriptor}`))?.[1] ?? "";
  } catch {
    return "";
  }
}

/** Established, or ended by the client alone. */
const openStates = ["01", "08"];

type ListedSocket = { readonly inode: string; readonly local: string; readonly remote: string };

/** Of all processes, from the texts of the kernel's lists. */
function socketsAt(ports: readonly number[], states: readonly string[], tables: readonly string[]): ListedSocket[] {
  const wanted = new Set(ports.map((port) => port.toString(16).toUpperCase().padStart(4, "0")));
  const found: ListedSocket[] = [];
  for (const table of tables) {
    for (const line of table.split("\n").slice(1)) {
      const [, local = "", remote = "", state = "", , , , , , inode = "0"] = line.trim().split(/\s+/);
      if (inode === "0" || !states.includes(state) || !wanted.has(local.slice(local.indexOf(":") + 1))) continue;
      found.push({ inode, local, remote });
    }
  }
  return found;
}

function connectionsTo(ports: readonly number[], tables: readonly string[]): HeldConnection[] {
  return socketsAt(ports, openStates, tables).map(({ inode, remote }) => ({
    inode,
    address: addressText(remote.slice(0, remote.indexOf(":"))),
  }));
}

/** The kernel writes addresses as words in the byte order of the machine: little-endian on all that are served. */
function addressText(hex: string): string {
  const words = hex.match(/.{8}/g) ?? [];
  const bytes = words.flatMap((word) => [...Uint8Array.fromHex(word)].reverse());
  const isMapped = bytes.length === 16 && bytes.slice(0, 12).join() === "0,0,0,0,0,0,0,0,0,0,255,255";
  if (bytes.length === 4 || isMapped) return bytes.slice(-4).join(".");
  const groups = Array.from({ length: 8 }, (_, i) => ((bytes[2 * i] ?? 0) << 8) | (bytes[2 * i + 1] ?? 0));
  return groups.map((group) => group.toString(16)).join(":");
}

const libraries = ["libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"];
/** Both directions end, and the server sees the end of the connection. */
const bothWays = 2;

/** `shutdown(2)` of a descriptor; `null` where there is no such function or no `/proc`. */
function openShutdown(): ((descriptor: number) => number) | null {
  if (readText("/proc/self/net/tcp") === "") return null;
  const symbols = openLibc({ shutdown: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 } });
  return symbols === null ? null : (descriptor) => symbols.shutdown(descriptor, bothWays);
}

/** Functions of the C library; `null` where it is not Linux's, or lacks one. */
function openLibc<Functions extends Record<string, FFIFunction>>(functions: Functions) {
  if (process.platform !== "linux") return null;
  for (const name of libraries) {
    try {
      return dlopen(name, functions).symbols;
    } catch {
      // The next name, of another C library.
    }
  }
  return null;
}
