/**
 * The registry of live sessions: who is connected, who joins, and which deliveries are in flight.
 * It also sends envelopes to sockets (`frames.ts` has the form of what goes over them). The
 * laws: an envelope counts as delivered only when a client acknowledged it; all devices of the
 * recipient get it at once, and the first acknowledgement wins; a session that joins gets what is
 * delivered from then on after its welcome, which waits for what was delivered before, so that
 * nothing falls between the two. All that waits is bounded. Source: rules section 5 ("Live
 * sessions", "Devices").
 */
import type { ServerWebSocket } from "bun";
import type { Config } from "../../../config/schema.ts";
import { decodeUtf8, equalBytes, type VerifySignature } from "../../../core/codec/bytes.ts";
import type { Did, Uuid } from "../../../core/codec/did.ts";
import type { Fault } from "../../../core/fault.ts";
import type { DidDocument } from "../../../core/ledger/account.ts";
import type { DeliveryResult } from "../../../core/message/delivery.ts";
import type { Envelope } from "../../../core/message/envelope.ts";
import { sameEndpoint } from "../../../core/message/proof.ts";
import { BoundedMap, withDeadline } from "../../../core/std/bounded.ts";
import type { Bus } from "../../../storage/bus.ts";
import type { Replay } from "../../../storage/contract.ts";
import type { Log } from "../../http/log.ts";
import type { EnvelopeAuthor } from "../../parties/author.ts";
import type { Blocks } from "../../parties/blocks.ts";
import type { Members } from "../../parties/members.ts";
import { createRateLimiter, type RateLimit, type RateLimiter } from "../../parties/rates.ts";
import type { RecipientSource } from "../../parties/recipients.ts";
import type { Bell } from "../../parties/signals.ts";
import { type LiveOutcome, renderWelcome, type SessionTarget } from "./frames.ts";

/** Bounds that no operator has a reason to change. Tests set tighter ones. */
type SessionBounds = {
  /**
   * Sockets without a proof yet. When another node has died and all its clients come at once, the
   * rest are refused, and each tries again after a pause that doubles. Proofs in headers are
   * verified within active requests.
   */
  readonly unprovenMax: number;
  readonly authMs: number;
  /** How long a welcome waits for deliveries that began before it. */
  readonly joinMs: number;
  /** Envelopes and their bytes that one session has not acknowledged yet. */
  readonly unackedMax: number;
  readonly unackedBytesMax: number;
  /** The same bytes over all sessions; beyond it envelopes go on to the next destination. */
  readonly unackedBytesTotalMax: number;
  readonly idleSeconds: number;
  /** Between two looks at the document of an open session. */
  readonly lookMs: number;
  /** Connections of one client network. */
  readonly connects: RateLimit;
};

const sessionBounds: SessionBounds = {
  unprovenMax: 1_000,
  authMs: 5_000,
  joinMs: 3_000,
  unackedMax: 64,
  unackedBytesMax: 64 * 1024 ** 2,
  unackedBytesTotalMax: 256 * 1024 ** 2,
  idleSeconds: 60,
  lookMs: 300_000,
  connects: { perSecond: 5, burst: 50 },
};

/** Frame heads, pings and the welcome. */
const unreadSlackBytes = 4 * 1024;
/**
 * Beyond this, which waits in the node besides the buffers of the kernel, a session gets no more:
 * it would only be copied.
 */
const unreadBytesMax = 1024 ** 2;

export type SessionParts = {
  readonly recipients: RecipientSource;
  readonly verify: VerifySignature;
  readonly replay: Replay;
  readonly settings: Config["relay"];
  readonly limits: Pick<Config["limits"], "clock_skew">;
  readonly bounds?: Partial<SessionBounds>;
  readonly bus?: Bus;
  /** Where changes of records are announced. */
  readonly changes?: Pick<Bus, "subscribe">;
  readonly bell: Pick<Bell, "listen">;
  /**
   * In development a refused proof is answered with what was verified,
   * before the session is closed.
   */
  readonly showSignedText?: boolean;
  readonly blocks?: Pick<Blocks, "checkClient" | "checkDid" | "follow">;
  /** Learns of each DID that opens a session. */
  readonly members?: Pick<Members, "seen">;
  readonly now: () => number;
  readonly log: Log;
};

/** What a proof rests on. The document must go on authorizing it. */
export type SessionPermit = {
  readonly serviceId: string;
  readonly endpoint: string;
  readonly key: KeyText;
};

/**
 * A key's id and its public part as the document has them: another key under
 * an old id is another key.
 */
type KeyText = string;

/** An envelope that a session has and did not acknowledge yet. */
type Unacked = {
  readonly bytes: Uint8Array;
  readonly outcome: Promise<LiveOutcome>;
  readonly settle: (outcome: LiveOutcome) => void;
};

