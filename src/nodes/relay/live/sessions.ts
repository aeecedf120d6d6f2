/**
 * Live sessions: WebSockets over which recipients take envelopes as they arrive. The laws: nobody listens
 * for a DID without a proof that its document authorizes at this moment; an envelope counts as delivered
 * only when the client acknowledged it, else it goes on to the next destination; and when the welcome is
 * sent, whatever arrived earlier has found its place, so that a client that pulls from its Cache after
 * the welcome misses nothing. Everything is bounded: sessions, frames, bytes under way, time.
 * Source: decisions section 5 "Live sessions" and section 10.
 */
import type { Did } from "../../../core/codec/did.ts";
import { type Fault, fault, isFault } from "../../../core/fault.ts";
import type { DidDocument } from "../../../core/ledger/document.ts";
import { isLoopbackAddress } from "../../../core/message/address.ts";
import { clientNetwork } from "../../../core/message/client-address.ts";
import type { Envelope } from "../../../core/message/envelope.ts";
import { decideRetrievalProof, proofReplayed, type RetrievalProof } from "../../../core/message/proof.ts";
import { StoreError } from "../../../storage/contract.ts";
import type { Upgrade, UpgradeContext } from "../../http/server.ts";
import { createRateLimiter } from "../rate.ts";
import { deliver, deliverHere, enter, firstAcknowledged, keyText, relayGrants } from "./deliver.ts";
import type { Held, Joiner, LiveEnd, PeerService } from "./live.ts";
import {
  announce,
  closeCodes,
  ended,
  type Hub,
  join,
  liveSockets,
  type SessionParts,
  type SessionPermit,
  type SessionSocket,
  type SessionWebSocket,
  settledWithin,
  settleProof,
  shut,
} from "./registry.ts";
import {
  bearsProof,
  decodeConnectFrame,
  decodeConnectHeaders,
  frameBytesMax,
  isSessionPath,
  parseAck,
  parseSessionTarget,
  renderWelcome,
  type SessionTarget,
} from "./session-frames.ts";

export type LiveSessions = {
  readonly upgrade: Upgrade<SessionSocket>;
  /** Whether anybody listens for the DID, here or at a peer. */
  listens(did: Did): boolean;
  /**
   * Registers a delivery to a DID, once no session of it is joining; the answer ends the registration.
   * A session joins only after the deliveries that were registered before it have ended.
   */
  enter(did: Did): Promise<() => void>;
  /** `document`: the recipient's as it is now. A session that it no longer authorizes ends. */
  deliver(shipment: {
    readonly envelope: Envelope;
    readonly document: DidDocument | null;
    readonly timeoutMs: number;
  }): Promise<LiveEnd>;
  /** Of this process alone. */
  stats(): { readonly sockets: number; readonly unproven: number; readonly dids: number };
  close(): void;
};

/** A client that keeps sending what nobody asked for is cut off. */
const straysMax = 256;
/** How much longer than a join itself deliveries wait for one at a peer: the word that it is over has a way to go. */
const holdSlackMs = 500;

/** Throws when peers are configured and their address can't be listened on. */
export function createSessions(parts: SessionParts): LiveSessions {
  const hub: Hub = {
    ...parts,
    terms: { endpoints: parts.endpoints, skewMs: parts.skewMs },
    mark: crypto.getRandomValues(new Uint8Array(8)).toHex(),
    proven: new Map(),
    joining: new Map(),
    deliveries: new Map(),
    sockets: new Set(),
    unproven: new Set(),
    opening: 0,
    connects: createRateLimiter(parts.limits.connects),
    unackedBytes: 0,
    closed: false,
  };
  parts.peers?.start(servicesOf(hub));
  return {
    upgrade: createUpgrade(hub),
    listens: (did) => liveSockets(hub, did).length > 0 || (hub.peers?.sessionsOf(did) ?? 0) > 0,
    enter: (did) => enter(hub, did),
    deliver: ({ document, ...shipment }) => deliver(hub, { ...shipment, grants: relayGrants(document) }),
    stats: () => ({ sockets: hub.sockets.size, unproven: hub.unproven.size, dids: hub.proven.size }),
    close: () => {
      hub.closed = true;
      for (const socket of hub.sockets) socket.close(closeCodes.goingAway, "the node is shutting down");
    },
  };
}

