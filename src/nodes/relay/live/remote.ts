/**
 * Live sessions of other processes, over the bus. A delivery is offered to every process
 * that holds sessions of the recipient; when there is none, the outcome is "no-session"
 * after one round trip. A process that gets an offer, however late, fetches the envelope,
 * which is there until the delivery is decided: so no session gets it after it was
 * acknowledged or went to a Cache. A session that joins ends older ones of its device in
 * other processes. Joins are counted like Lamport clocks, so that of two sessions that join
 * at once exactly one stays. A session also waits for the deliveries that other processes
 * have in flight, so that its welcome means the same as within one process. An unreachable
 * bus is like one without subscribers.
 * Source: rules section 5 ("Live sessions", "One process or several").
 */
import { concatBytes, decodeUtf8, utf8 } from "../../../core/codec/bytes.ts";
import { type Did, isDid, parseUuid } from "../../../core/codec/did.ts";
import { jsonObjectOf } from "../../../core/codec/json.ts";
import type { Bus, BusSubscription } from "../../../storage/bus.ts";
import type { LiveOutcome, SessionTarget } from "./frames.ts";
import type { LiveDelivery } from "./registry.ts";

/** What this process does for others. */
type LocalSessions = {
  deliver(delivery: Omit<LiveDelivery, "document">): Promise<LiveOutcome>;
  /**
   * Ends older sessions of the device; resolves when the deliveries that began before have
   * ended.
   */
  makeWay(target: SessionTarget, isOlder: (joinCount: number) => boolean): Promise<void>;
};

const subjects = {
  offer: (did: Did) => `relay.live.${did}`,
  fetch: (process: string) => `relay.offered.${process}`,
  join: "relay.join",
};
/** How much later than a session's own time an answer may come. */
const answerSlackMs = 250;
/** How long a process waits for the envelope of an offer. */
const fetchMs = 2_000;
const acknowledged = utf8("acknowledged");

export type RemoteSessions = {
  /** `false` when it is certain that no other process has a session of the DID. */
  readonly mayReach: (did: Did) => boolean;
  /** Takes part in deliveries to the DID; returns a function that ends that. */
  readonly listen: (did: Did) => () => void;
  /** Until it is withdrawn, other processes may deliver it. */
  readonly offer: (delivery: Omit<LiveDelivery, "document">) => Offer;
  /** Higher than that of every join that this process has received. */
  readonly nextJoinCount: () => number;
  /**
   * Resolves when every other process has made way for the session that joined with this
   * count, or after `msMax`.
   */
  readonly join: (target: SessionTarget, joinCount: number, msMax: number) => Promise<void>;
  readonly close: () => void;
};

export function createRemoteSessions(bus: Bus, local: LocalSessions): RemoteSessions {
  const id = crypto.randomUUID();
  let joinCount = 0;
  /** Deliveries that are not decided yet, and whether a session elsewhere was to get them. */
  const offered = new Map<string, Offered>();
  const fetches = bus.subscribe(subjects.fetch(id), (name) => {
    const offer = offered.get(decodeUtf8(name) ?? "");
    if (offer === undefined) return withdrawn;
    offer.isFetched = true;
    return offer.bytes;
  });
  const listening = new Map<Did, { count: number; subscription: BusSubscription }>();
  // No answer: a request ends when all have handled it.
  const joins = bus.subscribe(subjects.join, async (message) => {
    const target = parseJoin(message, id);
    if (target === null) return undefined;
    joinCount = Math.max(joinCount, target.joinCount);
    // Of two processes with the same count, both treat the one with the greater id as the younger.
    const isOlder = (own: number) =>
      own < target.joinCount || (own === target.joinCount && id < target.from);
    await local.makeWay(target, isOlder);
    return undefined;
  });
  const mayReach = (did: Did): boolean => bus.mayReach(subjects.offer(did));
  return {
    mayReach,
    listen(did: Did): () => void {
      const known = listening.get(did);
      if (known !== undefined) known.count++;
      else {
        const subscription = bus.subscribe(subjects.offer(did), (message) =>
          deliverForPeer(message, { id, did, local, bus }),
        );
        listening.set(did, { count: 1, subscription });
      }
      return () => {
        const entry = listening.get(did);
        if (entry === undefined || --entry.count > 0) return;
        listening.delete(did);
        entry.subscription.unsubscribe();
      };
    },
    offer({ envelope, timeoutMs }: Omit<LiveDelivery, "document">): Offer {
      const bytes = mayReach(envelope.to) ? encodeEnvelope(envelope) : null;
      if (bytes === null || bytes.length > bus.messageBytesMax)
        return { outcome: Promise.resolve("no-session"), withdraw: () => {} };
      const name = crypto.randomUUID();
      const offer: Offered = { bytes, isFetched: false };
      offered.set(name, offer);
      const outcome = offerToPeers(bus, offer, { from: id, name, to: envelope.to, timeoutMs });
      return { outcome, withdraw: () => offered.delete(name) };
    },
    nextJoinCount: (): number => ++joinCount,
    async join(target: SessionTarget, joinCount: number, msMax: number): Promise<void> {
      await listening.get(target.did)?.subscription.ready;
      await bus.request(
        subjects.join,
        utf8(JSON.stringify({ ...target, from: id, joinCount })),
        msMax,
      );
    },
    close(): void {
      joins.unsubscribe();
      fetches.unsubscribe();
      for (const { subscription } of listening.values()) subscription.unsubscribe();
      listening.clear();
    },
  };
}

