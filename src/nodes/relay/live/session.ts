/**
 * The life of a live session: a WebSocket over which a recipient gets envelopes as they
 * arrive. The laws: no client listens for a DID without a proof that its document
 * authorizes at this moment; and when the welcome is sent, whatever arrived earlier has
 * found its place, so that a client that pulls from its Cache after the welcome misses
 * nothing. `registry.ts` shows how an envelope reaches a session.
 * Source: rules section 5 "Live sessions"; docs/interface.md, "Live
 * sessions".
 */
import type { WebSocketHandler } from "bun";
import type { Did } from "../../../core/codec/did.ts";
import { secondMs } from "../../../core/codec/time.ts";
import { errorStack, type Fault, fault, isFault } from "../../../core/fault.ts";
import {
  decideRetrievalProof,
  proofReplayed,
  type RetrievalProof,
  retrievalHeaders,
} from "../../../core/message/proof.ts";
import { StoreError } from "../../../storage/contract.ts";
import type { Call, Route } from "../../http/route.ts";
import { checkClientRate, type NetworkPlaces, networkPlaces } from "../../parties/rates.ts";
import { endUnauthorized, followChanges, lookAgain } from "./authority.ts";
import {
  bearsProof,
  type ConnectTerms,
  decodeConnectFrame,
  decodeConnectHeaders,
  frameBytesMax,
  type LiveOutcome,
  parseReply,
  parseSessionTarget,
  renderRefusal,
  type SessionTarget,
} from "./frames.ts";
import {
  addToSet,
  closeCodes,
  createRegistry,
  type DeliveryInFlight,
  deliveriesEnding,
  deliverToSockets,
  endProofWait,
  firstAcknowledged,
  forgetSession,
  goLive,
  keyText,
  type LiveDelivery,
  type SessionParts,
  type SessionPermit,
  type SessionRegistry,
  type SessionSocket,
  type SessionWebSocket,
  settledWithin,
  shut,
} from "./registry.ts";
import { createRemoteSessions, type RemoteSessions } from "./remote.ts";

export type LiveSessions = {
  /** Where sessions begin: none without an endpoint by which clients reach the Relay. */
  readonly routes: readonly Route[];
  readonly websocket: WebSocketHandler<SessionSocket>;
  /** Whether a session of the DID may listen, as far as this process knows. */
  mayListen(did: Did): boolean;
  /**
   * The Relay's deliveries. Sessions go live only after those of them that no longer reach
   * them.
   */
  readonly inFlight: Map<string, DeliveryInFlight>;
  /**
   * To every session of the recipient, wherever it is; `no-session` when there is none,
   * after a round trip at most.
   */
  deliver(delivery: LiveDelivery): Promise<LiveOutcome>;
  /** Of this process. */
  stats(): { readonly sockets: number; readonly unproven: number; readonly dids: number };
  close(): void;
};