/** What this process does for sessions and deliveries at its peers. */
function servicesOf(hub: Hub): PeerService {
  return {
    claim: (tag, untilMs) => hub.replay.claim(tag, untilMs, hub.now()),
    hold: (joiner) => hold(hub, joiner),
    deliver: (delivery) => firstAcknowledged(deliverHere(hub, delivery)),
    listeners: () =>
      [...hub.proven.keys()].flatMap((did): [Did, number][] => {
        const sessions = liveSockets(hub, did).length;
        return sessions === 0 ? [] : [[did, sessions]];
      }),
  };
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
  const paced = paceClient(hub, context);
  if (paced !== null) return paced;
  if (hub.closed) return fault("shutting_down", "the node is shutting down");
  const proven = bearsProof(request.headers);
  const full = hub.sockets.size + hub.opening >= hub.limits.socketsMax;
  if (full || (!proven && hub.unproven.size >= hub.limits.unprovenMax)) {
    return fault("service_unavailable", "the node has as many sessions as it can take");
  }
  const permit = proven ? await proveHeaders(hub, target, { request, nowMs: context.nowMs }) : null;
  if (isFault(permit)) return permit;
  return {
    target,
    state: "unproven",
    permit,
    joinKey: "",
    timer: null,
    unacked: new Map(),
    unackedBytes: 0,
    strays: 0,
    leave: () => undefined,
  };
}

function paceClient(hub: Hub, { client, nowMs }: UpgradeContext): Fault | null {
  if (hub.limits.exemptLoopback && isLoopbackAddress(client)) return null;
  const waitMs = hub.connects.take(clientNetwork(client), nowMs);
  if (waitMs === 0) return null;
  return fault("rate_limited", "too many connections from this address", {
    retryAfterSeconds: Math.ceil(waitMs / 1_000),
  });
}

async function proveHeaders(
  hub: Hub,
  target: SessionTarget,
  arrival: { readonly request: Request; readonly nowMs: number },
): Promise<SessionPermit | Fault> {
  const proof = decodeConnectHeaders(arrival.request.headers, { target, terms: hub.terms }, arrival.nowMs);
  if (isFault(proof)) return proof;
  hub.opening++;
  try {
    return await prove(hub, proof, arrival.nowMs);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return fault("service_unavailable", "the proof can't be judged at the moment");
  } finally {
    hub.opening--;
  }
}

/** What the document authorizes, when it does and the nonce is new; the refusal when not. */
async function prove(hub: Hub, proof: RetrievalProof, nowMs: number): Promise<SessionPermit | Fault> {
  const { did, serviceId, endpoint, keyId } = proof.claims;
  const subject = await hub.recipients.subject(did);
  const claim = decideRetrievalProof(proof, subject);
  if (isFault(claim)) return claim;
  const isNew = await hub.replay.claim(claim.tag, claim.untilMs, nowMs);
  // Of two connects with one nonce at two processes both may be refused, but never both be taken.
  const isNewBeside = isNew && ((await hub.peers?.claim(claim.tag, claim.untilMs)) ?? true);
  if (!isNewBeside) return proofReplayed();
  return { serviceId, endpoint, key: keyText(subject?.document ?? null, keyId) ?? "" };
}

// ------------------------------------------------------------------------------------------ life of a socket

function opened(hub: Hub, socket: SessionWebSocket): void {
  hub.sockets.add(socket);
  // The node began to close while this one was on its way.
  if (hub.closed) {
    socket.close(closeCodes.goingAway, "the node is shutting down");
    return;
  }
  if (socket.data.permit !== null) {
    joinSession(hub, socket);
    return;
  }
  hub.unproven.add(socket);
  socket.data.timer = setTimeout(() => socket.close(closeCodes.late, "no proof came in time"), hub.limits.authMs);
}

/** The first frame. A second one before the first has been judged ends the connection. */
async function present(hub: Hub, socket: SessionWebSocket, frame: string | Uint8Array): Promise<void> {
  const session = socket.data;
  if (session.state === "joining" || session.state === "closed") return;
  if (session.state === "proving") {
    socket.close(4401, "a frame before the welcome");
    return;
  }
  session.state = "proving";
  const nowMs = hub.now();
  const proof = decodeConnectFrame(frame, { target: session.target, terms: hub.terms }, nowMs);
  const permit = isFault(proof) ? proof : await proveFrame(hub, proof, nowMs);
  if (isClosed(session)) return;
  if (isFault(permit)) {
    socket.close(closeCodeOf(permit), permit.code);
    return;
  }
  session.permit = permit;
  joinSession(hub, socket);
}

