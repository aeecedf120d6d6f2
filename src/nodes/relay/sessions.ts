/**
 * Live sessions: WebSockets over which recipients take envelopes as they arrive. The laws: nobody listens
 * for a DID without a proof that its document authorizes at this moment; an envelope counts as delivered
 * only when the client acknowledged it, else it goes on to the next destination; and when the welcome is
 * sent, whatever arrived earlier has found its place, so that a client that pulls from its Cache after
 * the welcome misses nothing. Everything is bounded: sessions, frames, bytes under way, time.
 * Source: decisions section 5 "Live sessions" and section 10.
 */
import type { ServerWebSocket } from "bun";
import { decodeUtf8 } from "../../core/bytes.ts";
import type { Did, Uuid } from "../../core/did.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import type { DidDocument } from "../../core/identity/document.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import { decideRetrievalProof, proofReplayed, type RetrievalProof, sameEndpoint } from "../../core/message/proof.ts";
import { type Replay, StoreError } from "../../storage/contract.ts";
import type { RecipientSource } from "../recipients/recipients.ts";
import { clientKey } from "../shell/caller.ts";
import type { Upgrade, UpgradeContext } from "../shell/listen.ts";
import type { Log } from "../shell/log.ts";
import { createRateLimiter, type RateLimit, type RateLimiter } from "./rate.ts";
import {
  bearsProof,
  type ConnectTerms,
  decodeConnectFrame,
  decodeConnectHeaders,
  frameBytesMax,
  isSessionPath,
  parseAck,
  parseSessionTarget,
  renderWelcome,
  type SessionTarget,
} from "./sessions-frames.ts";

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
};

export type SessionParts = {
  readonly recipients: RecipientSource;
  readonly replay: Replay;
  /** The URLs by which recipients publish this Relay; without one no session can be proven. */
  readonly endpoints: readonly string[];
  readonly skewMs: number;
  readonly limits: SessionLimits;
  readonly now: () => number;
  readonly log: Log;
};

export type LiveDelivery = {
  readonly envelope: Envelope;
  /** The recipient's document as it is now: a session that it no longer authorizes ends. */
  readonly document: DidDocument | null;
  readonly timeoutMs: number;
};

/** `silent`: sent, and not acknowledged in time. `gone`: nobody is there, or nobody has room. */
export type LiveEnd = "acknowledged" | "silent" | "gone";

export type LiveSessions = {
  readonly upgrade: Upgrade<SessionSocket>;
  /** Whether anybody listens for the DID. */
  listens(did: Did): boolean;
  /**
   * Registers a delivery to a DID, once no session of it is joining; the answer ends the registration.
   * A session joins only after the deliveries that were registered before it have ended.
   */
  enter(did: Did): Promise<() => void>;
  deliver(delivery: LiveDelivery): Promise<LiveEnd>;
  stats(): { readonly sockets: number; readonly unproven: number; readonly dids: number };
  close(): void;
};

/** What the server keeps for each socket. */
export type SessionSocket = {
  readonly target: SessionTarget;
  state: "unproven" | "proving" | "joining" | "live" | "closed";
  /** What proved the session, in headers or in a frame; the document must go on authorizing it. */
  proof: RetrievalProof | null;
  /** Ends the wait for a proof. */
  timer: ReturnType<typeof setTimeout> | null;
  readonly unacked: Map<Uuid, (end: LiveEnd) => void>;
  unackedBytes: number;
  /** Frames that acknowledged nothing. */
  strays: number;
  leave: () => void;
};

type Socket = ServerWebSocket<SessionSocket>;

type Hub = SessionParts & {
  readonly terms: ConnectTerms;
  readonly live: Map<Did, Set<Socket>>;
  readonly joining: Map<Did, Set<Promise<void>>>;
  readonly deliveries: Map<Did, Set<Promise<void>>>;
  readonly sockets: Set<Socket>;
  /** Upgrades whose proof in headers is being judged. */
  opening: number;
  readonly unproven: Set<Socket>;
  readonly connects: RateLimiter;
  /** Of all sessions. */
  unackedBytes: number;
  closed: boolean;
};

/** Close codes: 4000 and the status of a refused proof, and these. */
const closeCodes = {
  late: 4408,
  replaced: 4410,
  tooMany: 4429,
  strayed: 4400,
  goingAway: 1001,
  tryLater: 1013,
} as const;
/** A client that keeps sending what nobody asked for is cut off. */
const straysMax = 256;

