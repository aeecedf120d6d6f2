/**
 * The life of a live session: a WebSocket over which a recipient gets envelopes as they arrive. The
 * laws: no client listens for a DID without a proof that its document authorizes at this moment; and when
 * the welcome is sent, whatever arrived earlier has found its place, so that a client that pulls from its
 * Cache after the welcome misses nothing. `registry.ts` shows how an envelope reaches a session.
 * Source: rules section 5 "Live sessions" and section 10; docs/interface.md, "Live sessions".
 */
import type { Did } from "../../../core/codec/did.ts";
import { errorStack, type Fault, fault, isFault } from "../../../core/fault.ts";
import { clientNetwork } from "../../../core/message/address.ts";
import { decideRetrievalProof, proofReplayed, type RetrievalProof } from "../../../core/message/proof.ts";
import { StoreError } from "../../../storage/contract.ts";
import type { Upgrade, UpgradeContext } from "../../http/server.ts";
import { checkClientRate, networkPlaces } from "../../rates.ts";
import {
  add,
  bearsProof,
  type ConnectTerms,
  closeCodes,
  createRegistry,
  decodeConnectFrame,
  decodeConnectHeaders,
  deliveriesEnding,
  deliverToSockets,
  endProofWait,
  firstAcknowledged,
  forget,
  frameBytesMax,
  goLive,
  type InFlight,
  isSessionPath,
  keyText,
  type LiveDelivery,
  type LiveOutcome,
  parseReply,
  parseSessionTarget,
  renderRefusal,
  type SessionParts,
  type SessionPermit,
  type SessionRegistry,
  type SessionSocket,
  type SessionTarget,
  type SessionWebSocket,
  settledWithin,
  shut,
} from "./registry.ts";
import { createRemoteSessions } from "./remote.ts";

export type LiveSessions = {
  readonly upgrade: Upgrade<SessionSocket>;
  /** Whether a session of the DID may listen, as far as this process knows. */
  mayListen(did: Did): boolean;
  /** Whether a session of the DID is open in this process. */
  isConnected(did: Did): boolean;
  /** The Relay's deliveries. Sessions go live only after those of them that no longer reach them. */
  readonly inFlight: Map<string, InFlight>;
  /** To every session of the recipient, wherever it is; `nobody` when there is none, after a round trip at most. */
  deliver(delivery: LiveDelivery): Promise<LiveOutcome>;
  /** Of this process. */
  stats(): { readonly sockets: number; readonly unproven: number; readonly dids: number };
  close(): void;
};

/** With the sessions of other processes; `null` without a bus. */
type Sessions = SessionRegistry & { remote: ReturnType<typeof createRemoteSessions> | null };

/** A client that sends more frames than these without acknowledging anything is cut off. */
const unexpectedFramesMax = 256;

export function createSessions(parts: SessionParts): LiveSessions {
  const registry: Sessions = { ...createRegistry(parts), remote: null };
  const here = (delivery: LiveDelivery) => deliverToSockets(registry, delivery);
  if (parts.bus !== undefined) {
    registry.remote = createRemoteSessions(parts.bus, {
      deliver: async (delivery) => {
        const subject = await parts.recipients.subject(delivery.envelope.to);
        return firstAcknowledged(here({ ...delivery, document: subject?.document ?? null }));
      },
      makeWay: (target, isOlder) => makeWay(registry, target, isOlder),
    });
  }
  const unfollow = parts.blocks?.follow(() => endShutOut(registry));
  const isConnected = (did: Did): boolean => registry.proven.has(did);
  const mayListen = (did: Did): boolean => isConnected(did) || registry.remote?.mayReach(did) === true;
  return {
    upgrade: createUpgrade(registry),
    isConnected,
    mayListen,
    inFlight: registry.inFlight,
    async deliver(delivery) {
      const outcomes = here(delivery);
      const elsewhere = registry.remote?.offer(delivery);
      const outcome = await firstAcknowledged(elsewhere === undefined ? outcomes : [...outcomes, elsewhere.outcome]);
      elsewhere?.withdraw();
      return outcome;
    },
    stats: () => ({ sockets: registry.sockets.size, unproven: registry.unproven.size, dids: registry.proven.size }),
    close: () => {
      registry.closed = true;
      unfollow?.();
      registry.remote?.close();
      for (const socket of registry.sockets) socket.close(closeCodes.goingAway, "the node is shutting down");
    },
  };
}

/** Ends the sessions of DIDs and networks that the operator has blocked since they began. */
function endShutOut(registry: Sessions): void {
  for (const socket of registry.sockets) {
    const refusal = checkShutOut(registry, socket.data);
    if (refusal !== null) shut(socket, closeCodeOf(refusal), refusal.code);
  }
}

