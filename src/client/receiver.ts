/**
 * Continuous receiving into memory: messages of live sessions and those that wait in the Caches, each once. Only the
 * program acknowledges. A message that can't be opened is an event; other messages still arrive.
 * Source: docs/client.md "Receiving", interface "Cache", rules sections 5 and 6.
 */
import { hourMs } from "../core/codec/time.ts";
import type { Client } from "./client.ts";
import { type LiveAnswer, type Look, lookMs, pause, Signal, stayConnected } from "./connections.ts";
import {
  chunkOf,
  type EnvelopeCopy,
  isComplete,
  listPending,
  localCopy,
  messageIdsOf,
  type PendingMessage,
  type ReceivedBefore,
  splitReceived,
  versionsOf,
} from "./copies.ts";
import type { WaypostEvent } from "./events.ts";
import { ClientError } from "./http.ts";
import { agreementSecrets, type Identity } from "./keys.ts";
import type { LiveEnvelope } from "./live.ts";
import { Message, type MessageActions } from "./message.ts";
import type { CacheClient } from "./reader.ts";
import { recipientOf } from "./recipient.ts";
import { acknowledge, isUnreadable, type Recipient, readMessage, removeUnread } from "./retrieve.ts";

/** What the receiver needs of the identity it receives for. */
type ReceiverHost = {
  readonly client: Client;
  readonly identity: () => Identity;
  /** Names the live session; a second session of the same device replaces the first. */
  readonly device: string;
  readonly emit: (event: WaypostEvent) => void;
  readonly send: MessageActions["send"];
  /** A message that the SDK handles itself, such as a receipt: acknowledged and not handed over. */
  readonly absorb: (message: Message) => boolean;
  readonly onAcked: (message: Message) => void;
  /** Replaces the published key when it is due; with `force` it also looks for replacements by other devices. */
  readonly refreshKeys: (force: boolean) => Promise<void>;
};

/** Messages that are opened and not yet read by the program. */
const queuedMax = 32;
/** The Relay waits 5 s for an acknowledgement, and then sends the envelope to the Cache. */
const liveAckMs = 4_500;
/** Until a look at the Caches begins that was asked for. */
const behindMs = 20;
const refreshMs = hourMs;
/** Most messages remembered as known; expired ones are forgotten first. */
const knownMax = 100_000;
/** Longest wait for acknowledgements under way. */
const stopMs = 2_000;

type Known = {
  state: "queued" | "acked" | "unreadable";
  readonly untilMs: number;
  readonly digests: ReadonlySet<string>;
  /** In Caches; none while only a live session brought it. */
  copies: readonly EnvelopeCopy[];
  /** Ends the wait of the live session: whether to acknowledge. */
  answer: ((keep: boolean) => void) | null;
};

type Opened = Awaited<ReturnType<typeof readMessage>>;

