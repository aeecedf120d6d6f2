/**
 * The Relay processes of one machine behind one address, linked by private Unix sockets: each tells the
 * others who listens at it, asks them before it takes a nonce or a session, and hands them envelopes for
 * recipients who listen there. The laws: a peer is linked or it is not there, and what was asked of it
 * ends with the link, so that no envelope, session or start waits for a process that is dead, stopped or
 * gone astray for longer than `silentMs`; what is known of it is forgotten with the link as well.
 * Of two processes the one with the smaller address dials, so there is one link for each two.
 * Source: decisions section 5 "One process or several".
 */
import type { Socket } from "bun";
import type { Did } from "../../../core/codec/did.ts";
import { StoreError } from "../../../storage/contract.ts";
import type { Log } from "../../http/log.ts";
import type { Joiner, LiveDelivery, LiveEnd, PeerJoin, PeerService, Peers } from "./live.ts";
import { frameSlackBytes, type PeerEnd, type PeerFrame, type PeerQuestion, peerVersion } from "./peer-frames.ts";
import { createLink, type Link, type LinkLimits, type LinkSocket, linkSocketEvents } from "./peer-link.ts";

export type PeerLimits = Omit<LinkLimits, "queuedBytesMax"> & {
  readonly helloMs: number;
  readonly claimMs: number;
  readonly joinMs: number;
  /** Envelopes at one peer that it has not answered, in bytes; beyond it they go on to the next destination. */
  readonly bytesOutMax: number;
  /** DIDs that are known to listen at one peer. */
  readonly presenceMax: number;
  /** The pause before a dial grows from one to the other, until a link has lasted for `steadyMs`. */
  readonly redialMsMin: number;
  readonly redialMsMax: number;
  readonly steadyMs: number;
};

export const peerLimits: Omit<PeerLimits, "frameBytesMax" | "presenceMax" | "joinMs"> = {
  questionsMax: 4_096,
  pingMs: 1_000,
  silentMs: 3_000,
  helloMs: 2_000,
  claimMs: 4_500,
  bytesOutMax: 64 * 1024 ** 2,
  redialMsMin: 100,
  redialMsMax: 1_000,
  steadyMs: 5_000,
};

export type PeerParts = {
  /** `unix:/path`, as the peers have it. */
  readonly address: string;
  readonly peers: readonly string[];
  readonly limits: PeerLimits;
  readonly log: Log;
};

/** Connections that have not said who they are. */
const strangersMax = 64;
/** What frames other than deliveries and presence may take of the queue, and what one frame of presence takes. */
const queueSlackBytes = 16 * 1024 ** 2;
const presenceBytes = 256;
const linkedPollMs = 20;
const complaintMs = 60_000;
const complaintsMax = 64;

/** A peer while it is linked; everything in it ends with the link. */
type Linked = {
  readonly peer: Peer;
  readonly link: Link;
  /** Longest frame that the peer takes. */
  readonly bytesMax: number;
  readonly sinceMs: number;
  readonly presence: Map<Did, number>;
  /** Joins of the peer for which deliveries are held back here. */
  readonly holds: Map<number, () => void>;
  bytesOut: number;
};

type Peer = {
  readonly address: string;
  linked: Linked | null;
  redialMs: number;
  timer: ReturnType<typeof setTimeout> | null;
};

type Mesh = PeerParts & {
  readonly linkLimits: LinkLimits;
  readonly known: ReadonlyMap<string, Peer>;
  readonly strangers: Set<Link>;
  service: PeerService | null;
  /** Takes no more connections. */
  deaf: () => void;
  closed: boolean;
  /** What was said of which peer, and until when it is not said again. */
  readonly complaints: Map<string, number>;
};