function checkShutOut({ blocks }: Sessions, { client, target }: Pick<SessionSocket, "client" | "target">) {
  return blocks?.checkClient(client) ?? blocks?.checkDid(target.did) ?? null;
}

/** Makes way for a session of the device that joins in another process. */
function makeWay(registry: Sessions, target: SessionTarget, isOlder: (joinCount: number) => boolean): Promise<void> {
  for (const other of sameDevice(registry, target)) if (isOlder(other.data.joinCount)) replace(registry, other);
  return settledWithin(deliveriesEnding(registry, target.did), registry.bounds.joinMs);
}

// ---------------------------------------------------------------------------------------------- upgrades

function createUpgrade(registry: Sessions): Upgrade<SessionSocket> {
  const { settings } = registry;
  const networks = networkPlaces(() => settings.sessions_max);
  return {
    matches: (pathname) => registry.settings.public_endpoints.length > 0 && isSessionPath(pathname),
    open: async (request, server, context) => {
      const data = await admit(registry, request, context);
      if (isFault(data)) return context.refuse(data);
      if (!networks.take(data.client)) {
        const refusal = "too many live sessions of this network";
        return context.refuse(fault("rate_limited", refusal, { retryAfterSeconds: 30 }));
      }
      if (server.upgrade(request, { data })) return undefined;
      networks.give(data.client);
      return context.refuse(fault("invalid_request", "this path accepts WebSocket connections only"));
    },
    websocket: {
      maxPayloadLength: frameBytesMax,
      backpressureLimit: registry.bounds.unackedBytesMax,
      idleTimeout: registry.bounds.idleSeconds,
      sendPings: true,
      perMessageDeflate: false,
      open: (socket) => opened(registry, socket),
      message: (socket, frame) =>
        socket.data.state === "live" ? reply(socket, frame) : prove(registry, socket, frame),
      close: (socket) => {
        networks.give(socket.data.client);
        forget(registry, socket);
      },
    },
  };
}

/** The checks before the upgrade: path, pace, room, and the proof when it came in headers. */
async function admit(registry: Sessions, request: Request, context: UpgradeContext): Promise<SessionSocket | Fault> {
  const target = parseSessionTarget(request.url);
  if (isFault(target)) return target;
  const { client } = context;
  const shutOut = checkShutOut(registry, { client, target });
  if (shutOut !== null) return shutOut;
  const network = clientNetwork(client);
  const tooFast = checkClientRate(registry.connects, { client, network, nowMs: context.nowMs }, registry.settings);
  if (tooFast !== null) return tooFast;
  if (registry.closed) return fault("shutting_down", "the node is shutting down");
  const proven = bearsProof(request.headers);
  const full = registry.sockets.size + registry.opening >= registry.settings.sessions_max;
  const beingProven = proven ? registry.opening : registry.unproven.size;
  if (full || beingProven >= registry.bounds.unprovenMax) {
    return fault("service_unavailable", "the node has no capacity for another session");
  }
  const permit = proven ? await proveHeaders(registry, target, { request, nowMs: context.nowMs }) : null;
  if (isFault(permit)) return permit;
  return {
    target,
    client,
    passes: new URL(request.url).searchParams.get("pass") === "1",
    state: "unproven",
    permit,
    joinCount: 0,
    timer: null,
    unacked: new Map(),
    unackedBytes: 0,
    unexpectedFrames: 0,
    leave: () => undefined,
  };
}

function connectTerms({ settings, limits }: Sessions): ConnectTerms {
  return { endpoints: settings.public_endpoints, skewMs: limits.clock_skew };
}

async function proveHeaders(
  registry: Sessions,
  target: SessionTarget,
  arrival: { readonly request: Request; readonly nowMs: number },
): Promise<SessionPermit | Fault> {
  const of = { target, terms: connectTerms(registry) };
  const proof = decodeConnectHeaders(arrival.request.headers, of, arrival.nowMs);
  if (isFault(proof)) return proof;
  registry.opening++;
  const permit = await permitOf(registry, proof, arrival.nowMs);
  registry.opening--;
  return permit;
}

/** What the document authorizes, when it does and the nonce is new; the refusal when not. Never rejects. */
async function permitOf(registry: Sessions, proof: RetrievalProof, nowMs: number): Promise<SessionPermit | Fault> {
  const { did, serviceId, endpoint, keyId } = proof.claims;
  try {
    const subject = await registry.recipients.subject(did);
    const claim = await decideRetrievalProof(proof, subject);
    if (isFault(claim)) return claim;
    if (!(await registry.replay.claim(claim.tag, claim.untilMs, nowMs))) return proofReplayed();
    const key = keyText(subject?.document ?? null, keyId) ?? "";
    return { serviceId, endpoint, key };
  } catch (error) {
    const known = error instanceof StoreError;
    const reason = known ? error : errorStack(error);
    registry.log(known ? "warn" : "error", "the proof of a live session could not be verified", { error: reason });
    return fault(known ? "service_unavailable" : "internal_error", "the proof can't be verified at the moment");
  }
}