export function createSessions(parts: SessionParts): LiveSessions {
  const hub: Hub = {
    ...parts,
    terms: { endpoints: parts.endpoints, skewMs: parts.skewMs },
    live: new Map(),
    joining: new Map(),
    deliveries: new Map(),
    sockets: new Set(),
    unproven: new Set(),
    opening: 0,
    connects: createRateLimiter(parts.limits.connects),
    unackedBytes: 0,
    closed: false,
  };
  return {
    upgrade: createUpgrade(hub),
    listens: (did) => hub.live.has(did),
    enter: (did) => enter(hub, did),
    deliver: (delivery) => deliver(hub, delivery),
    stats: () => ({ sockets: hub.sockets.size, unproven: hub.unproven.size, dids: hub.live.size }),
    close: () => {
      hub.closed = true;
      for (const socket of hub.sockets) socket.close(closeCodes.goingAway, "the node is shutting down");
    },
  };
}

// --------------------------------------------------------------------------------------------- deliveries

/** Adds to a set in a map, and answers what takes it out again. */
function join<K, V>(map: Map<K, Set<V>>, key: K, value: V): () => void {
  const set = map.get(key) ?? new Set<V>();
  map.set(key, set.add(value));
  return () => {
    set.delete(value);
    if (set.size === 0 && map.get(key) === set) map.delete(key);
  };
}

