/**
 * Which subjects the other processes on a bus have subscribed to. A live session has two
 * subjects; if the server of the bus knew each, one would cost 6 KB here and 1 KB there,
 * and each message for a recipient without a session a round trip. So a process has one
 * subscription at the server, and processes announce their subjects to each other:
 * - What changes within a short time is one message to all, with a number. The first change
 *   of a while goes at once. What only ends waits for what begins, or for a second: until
 *   then a message for it finds no handler.
 * - A subscription is ready when every process that is known has confirmed the message that
 *   announces it.
 * - Every process says now and then how many subjects it has, with a checksum. Who knows
 *   others, or misses a number, asks for all of them, so that whatever was lost is known
 *   again some seconds later.
 * - A process that confirms nothing is forgotten until it says hello again. It then learns
 *   that it missed messages. Subjects are numbers of 53 bits (`subjectNumber`). If two
 *   subjects share a number, a process without a handler drops the message.
 */
import { BoundedMap } from "../../core/std/bounded.ts";
import { busReadyMsMax } from "../../storage/bus.ts";

/** What processes announce to each other. `from` is the sender. */
export type PeerMessage =
  /**
   * `greets`: it was not connected before, and wants to know what the receiver has. `lost`:
   * what it published until now may not have arrived.
   */
  | {
      readonly type: "hello";
      readonly from: string;
      readonly sum: string;
      /** The number of the last change that the sum counts. */
      readonly seq: number;
      readonly greets: boolean;
      readonly lost: boolean;
    }
  | { readonly type: "want"; readonly from: string; readonly knewSome: boolean }
  | {
      readonly type: "all";
      readonly from: string;
      readonly page: number;
      readonly pages: number;
      readonly has: number[];
      /** The number of the last change that it counts. */
      readonly seq: number;
    }
  /** What was added is confirmed. */
  | {
      readonly type: "change";
      readonly from: string;
      readonly seq: number;
      readonly added: number[];
      readonly dropped: number[];
    }
  /** Confirms all changes of the receiver up to this number. */
  | { readonly type: "heard"; readonly from: string; readonly seq: number };

type PeerLink = {
  /**
   * `to`: one process, or all others. `false` without a connection: the next greeting then
   * says everything.
   */
  readonly send: (to: string | "all", message: PeerMessage) => boolean;
  /** Messages for this process may have been lost. */
  readonly onMissed: () => void;
};

type PeerTimes = {
  /**
   * Between two messages about changes: each costs every other process some 100 µs,
   * whatever it says.
   */
  readonly batchMs: number;
  /** How much longer what only ends may wait. */
  readonly endsMs: number;
  /** How long a process may take to confirm one. */
  readonly heardMsMax: number;
};

const peerTimes: PeerTimes = { batchMs: 300, endsMs: 1_000, heardMsMax: busReadyMsMax };

/** Subjects of one message: 36 KB. */
const pageSubjects = 2_048;
export const helloMs = 10_000;
const forgottenAfterMs = 3.5 * helloMs;
const forgottenMax = 1_000;

function subjectNumber(subject: string): number {
  return Number(Bun.hash.xxHash64(subject) >> 11n);
}

class SubjectSet {
  private readonly numbers = new Set<number>();
  private mixed = 0;

  get size(): number {
    return this.numbers.size;
  }

  /** Two sets with one sum are the same. */
  get sum(): string {
    return `${this.numbers.size} ${this.mixed}`;
  }

  has(no: number): boolean {
    return this.numbers.has(no);
  }

  add(no: number): boolean {
    if (this.numbers.has(no)) return false;
    this.numbers.add(no);
    this.mixed ^= no % 2 ** 32;
    return true;
  }

  delete(no: number): boolean {
    if (!this.numbers.delete(no)) return false;
    this.mixed ^= no % 2 ** 32;
    return true;
  }

  /** All, in pages of one message each; the last may be empty. */
  pages(): number[][] {
    const pages: number[][] = [[]];
    for (const no of this.numbers) {
      if (pages.at(-1)!.length >= pageSubjects) pages.push([]);
      pages.at(-1)!.push(no);
    }
    return pages;
  }
}