// ------------------------------------------------------------------------------------------ life of a socket

function opened(registry: Sessions, socket: SessionWebSocket): void {
  registry.sockets.add(socket);
  // The operator shut it out during the upgrade.
  const shutOut = checkShutOut(registry, socket.data);
  if (shutOut !== null) {
    socket.close(closeCodeOf(shutOut), shutOut.code);
    return;
  }
  // The node began to close during the upgrade.
  if (registry.closed) {
    socket.close(closeCodes.goingAway, "the node is shutting down");
    return;
  }
  if (socket.data.permit !== null) {
    join(registry, socket);
    return;
  }
  registry.unproven.add(socket);
  socket.data.timer = setTimeout(() => socket.close(closeCodes.late, "no proof came in time"), registry.bounds.authMs);
}

/** The first frame. A second one before the first has been verified ends the connection. */
async function prove(registry: Sessions, socket: SessionWebSocket, frame: string | Uint8Array): Promise<void> {
  const session = socket.data;
  if (session.state === "joining" || session.state === "closed") return;
  if (session.state === "proving") {
    socket.close(4401, "a frame before the welcome");
    return;
  }
  session.state = "proving";
  const nowMs = registry.now();
  const proof = decodeConnectFrame(frame, { target: session.target, terms: connectTerms(registry) }, nowMs);
  const permit = isFault(proof) ? proof : await permitOf(registry, proof, nowMs);
  if (isClosed(session)) return;
  if (isFault(permit)) {
    if (registry.showSignedText === true) socket.send(renderRefusal(permit));
    socket.close(closeCodeOf(permit), permit.code);
    return;
  }
  session.permit = permit;
  join(registry, socket);
}

function closeCodeOf(refusal: Fault): number {
  if (refusal.status === 401 || refusal.status === 403 || refusal.status === 409) return 4_000 + refusal.status;
  return refusal.status >= 500 ? closeCodes.tryLater : 4401;
}

/** Joins without being awaited; whatever goes wrong ends this session alone. */
function join(registry: Sessions, socket: SessionWebSocket): void {
  joinSession(registry, socket).catch((error: unknown) => {
    registry.log("error", "a live session could not join", { error: String(error) });
    forget(registry, socket);
    socket.close(closeCodes.tryLater, "internal_error");
  });
}

/**
 * From proven to live. An older session of the same device ends first, so that what it has not
 * acknowledged moves on; then the deliveries in flight find their place; then the client gets its welcome, and what was
 * delivered to the session meanwhile.
 */
async function joinSession(registry: Sessions, socket: SessionWebSocket): Promise<void> {
  const session = socket.data;
  const { did } = session.target;
  endProofWait(registry, socket);
  session.state = "joining";
  // Without an await, so that of two sessions of a device one is first.
  for (const older of sameDevice(registry, session.target)) replace(registry, older);
  if ((registry.proven.get(did)?.size ?? 0) >= registry.settings.recipient_sessions_max) {
    forget(registry, socket);
    shut(socket, closeCodes.tooMany, "too many sessions of this DID");
    return;
  }
  const leave = add(registry.proven, did, socket);
  const unlisten = registry.remote?.listen(did);
  session.leave = () => {
    leave();
    unlisten?.();
    session.leave = () => undefined;
  };
  const inFlight = deliveriesEnding(registry, did);
  if (registry.remote !== null) {
    session.joinCount = registry.remote.nextJoinCount();
    inFlight.push(registry.remote.join(session.target, session.joinCount, registry.bounds.joinMs));
  }
  if (inFlight.length > 0) await settledWithin(inFlight, registry.bounds.joinMs);
  goLive(socket);
}

function sameDevice(registry: Sessions, { did, deviceId }: SessionTarget): SessionWebSocket[] {
  return [...(registry.proven.get(did) ?? [])].filter((socket) => socket.data.target.deviceId === deviceId);
}

/** Its unacknowledged envelopes move on now, not when a dead connection has noticed. */
function replace(registry: Sessions, socket: SessionWebSocket): void {
  if (isClosed(socket.data)) return;
  forget(registry, socket);
  shut(socket, closeCodes.replaced, "replaced by a newer connection");
}

function reply(socket: SessionWebSocket, frame: string | Uint8Array): void {
  const session = socket.data;
  const replied = parseReply(frame, session);
  const unacked = replied === null ? undefined : session.unacked.get(replied.messageId);
  if (replied !== null && unacked !== undefined) unacked.settle(replied.outcome);
  else if (++session.unexpectedFrames > unexpectedFramesMax)
    shut(socket, closeCodes.unexpected, "too many frames that acknowledge nothing");
}

function isClosed(session: SessionSocket): boolean {
  return session.state === "closed";
}