export function createPeers(parts: PeerParts): Peers {
  const { limits } = parts;
  const known = parts.peers.map((address): [string, Peer] => [
    address,
    { address, linked: null, redialMs: limits.redialMsMin, timer: null },
  ]);
  const mesh: Mesh = {
    ...parts,
    linkLimits: { ...limits, queuedBytesMax: queuedBytesMax(limits) },
    known: new Map(known),
    strangers: new Set(),
    service: null,
    deaf: () => undefined,
    closed: false,
    complaints: new Map(),
  };
  return {
    start: (service) => start(mesh, service),
    async linked(timeoutMs) {
      const endsAtMs = performance.now() + timeoutMs;
      while (linkedOf(mesh).length < known.length && performance.now() < endsAtMs) await Bun.sleep(linkedPollMs);
    },
    sessionsOf: (did) => linkedOf(mesh).reduce((sum, { presence }) => sum + (presence.get(did) ?? 0), 0),
    claim: (tag, untilMs) => claim(mesh, tag, untilMs),
    join: (joiner) => askToJoin(mesh, joiner),
    deliver: (delivery) =>
      linkedOf(mesh)
        .filter(({ presence }) => presence.has(delivery.envelope.to))
        .map((linked) => deliverTo(mesh, linked, delivery)),
    announce(did, sessions) {
      for (const { link } of linkedOf(mesh)) link.send({ kind: "presence", did, sessions });
    },
    stats: () =>
      [...mesh.known.values()].map(({ address, linked }) => ({
        address,
        linked: linked !== null,
        sessions: [...(linked?.presence.values() ?? [])].reduce((sum, sessions) => sum + sessions, 0),
      })),
    close: () => close(mesh),
  };
}

function queuedBytesMax({ bytesOutMax, frameBytesMax, presenceMax }: PeerLimits): number {
  return bytesOutMax + frameBytesMax + presenceMax * presenceBytes + queueSlackBytes;
}

function linkedOf(mesh: Mesh): Linked[] {
  return [...mesh.known.values()].flatMap(({ linked }) => (linked === null ? [] : [linked]));
}

// --------------------------------------------------------------------------------------------- asking peers

async function claim(mesh: Mesh, tag: string, untilMs: number): Promise<boolean> {
  const asked = linkedOf(mesh).map(({ link }) => link.ask({ kind: "claim", tag, untilMs }, mesh.limits.claimMs).end);
  const ends = await Promise.all(asked);
  if (ends.includes("no")) return false;
  if (ends.every((end) => end === "yes" || end === "lost")) return true;
  throw new StoreError("unavailable", "a peer can't tell whether it has seen the nonce");
}

function askToJoin(mesh: Mesh, joiner: Joiner): PeerJoin | null {
  const asked = linkedOf(mesh).map(({ link }) => ({
    link,
    ...link.ask({ kind: "join", ...joiner }, mesh.limits.joinMs),
  }));
  if (asked.length === 0) return null;
  return {
    welcome: Promise.all(asked.map(({ end }) => end)).then((ends) => !ends.includes("no")),
    done: () => {
      for (const { link, id } of asked) link.send({ kind: "joined", id });
    },
  };
}

async function deliverTo(mesh: Mesh, linked: Linked, delivery: LiveDelivery): Promise<LiveEnd> {
  const { envelope, grants } = delivery;
  const size = envelope.bytes.length;
  const full = linked.bytesOut > 0 && linked.bytesOut + size > mesh.limits.bytesOutMax;
  if (full || size + frameSlackBytes > linked.bytesMax) return "gone";
  linked.bytesOut += size;
  const { to, messageId, bytes } = envelope;
  const timeoutMs = Math.floor(delivery.timeoutMs);
  const { end } = linked.link.ask({ kind: "deliver", to, messageId, timeoutMs, grants, bytes }, timeoutMs);
  const how = await end;
  linked.bytesOut -= size;
  if (how === "acknowledged" || how === "silent") return how;
  return how === "late" ? "silent" : "gone";
}

// ------------------------------------------------------------------------------------------- serving peers