async function enter(hub: Hub, did: Did): Promise<() => void> {
  // A join that begins while this waits is waited for too; three in a row are a client that plays.
  for (let round = 0; round < 3; round++) {
    const joining = hub.joining.get(did);
    if (joining === undefined) break;
    await Promise.all(joining);
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  const leave = join(hub.deliveries, did, promise);
  return () => {
    leave();
    resolve();
  };
}

/** To every device of the recipient at once; the first acknowledgement delivers the envelope. */
async function deliver(hub: Hub, delivery: LiveDelivery): Promise<LiveEnd> {
  const sockets = [...(hub.live.get(delivery.envelope.to) ?? [])];
  const text = sockets.length === 0 ? null : decodeUtf8(delivery.envelope.bytes);
  if (text === null) return "gone";
  const ends = sockets.map((socket) => deliverTo(hub, socket, { ...delivery, text }));
  return new Promise((resolve) => {
    let left = ends.length;
    let silent = false;
    for (const end of ends) {
      end.then((result) => {
        left--;
        silent ||= result === "silent";
        if (result === "acknowledged") resolve(result);
        else if (left === 0) resolve(silent ? "silent" : "gone");
      });
    }
  });
}

type FrameDelivery = LiveDelivery & { readonly text: string };

function deliverTo(hub: Hub, socket: Socket, delivery: FrameDelivery): Promise<LiveEnd> {
  const session = socket.data;
  const { envelope } = delivery;
  if (!isAuthorized(session, delivery.document)) {
    shut(socket, 4403, "the document no longer authorizes this session");
    return Promise.resolve("gone");
  }
  if (!hasRoom(hub, session, envelope)) return Promise.resolve("gone");
  return new Promise((resolve) => {
    const settle = (end: LiveEnd) => {
      if (!session.unacked.delete(envelope.messageId)) return;
      clearTimeout(timer);
      session.unackedBytes -= envelope.bytes.length;
      hub.unackedBytes -= envelope.bytes.length;
      resolve(end);
      dropUnread(socket);
    };
    const timer = setTimeout(() => settle("silent"), delivery.timeoutMs);
    session.unacked.set(envelope.messageId, settle);
    session.unackedBytes += envelope.bytes.length;
    hub.unackedBytes += envelope.bytes.length;
    // 0 is a frame that was dropped; -1 is one that waits until the client reads.
    if (socket.sendText(delivery.text) === 0) settle("gone");
  });
}

function hasRoom(hub: Hub, session: SessionSocket, envelope: Envelope): boolean {
  const { limits } = hub;
  const { unacked, unackedBytes } = session;
  if (session.state !== "live" || unacked.has(envelope.messageId)) return false;
  if (hub.unackedBytes > 0 && hub.unackedBytes + envelope.bytes.length > limits.unackedBytesTotalMax) return false;
  if (unacked.size === 0) return true;
  return unacked.size < limits.unackedMax && unackedBytes + envelope.bytes.length <= limits.unackedBytesMax;
}

/** Heads of frames, pings and the welcome. */
const unreadSlackBytes = 4 * 1024;

/**
 * What waits in a socket is part of what its client has not acknowledged. More than that means a client
 * that does not read, or acknowledges what it has not read: the memory is worth more than its session.
 */
function dropUnread(socket: Socket): void {
  const session = socket.data;
  if (session.state !== "closed" && socket.getBufferedAmount() > session.unackedBytes + unreadSlackBytes)
    socket.terminate();
}

/** Says goodbye, but not behind frames that the client does not read. */
function shut(socket: Socket, code: number, reason: string): void {
  if (socket.getBufferedAmount() > unreadSlackBytes) socket.terminate();
  else socket.close(code, reason);
}

function isAuthorized(session: SessionSocket, document: DidDocument | null): boolean {
  const claims = session.proof?.claims;
  const service = document?.service.find((candidate) => candidate.id === claims?.serviceId);
  if (claims === undefined || service?.type !== "SvcRelayService") return false;
  if (!service.serviceEndpoint.some((endpoint) => sameEndpoint(endpoint, claims.endpoint))) return false;
  const stands = document?.verificationMethod.some((method) => method.id === claims.keyId) === true;
  return stands && service.authorization?.includes(claims.keyId) === true;
}

// ---------------------------------------------------------------------------------------------- upgrades

function createUpgrade(hub: Hub): Upgrade<SessionSocket> {
  return {
    matches: (pathname) => hub.endpoints.length > 0 && isSessionPath(pathname),
    open: async (request, server, context) => {
      const data = await admit(hub, request, context);
      if (isFault(data)) return context.refuse(data);
      if (server.upgrade(request, { data })) return undefined;
      return context.refuse(fault("invalid_request", "this path takes WebSocket connections"));
    },
    websocket: {
      maxPayloadLength: frameBytesMax,
      backpressureLimit: hub.limits.unackedBytesMax,
      idleTimeout: hub.limits.idleSeconds,
      sendPings: true,
      perMessageDeflate: false,
      open: (socket) => opened(hub, socket),
      message: (socket, frame) =>
        socket.data.state === "live" ? acknowledge(socket, frame) : present(hub, socket, frame),
      close: (socket) => ended(hub, socket),
    },
  };
}

/** What stands before the upgrade: room, pace, the path, and the proof when it came in headers. */
async function admit(hub: Hub, request: Request, context: UpgradeContext): Promise<SessionSocket | Fault> {
  const target = parseSessionTarget(request.url);
  if (isFault(target)) return target;
  const waitMs = hub.connects.take(clientKey(context.client), context.nowMs);
  if (waitMs > 0) {
    return fault("rate_limited", "too many connections from this address", {
      retryAfterSeconds: Math.ceil(waitMs / 1_000),
    });
  }
  if (hub.closed) return fault("shutting_down", "the node is shutting down");
  const proven = bearsProof(request.headers);
  const full = hub.sockets.size + hub.opening >= hub.limits.socketsMax;
  if (full || (!proven && hub.unproven.size >= hub.limits.unprovenMax)) {
    return fault("service_unavailable", "the node has as many sessions as it can take");
  }
  const proof = proven ? await proveHeaders(hub, target, { request, nowMs: context.nowMs }) : null;
  if (isFault(proof)) return proof;
  return {
    target,
    state: "unproven",
    proof,
    timer: null,
    unacked: new Map(),
    unackedBytes: 0,
    strays: 0,
    leave: () => undefined,
  };
}

async function proveHeaders(
  hub: Hub,
  target: SessionTarget,
  arrival: { readonly request: Request; readonly nowMs: number },
): Promise<RetrievalProof | Fault> {
  const proof = decodeConnectHeaders(arrival.request.headers, { target, terms: hub.terms }, arrival.nowMs);
  if (isFault(proof)) return proof;
  hub.opening++;
  try {
    return (await prove(hub, proof, arrival.nowMs)) ?? proof;
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return fault("service_unavailable", "the proof can't be judged at the moment");
  } finally {
    hub.opening--;
  }
}

/** Whether the document authorizes the proof and its nonce is new; the refusal when not. */
async function prove(hub: Hub, proof: RetrievalProof, nowMs: number): Promise<Fault | null> {
  const claim = decideRetrievalProof(proof, await hub.recipients.subject(proof.claims.did));
  if (isFault(claim)) return claim;
  return (await hub.replay.claim(claim.tag, claim.untilMs, nowMs)) ? null : proofReplayed();
}

// ------------------------------------------------------------------------------------------ life of a socket

function opened(hub: Hub, socket: Socket): void {
  hub.sockets.add(socket);
  // The node began to close while this one was on its way.
  if (hub.closed) {
    socket.close(closeCodes.goingAway, "the node is shutting down");
    return;
  }
  if (socket.data.proof !== null) {
    joinSession(hub, socket);
    return;
  }
  hub.unproven.add(socket);
  socket.data.timer = setTimeout(() => socket.close(closeCodes.late, "no proof came in time"), hub.limits.authMs);
}

/** The first frame. A second one before the first has been judged ends the connection. */
async function present(hub: Hub, socket: Socket, frame: string | Uint8Array): Promise<void> {
  const session = socket.data;
  if (session.state === "joining" || session.state === "closed") return;
  if (session.state === "proving") {
    socket.close(4401, "a frame before the welcome");
    return;
  }
  session.state = "proving";
  const nowMs = hub.now();
  const proof = decodeConnectFrame(frame, { target: session.target, terms: hub.terms }, nowMs);
  const refusal = isFault(proof) ? proof : await proveFrame(hub, proof, nowMs);
  if (isClosed(session)) return;
  if (refusal !== null) {
    socket.close(closeCodeOf(refusal), refusal.code);
    return;
  }
  session.proof = proof as RetrievalProof;
  joinSession(hub, socket);
}

async function proveFrame(hub: Hub, proof: RetrievalProof, nowMs: number): Promise<Fault | null> {
  try {
    return await prove(hub, proof, nowMs);
  } catch (error) {
    const known = error instanceof StoreError;
    hub.log(known ? "warn" : "error", "a live session could not be judged", { error: String(error) });
    return fault(known ? "service_unavailable" : "internal_error", "the proof can't be judged at the moment");
  }
}

function closeCodeOf(refusal: Fault): number {
  if (refusal.status === 401 || refusal.status === 403 || refusal.status === 409) return 4_000 + refusal.status;
  return refusal.status >= 500 ? closeCodes.tryLater : 4401;
}

/**
 * From proven to live. An older session of the same device ends first, so that what it has not
 * acknowledged moves on; then the deliveries under way find their place; then, in one turn, the session
 * is live and the client is told so.
 */
async function joinSession(hub: Hub, socket: Socket): Promise<void> {
  const session = socket.data;
  const { did, deviceId } = session.target;
  settleProof(hub, socket);
  session.state = "joining";
  for (const other of [...(hub.live.get(did) ?? [])]) {
    if (other.data.target.deviceId !== deviceId) continue;
    // Its unacknowledged envelopes move on now, not when a dead connection has noticed.
    ended(hub, other);
    shut(other, closeCodes.replaced, "replaced by a newer connection");
  }
  if ((hub.live.get(did)?.size ?? 0) >= hub.limits.sessionsPerDidMax) {
    socket.close(closeCodes.tooMany, "too many sessions of this DID");
    return;
  }
  const underWay = [...(hub.deliveries.get(did) ?? [])];
  if (underWay.length > 0) {
    const { promise, resolve } = Promise.withResolvers<void>();
    const leave = join(hub.joining, did, promise);
    await settledWithin(underWay, hub.limits.joinMs);
    goLive(hub, socket);
    leave();
    resolve();
    return;
  }
  goLive(hub, socket);
}

function goLive(hub: Hub, socket: Socket): void {
  const session = socket.data;
  if (isClosed(session)) return;
  session.state = "live";
  session.leave = join(hub.live, session.target.did, socket);
  socket.sendText(renderWelcome(session.target));
}

async function settledWithin(promises: readonly Promise<void>[], ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([Promise.all(promises), late]);
  clearTimeout(timer);
}

function acknowledge(socket: Socket, frame: string | Uint8Array): void {
  const session = socket.data;
  const messageId = parseAck(frame);
  const settle = messageId === null ? undefined : session.unacked.get(messageId);
  if (settle !== undefined) settle("acknowledged");
  else if (++session.strays > straysMax) shut(socket, closeCodes.strayed, "too many frames that nobody asked for");
}

function isClosed(session: SessionSocket): boolean {
  return session.state === "closed";
}

function settleProof(hub: Hub, socket: Socket): void {
  hub.unproven.delete(socket);
  if (socket.data.timer !== null) clearTimeout(socket.data.timer);
  socket.data.timer = null;
}

/** Takes a socket out of everything. Idempotent. */
function ended(hub: Hub, socket: Socket): void {
  const session = socket.data;
  settleProof(hub, socket);
  session.state = "closed";
  hub.sockets.delete(socket);
  session.leave();
  for (const settle of [...session.unacked.values()]) settle("gone");
}
