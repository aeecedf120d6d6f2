/**
 * The state of live sessions and what every part of them does to it: who is proven, what is under way,
 * how a socket leaves. The laws stand in `sessions.ts` (how a session begins) and `deliver.ts` (how
 * an envelope reaches one).
 * Source: decisions section 5 "Live sessions" and section 10.
 */
import type { ServerWebSocket } from "bun";
import type { Did, Uuid } from "../../../core/codec/did.ts";
import type { Replay } from "../../../storage/contract.ts";
import type { Log } from "../../http/log.ts";
import type { RecipientSource } from "../../recipients.ts";
import type { RateLimit, RateLimiter } from "../rate.ts";
import type { KeyText, LiveEnd, Peers } from "./live.ts";
import type { ConnectTerms, SessionTarget } from "./session-frames.ts";

export type SessionLimits = {
  /** Sockets at one time, proven or not. */
  readonly socketsMax: number;
  /** Sockets that have not proven themselves yet. */
  readonly unprovenMax: number;
  readonly sessionsPerDidMax: number;
  readonly authMs: number;
  /** How long a welcome, and the deliveries behind it, wait for deliveries that began before. */
  readonly joinMs: number;
  /** Envelopes and their bytes that one session has not acknowledged yet. */
  readonly unackedMax: number;
  readonly unackedBytesMax: number;
  /** The same bytes over all sessions; beyond it envelopes go on to the next destination. */
  readonly unackedBytesTotalMax: number;
  readonly idleSeconds: number;
  readonly connects: RateLimit;
  /** Connections from this machine are not counted. */
  readonly exemptLoopback: boolean;
};

export const sessionLimits: SessionLimits = {
  socketsMax: 10_000,
  unprovenMax: 1_000,
  sessionsPerDidMax: 16,
  authMs: 5_000,
  joinMs: 3_000,
  unackedMax: 64,
  unackedBytesMax: 64 * 1024 ** 2,
  unackedBytesTotalMax: 256 * 1024 ** 2,
  idleSeconds: 60,
  connects: { perSecond: 5, burst: 50, keysMax: 65_536 },
  exemptLoopback: false,
};

export type SessionParts = {
  readonly recipients: RecipientSource;
  readonly replay: Replay;
  /** The URLs by which recipients publish this Relay; without one no session can be proven. */
  readonly endpoints: readonly string[];
  readonly skewMs: number;
  readonly limits: SessionLimits;
  /** The Relay processes beside this one; `null` when it is alone. */
  readonly peers: Peers | null;
  readonly now: () => number;
  readonly log: Log;
};

export type SessionPermit = { readonly serviceId: string; readonly endpoint: string; readonly key: KeyText };

/** What the server keeps for each socket. */
export type SessionSocket = {
  readonly target: SessionTarget;
  state: "unproven" | "proving" | "joining" | "live" | "closed";
  /** What the proof rested on, once it was judged; the document must go on allowing it. */
  permit: SessionPermit | null;
  /** Of two sessions of one device that join at the same time, the one with the greater key stays. */
  joinKey: string;
  /** Ends the wait for a proof. */
  timer: ReturnType<typeof setTimeout> | null;
  readonly unacked: Map<Uuid, (end: LiveEnd) => void>;
  unackedBytes: number;
  /** Frames that acknowledged nothing. */
  strays: number;
  leave: () => void;
};

export type SessionWebSocket = ServerWebSocket<SessionSocket>;

export type Hub = SessionParts & {
  readonly terms: ConnectTerms;
  /** Names this process in the keys of joining sessions. */
  readonly mark: string;
  /** Joining and live. */
  readonly proven: Map<Did, Set<SessionWebSocket>>;
  readonly joining: Map<Did, Set<Promise<void>>>;
  readonly deliveries: Map<Did, Set<Promise<void>>>;
  readonly sockets: Set<SessionWebSocket>;
  /** Upgrades whose proof in headers is being judged. */
  opening: number;
  readonly unproven: Set<SessionWebSocket>;
  readonly connects: RateLimiter;
  /** Of all sessions. */
  unackedBytes: number;
  closed: boolean;
};

/** Close codes: 4000 and the status of a refused proof, and these. */
export const closeCodes = {
  late: 4408,
  replaced: 4410,
  tooMany: 4429,
  strayed: 4400,
  goingAway: 1001,
  tryLater: 1013,
} as const;

/** Sockets of the DID that take envelopes. */
export function liveSockets(hub: Hub, did: Did): SessionWebSocket[] {
  return [...(hub.proven.get(did) ?? [])].filter((socket) => socket.data.state === "live");
}

/** Tells the peers how many take envelopes here. */
export function announce(hub: Hub, did: Did): void {
  hub.peers?.announce(did, liveSockets(hub, did).length);
}

/** Adds to a set in a map, and answers what takes it out again. */
export function join<K, V>(map: Map<K, Set<V>>, key: K, value: V): () => void {
  const set = map.get(key) ?? new Set<V>();
  map.set(key, set.add(value));
  return () => {
    set.delete(value);
    if (set.size === 0 && map.get(key) === set) map.delete(key);
  };
}

export async function settledWithin(promises: readonly Promise<void>[], ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([Promise.all(promises), late]);
  clearTimeout(timer);
}

/** Heads of frames, pings and the welcome. */
export const unreadSlackBytes = 4 * 1024;

/** Says goodbye, but not behind frames that the client does not read. */
export function shut(socket: SessionWebSocket, code: number, reason: string): void {
  if (socket.getBufferedAmount() > unreadSlackBytes) socket.terminate();
  else socket.close(code, reason);
}

export function settleProof(hub: Hub, socket: SessionWebSocket): void {
  hub.unproven.delete(socket);
  if (socket.data.timer !== null) clearTimeout(socket.data.timer);
  socket.data.timer = null;
}

/** Takes a socket out of everything. Idempotent. */
export function ended(hub: Hub, socket: SessionWebSocket): void {
  const session = socket.data;
  settleProof(hub, socket);
  const wasLive = session.state === "live";
  session.state = "closed";
  hub.sockets.delete(socket);
  session.leave();
  if (wasLive) announce(hub, session.target.did);
  for (const settle of [...session.unacked.values()]) settle("gone");
}