function serve(mesh: Mesh, linked: Linked, frame: PeerFrame): void {
  switch (frame.kind) {
    case "presence":
      if (frame.sessions === 0) linked.presence.delete(frame.did);
      else if (linked.presence.has(frame.did) || linked.presence.size < mesh.limits.presenceMax)
        linked.presence.set(frame.did, frame.sessions);
      return;
    case "joined":
      linked.holds.get(frame.id)?.();
      linked.holds.delete(frame.id);
      return;
    case "claim":
    case "join":
    case "deliver":
      if (mesh.service !== null) void answer(mesh.service, linked, frame);
      return;
    default:
      linked.link.end(`it sends ${frame.kind} when it is linked`);
  }
}

async function answer(service: PeerService, linked: Linked, question: PeerQuestion): Promise<void> {
  const end = await endOf(service, linked, question);
  linked.link.send({ kind: "answer", id: question.id, end });
}

async function endOf(service: PeerService, linked: Linked, question: PeerQuestion): Promise<PeerEnd> {
  switch (question.kind) {
    case "claim":
      return service.claim(question.tag, question.untilMs).then(
        (won) => (won ? "yes" : "no"),
        (error: unknown) => {
          if (!(error instanceof StoreError)) throw error;
          return "unavailable";
        },
      );
    case "join": {
      const { did, deviceId, key } = question;
      const held = service.hold({ did, deviceId, key });
      if (held === null) return "no";
      linked.holds.set(question.id, held.release);
      await held.settled;
      return "yes";
    }
    case "deliver": {
      const { to, messageId, bytes, grants, timeoutMs } = question;
      return service.deliver({ envelope: { to, messageId, bytes }, grants, timeoutMs });
    }
  }
}

// ------------------------------------------------------------------------------------------- making links

function start(mesh: Mesh, service: PeerService): void {
  mesh.service = service;
  // The file is made with mode 0600: nobody but this user may connect, not even for a moment.
  const mask = process.umask(0o177);
  try {
    const socket = linkSocketEvents((socket) => meet(mesh, socket, null));
    const listener = Bun.listen<LinkSocket>({ unix: pathOf(mesh.address), socket });
    mesh.deaf = () => listener.stop();
  } finally {
    process.umask(mask);
  }
  for (const peer of mesh.known.values()) if (dials(mesh, peer)) dial(mesh, peer);
}

function pathOf(address: string): string {
  return address.slice("unix:".length);
}

function dials(mesh: Mesh, peer: Peer): boolean {
  return mesh.address < peer.address;
}

function dial(mesh: Mesh, peer: Peer): void {
  peer.timer = null;
  const socket = linkSocketEvents((socket) => meet(mesh, socket, peer));
  Bun.connect<LinkSocket>({ unix: pathOf(peer.address), socket }).catch((error: unknown) => {
    const code = error instanceof Error && "code" in error ? ` (${error.code})` : "";
    complain(mesh, peer.address, `it can't be reached${code}`);
    redial(mesh, peer);
  });
}

function redial(mesh: Mesh, peer: Peer): void {
  if (mesh.closed || peer.timer !== null) return;
  peer.timer = setTimeout(() => dial(mesh, peer), peer.redialMs);
  peer.redialMs = Math.min(2 * peer.redialMs, mesh.limits.redialMsMax);
}

/** A connection, from its beginning to its end. */
type Meeting = {
  /** `null` when the other has dialed. */
  readonly dialed: Peer | null;
  /** Whom a refused stranger says to be. */
  stranger: string | null;
  linked: Linked | null;
};