/** An envelope that other processes may fetch; `isFetched`: a session elsewhere was to get it. */
type Offered = { readonly bytes: Uint8Array; isFetched: boolean };

type OfferCall = {
  readonly from: string;
  readonly name: string;
  readonly to: Did;
  readonly timeoutMs: number;
};

/** Asks all other processes whether one of their sessions takes the envelope. */
async function offerToPeers(
  bus: Bus,
  offer: Offered,
  { to, ...call }: OfferCall,
): Promise<LiveOutcome> {
  const startMs = performance.now();
  const message = utf8(JSON.stringify(call));
  const { timeoutMs } = call;
  const answered = await bus.request(subjects.offer(to), message, timeoutMs + answerSlackMs);
  if (answered !== "unanswered") return "acknowledged";
  if (performance.now() - startMs >= timeoutMs) return "silent";
  return offer.isFetched ? "gone" : "no-session";
}

type Offer = { readonly outcome: Promise<LiveOutcome>; readonly withdraw: () => void };

type Join = SessionTarget & { readonly from: string; readonly joinCount: number };

type Answering = {
  readonly id: string;
  readonly did: Did;
  readonly local: LocalSessions;
  readonly bus: Bus;
};

async function deliverForPeer(
  message: Uint8Array,
  { id, did, local, bus }: Answering,
): Promise<Uint8Array | undefined> {
  const { from, name, timeoutMs } = jsonObjectOf(message) ?? {};
  if (
    typeof from !== "string" ||
    from === id ||
    typeof name !== "string" ||
    typeof timeoutMs !== "number"
  )
    return;
  const fetched = await bus.request(subjects.fetch(from), utf8(name), fetchMs);
  const envelope = fetched === "unanswered" ? null : decodeEnvelope(fetched, did);
  const outcome = envelope === null ? null : await local.deliver({ envelope, timeoutMs });
  // Nothing else is an answer: another process may hold a session that acknowledges.
  return outcome === "acknowledged" ? acknowledged : undefined;
}

// ---------------------------------------------------------------------------------------- messages

const withdrawn = new Uint8Array(0);

/** The id in a line, and the envelope behind it. */
function encodeEnvelope({ messageId, bytes }: LiveDelivery["envelope"]): Uint8Array {
  return concatBytes(utf8(`${messageId}\n`), bytes);
}

/** `null` when it was withdrawn. */
function decodeEnvelope(message: Uint8Array, to: Did): LiveDelivery["envelope"] | null {
  const end = message.indexOf(0x0a);
  const head = decodeUtf8(message.subarray(0, Math.max(end, 0)));
  const messageId = parseUuid(head ?? "");
  return messageId === null ? null : { to, messageId, bytes: message.subarray(end + 1) };
}

function parseJoin(message: Uint8Array, own: string): Join | null {
  const members = jsonObjectOf(message);
  if (members === null || members["from"] === own) return null;
  const { from, did, deviceId, joinCount } = members;
  if (typeof did !== "string" || !isDid(did) || typeof deviceId !== "string") return null;
  if (typeof from !== "string" || typeof joinCount !== "number") return null;
  return { from, did, deviceId, joinCount };
}
