/**
 * Continuous receiving into memory: messages of live sessions and those that wait in the Caches, each once. Only the
 * program acknowledges. A message that can't be opened is an event; other messages still arrive.
 * Source: docs/client.md "Receiving", interface "Cache", rules sections 5 and 6.
 */
import { hourMs, minuteMs } from "../core/codec/time.ts";
import { Waiters } from "../core/std/bounded.ts";
import {
  type CacheClient,
  chunkOf,
  type EnvelopeCopy,
  expiryOf,
  isComplete,
  type LiveEnvelope,
  listPending,
  localCopy,
  messageIdsOf,
  nameOf,
  type PendingMessage,
  passedCopy,
  type ReceivedBefore,
  splitReceived,
  versionsOf,
} from "./caches.ts";
import type { Client } from "./client.ts";
import { type PollResult, stayConnected, Wakeup } from "./connections.ts";
import { attempt, ClientError, pause } from "./http.ts";
import { agreementSecrets, type Identity } from "./keys.ts";
import { type Message, type MessageActions, messageOf, noteIn, type WaypostEvent } from "./message.ts";
import {
  acknowledge,
  isUnreadable,
  type MessageFacts,
  type Recipient,
  readMessage,
  recipientOf,
  removeUnread,
} from "./retrieve.ts";

/** What the receiver needs of the identity it receives for. */
type ReceiverHost = {
  readonly client: Client;
  readonly identity: () => Identity;
  /** Names the live session; a second session of the same device replaces the first. */
  readonly device: string;
  readonly emit: (event: WaypostEvent) => void;
  /** Pause between two reads of the Caches when nothing wakes. */
  readonly pollMs: number;
  readonly send: MessageActions["send"];
  readonly onAcked: (facts: MessageFacts) => void;
  /** Saves a message that the program acknowledges, before its copies are removed. */
  readonly onAck?: (version: PendingMessage, opened: OpenedMessage) => Promise<void>;
  /** Replaces the published key when it is due; with `force` it also looks for replacements by other devices. */
  readonly refreshKeys: (force: boolean) => Promise<void>;
  /** Keeps what is received between runs; without it, messages are in memory, and known for one run. */
  readonly storage?: ReceiverStorage;
};

/** `read` stores a message safely before it returns; what it returns is absorbed. */
export type ReceiverStorage = ReceivedBefore & {
  /** Every message that was read is in it: nothing is handed over. */
  readonly isKeeping: boolean;
  /** How long a live message may take to be read; `liveAckMs` when it isn't given. */
  readonly waitMs?: number;
  readonly read: typeof readMessage;
  readonly onLeft: (left: Left) => void;
};

/** What a poll leaves for a later one, by the address of a Cache or the id of a message. */
type Left =
  | { readonly type: "incomplete"; readonly message: PendingMessage }
  | { readonly type: "failed" | "unacknowledged"; readonly what: string; readonly error: ClientError };

export const pollMsDefault = 30_000;
/** Messages that are opened and not yet read by the program. */
const queuedMax = 32;
/** How long the sender of a live message waits for the program to acknowledge it. */
const liveAckMs = 500;
/** How long it waits for a poll of the Caches, when something of the same sender may wait there. */
const behindMs = 200;
const behindStepMs = 10;
/** How long a Relay may take to give an envelope that was passed to a Cache. */
const passedMs = 5_000;
const passedMax = 1_000;
const refreshMs = hourMs;
/** Most names of messages remembered as known; expired ones are forgotten first. */
const knownMax = 200_000;
/** Longest wait for acknowledgements under way. */
const stopMs = 2_000;

type Known = {
  state: "queued" | "acked" | "unreadable";
  readonly untilMs: number;
  readonly digests: ReadonlySet<string>;
  /** In Caches; none while only a live session brought it. */
  copies: readonly EnvelopeCopy[];
  readonly sinceMs: number;
  /** Aborted when it is acknowledged: ends the wait of live sessions. */
  readonly acked: AbortController;
};

export type OpenedMessage = Awaited<ReturnType<typeof readMessage>>;

