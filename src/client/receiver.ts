/**
 * Continuous receiving into memory: messages of live sessions and those that wait in the Caches, each once. Only the
 * program acknowledges. A message that can't be opened is an event; other messages still arrive.
 * Source: docs/client.md "Receiving", interface "Cache", rules sections 5 and 6.
 */
import { hourMs } from "../core/codec/time.ts";
import type { Client } from "./client.ts";
import { type LiveAnswer, lookMs, pause, stayConnected } from "./connections.ts";
import { ClientError } from "./http.ts";
import type { Identity } from "./keys.ts";
import { Message, type MessageActions, type WaypostEvent } from "./message.ts";
import type { CacheClient, LiveEnvelope } from "./reader.ts";
import {
  acknowledge,
  chunkOf,
  type HeldEnvelope,
  isComplete,
  isUnreadable,
  listPending,
  type PendingMessage,
  type Recipient,
  readMessage,
} from "./retrieve.ts";

/** What the receiver needs of the identity it receives for. */
type ReceiverHost = {
  readonly client: Client;
  readonly identity: () => Identity;
  readonly recipient: Recipient;
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
const refreshMs = hourMs;
/** Most messages remembered as known; expired ones are forgotten first. */
const knownMax = 100_000;
/** From this number on, messages are fetched by pages instead of one by one. */
const pagedFrom = 4;
const pageEntries = 256;
/** Longest wait for acknowledgements under way. */
const stopMs = 2_000;

type Known = {
  state: "queued" | "acked" | "unreadable";
  readonly untilMs: number;
  /** Which Caches have copies; `null` while only a live session brought it. */
  copies: PendingMessage | null;
  /** Ends the wait of the live session: whether to acknowledge. */
  answer: ((keep: boolean) => void) | null;
};

export class Receiver {
  readonly #host: ReceiverHost;
  readonly #queue = new Queue<Message>(queuedMax);
  readonly #known = new Map<string, Known>();
  readonly #stop = new AbortController();
  /** Acknowledgements under way of messages that the SDK took for itself. */
  readonly #acking = new Set<Promise<void>>();
  #loops: Promise<unknown> = Promise.resolve();
  #failure: unknown = null;
  #refreshedMs = Number.NEGATIVE_INFINITY;

  constructor(host: ReceiverHost) {
    this.#host = host;
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
        emit,
        receiveWaiting: (caches) => this.#receiveWaiting(caches),
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

  /** Reads the waiting messages once. `false` when something could not be fetched and should be tried again soon. */
  async #receiveWaiting(caches: readonly CacheClient[]): Promise<boolean> {
    const { pending, unreachable } = await listPending(caches);
    for (const { endpoint, error } of unreachable)
      this.#host.emit({ type: "disconnected", what: "cache", url: endpoint, error });
    this.#forgetExpired();
    const acked = pending.filter((one) => this.#known.get(keyOf(one))?.state === "acked");
    await acknowledge(acked);
    const fresh: PendingMessage[] = [];
    for (const one of pending) {
      const known = this.#known.get(keyOf(one));
      if (known !== undefined) known.copies = one;
      else if (isComplete(one)) fresh.push(one);
    }
    const pages = new Pages(fresh.filter(({ groupId }) => groupId === null).length >= pagedFrom);
    let complete = unreachable.length === 0;
    for (const one of fresh) {
      await this.#queue.space();
      if (this.#stop.signal.aborted) return true;
      if (!(await this.#receive(await pages.place(one)))) complete = false;
    }
    return complete;
  }

  /** Opens a waiting message and queues it. `false` when it could not be fetched now. */
  async #receive(pending: PendingMessage): Promise<boolean> {
    const key = keyOf(pending);
    // A live session may bring the same message meanwhile.
    if (this.#known.has(key)) return true;
    const untilMs = Math.max(...pending.held.map(({ expiresAtMs }) => expiresAtMs));
    const known: Known = { state: "queued", untilMs, copies: pending, answer: null };
    this.#known.set(key, known);
    try {
      this.#handOver(await this.#open(pending), known);
      return true;
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      if (!isUnreadable(error)) {
        this.#known.delete(key);
        return false;
      }
      known.state = "unreadable";
      this.#emitUnreadable(pending, known, error);
      return true;
    }
  }

  async #open(pending: PendingMessage): Promise<ReturnType<typeof partsOf>> {
    try {
      return partsOf(pending, await readMessage(pending, this.#host.recipient));
    } catch (error) {
      if (!(error instanceof ClientError) || !isUnreadable(error) || !(await this.#refreshSoon())) throw error;
      return partsOf(pending, await readMessage(pending, this.#host.recipient));
    }
  }

  /** Another device may have replaced the key. Garbage must not cause a request for each of its messages. */
  async #refreshSoon(): Promise<boolean> {
    if (performance.now() - this.#refreshedMs < lookMs) return false;
    this.#refreshedMs = performance.now();
    await this.#host.refreshKeys(true);
    return true;
  }

  #emitUnreadable(pending: PendingMessage, known: Known, error: ClientError): void {
    this.#host.emit({
      type: "unreadable",
      messageIds: pending.held.map(({ messageId }) => messageId),
      code: error.code,
      reason: error.message,
      discard: async () => {
        known.state = "acked";
        await acknowledge([known.copies ?? pending]);
      },
    });
  }

  #forgetExpired(): void {
    const nowMs = Date.now();
    for (const [key, { untilMs, answer }] of this.#known) {
      if (untilMs < nowMs - lookMs && answer === null) this.#known.delete(key);
      else if (this.#known.size > knownMax) this.#known.delete(key);
    }
  }

  // -------------------------------------------------------------------------------------------------- live

  /**
   * Acknowledges once the program has; otherwise the Relay gives it to the Cache. Chunks are assembled from the Cache.
   */
  async #receiveLive({ messageId, expiresAtMs, envelope }: LiveEnvelope): Promise<LiveAnswer> {
    if (chunkOf(envelope) !== null) return "leave";
    const before = this.#known.get(messageId);
    if (before !== undefined) return before.state === "acked";
    if (this.#queue.isFull) return false;
    const known: Known = { state: "queued", untilMs: expiresAtMs, copies: null, answer: null };
    this.#known.set(messageId, known);
    const held: HeldEnvelope = { messageId, expiresAtMs, chunk: null, at: [], local: async () => envelope };
    const pending: PendingMessage = { groupId: null, total: 1, parts: [held], held: [held] };
    let parts: ReturnType<typeof partsOf>;
    try {
      parts = await this.#open(pending);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      // The copy in the Cache will be reported, and can be removed.
      this.#known.delete(messageId);
      return false;
    }
    const answered = new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => known.answer?.(false), liveAckMs);
      known.answer = (keep) => {
        clearTimeout(timer);
        known.answer = null;
        resolve(keep);
      };
    });
    this.#handOver(parts, known);
    return answered;
  }

  // -------------------------------------------------------------------------------------------- handing over

  #handOver(parts: ReturnType<typeof partsOf>, known: Known): void {
    const message: Message = new Message(parts, { ack: () => this.#ack(message, known), send: this.#host.send });
    if (!this.#host.absorb(message)) {
      this.#queue.put(message);
      return;
    }
    const acking = this.#ack(message, known).finally(() => this.#acking.delete(acking));
    this.#acking.add(acking);
  }

  async #ack(message: Message, known: Known): Promise<void> {
    if (known.state === "acked") return;
    known.state = "acked";
    known.answer?.(true);
    // A Cache that can't be reached offers it again; the acknowledgement follows then.
    if (known.copies !== null) await acknowledge([known.copies]);
    this.#host.onAcked(message);
  }
}

function keyOf({ groupId, parts }: PendingMessage): string {
  return groupId === null ? (parts[0]?.messageId ?? "") : `group ${groupId.toLowerCase()}`;
}

function partsOf(pending: PendingMessage, read: Awaited<ReturnType<typeof readMessage>>) {
  const { data, ...written } = read;
  const messageIds = pending.held.map(({ messageId }) => messageId);
  return { id: pending.groupId ?? pending.parts[0]?.messageId ?? "", messageIds, written, data };
}

/** Reads ahead by pages of about 1 MiB when many messages wait; one page is kept at a time. */
class Pages {
  readonly #paged: boolean;
  readonly #cursors = new Map<CacheClient, string | null>();
  #envelopes = new Map<string, Record<string, unknown>>();

  constructor(paged: boolean) {
    this.#paged = paged;
  }

  /** The same message, with its envelope at hand when a page brought it. */
  async place(pending: PendingMessage): Promise<PendingMessage> {
    const [part] = pending.parts;
    if (!this.#paged || pending.groupId !== null || part === undefined) return pending;
    const cache = part.at[0];
    if (cache !== undefined && !this.#envelopes.has(part.messageId)) await this.#readPage(cache);
    const envelope = this.#envelopes.get(part.messageId);
    if (envelope === undefined) return pending;
    return { ...pending, parts: [{ ...part, local: async () => envelope }] };
  }

  /** A Cache that does not answer now is asked for the message itself, and that failure counts. */
  async #readPage(cache: CacheClient): Promise<void> {
    const cursor = this.#cursors.get(cache);
    if (cursor === null) return;
    this.#cursors.set(cache, null);
    try {
      const page = await cache.messages(cursor, pageEntries);
      this.#envelopes = new Map(page.messages.map((entry) => [entry.message_id, entry.envelope]));
      this.#cursors.set(cache, page.next_cursor ?? null);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
    }
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
