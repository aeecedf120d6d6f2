/**
 * Bounds on memory and time: a map of bounded size and a deadline for a promise. The timer
 * of `withDeadline` is the only clock in the core.
 */
import { deferred } from "./deferred.ts";

/**
 * For values whose size strangers choose. `of` must return the same size for as long as the
 * value is in the map.
 */
type ByteBound<V> = { readonly max: number; readonly of: (value: V) => number };

/**
 * Drops the entry that was set longest ago: for memos, where a dropped entry costs work but
 * is never wrong.
 */
export class BoundedMap<K, V> {
  /** A Map keeps the order of insertion, so the first key is the one set longest ago. */
  private readonly entries = new Map<K, V>();
  private held = 0;

  constructor(
    readonly entriesMax: number,
    private readonly bytes: ByteBound<V> = { max: Number.POSITIVE_INFINITY, of: () => 0 },
  ) {}

  get(key: K): V | undefined {
    return this.entries.get(key);
  }

  has(key: K): boolean {
    return this.entries.has(key);
  }

  /**
   * Setting a key again makes it the newest: a reader that sets what it used keeps what is
   * in use.
   */
  set(key: K, value: V): void {
    this.delete(key);
    this.entries.set(key, value);
    this.held += this.bytes.of(value);
    while (this.entries.size > this.entriesMax || this.held > this.bytes.max) {
      this.delete(this.entries.keys().next().value as K);
    }
  }

  delete(key: K): boolean {
    const value = this.entries.get(key);
    if (value !== undefined) this.held -= this.bytes.of(value);
    return this.entries.delete(key);
  }

  clear(): void {
    this.entries.clear();
    this.held = 0;
  }

  get size(): number {
    return this.entries.size;
  }

  /** From the oldest to the newest. */
  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.entries[Symbol.iterator]();
  }
}

// -------------------------------------------------------------------------------------------- time

/** The result of `withDeadline` when time runs out. */
export const late: unique symbol = Symbol("late");

/**
 * A longer delay makes a timer fire at once (the platform keeps it in 32 bits). About 24.8
 * days.
 */
const timerMsMax: number = 2 ** 31 - 1;

/**
 * The value of `work`, or `late` after `timeoutMs` (0 and below: at the next turn of the
 * event loop). A rejection in time passes through; one that comes after the deadline is
 * swallowed, because no caller waits for it any more. The work itself goes on: a caller
 * that can stop it stops it on `late`. The timer never outlives the call.
 */
export async function withDeadline<T>(
  work: PromiseLike<T>,
  timeoutMs: number,
  after: After = afterByTimer,
): Promise<T | typeof late> {
  const { promise: deadline, resolve } = deferred<typeof late>();
  const cancel = after(Math.min(Math.max(0, timeoutMs), timerMsMax), () => resolve(late));
  try {
    return await Promise.race([work, deadline]);
  } finally {
    cancel();
  }
}

/** Runs `work` once after `ms`; the returned function cancels it. */
export type After = (ms: number, work: () => void) => () => unknown;

const afterByTimer: After = (ms, work) => {
  const timer = setTimeout(work, ms);
  return () => clearTimeout(timer);
};

/**
 * Work or a common event, whichever comes first. `Promise.race` with one long-lived promise
 * keeps every outcome.
 */
export class Waiters {
  private readonly ends = new Set<() => void>();

  /** The outcome of `work`, or `late` when the event comes first. */
  async orEvent<T>(work: PromiseLike<T>): Promise<T | typeof late> {
    const { promise: event, resolve } = deferred<typeof late>();
    const end = () => resolve(late);
    this.ends.add(end);
    try {
      return await Promise.race([work, event]);
    } finally {
      this.ends.delete(end);
    }
  }

  /** Resolves with the event, or after so many milliseconds. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.ends.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.ends.add(end);
    });
  }

  /** The event happens: all waiters continue. */
  release(): void {
    for (const end of this.ends) end();
  }

  get size(): number {
    return this.ends.size;
  }
}