/** What the server keeps for each socket. */
export type SessionSocket = {
  readonly target: SessionTarget;
  readonly client: string;
  /**
   * Whether the client may pass an envelope on to the next destination, and is sent `stored` when
   * something was stored for it: it asks for that in the query.
   */
  readonly canForward: boolean;
  state: "unproven" | "proving" | "joining" | "live" | "closed";
  /** `null` until the proof was verified. */
  permit: SessionPermit | null;
  /** Which of two sessions of a device is the younger one, over all processes; see `remote.ts`. */
  joinCount: number;
  /** Ends the wait for a proof. */
  timer: ReturnType<typeof setTimeout> | null;
  readonly unacked: Map<Uuid, Unacked>;
  unackedBytes: number;
  /** Frames that acknowledged nothing. */
  unexpectedFrames: number;
  /** Takes the socket out of the sessions of its DID. */
  leave: () => void;
};

export type SessionWebSocket = ServerWebSocket<SessionSocket>;

/** A message from its request to its answer. */
export type DeliveryInFlight = {
  readonly to: Did;
  /** Of its content. */
  readonly digest: string;
  readonly author: EnvelopeAuthor;
  readonly hops: number;
  /** It no longer reaches sessions of the recipient that begin to join now: they wait for it. */
  readonly delaysJoins: boolean;
  readonly outcome: Promise<DeliveryResult | Fault>;
};

export type SessionRegistry = Omit<SessionParts, "bus"> & {
  readonly bounds: SessionBounds;
  /** Joining and live. */
  readonly proven: Map<Did, Set<SessionWebSocket>>;
  /** By recipient and message id. */
  readonly inFlight: Map<string, DeliveryInFlight>;
  readonly sockets: Set<SessionWebSocket>;
  readonly unproven: Set<SessionWebSocket>;
  readonly connects: RateLimiter;
  /** Of all sessions. */
  unackedBytes: number;
  /**
   * Of the envelopes acknowledged last: other processes may repeat one before its result is stored.
   */
  readonly acknowledged: BoundedMap<Uuid, number | bigint>;
  closed: boolean;
};

export function createRegistry(parts: SessionParts): SessionRegistry {
  const bounds = { ...sessionBounds, ...parts.bounds };
  return {
    ...parts,
    bounds,
    proven: new Map(),
    inFlight: new Map(),
    sockets: new Set(),
    unproven: new Set(),
    connects: createRateLimiter(bounds.connects),
    unackedBytes: 0,
    acknowledged: new BoundedMap(4_096),
    closed: false,
  };
}

/** Close codes: 4000 and the status of a refused proof, and these. */
export const closeCodes = {
  late: 4408,
  replaced: 4410,
  tooMany: 4429,
  unexpected: 4400,
  unauthorized: 4403,
  goingAway: 1001,
  tryLater: 1013,
} as const;

/** Adds `value` to the set at `key`; the answer is a function that removes it. */
export function addToSet<K, V>(map: Map<K, Set<V>>, key: K, value: V): () => void {
  const set = map.get(key) ?? new Set<V>();
  map.set(key, set.add(value));
  return () => {
    set.delete(value);
    if (set.size === 0 && map.get(key) === set) map.delete(key);
  };
}

/** Resolves when all have settled, or when the time is up. */
export async function settledWithin(
  promises: readonly Promise<unknown>[],
  ms: number,
): Promise<void> {
  await withDeadline(Promise.allSettled(promises), ms);
}

/** Closes with a reason, unless the client does not even read what it was sent. */
export function shut(socket: SessionWebSocket, code: number, reason: string): void {
  if (socket.getBufferedAmount() > unreadSlackBytes) socket.terminate();
  else socket.close(code, reason);
}

export function endProofWait(registry: SessionRegistry, socket: SessionWebSocket): void {
  registry.unproven.delete(socket);
  clearTimeout(socket.data.timer ?? undefined);
  socket.data.timer = null;
}

/** Takes a socket out of everything. Idempotent. */
export function forgetSession(registry: SessionRegistry, socket: SessionWebSocket): void {
  const session = socket.data;
  endProofWait(registry, socket);
  session.state = "closed";
  registry.sockets.delete(socket);
  session.leave();
  for (const { settle } of [...session.unacked.values()]) settle("gone");
}

// -------------------------------------------------------------------------------------- deliveries

export type LiveDelivery = {
  readonly envelope: Pick<Envelope, "to" | "messageId" | "bytes">;
  /** The recipient's as it is now. A session that it no longer authorizes ends. */
  readonly document: DidDocument | null;
  readonly timeoutMs: number;
};

/** Cost: one look at each delivery in flight; a session joins rarely. */
export function deliveriesEnding({ inFlight }: SessionRegistry, did: Did): Promise<unknown>[] {
  const delaying = [...inFlight.values()].filter(
    ({ to, delaysJoins }) => delaysJoins && to === did,
  );
  return delaying.map(({ outcome }) => outcome);
}

export function keyText(document: DidDocument | null, keyId: string): KeyText | null {
  const method = document?.verificationMethod.find((candidate) => candidate.id === keyId);
  return method === undefined ? null : `${keyId} ${method.publicKeyMultibase}`;
}

