/** Work that must not run side by side. */

/** Runs the work of each key one after the other, in the order of the calls. Failed work stops none behind it. */
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

/** Runs one piece of work after the other, in the order of the calls. Failed work stops none behind it. */
export class Mutex {
  readonly #inOrder = inOrder<null>();

  run<T>(work: () => Promise<T>): Promise<T> {
    return this.#inOrder(null, work);
  }
}
