/** Waiting: pauses that an abort ends, growing pauses with jitter, and a queue between what brings and what takes. */

/** Resolves after `ms`, or at once when `signal` is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

const backoffMsMin = 500;
const backoffMsMax = 30_000;

/** A random part of a time that doubles with each failure, so that clients of one node don't come back together. */
export function backoffMs(failures: number): number {
  const most = Math.min(backoffMsMin * 2 ** Math.min(failures, 10), backoffMsMax);
  return most / 2 + Math.random() * (most / 2);
}

/** Holds at most `max` items; who brings more waits until one is taken. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #takers: ((item: T | null) => void)[] = [];
  readonly #bringers: (() => void)[] = [];
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
    while (this.isFull && !this.#closed) await new Promise<void>((resolve) => this.#bringers.push(resolve));
  }

  put(item: T): void {
    const taker = this.#takers.shift();
    if (taker === undefined) this.#items.push(item);
    else taker(item);
  }

  /** The oldest item, or `null` once the queue is closed. */
  async take(): Promise<T | null> {
    if (this.#closed) return null;
    const item = this.#items.shift();
    this.#bringers.shift()?.();
    if (item !== undefined) return item;
    return new Promise((resolve) => this.#takers.push(resolve));
  }

  close(): void {
    this.#closed = true;
    this.#items.length = 0;
    for (const taker of this.#takers.splice(0)) taker(null);
    for (const bringer of this.#bringers.splice(0)) bringer();
  }
}
