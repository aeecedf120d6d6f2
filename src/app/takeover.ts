/**
 * Taking the addresses over from a node that runs with the same configuration (`waypost serve --take-over`), so that an
 * upgrade refuses no request. The folder of a store belongs to one process, so the two follow each other:
 * 1. The running node is asked to leave: it goes on, and each answer ends its connection.
 * 2. After a moment the new process listens on the same ports. Its requests wait.
 * 3. The running node is asked to leave now: it stops listening, answers what it has, closes its stores and ends.
 * 4. The new process opens the stores and answers what waits.
 * Linux only: elsewhere no two processes share a port.
 */
import type { Config } from "../config/schema.ts";
import { errorText } from "../core/fault.ts";
import { parseListenAddress } from "../core/message/address.ts";
import type { Log } from "../nodes/http/log.ts";
import { type AheadListener, listenAhead } from "../nodes/http/server.ts";
import type { SessionSocket } from "../nodes/relay/live/registry.ts";
import { certificateOf } from "./certificates.ts";
import { failed } from "./failure.ts";

/** By address of `server.listen`. */
export type Ahead = ReadonlyMap<string, AheadListener<SessionSocket>>;

/** Clients that are at work come anew in it; connections that are silent for longer are closed. */
const leavingMs = 2_000;
/** Below the 30 s after which a silent connection is cut. */
const waitMsMax = 25_000;
const askTimeoutMs = 5_000;

/** `null` when no node runs with the configuration: then this is an ordinary start. */
export async function takeOver(config: Config, threads: number, log: Log): Promise<Ahead | null> {
  const socket = adminSocketOf(config);
  if (process.platform !== "linux") throw failed("--take-over: only Linux lets two processes share a port");
  if (threads > 1) throw failed("--take-over needs server.workers = 1: what waits can't be given to workers");
  const first = await askToLeave(socket, false);
  if (first === null) return null;
  log("info", "taking over", { pid: first });
  await Bun.sleep(leavingMs);
  const ahead = listenOnAll(config);
  try {
    await askToLeave(socket, true);
    return ahead;
  } catch (error) {
    giveUp(ahead);
    throw error;
  }
}

/** What waits is refused. */
export function giveUp(ahead: Ahead | null): void {
  for (const listener of ahead?.values() ?? []) listener.close();
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
    body: JSON.stringify({ now }),
    signal: AbortSignal.timeout(askTimeoutMs),
  }).catch((error: unknown) => errorText(error));
  if (typeof response === "string") {
    if (now) throw failed(`--take-over: the running node does not answer any more: ${response}`);
    return null;
  }
  const answer = (await response.json().catch(() => ({}))) as Readonly<Record<string, unknown>>;
  if (response.ok && answer["ok"] === true) return Number(answer["pid"]);
  const reason = answer["reason"] ?? answer["detail"] ?? response.status;
  throw failed(`--take-over: the running node refuses: ${String(reason)}`);
}

function listenOnAll(config: Config): Ahead {
  const tls = certificateOf(config, Date.now());
  const ahead = new Map<string, AheadListener<SessionSocket>>();
  const bounds = { waitMs: waitMsMax, waitingMax: config.server.requests_max };
  for (const address of config.server.listen) {
    const place = parseListenAddress(address);
    // A Unix socket can't be shared: it is made anew when the running node has ended.
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
