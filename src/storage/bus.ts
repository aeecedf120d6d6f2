/**
 * The bus contract: small messages between the processes of one installation. The bus
 * delivers them to current subscribers only; lasting data is in the stores. Laws of every
 * driver:
 * - A message reaches every subscription of its subject at most once, also in the
 *   publisher's own process. One publisher's messages of one subject arrive in the order of
 *   their calls.
 * - Nothing is kept: a message for a subject without a subscription is dropped.
 * - An unreachable bus is not an error: requests are "unanswered", messages are dropped,
 *   and callers use their store.
 * - `missed` announces possible losses: it is called after a reconnect and after an
 *   overflow.
 * - Queues are bounded: a subscription that falls behind loses messages.
 * - The receiver owns the bytes that it gets: nothing is shared.
 * - When a handler throws or rejects, the error is logged, there is no answer, and no other
 *   handler is affected. The kit in `test/conformance/bus.ts` checks these laws for every
 *   driver.
 */
import { errorStack } from "../core/fault.ts";

/** Answers a request with bytes. Its answer to a published message is ignored. */
export type BusReceiver = (message: Uint8Array) => BusAnswer | Promise<BusAnswer>;

/** `undefined` is not an answer: the request waits for other subscriptions. */
type BusAnswer = Uint8Array | undefined;

export type SubscribeOptions = {
  /**
   * Called when messages of this subject may have been lost: read again whatever was cached
   * on their account.
   */
  readonly missed?: () => void;
};

export type BusSubscription = {
  /**
   * Resolves once every message published from then on, anywhere, reaches the handler; after
   * `busReadyMsMax` even when the bus is unreachable.
   */
  readonly ready: Promise<void>;
  /** Ends the subscription and drops the messages still in its queue. Idempotent. */
  readonly unsubscribe: () => void;
};

/** How long `ready` waits for an unreachable bus. */
export const busReadyMsMax = 1_000;

type BusStats = {
  /** Whether messages reach other processes now. A bus within one process always is. */
  readonly connected: boolean;
  readonly subscriptions: number;
  /**
   * Messages that this process lost since its start: overflow, too large, or the bus was
   * unreachable.
   */
  readonly dropped: number;
};

export interface Bus {
  readonly plugin: string;
  /**
   * The largest message at present. A larger one is dropped, and a larger request is
   * "unanswered".
   */
  readonly messageBytesMax: number;
  publish(subject: string, message: Uint8Array): void;
  subscribe(subject: string, handler: BusReceiver, options?: SubscribeOptions): BusSubscription;
  /**
   * `false` when no process has subscribed, as far as this one knows, so that no message
   * need be made.
   */
  mayReach(subject: string): boolean;
  /**
   * Returns the first answer; "unanswered" at once when the subject has no subscription, as
   * soon as all have handled the message without an answer, or after `timeoutMs`. After a
   * timeout, a subscription may still handle it.
   */
  request(
    subject: string,
    message: Uint8Array,
    timeoutMs: number,
  ): Promise<Uint8Array | "unanswered">;
  stats(): BusStats;
  /** Ends all subscriptions; open and later requests are "unanswered". Idempotent. */
  close(): Promise<void>;
}

/** What a driver may use of the program that opens it. */
export type BusEnvironment = {
  readonly log: (
    level: "info" | "warn" | "error",
    message: string,
    fields?: Record<string, unknown>,
  ) => void;
};

const subjectLengthMax = 512;

/** A subject is 1 to 512 characters of visible ASCII. Anything else is a bug of the caller. */
export function checkSubject(subject: string): void {
  if (subject.length > subjectLengthMax || !/^[!-~]+$/.test(subject)) {
    throw new RangeError(`a subject has 1 to ${subjectLengthMax} characters of visible ASCII`);
  }
}

// ------------------------------------------------------------------------- inbox of a subscription

/** Messages of one subscription that were not handled yet, and their bytes. */
export type BusQueueLimits = { readonly messagesMax: number; readonly bytesMax: number };

const busQueueLimits: BusQueueLimits = { messagesMax: 1_024, bytesMax: 32 * 1024 ** 2 };

/** `answer` is `null` for a published message. */
type InboxMessage = {
  readonly message: Uint8Array;
  readonly answer: ((bytes: Uint8Array | undefined) => void) | null;
};

type BusQueueOptions = {
  readonly subject: string;
  readonly handler: BusReceiver;
  readonly missed: (() => void) | undefined;
  readonly log: BusEnvironment["log"];
  readonly onDrop: () => void;
  /** Tests set tighter ones. */
  readonly limits?: BusQueueLimits;
};

/**
 * Hands messages to the handler of a subscription in order of arrival, many at a time,
 * since a handler may wait for a client. Every driver has one for each subscription, so
 * that a slow handler costs bounded memory and does not delay others.
 */
export class BusQueue {
  private messages = 0;
  private bytes = 0;
  private closed = false;
  private readonly limits: BusQueueLimits;

  constructor(private readonly options: BusQueueOptions) {
    this.limits = options.limits ?? busQueueLimits;
  }

  /** Handlers start in a later task, never inside the call that published. */
  add(arrival: InboxMessage): void {
    if (this.closed) return;
    const { length } = arrival.message;
    if (
      this.messages >= this.limits.messagesMax ||
      (this.messages > 0 && this.bytes + length > this.limits.bytesMax)
    ) {
      arrival.answer?.(undefined);
      this.options.onDrop();
      this.reportMissed();
      return;
    }
    this.messages++;
    this.bytes += length;
    setImmediate(() => void this.handle(arrival, length));
  }

  private async handle({ message, answer }: InboxMessage, length: number): Promise<void> {
    let answered: Uint8Array | undefined;
    try {
      if (!this.closed) answered = await this.options.handler(message);
    } catch (error) {
      this.logFailure("a bus handler failed", error);
    }
    this.messages--;
    this.bytes -= length;
    answer?.(answered);
  }

  reportMissed(): void {
    if (this.closed) return;
    try {
      this.options.missed?.();
    } catch (error) {
      this.logFailure("a bus handler of missed messages failed", error);
    }
  }

  private logFailure(text: string, error: unknown): void {
    const reason = errorStack(error);
    this.options.log("error", text, { subject: this.options.subject, error: reason });
  }

  close(): void {
    this.closed = true;
  }
}