export class Receiver {
  readonly #host: ReceiverHost;
  readonly #recipient: Recipient;
  readonly #queue = new Queue<Message>(queuedMax);
  /** By the digests of their envelopes. */
  readonly #known = new Map<string, Known>();
  /** Until when the envelopes of an id may be offered again. */
  readonly #ids = new Map<string, number>();
  readonly #before: ReceivedBefore = {
    hasId: (messageId) => this.#ids.has(messageId.toLowerCase()),
    has: (digest) => this.#known.has(digest),
  };
  readonly #digests = new Map<string, string>();
  readonly #news = new Signal();
  /** Something may wait in a Cache that came before the next envelope of a live session. */
  #isBehind = true;
  /** A Cache could not be read: live sessions don't wait for it. */
  #isBlind = false;
  #looking: Promise<unknown> | null = null;
  #liveTurn: Promise<unknown> = Promise.resolve();
  readonly #stop = new AbortController();
  /** Acknowledgements under way of messages that the SDK took for itself. */
  readonly #acking = new Set<Promise<void>>();
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
    for (const known of this.#known.values()) known.answer?.(false);
    await this.#loops;
  }

  // ------------------------------------------------------------------------------------------------ loops

  async #run(): Promise<void> {
    const { client, identity, device, emit } = this.#host;
    const connected = stayConnected(
      {
        client,
        identity,
        cacheDevice: "",
        liveDevice: device,
        emit: (event) => {
          // What came before the session waits in the Caches.
          if (event.type === "connected" && event.what === "live") this.#isBehind = true;
          emit(event);
        },
        news: this.#news,
        receiveWaiting: (caches) => this.#look(caches),
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

  /** One look at a time; envelopes of live sessions wait for it. */
  async #look(caches: readonly CacheClient[]): Promise<Look> {
    this.#isBehind = false;
    const looking = this.#receiveWaiting(caches);
    this.#looking = looking.catch(() => undefined);
    try {
      const look = await looking;
      this.#isBlind = look.unreachable.length > 0;
      return look;
    } catch (error) {
      this.#isBlind = true;
      throw error;
    } finally {
      this.#looking = null;
    }
  }

  async #receiveWaiting(caches: readonly CacheClient[]): Promise<Look> {
    const { pending, unreachable } = await listPending(caches, { digests: this.#digests });
    this.#forgetExpired();
    const waiting: PendingMessage[] = [];
    const acked: EnvelopeCopy[] = [];
    for (const one of pending) {
      const { again, fresh } = await splitReceived(one, this.#before);
      for (const copy of again) if ((await this.#join(copy))?.state === "acked") acked.push(copy);
      if (isComplete(fresh)) waiting.push(fresh);
    }
    await acknowledge(acked, this.#before);
    let isPartial = unreachable.length > 0;
    for (const one of waiting) {
      await this.#queue.space();
      if (this.#stop.signal.aborted) break;
      if (!(await this.#receive(one))) isPartial = true;
    }
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
    const opened: { readonly version: PendingMessage; readonly read: Opened }[] = [];
    const versions = await versionsOf(pending);
    for (const version of versions) {
      try {
        const read = await this.#open(version);
        if (read.from?.verified === true) opened.unshift({ version, read });
        else opened.push({ version, read });
      } catch (error) {
        if (!(error instanceof ClientError)) throw error;
        if (isUnreadable(error)) await this.#reportUnreadable(version, { error, isAlone: versions.length === 1 });
        else complete = false;
      }
    }
    for (const { version, read } of opened) this.#handOver(version, read);
    return complete;
  }

  async #open(version: PendingMessage): Promise<Opened> {
    try {
      return await readMessage(version, this.#recipient);
    } catch (error) {
      if (!(error instanceof ClientError) || !isUnreadable(error) || !(await this.#refreshSoon())) throw error;
      return readMessage(version, this.#recipient);
    }
  }

  /** Another device may have replaced the key. Garbage must not cause a request for each of its messages. */
  async #refreshSoon(): Promise<boolean> {
    if (performance.now() - this.#refreshedMs < lookMs) return false;
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
    const untilMs = Math.max(...copies.map(({ expiresAtMs }) => expiresAtMs));
    const known: Known = { state, untilMs, digests, copies, answer: null };
    for (const digest of digests) this.#known.set(digest, known);
    for (const { messageId } of copies) this.#ids.set(messageId.toLowerCase(), untilMs);
    return known;
  }

  #forgetExpired(): void {
    const nowMs = Date.now();
    for (const [key, { untilMs, answer }] of this.#known) {
      if (untilMs < nowMs - lookMs && answer === null) this.#known.delete(key);
      else if (this.#known.size > knownMax) this.#known.delete(key);
    }
    for (const [id, untilMs] of this.#ids)
      if (untilMs < nowMs - lookMs || this.#ids.size > knownMax) this.#ids.delete(id);
  }

  // -------------------------------------------------------------------------------------------------- live

  /**
   * Acknowledges once the program has; otherwise the Relay gives it to the Cache. Chunks are assembled from the Cache.
   * Envelopes are opened one after the other, and behind what waited before them.
   */
  async #receiveLive(live: LiveEnvelope): Promise<LiveAnswer> {
    if (chunkOf(live.envelope) !== null) return "leave";
    const untilMs = performance.now() + liveAckMs;
    const turn = this.#liveTurn.then(() => this.#openLive(live, untilMs));
    this.#liveTurn = turn.catch(() => undefined);
    const known = await turn;
    if (known === null) {
      this.#isBehind = true;
      return false;
    }
    if (known.state !== "queued" || known.answer !== null) return known.state === "acked";
    return new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => known.answer?.(false), untilMs - performance.now());
      known.answer = (keep) => {
        clearTimeout(timer);
        known.answer = null;
        resolve(keep);
      };
    });
  }

  /** `null` leaves it to the Cache: there is no time or no room for it now, or it can't be opened. */
  async #openLive({ messageId, expiresAtMs, envelope }: LiveEnvelope, untilMs: number): Promise<Known | null> {
    if (!(await this.#catchUp(untilMs)) || this.#queue.isFull) return null;
    const copy = localCopy({ messageId, expiresAtMs, envelope });
    const before = this.#known.get((await copy.digest()) ?? "");
    if (before !== undefined) return before;
    const version: PendingMessage = { groupId: null, total: 1, parts: [[copy]] };
    try {
      return this.#handOver(version, await this.#open(version));
    } catch (error) {
      // The copy in the Cache will be reported, and can be removed.
      if (error instanceof ClientError) return null;
      throw error;
    }
  }

  /** Waits for what came before. `false` when the time is over. */
  async #catchUp(untilMs: number): Promise<boolean> {
    while (!this.#isBlind && (this.#isBehind || this.#looking !== null)) {
      if (performance.now() >= untilMs || this.#stop.signal.aborted) return false;
      if (this.#isBehind) this.#news.wake();
      const waits = [
        this.#looking ?? pause(behindMs, this.#stop.signal),
        pause(untilMs - performance.now(), this.#stop.signal),
      ];
      await Promise.race(waits);
    }
    return true;
  }

  // -------------------------------------------------------------------------------------------- handing over

  /** Another session or Cache may have brought the same message meanwhile. */
  #handOver(version: PendingMessage, { data, ...written }: Opened): Known {
    const same = [...written.digests].map((digest) => this.#known.get(digest)).find((known) => known !== undefined);
    if (same !== undefined) return same;
    const known = this.#remember(version, { state: "queued", digests: written.digests });
    const messageIds = messageIdsOf(version);
    const id = version.groupId ?? messageIds[0] ?? "";
    const actions = { ack: () => this.#ack(message, known), send: this.#host.send };
    const message: Message = new Message({ id, messageIds, written, data }, actions);
    if (!this.#host.absorb(message)) {
      this.#queue.put(message);
      return known;
    }
    const acking = this.#ack(message, known).finally(() => this.#acking.delete(acking));
    this.#acking.add(acking);
    return known;
  }

  async #ack(message: Message, known: Known): Promise<void> {
    if (known.state === "acked") return;
    known.state = "acked";
    known.answer?.(true);
    // A Cache that can't be reached offers it again; the acknowledgement follows then.
    await acknowledge(known.copies, known.digests);
    this.#host.onAcked(message);
  }
}

// ------------------------------------------------------------------------------------------------------------- waiting

/** Holds at most `max` items; a producer of more waits until one is consumed. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #consumers: ((item: T | null) => void)[] = [];
  readonly #producers: (() => void)[] = [];
  readonly #max: number;
  #closed = false;

  constructor(max: number) {
    this.#max = max;
  }

  get isFull(): boolean {
    return this.#items.length >= this.#max;
  }

  /** Resolves when there is space, or when the queue is closed. */
  async space(): Promise<void> {
    while (this.isFull && !this.#closed) await new Promise<void>((resolve) => this.#producers.push(resolve));
  }

  put(item: T): void {
    const consumer = this.#consumers.shift();
    if (consumer === undefined) this.#items.push(item);
    else consumer(item);
  }

  /** The oldest item, or `null` once the queue is closed. */
  async take(): Promise<T | null> {
    if (this.#closed) return null;
    const item = this.#items.shift();
    this.#producers.shift()?.();
    if (item !== undefined) return item;
    return new Promise((resolve) => this.#consumers.push(resolve));
  }

  close(): void {
    this.#closed = true;
    this.#items.length = 0;
    for (const consumer of this.#consumers.splice(0)) consumer(null);
    for (const producer of this.#producers.splice(0)) producer();
  }
}