/** `arriving`: the pages so far of an answer with all subjects. */
type BusPeer = { has: SubjectSet; arriving: SubjectSet; seq: number; heardAtMs: number };
type SubjectBatch = {
  readonly changed: Set<number>;
  /** By `performance.now()`. */
  dueMs: number;
  readonly announced: Promise<void>;
  readonly done: () => void;
};
/** Processes that have not confirmed a batch yet. */
type Unheard = {
  readonly by: Set<string>;
  readonly done: () => void;
  readonly timer: ReturnType<typeof setTimeout>;
};

export class Peers {
  private readonly own = new SubjectSet();
  private readonly peers = new Map<string, BusPeer>();
  /** Processes that may return: until then, nothing is sent to them. */
  private readonly forgotten = new BoundedMap<string, true>(forgottenMax);
  /** Changes that no message has said yet. */
  private batch: SubjectBatch | null = null;
  private batchDue: ReturnType<typeof setTimeout> | null = null;
  private sentAtMs = Number.NEGATIVE_INFINITY;
  private seq = 0;
  private readonly unheard = new Map<number, Unheard>();
  private lastAnnounced: Promise<void> = Promise.resolve();

  constructor(
    private readonly id: string,
    private readonly link: PeerLink,
    private readonly times: PeerTimes = peerTimes,
  ) {}

  /** Known processes that have subscribed to the subject. */
  following(subject: string): string[] {
    if (this.peers.size === 0) return [];
    const no = subjectNumber(subject);
    return [...this.peers].filter(([, { has }]) => has.has(no)).map(([peer]) => peer);
  }

  /** Resolves when every known process has confirmed it, or a second later. */
  follow(subject: string): Promise<void> {
    const no = subjectNumber(subject);
    if (!this.own.add(no)) return this.batch?.announced ?? this.lastAnnounced;
    return this.change(no, this.nextMs());
  }

  unfollow(subject: string): void {
    const no = subjectNumber(subject);
    if (this.own.delete(no)) void this.change(no, this.nextMs() + this.times.endsMs);
  }

  forget(peer: string): void {
    if (this.peers.delete(peer)) this.forgotten.set(peer, true);
    this.hear(peer, Number.POSITIVE_INFINITY);
  }

  /** Ends what waits for others. */
  close(): void {
    if (this.batchDue !== null) clearTimeout(this.batchDue);
    this.batch?.done();
    for (const [seq, one] of this.unheard) this.endWait(seq, one);
  }

  /** For a new connection. Silence before it is not a reason to forget a peer. */
  greet(): void {
    for (const peer of this.peers.values()) peer.heardAtMs = performance.now();
    this.hello("all", { greets: true });
  }

  /** After an outage, when nothing is dropped any more. */
  announceLoss(): void {
    this.hello("all", { lost: true });
  }

  /** Every `helloMs`. */
  sayHello(): void {
    for (const [name, { heardAtMs }] of this.peers)
      if (performance.now() - heardAtMs > forgottenAfterMs) this.forget(name);
    this.hello("all");
  }

  receive(message: PeerMessage): void {
    if (message.from === this.id) return;
    const known = this.peers.get(message.from);
    if (message.type === "heard") {
      if (known !== undefined) known.heardAtMs = performance.now();
      this.hear(message.from, message.seq);
      return;
    }
    const peer = known ?? newPeer();
    peer.heardAtMs = performance.now();
    this.peers.set(message.from, peer);
    if (message.type === "hello") {
      if (message.lost) this.link.onMissed();
      if (message.greets || known === undefined) this.hello(message.from);
      if (peer.has.sum === message.sum) peer.seq = message.seq;
      else this.want(message.from, peer);
    } else if (message.type === "want") {
      if (message.knewSome) this.link.onMissed();
      this.sendAll(message.from);
    } else if (message.type === "all") takePage(peer, message);
    else this.takeChange(peer, message, known === undefined);
  }

  private takeChange(
    peer: BusPeer,
    { from, seq, added, dropped }: Extract<PeerMessage, { readonly type: "change" }>,
    isNew: boolean,
  ): void {
    if (isNew || seq !== peer.seq + 1) this.want(from, peer);
    peer.seq = seq;
    for (const no of dropped) peer.has.delete(no);
    for (const no of added) peer.has.add(no);
    if (added.length > 0) this.link.send(from, { type: "heard", from: this.id, seq });
  }