async function proveFrame(hub: Hub, proof: RetrievalProof, nowMs: number): Promise<SessionPermit | Fault> {
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
 * From proven to live. An older session of the same device ends first, here and at peers, so that what it
 * has not acknowledged moves on; then the deliveries under way find their place, everywhere; then, in one
 * turn, the session is live and the client is told so. Deliveries that begin meanwhile wait for that turn.
 */
async function joinSession(hub: Hub, socket: SessionWebSocket): Promise<void> {
  const session = socket.data;
  const { did } = session.target;
  settleProof(hub, socket);
  session.state = "joining";
  session.joinKey = `${String(hub.now()).padStart(15, "0")} ${hub.mark}`;
  for (const other of sameDevice(hub, session.target)) replace(hub, other);
  if ((hub.proven.get(did)?.size ?? 0) >= hub.limits.sessionsPerDidMax) {
    refuseJoin(hub, socket);
    return;
  }
  session.leave = join(hub.proven, did, socket);
  const underWay = [...(hub.deliveries.get(did) ?? [])];
  const beside = hub.peers?.join({ ...session.target, key: session.joinKey }) ?? null;
  if (underWay.length === 0 && beside === null) {
    goLive(hub, socket);
    return;
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  const leave = join(hub.joining, did, promise);
  const [welcome] = await Promise.all([beside?.welcome ?? true, settledWithin(underWay, hub.limits.joinMs)]);
  if (welcome) goLive(hub, socket);
  else replace(hub, socket);
  leave();
  resolve();
  beside?.done();
}

/** Sessions of the device at this process; one unless another is joining. */
function sameDevice(hub: Hub, { did, deviceId }: SessionTarget): SessionWebSocket[] {
  return [...(hub.proven.get(did) ?? [])].filter((socket) => socket.data.target.deviceId === deviceId);
}

/** Its unacknowledged envelopes move on now, not when a dead connection has noticed. */
function replace(hub: Hub, socket: SessionWebSocket): void {
  if (isClosed(socket.data)) return;
  ended(hub, socket);
  shut(socket, closeCodes.replaced, "replaced by a newer connection");
}

function refuseJoin(hub: Hub, socket: SessionWebSocket): void {
  ended(hub, socket);
  shut(socket, closeCodes.tooMany, "too many sessions of this DID");
}

function goLive(hub: Hub, socket: SessionWebSocket): void {
  const session = socket.data;
  const { did } = session.target;
  if (isClosed(session)) return;
  const others = liveSockets(hub, did).length + (hub.peers?.sessionsOf(did) ?? 0);
  if (others >= hub.limits.sessionsPerDidMax) {
    refuseJoin(hub, socket);
    return;
  }
  session.state = "live";
  socket.sendText(renderWelcome(session.target));
  announce(hub, did);
}

/** The same for a session that joins at a peer: the law is one for all processes. */
function hold(hub: Hub, joiner: Joiner): Held | null {
  for (const other of sameDevice(hub, joiner)) {
    if (other.data.state === "joining" && other.data.joinKey > joiner.key) return null;
    replace(hub, other);
  }
  const underWay = [...(hub.deliveries.get(joiner.did) ?? [])];
  const { promise, resolve } = Promise.withResolvers<void>();
  const leave = join(hub.joining, joiner.did, promise);
  const release = (): void => {
    clearTimeout(timer);
    leave();
    resolve();
  };
  const timer = setTimeout(release, hub.limits.joinMs + holdSlackMs);
  return { settled: settledWithin(underWay, hub.limits.joinMs), release };
}

function acknowledge(socket: SessionWebSocket, frame: string | Uint8Array): void {
  const session = socket.data;
  const messageId = parseAck(frame);
  const settle = messageId === null ? undefined : session.unacked.get(messageId);
  if (settle !== undefined) settle("acknowledged");
  else if (++session.strays > straysMax) shut(socket, closeCodes.strayed, "too many frames that nobody asked for");
}

function isClosed(session: SessionSocket): boolean {
  return session.state === "closed";
}
