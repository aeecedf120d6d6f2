/**
 * How an envelope reaches live sessions. The law: it counts as delivered only when a client acknowledged
 * it, wherever among the linked processes that client is; all devices of the recipient get it at once and
 * the first acknowledgement wins; else it goes on to the next destination. What waits is bounded.
 * Source: decisions section 5 "Live sessions" and "Devices", and section 10.
 */
import { decodeUtf8 } from "../../../core/codec/bytes.ts";
import type { Did } from "../../../core/codec/did.ts";
import type { DidDocument } from "../../../core/ledger/document.ts";
import { sameEndpoint } from "../../../core/message/proof.ts";
import type { KeyText, LiveDelivery, LiveEnd, RelayGrant } from "./live.ts";
import {
  type Hub,
  join,
  liveSockets,
  type SessionSocket,
  type SessionWebSocket,
  settledWithin,
  shut,
  unreadSlackBytes,
} from "./registry.ts";

/** Joins that one delivery waits for, one after the other. More in a row are a client that plays. */
const roundsMax = 3;

/** Registers a delivery once no session of the DID is joining, here or at a peer. Waits three joins at most. */
export async function enter(hub: Hub, did: Did): Promise<() => void> {
  const endsAtMs = performance.now() + roundsMax * hub.limits.joinMs;
  for (let round = 0; round < roundsMax; round++) {
    // A join that begins while this waits is waited for too.
    const joining = hub.joining.get(did);
    if (joining === undefined) break;
    await settledWithin([...joining], endsAtMs - performance.now());
  }
  const { promise, resolve } = Promise.withResolvers<void>();
  const leave = join(hub.deliveries, did, promise);
  return () => {
    leave();
    resolve();
  };
}

/** What a document allows listeners: keys that stand in it and that a Relay service lists. */
export function relayGrants(document: DidDocument | null): RelayGrant[] {
  const services = document?.service.filter((service) => service.type === "SvcRelayService") ?? [];
  return services.map((service) => ({
    serviceId: service.id,
    endpoints: service.serviceEndpoint,
    keys: service.authorization?.flatMap((keyId) => keyText(document, keyId) ?? []) ?? [],
  }));
}

/** The key that stands under an id. */
export function keyText(document: DidDocument | null, keyId: string): KeyText | null {
  const method = document?.verificationMethod.find((candidate) => candidate.id === keyId);
  return method === undefined ? null : `${keyId} ${method.publicKeyMultibase}`;
}

/** To every device of the recipient at once, here and at peers. */
export function deliver(hub: Hub, delivery: LiveDelivery): Promise<LiveEnd> {
  return firstAcknowledged([...deliverHere(hub, delivery), ...(hub.peers?.deliver(delivery) ?? [])]);
}

/** One end for each session of this process. */
export function deliverHere(hub: Hub, delivery: LiveDelivery): Promise<LiveEnd>[] {
  const sockets = liveSockets(hub, delivery.envelope.to);
  const text = sockets.length === 0 ? null : decodeUtf8(delivery.envelope.bytes);
  return text === null ? [] : sockets.map((socket) => deliverTo(hub, socket, { ...delivery, text }));
}

/** The first acknowledgement delivers the envelope; without one, silence says more than absence. */
export async function firstAcknowledged(ends: readonly Promise<LiveEnd>[]): Promise<LiveEnd> {
  if (ends.length === 0) return "gone";
  const { promise, resolve } = Promise.withResolvers<LiveEnd>();
  for (const end of ends) void end.then((how) => how === "acknowledged" && resolve(how));
  void Promise.all(ends).then((all) => resolve(all.includes("silent") ? "silent" : "gone"));
  return promise;
}

type FrameDelivery = LiveDelivery & { readonly text: string };

function deliverTo(hub: Hub, socket: SessionWebSocket, delivery: FrameDelivery): Promise<LiveEnd> {
  const session = socket.data;
  const { envelope } = delivery;
  if (!isAuthorized(session, delivery.grants)) {
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

function hasRoom(hub: Hub, session: SessionSocket, envelope: LiveDelivery["envelope"]): boolean {
  const { limits } = hub;
  const { unacked, unackedBytes } = session;
  if (session.state !== "live" || unacked.has(envelope.messageId)) return false;
  if (hub.unackedBytes > 0 && hub.unackedBytes + envelope.bytes.length > limits.unackedBytesTotalMax) return false;
  if (unacked.size === 0) return true;
  return unacked.size < limits.unackedMax && unackedBytes + envelope.bytes.length <= limits.unackedBytesMax;
}

/**
 * What waits in a socket is part of what its client has not acknowledged. More than that means a client
 * that does not read, or acknowledges what it has not read: the memory is worth more than its session.
 */
function dropUnread(socket: SessionWebSocket): void {
  const session = socket.data;
  if (session.state !== "closed" && socket.getBufferedAmount() > session.unackedBytes + unreadSlackBytes)
    socket.terminate();
}

function isAuthorized({ permit }: SessionSocket, grants: readonly RelayGrant[]): boolean {
  if (permit === null) return false;
  return grants.some(
    ({ serviceId, endpoints, keys }) =>
      serviceId === permit.serviceId &&
      endpoints.some((endpoint) => sameEndpoint(endpoint, permit.endpoint)) &&
      keys.includes(permit.key),
  );
}