  /** Behind the changes that its sum counts, so that no one asks for them. */
  private hello(to: string | "all", { greets = false, lost = false } = {}): void {
    this.sendBatch();
    this.link.send(to, {
      type: "hello",
      from: this.id,
      sum: this.own.sum,
      seq: this.seq,
      greets,
      lost,
    });
  }

  private want(of: string, { has }: BusPeer): void {
    const knewSome = this.forgotten.delete(of) || has.size > 0;
    this.link.send(of, { type: "want", from: this.id, knewSome });
  }

  /** In one turn, so that no change comes between two pages. */
  private sendAll(to: string): void {
    this.sendBatch();
    const { id: from, seq } = this;
    const all = this.own.pages();
    for (const [page, has] of all.entries())
      this.link.send(to, { type: "all", from, page, pages: all.length, has, seq });
  }

  private change(no: number, dueMs: number): Promise<void> {
    this.batch ??= this.newBatch();
    this.batch.changed.add(no);
    if (dueMs < this.batch.dueMs) {
      this.batch.dueMs = dueMs;
      if (this.batchDue !== null) clearTimeout(this.batchDue);
      const leftMs = Math.max(0, dueMs - performance.now());
      this.batchDue = setTimeout(() => this.sendBatch(), leftMs);
    }
    return this.batch.announced;
  }

  private newBatch(): SubjectBatch {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.lastAnnounced = promise;
    const dueMs = Number.POSITIVE_INFINITY;
    return { changed: new Set(), dueMs, announced: promise, done: resolve };
  }

  /**
   * When the next batch may go, by `performance.now()`: at the end of this turn of the
   * event loop at least.
   */
  private nextMs(): number {
    const { batchMs } = this.times;
    const nowMs = performance.now();
    if (nowMs - this.sentAtMs >= batchMs) return nowMs;
    // All processes at one time: who gets the messages of the others wakes once.
    return nowMs + batchMs - (Date.now() % batchMs);
  }

  private sendBatch(): void {
    const { batch } = this;
    if (batch === null) return;
    if (this.batchDue !== null) clearTimeout(this.batchDue);
    this.batch = null;
    this.sentAtMs = performance.now();
    const [added, dropped]: [number[], number[]] = [[], []];
    for (const no of batch.changed) (this.own.has(no) ? added : dropped).push(no);
    const seq = ++this.seq;
    if (added.length > 0 && this.peers.size > 0) this.awaitHeard(seq, batch.done);
    else batch.done();
    const sent = this.link.send("all", { type: "change", from: this.id, seq, added, dropped });
    const waiting = this.unheard.get(seq);
    if (!sent && waiting !== undefined) this.endWait(seq, waiting);
  }

  private awaitHeard(seq: number, done: () => void): void {
    const by = new Set(this.peers.keys());
    const timer = setTimeout(() => {
      for (const peer of by) this.forget(peer);
    }, this.times.heardMsMax);
    this.unheard.set(seq, { by, done, timer });
  }

  private hear(peer: string, upTo: number): void {
    for (const [seq, one] of this.unheard) {
      if (seq > upTo) break;
      if (one.by.delete(peer) && one.by.size === 0) this.endWait(seq, one);
    }
  }

  private endWait(seq: number, { done, timer }: Unheard): void {
    clearTimeout(timer);
    this.unheard.delete(seq);
    done();
  }
}

function newPeer(): BusPeer {
  return { has: new SubjectSet(), arriving: new SubjectSet(), seq: 0, heardAtMs: 0 };
}

/** Counts once all pages have come; where one was lost, the next hello asks again. */
function takePage(
  peer: BusPeer,
  { page, pages, has, seq }: Extract<PeerMessage, { readonly type: "all" }>,
): void {
  if (page === 0) peer.arriving = new SubjectSet();
  for (const no of has) peer.arriving.add(no);
  if (page < pages - 1) return;
  peer.has = peer.arriving;
  peer.arriving = new SubjectSet();
  peer.seq = seq;
}
