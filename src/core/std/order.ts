/** Work that must not run side by side, or only so much of it at once. */

/**
 * Runs the work of each key one after the other, in the order of the calls. Failed work
 * stops none behind it.
 */
export function inOrder<K>(): <T>(key: K, work: () => Promise<T>) => Promise<T> {
  const last = new Map<K, Promise<unknown>>();
  return (key, work) => {
    const mine = (last.get(key) ?? Promise.resolve()).then(work);
    const settled = mine
      .catch(() => undefined)
      .finally(() => last.get(key) === settled && last.delete(key));
    last.set(key, settled);
    return mine;
  };
}

/**
 * Runs one piece of work after the other, in the order of the calls. Failed work stops none
 * behind it.
 */
export class Mutex {
  readonly #inOrder = inOrder<null>();

  run<T>(work: () => Promise<T>): Promise<T> {
    return this.#inOrder(null, work);
  }
}

/** Runs so many pieces of work at once, and the others in the order of the calls as those end. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async use<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }
}