export class Receiver {
  readonly #host: ReceiverHost;
  readonly #recipient: Recipient;
  readonly #queue = new Queue<Message>(queuedMax);
  /** By the digests and the ids of their envelopes; of an id the last one. */
  readonly #known = new Map<string, Known>();
  readonly #before: ReceivedBefore = {
    has: (name) => this.#known.has(name) || (this.#host.storage?.has(name) ?? false),
  };
  readonly #digests = new Map<string, string>();
  readonly #news = new Wakeup();
  #caches: readonly CacheClient[] = [];
  /** How many live sessions have begun, and how many of them before the last poll: what came earlier waits in a Cache. */
  #sessions = 1;
  #sessionsPolled = 0;
  #isPolling = false;
  /** A Cache could not be read: live sessions don't wait for it. */
  #isBlind = false;
  /** The last envelope of each sender that was passed unopened, and until when a Cache may be about to get it. */
  readonly #passed = new Map<unknown, { readonly messageId: string; readonly untilMs: number }>();
  #isAwaitingPassed = false;
  /** The program acknowledges late: senders don't wait for it. */
  #isLate = false;
  readonly #stop = new AbortController();
  /** Acknowledgements under way of messages that the SDK took for itself. */
  readonly #acking = new Set<Promise<unknown>>();
  #loops: Promise<unknown> = Promise.resolve();
  #failure: unknown = null;
  #refreshedMs = Number.NEGATIVE_INFINITY;

  constructor(host: ReceiverHost) {
    this.#host = host;
    const { client, identity } = host;
    // Keys are replaced while it receives.
    const secretsOf = (keyId: string) => agreementSecrets(identity(), keyId);
    this.#recipient = { ...recipientOf(client, identity()), secretsOf };
  }

  start(): void {
    this.#loops = this.#run().catch((error: unknown) => {
      this.#failure = error;
      this.#stop.abort();
      this.#queue.close();
    });
  }

  /** The next message; `null` after `stop`. Throws only for bugs. */
  async next(): Promise<Message | null> {
    const message = await this.#queue.take();
    if (this.#failure !== null) throw this.#failure;
    return message;
  }

  async stop(): Promise<void> {
    this.#queue.close();
    // Acknowledgements of events go out first, so that the next run does not report them again. One turn of the event
    // loop sends the frames of a session.
    await Promise.race([Promise.allSettled(this.#acking), pause(stopMs, this.#stop.signal)]);
    await pause(0, this.#stop.signal);
    this.#stop.abort();
    await this.#loops;
  }

  // ------------------------------------------------------------------------------------------------ loops

  async #run(): Promise<void> {
    const { client, identity, device, emit, pollMs } = this.#host;
    const connected = stayConnected(
      {
        ...{ client, identity, device, pollMs },
        emit: (event) => {
          if (event.type === "connected" && event.what === "live") this.#sessions++;
          emit(event);
        },
        news: this.#news,
        receiveWaiting: (caches) => this.poll(caches),
        receiveLive: (envelope) => this.#receiveLive(envelope),
      },
      this.#stop.signal,
    );
    await Promise.all([connected, this.#refresh()]);
  }

  async #refresh(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await pause(refreshMs, signal);
      if (!signal.aborted) await this.#host.refreshKeys(false);
    }
  }

  // ------------------------------------------------------------------------------------------------ Caches

  /** Receives what waits in the Caches. */
  async poll(caches: readonly CacheClient[]): Promise<PollResult> {
    this.#caches = caches;
    const sessions = this.#sessions;
    this.#isPolling = true;
    let isBlind = true;
    try {
      const result = await this.#receiveWaiting(caches);
      isBlind = result.unreachable.length > 0;
      return result;
    } finally {
      this.#isPolling = false;
      this.#isBlind = isBlind;
      this.#sessionsPolled = sessions;
    }
  }

  async #receiveWaiting(caches: readonly CacheClient[]): Promise<PollResult> {
    const { pending, unreachable } = await listPending(caches, this.#digests);
    this.#forgetExpired();
    const waiting: PendingMessage[] = [];
    const acked: EnvelopeCopy[] = [];
    for (const one of pending) {
      const { again, fresh } = await splitReceived(one, this.#before);
      // What an earlier run received was acknowledged then, but not everywhere.
      for (const copy of again) if (((await this.#join(copy))?.state ?? "acked") === "acked") acked.push(copy);
      if (isComplete(fresh)) waiting.push(fresh);
      else if (fresh.parts.length > 0 && again.length === 0) this.#leave({ type: "incomplete", message: fresh });
    }
    await this.#acknowledge(acked, this.#before);
    let isPartial = unreachable.length > 0;
    for (const one of waiting) {
      await this.#queue.space();
      if (this.#stop.signal.aborted) break;
      if (!(await this.#receive(one))) isPartial = true;
    }
    const listed = new Set(pending.flatMap(messageIdsOf).map((id) => id.toLowerCase()));
    for (const [sender, { messageId, untilMs }] of this.#passed)
      if (listed.has(messageId) || untilMs < performance.now()) this.#passed.delete(sender);
    return { isComplete: !isPartial, unreachable };
  }

  /** Remembers where a known message has a copy. */
  async #join(copy: EnvelopeCopy): Promise<Known | undefined> {
    const known = this.#known.get((await copy.digest()) ?? "");
    if (known === undefined) return undefined;
    const isOther = ({ cache, messageId }: EnvelopeCopy) => cache !== copy.cache || messageId !== copy.messageId;
    known.copies = [...known.copies.filter(isOther), copy];
    return known;
  }

  /** Opens what waits under one id and queues it, verified first. `false` when it could not be fetched now. */
  async #receive(pending: PendingMessage): Promise<boolean> {
    let complete = true;
    const opened: { readonly version: PendingMessage; readonly read: OpenedMessage }[] = [];
    const versions = await versionsOf(pending);
    for (const version of versions) {
      const read = await attempt(() => this.#open(version));
      if (!(read instanceof ClientError)) opened[read.verified === true ? "unshift" : "push"]({ version, read });
      else if (isUnreadable(read))
        await this.#reportUnreadable(version, { error: read, isAlone: versions.length === 1 });
      else {
        complete = false;
        this.#leave({ type: "failed", what: nameOf(version), error: read });
      }
    }
    for (const { version, read } of opened) this.#handOver(version, read);
    // One after the other: what is stored is acknowledged before the next is fetched.
    if (this.#host.storage?.isKeeping === true) await Promise.all(this.#acking);
    return complete;
  }

  async #open(version: PendingMessage): Promise<OpenedMessage> {
    const read = await attempt(() => this.#read(version));
    if (!(read instanceof ClientError)) return read;
    if (isUnreadable(read) && (await this.#refreshSoon())) return this.#read(version);
    throw read;
  }

  #read(version: PendingMessage): Promise<OpenedMessage> {
    return (this.#host.storage?.read ?? readMessage)(version, this.#recipient);
  }

  #leave(left: Left): void {
    this.#host.storage?.onLeft(left);
  }

  /** A Cache that can't be reached offers it again; the acknowledgement follows then. */
  async #acknowledge(copies: readonly EnvelopeCopy[], received: Pick<ReceivedBefore, "has">): Promise<void> {
    for (const { endpoint: what, error } of await acknowledge(copies, received))
      this.#leave({ type: "unacknowledged", what, error });
  }

  /** Another device may have replaced the key. Garbage must not cause a request for each of its messages. */
  async #refreshSoon(): Promise<boolean> {
    if (performance.now() - this.#refreshedMs < minuteMs) return false;
    this.#refreshedMs = performance.now();
    await this.#host.refreshKeys(true);
    return true;
  }

  /** Removing it spares every copy that may belong to another message. */
  async #reportUnreadable(
    version: PendingMessage,
    { error, isAlone }: { readonly error: ClientError; readonly isAlone: boolean },
  ): Promise<void> {
    const [first = [], ...others] = version.parts;
    const digest = (await first[0]?.digest()) ?? "";
    if (this.#known.has(digest)) return;
    const known = this.#remember(version, { state: "unreadable", digests: new Set([digest]) });
    const isBeside = ({ cache }: EnvelopeCopy) => isAlone && first.some((copy) => copy.cache === cache);
    const discard = async () => {
      known.state = "acked";
      await removeUnread([...first, ...others.flat().filter(isBeside)]);
    };
    const { code, message: reason } = error;
    this.#host.emit({ type: "unreadable", messageIds: messageIdsOf(version), code, reason, discard });
  }

  #remember(version: PendingMessage, { state, digests }: Pick<Known, "state" | "digests">): Known {
    const copies = version.parts.flat();
    const untilMs = expiryOf(version, Date.now());
    const known = { state, untilMs, digests, copies, sinceMs: performance.now(), acked: new AbortController() };
    const ids = copies.map(({ messageId }) => messageId.toLowerCase());
    for (const name of [...digests, ...ids]) this.#known.set(name, known);
    return known;
  }

  #forgetExpired(): void {
    const nowMs = Date.now();
    for (const [name, { untilMs }] of this.#known)
      if (untilMs < nowMs - minuteMs || this.#known.size > knownMax) this.#known.delete(name);
  }

  // -------------------------------------------------------------------------------------------------- live

  /**
   * Acknowledged when the program has done so in time; otherwise passed, at once where it is known, so that no sender
   * waits (D300). What is passed waits in the Cache: chunks are assembled there, what can't be opened is reported from
   * there, and what comes behind it follows it.
   */
  async #receiveLive(live: LiveEnvelope): Promise<boolean> {
    const isWhole = chunkOf(live.envelope) === null;
    const canOpen = isWhole && !this.#queue.isFull && (await this.#hasCaughtUp(live));
    const known = canOpen ? await this.#openLive(live) : null;
    if (known === null) {
      if (this.#passed.size >= passedMax) this.#passed.clear();
      const messageId = live.messageId.toLowerCase();
      this.#passed.set(live.envelope["from"], { messageId, untilMs: performance.now() + passedMs });
      void this.#pollAfterPassed();
      return false;
    }
    if (known.state !== "queued") return known.state === "acked";
    const waitMs = this.#isLate ? 0 : liveAckMs;
    await pause(waitMs, AbortSignal.any([known.acked.signal, this.#stop.signal]));
    const isAcked = known.acked.signal.aborted;
    if (isAcked) return true;
    this.#isLate = true;
    // The program may acknowledge it before a poll has found it there.
    known.copies = [...known.copies, ...this.#caches.map((cache) => passedCopy(cache, live))];
    return false;
  }

  /** A Cache elsewhere announces nothing. */
  async #pollAfterPassed(): Promise<void> {
    if (this.#isAwaitingPassed) return;
    this.#isAwaitingPassed = true;
    for (const { signal } = this.#stop; this.#passed.size > 0 && !signal.aborted; this.#news.wake())
      await pause(passedMs, signal);
    this.#isAwaitingPassed = false;
  }

  /** Looks at the Caches when something waits there that came before. `false` when that takes long. */
  async #hasCaughtUp(live: LiveEnvelope): Promise<boolean> {
    const { signal } = this.#stop;
    for (const untilMs = performance.now() + behindMs; this.#isBehind(live); await pause(behindStepMs, signal)) {
      if (performance.now() > untilMs || signal.aborted) return false;
      if (!this.#isPolling) this.#news.wake();
    }
    return true;
  }

  /** Garbage delays only its own sender. */
  #isBehind({ envelope }: LiveEnvelope): boolean {
    if (this.#isBlind) return false;
    const { untilMs = 0 } = this.#passed.get(envelope["from"]) ?? {};
    return this.#sessionsPolled < this.#sessions || untilMs > performance.now();
  }

  /** `null` when it can't be opened, or not in time. */
  async #openLive(live: LiveEnvelope): Promise<Known | null> {
    const copy = localCopy(live);
    const digest = (await copy.digest()) ?? "";
    const version: PendingMessage = { groupId: null, total: 1, parts: [[copy]] };
    const before = this.#known.get(digest);
    if (before !== undefined) return before;
    if (await this.#before.has(digest)) return this.#remember(version, { state: "acked", digests: new Set([digest]) });
    const opening = attempt(() => this.#read(version)).then((read) =>
      read instanceof ClientError || this.#queue.isFull ? null : this.#handOver(version, read),
    );
    const waitMs = this.#host.storage?.waitMs ?? liveAckMs;
    return Promise.race([opening, pause(waitMs, this.#stop.signal).then(() => null)]);
  }

  // -------------------------------------------------------------------------------------------- handing over

  /** Another session or Cache may have brought the same message meanwhile. */
  #handOver(version: PendingMessage, opened: OpenedMessage): Known {
    const { digests } = opened;
    const same = [...digests].map((digest) => this.#known.get(digest)).find((known) => known !== undefined);
    if (same !== undefined) return same;
    const known = this.#remember(version, { state: "queued", digests });
    const ack = async () => {
      if (known.state !== "acked") await this.#host.onAck?.(version, opened);
      await this.#ack(opened, known);
    };
    const { data, ...facts } = opened;
    const isSaved = this.#host.storage?.isKeeping === true;
    // A note is no message of its own: it is acknowledged, and without a store nothing hears of it.
    if (!isSaved && noteIn(facts, data) === null) {
      this.#queue.put(messageOf(facts, data, { ack, send: this.#host.send }));
      return known;
    }
    // A store without room gets it again later.
    const work = attempt(() => (isSaved ? this.#ack(opened, known) : ack()));
    const acking: Promise<unknown> = work.finally(() => this.#acking.delete(acking));
    this.#acking.add(acking);
    return known;
  }

  async #ack(facts: MessageFacts, known: Known): Promise<void> {
    if (known.state === "acked") return;
    known.state = "acked";
    known.acked.abort();
    this.#isLate = performance.now() - known.sinceMs > liveAckMs;
    await this.#acknowledge(known.copies, known.digests);
    this.#host.onAcked(facts);
  }
}

// ------------------------------------------------------------------------------------------------------------- waiting

/** Holds at most `max` items for one consumer; a producer of more waits until one is consumed. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #max: number;
  readonly #changed = new Waiters();
  #closed = false;

  constructor(max: number) {
    this.#max = max;
  }

  get isFull(): boolean {
    return this.#items.length >= this.#max;
  }

  /** Resolves when there is space, or when the queue is closed. */
  async space(): Promise<void> {
    while (this.isFull && !this.#closed) await this.#changed.wait(hourMs);
  }

  put(item: T): void {
    this.#items.push(item);
    this.#changed.release();
  }

  /** The oldest item, or `null` once the queue is closed. */
  async take(): Promise<T | null> {
    while (this.#items.length === 0 && !this.#closed) await this.#changed.wait(hourMs);
    this.#changed.release();
    return this.#items.shift() ?? null;
  }

  close(): void {
    this.#closed = true;
    this.#items.length = 0;
    this.#changed.release();
  }
}
