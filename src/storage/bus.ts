/**
 * The bus contract: small messages between the processes and threads of one installation. It says who is
 * listening; the stores say what is kept. Laws of every driver:
 * - a message reaches every subscription of its subject at most once, wherever that subscription is, the
 *   publisher's own process included; one publisher's messages of one subject arrive in the order of
 *   their calls;
 * - nothing is kept: a message for a subject without a subscription is gone;
 * - a bus that is away is "nobody" and silence, never an error: callers fall back on their store;
 * - what may have been lost is announced: after a reconnect and after an overflow `missed` is called;
 * - queues are bounded: a subscription that falls behind loses its oldest messages;
 * - bytes that go in or come out belong to the receiver afterwards: nothing is shared;
 * - a handler that throws or rejects is logged, gives no answer, and disturbs nobody.
 * The kit in `test/conformance/bus.ts` checks these laws over every driver.
 */

/** Answers a request with bytes. Its answer to a published message is ignored. */
export type BusReceiver = (message: Uint8Array) => BusAnswer | Promise<BusAnswer>;

/** `undefined` gives no answer: the request waits for another subscription, or for its time to end. */
type BusAnswer = Uint8Array | undefined;

export type SubscribeOptions = {
  /** Messages of this subject may have been lost: what is remembered because of them must be read again. */
  readonly missed?: () => void;
};

export type Subscription = {
  /**
   * Resolves once every message published from then on, anywhere, reaches the handler; after
   * `busReadyMsMax` even when the bus is away.
   */
  readonly ready: Promise<void>;
  /** Messages that were not handed over yet are dropped. Idempotent. */
  readonly unsubscribe: () => void;
};

/** How long `ready` waits for a bus that is away. */
export const busReadyMsMax = 1_000;

export type BusStats = {
  /** Whether messages reach other processes now. A bus within one process always is. */
  readonly connected: boolean;
  readonly subscriptions: number;
  /** Messages that were lost here since the start: overflow, too large, or the bus was away. */
  readonly dropped: number;
};

export interface Bus {
  readonly plugin: string;
  /** The largest message of this moment. A larger one is dropped, and a larger request is "nobody". */
  readonly messageBytesMax: number;
  publish(subject: string, message: Uint8Array): void;
  subscribe(subject: string, handler: BusReceiver, options?: SubscribeOptions): Subscription;
  /** `false` when surely nobody has subscribed, so that no message need be made. Left out where only a request can show it. */
  mayReach?(subject: string): boolean;
  /**
   * The first answer. "nobody" at once when the subject has no subscription, else after `timeoutMs`: then
   * a subscription may have worked on the message all the same.
   */
  request(subject: string, message: Uint8Array, timeoutMs: number): Promise<Uint8Array | "nobody">;
  stats(): BusStats;
  /** Ends all subscriptions; open and later requests are "nobody". Idempotent. */
  close(): Promise<void>;
}

/** What a driver may use of the program that opens it. */
export type BusEnvironment = {
  readonly log: (level: "info" | "warn" | "error", message: string, fields?: Record<string, unknown>) => void;
};

export const subjectLengthMax = 512;

/** A subject is 1 to 512 characters of visible ASCII. A breach is a mistake of the caller. */
export function checkSubject(subject: string): void {
  if (subject.length > subjectLengthMax || !/^[!-~]+$/.test(subject)) {
    throw new RangeError(`a subject has 1 to ${subjectLengthMax} characters of visible ASCII`);
  }
}