/** Nothing counts before a hello that fits, and what the hello brought about ends with the connection. */
function meet(mesh: Mesh, socket: Socket<LinkSocket>, dialed: Peer | null): void {
  if (mesh.closed || (dialed === null && mesh.strangers.size >= strangersMax)) {
    socket.terminate();
    return;
  }
  const meeting: Meeting = { dialed, stranger: null, linked: null };
  const link = createLink(socket, mesh.linkLimits, {
    frame: (frame) => {
      if (meeting.linked !== null) serve(mesh, meeting.linked, frame);
      else introduce(mesh, meeting, { link, frame });
    },
    ended: (reason) => {
      clearTimeout(late);
      mesh.strangers.delete(link);
      const name = dialed?.address ?? meeting.stranger;
      if (meeting.linked !== null) part(mesh, meeting.linked, reason);
      else if (name !== null) complain(mesh, name, reason);
      if (dialed !== null) redial(mesh, dialed);
    },
  });
  const late = setTimeout(() => {
    if (meeting.linked === null) link.end("it says no hello");
  }, mesh.limits.helloMs);
  mesh.strangers.add(link);
  if (dialed !== null) link.send(helloOf(mesh));
}

function helloOf({ address, limits }: Mesh): PeerFrame {
  return { kind: "hello", version: peerVersion, from: address, bytesMax: limits.frameBytesMax };
}

type Opening = { readonly link: Link; readonly frame: PeerFrame };

function introduce(mesh: Mesh, meeting: Meeting, { link, frame }: Opening): void {
  if (frame.kind !== "hello") {
    link.end(frame.kind === "refuse" ? `it refuses this process: ${frame.reason}` : "it says no hello");
    return;
  }
  const peer = meeting.dialed ?? mesh.known.get(frame.from) ?? null;
  const refusal = refusalOf(mesh, meeting, frame);
  if (peer === null || refusal !== null) {
    const reason = refusal ?? "it is not in relay.peers";
    meeting.stranger = frame.from;
    link.end(reason, { kind: "refuse", reason });
    return;
  }
  // It has begun anew, and the end of the old link has not been seen yet.
  peer.linked?.link.end("it has a newer link");
  mesh.strangers.delete(link);
  const { bytesMax } = frame;
  const sinceMs = performance.now();
  meeting.linked = { peer, link, bytesMax, sinceMs, presence: new Map(), holds: new Map(), bytesOut: 0 };
  peer.linked = meeting.linked;
  mesh.log("info", "a peer is linked", { peer: peer.address });
  if (meeting.dialed === null) link.send(helloOf(mesh));
  for (const [did, sessions] of mesh.service?.listeners() ?? []) link.send({ kind: "presence", did, sessions });
}

function refusalOf(mesh: Mesh, { dialed }: Meeting, hello: PeerFrame & { readonly kind: "hello" }): string | null {
  const { version, from } = hello;
  if (version !== peerVersion) return `it has version ${version} of the link, and this process ${peerVersion}`;
  if (dialed !== null) return from === dialed.address ? null : "it answers under another address";
  return from < mesh.address ? null : "it should have waited to be dialed";
}

/** Everything that was known of the peer ends with its link; what was asked of it has ended already. */
function part(mesh: Mesh, linked: Linked, reason: string): void {
  const { peer, holds, sinceMs } = linked;
  for (const release of holds.values()) release();
  holds.clear();
  if (peer.linked === linked) peer.linked = null;
  if (performance.now() - sinceMs > mesh.limits.steadyMs) peer.redialMs = mesh.limits.redialMsMin;
  if (!mesh.closed) mesh.log("warn", "a peer is gone", { peer: peer.address, reason });
}

/** A peer that is configured wrongly comes again and again: the same is said once a minute. */
function complain(mesh: Mesh, peer: string, reason: string): void {
  const text = `${peer} ${reason}`;
  const nowMs = performance.now();
  if (mesh.closed || nowMs < (mesh.complaints.get(text) ?? 0)) return;
  if (mesh.complaints.size >= complaintsMax) mesh.complaints.clear();
  mesh.complaints.set(text, nowMs + complaintMs);
  mesh.log("warn", "a peer can't be linked", { peer, reason });
}

function close(mesh: Mesh): void {
  mesh.closed = true;
  mesh.deaf();
  for (const { timer, linked } of mesh.known.values()) {
    if (timer !== null) clearTimeout(timer);
    linked?.link.end("this process is closing");
  }
  for (const link of [...mesh.strangers]) link.end("this process is closing");
}
