/**
 * What live delivery is made of across processes: a delivery and how it ends, what a process does for its
 * peers, and what it asks of them. A peer is another Relay process behind the same address; one that is
 * not linked counts as one that is not there.
 * Source: decisions section 5 "Live sessions".
 */
import type { Did } from "../../../core/codec/did.ts";
import type { Envelope } from "../../../core/message/envelope.ts";
import type { SessionTarget } from "./session-frames.ts";

export type LiveDelivery = {
  readonly envelope: Pick<Envelope, "to" | "messageId" | "bytes">;
  /** A session that none of them allows ends. */
  readonly grants: readonly RelayGrant[];
  readonly timeoutMs: number;
};

/** What the recipient's document allows: these keys may listen at these endpoints under this service. */
export type RelayGrant = {
  readonly serviceId: string;
  readonly endpoints: readonly string[];
  readonly keys: readonly KeyText[];
};

/** A key's id and its public part as the document has them: another key under an old id is another key. */
export type KeyText = string;

/** `silent`: sent, and not acknowledged in time. `gone`: nobody is there, or nobody has room. */
export type LiveEnd = "acknowledged" | "silent" | "gone";

/** A session that is to go live. Of two of one device that join at the same time, the greater key stays. */
export type Joiner = SessionTarget & { readonly key: string };

/** What a process does for its peers. */
export type PeerService = {
  /** Claims the nonce of a proof that a peer has accepted. Throws `StoreError`. */
  claim(tag: string, untilMs: number): Promise<boolean>;
  /**
   * Makes way for a session that joins at a peer: ends an older one of its device, and holds deliveries
   * to its DID back until `release`. `null` when a newer one of the device is joining here.
   */
  hold(joiner: Joiner): Held | null;
  /** To the sessions of this process alone. */
  deliver(delivery: LiveDelivery): Promise<LiveEnd>;
  /** Who is live here, with how many sessions. */
  listeners(): Iterable<readonly [did: Did, sessions: number]>;
};

export type Held = {
  /** Resolves when the deliveries that began before have ended, or after the time of a join. */
  readonly settled: Promise<void>;
  readonly release: () => void;
};

/** What a process asks of its peers. */
export type Peers = {
  /** Listens for peers and dials them. Throws when the address can't be listened on. */
  start(service: PeerService): void;
  /** Resolves when all are linked, or time is up. */
  linked(timeoutMs: number): Promise<void>;
  /** Live sessions of the DID at all peers. */
  sessionsOf(did: Did): number;
  /** Whether the nonce is new to every peer. Throws `unavailable` when one can't tell. */
  claim(tag: string, untilMs: number): Promise<boolean>;
  /** `null` when there is nobody to ask. */
  join(joiner: Joiner): PeerJoin | null;
  /** One end for each peer where the recipient listens. */
  deliver(delivery: LiveDelivery): Promise<LiveEnd>[];
  /** Tells every peer how many sessions of the DID are live here. */
  announce(did: Did, sessions: number): void;
  stats(): readonly PeerStats[];
  close(): void;
};

export type PeerJoin = {
  /** Within the time of a join; `false` when a newer session of the device is joining at a peer. */
  readonly welcome: Promise<boolean>;
  /** The session is live, or never will be: peers deliver again. */
  readonly done: () => void;
};

export type PeerStats = { readonly address: string; readonly linked: boolean; readonly sessions: number };
