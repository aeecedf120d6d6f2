/**
 * Which subjects the other processes on a bus have subscribed to. A live session has two subjects; if the server of the
 * bus knew each, one would cost 6 KB here and 1 KB there, and each message for a recipient without a session a round
 * trip. So a process has one subscription at the server, and processes tell each other their subjects:
 * - A subscription is ready when every process that is known has heard of it.
 * - Every process says now and then how many subjects it has, with a checksum. Who knows others asks for all of them, so
 *   that whatever was lost is known again some seconds later.
 * - A process that does not answer is forgotten until it says so again. It then learns that it missed messages.
 * Subjects are numbers of 53 bits (`numberOf`). Of two with one number, the other process finds no handler.
 */
import { BoundedMap, withDeadline } from "../../core/std/bounded.ts";
import { busReadyMsMax } from "../../storage/bus.ts";

/** What processes tell each other. `from` is the sender. */
export type PeerMessage =
  /**
   * `greets`: it was not connected before, and wants to know what the receiver has. `lost`: what it published until now
   * may not have arrived.
   */
  | {
      readonly type: "hello";
      readonly from: string;
      readonly sum: string;
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
    }
  | {
      readonly type: "change";
      readonly from: string;
      readonly added: number[];
      readonly dropped: number[];
    };

type PeerLink = {
  /** `to`: one process, or all. */
  readonly send: (to: string | "all", message: PeerMessage) => void;
  /** Whether the process has received it. */
  readonly tell: (to: string, message: PeerMessage, msMax: number) => Promise<boolean>;
  /** Messages for this process may have been lost. */
  readonly onMissed: () => void;
};

/** Subjects of one message: 36 KB. */
const pageSubjects = 2_048;
export const helloMs = 10_000;
const forgottenAfterMs = 3.5 * helloMs;
const forgottenMax = 1_000;

function numberOf(subject: string): number {
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

  /** Those of a page; a page has the same subjects however many others come and go. */
  page(page: number, pages: number): number[] {
    return [...this.numbers].filter((no) => no % pages === page);
  }
}

type Peer = { readonly has: SubjectSet; heardAtMs: number };
type Batch = {
  readonly changed: Set<number>;
  readonly announced: Promise<void>;
  readonly done: () => void;
};

export class Peers {
  private readonly own = new SubjectSet();
  private readonly peers = new Map<string, Peer>();
  /** Processes that may return: until then, nothing is sent to them. */
  private readonly forgotten = new BoundedMap<string, true>(forgottenMax);
  /** Changes of this turn of the event loop. */
  private batch: Batch | null = null;
  private lastAnnounced: Promise<void> = Promise.resolve();

  constructor(
    private readonly id: string,
    private readonly link: PeerLink,
  ) {}

  /** Known processes that have subscribed to the subject. */
  following(subject: string): string[] {
    if (this.peers.size === 0) return [];
    const no = numberOf(subject);
    return [...this.peers].filter(([, { has }]) => has.has(no)).map(([peer]) => peer);
  }

  /** Resolves when every known process has heard of it, or a second later. */
  follow(subject: string): Promise<void> {
    const no = numberOf(subject);
    return this.own.add(no) ? this.change(no) : (this.batch?.announced ?? this.lastAnnounced);
  }

  unfollow(subject: string): void {
    const no = numberOf(subject);
    if (this.own.delete(no)) void this.change(no);
  }

  forget(peer: string): void {
    if (this.peers.delete(peer)) this.forgotten.set(peer, true);
  }

  /** For a new connection. What was heard before it is no reason to forget anybody. */
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
    const peer = known ?? { has: new SubjectSet(), heardAtMs: 0 };
    peer.heardAtMs = performance.now();
    this.peers.set(message.from, peer);
    if (message.type === "hello") {
      if (message.lost) this.link.onMissed();
      if (message.greets || known === undefined) this.hello(message.from);
      if (peer.has.sum !== message.sum) this.want(message.from, peer);
    } else if (message.type === "want") {
      if (message.knewSome) this.link.onMissed();
      this.sendAll(message.from);
    } else if (message.type === "all") {
      for (const no of peer.has.page(message.page, message.pages)) peer.has.delete(no);
      for (const no of message.has) peer.has.add(no);
    } else {
      for (const no of message.dropped) peer.has.delete(no);
      for (const no of message.added) peer.has.add(no);
      if (known === undefined) this.want(message.from, peer);
    }
  }

  /** Behind the changes that its sum counts, so that nobody asks for them. */
  private hello(to: string | "all", { greets = false, lost = false } = {}): void {
    this.tellBatch();
    this.link.send(to, { type: "hello", from: this.id, sum: this.own.sum, greets, lost });
  }

  private want(of: string, { has }: Peer): void {
    const knewSome = this.forgotten.delete(of) || has.size > 0;
    this.link.send(of, { type: "want", from: this.id, knewSome });
  }

  private sendAll(to: string): void {
    const pages = Math.max(1, Math.ceil(this.own.size / pageSubjects));
    for (let page = 0; page < pages; page++)
      this.link.send(to, {
        type: "all",
        from: this.id,
        page,
        pages,
        has: this.own.page(page, pages),
      });
  }

  private change(no: number): Promise<void> {
    this.batch ??= this.newBatch();
    this.batch.changed.add(no);
    return this.batch.announced;
  }

  private newBatch(): Batch {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.lastAnnounced = promise;
    setImmediate(() => this.tellBatch());
    return { changed: new Set(), announced: promise, done: resolve };
  }

  private tellBatch(): void {
    const { batch } = this;
    this.batch = null;
    if (batch !== null) void this.tellAll([...batch.changed]).then(batch.done);
  }

  private async tellAll(changed: readonly number[]): Promise<void> {
    const added = changed.filter((no) => this.own.has(no));
    const dropped = changed.filter((no) => !this.own.has(no));
    const message: PeerMessage = { type: "change", from: this.id, added, dropped };
    const telling = [...this.peers.keys()].map(async (peer) => {
      if (!(await this.link.tell(peer, message, busReadyMsMax))) this.forget(peer);
    });
    await withDeadline(Promise.all(telling), busReadyMsMax);
  }
}