/** With the sessions of other processes; `null` without a bus. */
type Sessions = SessionRegistry & { remote: RemoteSessions | null };

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
  const unfollowChanges =
    parts.changes === undefined ? null : followChanges(registry, parts.changes);
  const mayListen = (did: Did): boolean =>
    registry.proven.has(did) || registry.remote?.mayReach(did) === true;
  const networks = networkPlaces(registry.settings.sessions_max);
  return {
    routes:
      registry.settings.public_endpoints.length === 0 ? [] : [sessionRoute(registry, networks)],
    websocket: socketEvents(registry, networks),
    mayListen,
    inFlight: registry.inFlight,
    async deliver(delivery) {
      const outcomes = here(delivery);
      const elsewhere = registry.remote?.offer(delivery);
      const outcome = await firstAcknowledged(
        elsewhere === undefined ? outcomes : [...outcomes, elsewhere.outcome],
      );
      elsewhere?.withdraw();
      return outcome;
    },
    stats: () => ({
      sockets: registry.sockets.size,
      unproven: registry.unproven.size,
      dids: registry.proven.size,
    }),
    close: () => {
      registry.closed = true;
      unfollow?.();
      unfollowChanges?.();
      registry.remote?.close();
      for (const socket of registry.sockets)
        socket.close(closeCodes.goingAway, "the node is shutting down");
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

function checkShutOut(
  { blocks }: Sessions,
  { client, target }: Pick<SessionSocket, "client" | "target">,
) {
  return blocks?.checkClient(client) ?? blocks?.checkDid(target.did) ?? null;
}

/** Makes way for a session of the device that joins in another process. */
function makeWay(
  registry: Sessions,
  target: SessionTarget,
  isOlder: (joinCount: number) => boolean,
): Promise<void> {
  for (const other of sameDevice(registry, target))
    if (isOlder(other.data.joinCount)) replaceSession(registry, other);
  return settledWithin(deliveriesEnding(registry, target.did), registry.bounds.joinMs);
}

// ---------------------------------------------------------------------------------------- upgrades

function sessionRoute(registry: Sessions, networks: NetworkPlaces): Route {
  const { settings } = registry;
  return {
    method: "GET",
    path: "/ws/:did/:deviceId",
    id: "liveSession",
    summary:
      "A live session, as a WebSocket: the first frame, or the proof headers, prove the recipient with the operation " +
      '`connect`; then one envelope a frame, each answered by `{"type":"ack","message_id":"…"}`',
    tag: "Relay",
    headers: Object.values(retrievalHeaders),
    credential: "cacheProof",
    query: ["pass"],
    answer: [101, "The connection is a WebSocket."],
    codes: [
      "invalid_did",
      "policy_denied",
      "proof_missing",
      "proof_invalid",
      "proof_expired",
      "proof_not_authorized",
      "proof_replayed",
      "rate_limited",
    ],
    capacity: "normal",
    rateLimit: (request) =>
      registry.blocks?.checkClient(request.client) ??
      checkClientRate(registry.connects, request, settings),
    handle: async (call) => {
      const data = await admitUpgrade(registry, call);
      if (isFault(data)) return data;
      if (data.permit === null && registry.unproven.size >= registry.bounds.unprovenMax)
        return noRoom();
      if (!networks.take(data.client))
        return fault("rate_limited", "too many live sessions of this network", {
          retryAfterSeconds: 30,
        });
      if (call.upgrade(data)) return { status: 101 };
      networks.give(data.client);
      return fault("invalid_request", "this path accepts WebSocket connections only");
    },
  };
}

function socketEvents(
  registry: Sessions,
  networks: NetworkPlaces,
): WebSocketHandler<SessionSocket> {
  return {
    maxPayloadLength: frameBytesMax,
    backpressureLimit: registry.bounds.unackedBytesMax,
    idleTimeout: registry.bounds.idleSeconds,
    sendPings: true,
    perMessageDeflate: false,
    open: (socket) => sessionOpened(registry, socket),
    message: (socket, frame) =>
      socket.data.state === "live" ? reply(socket, frame) : proveSession(registry, socket, frame),
    close: (socket) => {
      networks.give(socket.data.client);
      forgetSession(registry, socket);
    },
  };
}

const noRoom = () => fault("service_unavailable", "the node has no capacity for another session");

/** The checks before the upgrade: path, room, and the proof when it came in headers. */
async function admitUpgrade(registry: Sessions, call: Call): Promise<SessionSocket | Fault> {
  const target = parseSessionTarget(call.params);
  if (isFault(target)) return target;
  const shutOut = registry.blocks?.checkDid(target.did) ?? null;
  if (shutOut !== null) return shutOut;
  if (registry.closed) return fault("shutting_down", "the node is shutting down");
  const proven = bearsProof(call.headers);
  if (registry.sockets.size >= registry.settings.sessions_max) return noRoom();
  const permit = proven ? await proveHeaders(registry, target, call) : null;
  if (isFault(permit)) return permit;
  return {
    target,
    client: call.client,
    canForward: call.query.get("pass") === "1",
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

function proveHeaders(
  registry: Sessions,
  target: SessionTarget,
  { headers, nowMs }: Call,
): Fault | Promise<SessionPermit | Fault> {
  const proof = decodeConnectHeaders(headers, { target, terms: connectTerms(registry) }, nowMs);
  return isFault(proof) ? proof : permitOf(registry, proof, nowMs);
}

/**
 * What the document authorizes, when it does and the nonce is new; the refusal when not.
 * Never rejects.
 */
async function permitOf(
  registry: Sessions,
  proof: RetrievalProof,
  nowMs: number,
): Promise<SessionPermit | Fault> {
  const { did, serviceId, endpoint, keyId } = proof.claims;
  try {
    const subject = await registry.recipients.subject(did);
    const claim = await decideRetrievalProof(proof, subject, registry.verify);
    if (isFault(claim)) return claim;
    if (!(await registry.replay.claim(claim.tag, claim.untilMs, nowMs))) return proofReplayed();
    registry.members?.seen(did, nowMs);
    const key = keyText(subject?.document ?? null, keyId) ?? "";
    return { serviceId, endpoint, key };
  } catch (error) {
    const known = error instanceof StoreError;
    const reason = known ? error : errorStack(error);
    registry.log(known ? "warn" : "error", "the proof of a live session could not be verified", {
      error: reason,
    });
    return fault(
      known ? "service_unavailable" : "internal_error",
      "the proof can't be verified at the moment",
    );
  }
}

// -------------------------------------------------------------------------------- life of a socket

function sessionOpened(registry: Sessions, socket: SessionWebSocket): void {
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
    beginJoin(registry, socket);
    return;
  }
  registry.unproven.add(socket);
  socket.data.timer = setTimeout(
    () => socket.close(closeCodes.late, "no proof came in time"),
    registry.bounds.authMs,
  );
}

/** The first frame. A second one before the first has been verified ends the connection. */
async function proveSession(
  registry: Sessions,
  socket: SessionWebSocket,
  frame: string | Uint8Array,
): Promise<void> {
  const session = socket.data;
  if (session.state === "joining" || session.state === "closed") return;
  if (session.state === "proving") {
    socket.close(4401, "a frame before the welcome");
    return;
  }
  session.state = "proving";
  const nowMs = registry.now();
  const proof = decodeConnectFrame(
    frame,
    { target: session.target, terms: connectTerms(registry) },
    nowMs,
  );
  const permit = isFault(proof) ? proof : await permitOf(registry, proof, nowMs);
  if (isClosed(session)) return;
  if (isFault(permit)) {
    if (registry.showSignedText === true) socket.send(renderRefusal(permit));
    socket.close(closeCodeOf(permit), permit.code);
    return;
  }
  session.permit = permit;
  beginJoin(registry, socket);
}

function closeCodeOf(refusal: Fault): number {
  if (refusal.status === 401 || refusal.status === 403 || refusal.status === 409)
    return 4_000 + refusal.status;
  return refusal.status >= 500 ? closeCodes.tryLater : 4401;
}

/** Joins without being awaited; whatever goes wrong ends this session alone. */
function beginJoin(registry: Sessions, socket: SessionWebSocket): void {
  joinSession(registry, socket).catch((error: unknown) => {
    registry.log("error", "a live session could not join", { error: String(error) });
    forgetSession(registry, socket);
    socket.close(closeCodes.tryLater, "internal_error");
  });
}

/**
 * From proven to live. An older session of the same device ends first, so that what it has
 * not acknowledged moves on; then the deliveries in flight find their place; then the
 * client gets its welcome, and what was delivered to the session meanwhile.
 */
async function joinSession(registry: Sessions, socket: SessionWebSocket): Promise<void> {
  const session = socket.data;
  const { did } = session.target;
  endProofWait(registry, socket);
  session.state = "joining";
  // Without an await, so that of two sessions of a device one is first.
  for (const older of sameDevice(registry, session.target)) replaceSession(registry, older);
  if ((registry.proven.get(did)?.size ?? 0) >= registry.settings.recipient_sessions_max) {
    forgetSession(registry, socket);
    shut(socket, closeCodes.tooMany, "too many sessions of this DID");
    return;
  }
  const leave = addToSet(registry.proven, did, socket);
  const unlisten = registry.remote?.listen(did);
  const muteBell = registry.bell.listen(did, ringerOf(registry, socket));
  const stopLooking = lookAgain(registry, did);
  session.leave = () => {
    leave();
    unlisten?.();
    muteBell();
    stopLooking();
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

/**
 * What is stored together rings once, and between two rings is a second: the client then
 * reads everything.
 */
const ringMs = 50;
const storedFrame = JSON.stringify({ type: "stored" });

/** Signals a client that its Cache has stored something, when it speaks more than envelopes. */
function ringerOf(registry: Sessions, socket: SessionWebSocket): () => void {
  let rungMs = Number.NEGATIVE_INFINITY;
  let isDue = false;
  const ringNow = async () => {
    await endUnauthorized(registry, socket.data.target.did);
    isDue = false;
    rungMs = performance.now();
    if (socket.data.state === "live") socket.sendText(storedFrame);
  };
  return () => {
    if (isDue || !socket.data.canForward) return;
    isDue = true;
    setTimeout(() => void ringNow(), Math.max(ringMs, rungMs + secondMs - performance.now()));
  };
}

function sameDevice(registry: Sessions, { did, deviceId }: SessionTarget): SessionWebSocket[] {
  return [...(registry.proven.get(did) ?? [])].filter(
    (socket) => socket.data.target.deviceId === deviceId,
  );
}

/** Its unacknowledged envelopes move on now, not when a dead connection has noticed. */
function replaceSession(registry: Sessions, socket: SessionWebSocket): void {
  if (isClosed(socket.data)) return;
  forgetSession(registry, socket);
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
