/**
 * Time and chance that a seed decides: timers run in their order without waiting, and between two
 * of them everything that was promised is settled. A process of the virtual world has a host of its
 * own, which can be killed.
 */
import TinyQueue from "tinyqueue";

export type Chance = {
  /** From 0 up to, not including, 1. */
  readonly next: () => number;
  /** Whole, from 0 up to, not including, `below`. */
  readonly below: (below: number) => number;
  readonly between: (least: number, most: number) => number;
  readonly likely: (probability: number) => boolean;
};

/** Mulberry32: small, and the same everywhere. */
export function seededChance(seed: number): Chance {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    below: (below) => Math.floor(next() * below),
    between: (least, most) => least + Math.floor(next() * (most - least + 1)),
    likely: (probability) => next() < probability,
  };
}

type Timer = { readonly atMs: number; readonly order: number; work: (() => void) | null };

export class VirtualTime {
  nowMs = 1_800_000_000_000;
  private order = 0;
  private readonly timers = new TinyQueue<Timer>(
    [],
    (a, b) => a.atMs - b.atMs || a.order - b.order,
  );

  after(ms: number, work: () => void): () => void {
    const timer: Timer = {
      atMs: this.nowMs + Math.max(0, Math.ceil(ms)),
      order: this.order++,
      work,
    };
    this.timers.push(timer);
    return () => {
      timer.work = null;
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  /** Runs timers until `isOver`, or until the time is up. */
  async run(untilMs: number, isOver: () => boolean): Promise<void> {
    await settled();
    for (
      let timer = this.timers.peek();
      timer !== undefined && timer.atMs <= untilMs && !isOver();
    ) {
      this.timers.pop();
      if (timer.work !== null) {
        this.nowMs = timer.atMs;
        timer.work();
        await settled();
      }
      timer = this.timers.peek();
    }
  }
}

/** A turn of the real event loop comes only when no promise is left to be settled. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
