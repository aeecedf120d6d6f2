/**
 * Turns of work that would hold a page up: one after the other, and after some milliseconds of them whatever else waits comes
 * first. Sealing a message for a group of 64 takes about 100 ms of the processor, and a page drops frames after 50.
 */
import { Mutex } from "../../core/std/order.ts";

/** Two frames of a page are 33 ms. */
const workMsMax = 20;

class Turns {
  readonly #one = new Mutex();
  /** When other work last had its turn. */
  #sinceMs = Number.NEGATIVE_INFINITY;

  /** The result of the work, or what it throws. */
  run<T>(work: () => Promise<T>): Promise<T> {
    return this.#one.run(async () => {
      if (performance.now() - this.#sinceMs > workMsMax) {
        // A timer lets the page draw and take input; a promise does not.
        await new Promise((resolve) => setTimeout(resolve));
        this.#sinceMs = performance.now();
      }
      return work();
    });
  }
}

/** Of the whole page: copies for a group are sealed, and what has come is opened, at once. */
export const pageTurns = new Turns();