/** To every device of the recipient at once; one outcome for each session. */
export function deliverToSockets(
  registry: SessionRegistry,
  delivery: LiveDelivery,
): Promise<LiveOutcome>[] {
  const { to, messageId, bytes } = delivery.envelope;
  const sockets = [...(registry.proven.get(to) ?? [])];
  if (sockets.length === 0) return [];
  if (registry.acknowledged.get(messageId) === Bun.hash(bytes))
    return [Promise.resolve("acknowledged")];
  const text = decodeUtf8(bytes);
  return text === null
    ? []
    : sockets.map((socket) => deliverTo(registry, socket, { ...delivery, text }));
}

/**
 * Resolves on the first acknowledgement; otherwise, when all have ended, as one that
 * was silent, or else gone.
 */
export async function firstAcknowledged(
  outcomes: readonly Promise<LiveOutcome>[],
): Promise<LiveOutcome> {
  const { promise, resolve } = Promise.withResolvers<LiveOutcome>();
  for (const outcome of outcomes)
    void outcome.then((one) => one === "acknowledged" && resolve(one));
  void Promise.all(outcomes).then((all) =>
    resolve((["silent", "gone"] as const).find((one) => all.includes(one)) ?? "no-session"),
  );
  return promise;
}

type FrameDelivery = LiveDelivery & { readonly text: string };

function deliverTo(
  registry: SessionRegistry,
  socket: SessionWebSocket,
  delivery: FrameDelivery,
): Promise<LiveOutcome> {
  const session = socket.data;
  const { envelope } = delivery;
  if (!isAuthorized(session, delivery.document)) {
    shut(socket, closeCodes.unauthorized, "the document no longer authorizes this session");
    return Promise.resolve("gone");
  }
  // Another process may be delivering it too: each finds out of the other only here.
  const known = session.unacked.get(envelope.messageId);
  if (known !== undefined)
    return equalBytes(known.bytes, envelope.bytes) ? known.outcome : Promise.resolve("gone");
  const isBehind = socket.getBufferedAmount() > unreadBytesMax;
  if (isBehind || !hasRoom(registry, session, envelope.bytes.length))
    return Promise.resolve("gone");
  const { promise, resolve } = Promise.withResolvers<LiveOutcome>();
  const settleDelivery = (outcome: LiveOutcome) => {
    if (!session.unacked.delete(envelope.messageId)) return;
    clearTimeout(timer);
    session.unackedBytes -= envelope.bytes.length;
    registry.unackedBytes -= envelope.bytes.length;
    if (outcome === "acknowledged")
      registry.acknowledged.set(envelope.messageId, Bun.hash(envelope.bytes));
    resolve(outcome);
    terminateUnread(socket);
  };
  const timer = setTimeout(() => settleDelivery("silent"), delivery.timeoutMs);
  session.unacked.set(envelope.messageId, {
    bytes: envelope.bytes,
    outcome: promise,
    settle: settleDelivery,
  });
  session.unackedBytes += envelope.bytes.length;
  registry.unackedBytes += envelope.bytes.length;
  if (session.state === "live")
    sendUnacked(socket, { settle: settleDelivery, text: delivery.text });
  return promise;
}

function sendUnacked(
  socket: SessionWebSocket,
  { settle, text }: Pick<Unacked, "settle"> & Pick<FrameDelivery, "text">,
): void {
  // 0 is a frame that was dropped; -1 is one that waits until the client reads.
  if (socket.sendText(text) === 0) settle("gone");
}

/** The welcome, and what was delivered while the session joined. */
export function goLive(socket: SessionWebSocket): void {
  const session = socket.data;
  if (session.state === "closed") return;
  session.state = "live";
  socket.sendText(renderWelcome(session.target));
  for (const { bytes, settle } of [...session.unacked.values()])
    sendUnacked(socket, { settle, text: decodeUtf8(bytes) ?? "" });
}

function hasRoom(
  registry: SessionRegistry,
  { unacked, unackedBytes }: SessionSocket,
  length: number,
): boolean {
  const { bounds } = registry;
  if (registry.unackedBytes > 0 && registry.unackedBytes + length > bounds.unackedBytesTotalMax)
    return false;
  if (unacked.size === 0) return true;
  return unacked.size < bounds.unackedMax && unackedBytes + length <= bounds.unackedBytesMax;
}

/**
 * What waits in a socket is part of what its client has not acknowledged. More than that
 * means a client that does not read, or acknowledges what it has not read: the memory is
 * worth more than its session.
 */
function terminateUnread(socket: SessionWebSocket): void {
  const session = socket.data;
  if (
    session.state !== "closed" &&
    socket.getBufferedAmount() > session.unackedBytes + unreadSlackBytes
  )
    socket.terminate();
}

export function isAuthorized({ permit }: SessionSocket, document: DidDocument | null): boolean {
  if (permit === null || document === null) return false;
  return document.service.some(
    ({ type, id, serviceEndpoint, authorization }) =>
      type === "SvcRelayService" &&
      id === permit.serviceId &&
      serviceEndpoint.some((endpoint) => sameEndpoint(endpoint, permit.endpoint)) &&
      authorization?.some((keyId) => keyText(document, keyId) === permit.key),
  );
}
