/**
 * Rates and budgets, counted in this thread or for all worker threads of the process together. Either way a rate is
 * one rate and a budget is one budget for the process.
 * A rate is a token bucket for each key over a bounded table. When the table is full, the bucket used longest ago is
 * forgotten, which gives its key a fresh burst: under a flood of keys the limiter fails open, and its memory stays
 * bounded. Threads share a table in memory under one lock, because limits are asked before a body is read and can't
 * wait for a message to another thread.
 * Source: rules section 5 "Rate limits", section 9, D190.
 */
import { type Fault, fault } from "../core/fault.ts";
import { clientNetwork, isLoopbackAddress } from "../core/message/address.ts";
import { BoundedMap } from "../core/std/bounded.ts";
import { createFairShare, type FairShare, halfOf, type ShareOptions } from "./http/capacity.ts";

/** Read at every claim, so that a setting behind it may change. */
export type RateLimit = {
  readonly perSecond: number;
  readonly burst: number;
  /** Keys remembered at once; about 150 bytes each. */
  readonly keysMax: number;
};

export type RateLimiter = {
  /** Claims one token: 0 when there was one, else the milliseconds until there is. */
  claim(key: string, nowMs: number): number;
  readonly size: number;
};

/** The rate and burst that two settings name, read at each claim: a reload changes them. */
export function limitOf<Name extends string>(
  settings: Readonly<Record<NoInfer<Name>, number>>,
  rate: Name,
  burst: Name,
): RateLimit {
  return {
    get perSecond() {
      return settings[rate];
    },
    get burst() {
      return settings[burst];
    },
    keysMax: rateKeysMax,
  };
}

/** Keys of one limiter: about 10 MB when full. */
export const rateKeysMax = 65_536;

type Bucket = { tokens: number; atMs: number };

function createRateLimiter(limit: RateLimit): RateLimiter {
  const buckets = new BoundedMap<string, Bucket>(limit.keysMax);
  return {
    claim(key, nowMs) {
      const bucket = buckets.get(key) ?? { tokens: limit.burst, atMs: nowMs };
      refill(bucket, limit, nowMs);
      // Set again at each use, so that the one that goes is the one used longest ago.
      buckets.set(key, bucket);
      if (bucket.tokens >= 1) {
        bucket.tokens -= 1;
        return 0;
      }
      return Math.ceil(((1 - bucket.tokens) * 1_000) / limit.perSecond);
    },
    get size() {
      return buckets.size;
    },
  };
}

/** Adds what has come since the bucket was used last. */
function refill(bucket: Bucket, { perSecond, burst }: RateLimit, nowMs: number): void {
  // A clock that steps back refills nothing and takes nothing away.
  const elapsedMs = Math.max(0, nowMs - bucket.atMs);
  bucket.tokens = Math.min(burst, bucket.tokens + (elapsedMs * perSecond) / 1_000);
  bucket.atMs = nowMs;
}

/** The client of a request, asked before its body is read: 429 `rate_limited`. */
export function checkClientRate(
  limiter: RateLimiter,
  { client, network, nowMs }: { readonly client: string; readonly network: string; readonly nowMs: number },
  settings: { readonly rate_limit_loopback: boolean },
): Fault | null {
  if (!settings.rate_limit_loopback && isLoopbackAddress(client)) return null;
  return checkRate(limiter, network, nowMs);
}

/** Places of client networks: one gets at most half of all. */
type NetworkPlaces = {
  readonly take: (client: string, max: number) => boolean;
  readonly give: (client: string) => void;
};

/** A client of this machine may have many others behind it: it counts only in all. */
export function networkPlaces(share: FairShare): NetworkPlaces {
  return {
    take(client, max) {
      if (isLoopbackAddress(client)) return true;
      // A reload may have changed it.
      share.resize(max);
      return share.take(clientNetwork(client), 1);
    },
    give(client) {
      if (!isLoopbackAddress(client)) share.give(clientNetwork(client), 1);
    },
  };
}

export function checkRate(limiter: RateLimiter, key: string, nowMs: number): Fault | null {
  const waitMs = limiter.claim(key, nowMs);
  if (waitMs === 0) return null;
  return fault("rate_limited", "too many requests in a short time", { retryAfterSeconds: Math.ceil(waitMs / 1_000) });
}

// --------------------------------------------------------------------------------------------------- counting

const limiterNames = [
  "registrations",
  "changes",
  "relay clients",
  "relay recipients",
  "relay results",
  "live connections",
  "cache clients",
] as const;
/**
 * Amounts of the public listeners, and of the admin listeners. `deliveries` are the message ids in delivery; `streams` and
 * `live sessions` count for recipients.
 */
const shareNames = [
  ...(["public", "admin"] as const).flatMap((app) =>
    (["work", "reading", "bodies", "reserved work", "reserved reading", "reserved bodies", "answers"] as const).map(
      (what) => `${app} ${what}` as const,
    ),
  ),
  "deliveries",
  "streams",
  "stream networks",
  "live sessions",
] as const;

type LimiterName = (typeof limiterNames)[number];
type ShareName = (typeof shareNames)[number];

export type Counting = {
  readonly limiter: (name: LimiterName, limit: RateLimit) => RateLimiter;
  readonly share: (name: ShareName, max: number, options?: ShareOptions) => FairShare;
};

/** In this thread. */
export const ownCounting: Counting = {
  limiter: (_, limit) => createRateLimiter(limit),
  share: (_, max, options) => createFairShare(max, options),
};

/** What the main thread makes and every worker gets: about 1.5 MiB a table, of which only what is used takes memory. */
export type CountingMemory = Readonly<Record<LimiterName | ShareName, SharedMemory>>;

export function createCountingMemory(): CountingMemory {
  const names = [...limiterNames, ...shareNames];
  return Object.fromEntries(names.map((name) => [name, createSharedMemory(rateKeysMax)])) as CountingMemory;
}

/** For all threads that have this memory. */
export function sharedCounting(memory: CountingMemory): Counting {
  return {
    limiter: (name, limit) => createSharedLimiter(new SharedTable(memory[name]), limit),
    share: (name, max, options) => createSharedShare(new SharedTable(memory[name]), max, options),
  };
}

/** Tokens are the first number of a cell, and their time the second. A full set forgets the key used longest ago. */
function createSharedLimiter(table: SharedTable, limit: RateLimit): RateLimiter {
  const bucket = { tokens: 0, atMs: 0 };
  return {
    claim(key, nowMs) {
      const hash = table.hashOf(key);
      return table.locked(() => {
        let cell = table.find(hash);
        if (cell < 0) {
          cell = table.take(hash);
          if (cell < 0) cell = table.takeOldest(hash);
          table.first[cell] = limit.burst;
          table.second[cell] = nowMs;
        }
        bucket.tokens = table.first[cell] as number;
        bucket.atMs = table.second[cell] as number;
        refill(bucket, limit, nowMs);
        const isGranted = bucket.tokens >= 1;
        table.first[cell] = isGranted ? bucket.tokens - 1 : bucket.tokens;
        table.second[cell] = bucket.atMs;
        return isGranted ? 0 : Math.ceil(((1 - bucket.tokens) * 1_000) / limit.perSecond);
      });
    },
    get size() {
      return table.size;
    },
  };
}

/** What a client holds is the first number of its cell. A client whose set is full of others is refused. */
function createSharedShare(table: SharedTable, wholeMax: number, options: ShareOptions = {}): FairShare {
  const { allowOversizeWhenIdle = false } = options;
  let [max, clientMax] = [wholeMax, options.clientMax ?? halfOf(wholeMax)];
  const held = (hash: bigint): number => {
    const cell = table.find(hash);
    return cell < 0 ? 0 : (table.first[cell] as number);
  };
  return {
    take(client, amount) {
      const hash = table.hashOf(client);
      return table.locked(() => {
        const own = held(hash) + amount;
        const fits = own <= clientMax && table.total + amount <= max;
        if (!fits && !(allowOversizeWhenIdle && table.total === 0)) return false;
        const found = table.find(hash);
        const cell = found < 0 ? table.take(hash) : found;
        if (cell < 0) return false;
        table.first[cell] = own;
        table.total += amount;
        return true;
      });
    },
    give(client, amount) {
      const hash = table.hashOf(client);
      table.locked(() => {
        const cell = table.find(hash);
        if (cell < 0) return;
        const own = (table.first[cell] as number) - amount;
        if (own > 0) table.first[cell] = own;
        else table.free(cell);
        table.total -= amount;
      });
    },
    hasRoom(client) {
      const hash = table.hashOf(client);
      return table.locked(() => table.total < max && held(hash) < clientMax);
    },
    // Every thread reads the settings again.
    resize(next) {
      [max, clientMax] = [next, options.clientMax ?? halfOf(next)];
    },
    get total() {
      return table.total;
    },
  };
}

// ---------------------------------------------------------------------------------------------- shared memory

/** What the threads exchange: memory, and the seed that clients don't know. */
type SharedMemory = { readonly buffer: SharedArrayBuffer; readonly seed: bigint };

const setLength = 8;
/** The lock, then the total; padded so that the rest is aligned. */
const headBytes = 64;
const bytesPerCell = 24;
const spinsMax = 200;
const lockWaitMs = 1;
const lockWaitsMax = 2_000;

function createSharedMemory(cellsMin: number): SharedMemory {
  const cells = 2 ** Math.ceil(Math.log2(Math.max(setLength, cellsMin)));
  const [seed = 0n] = crypto.getRandomValues(new BigUint64Array(1));
  return { buffer: new SharedArrayBuffer(headBytes + cells * bytesPerCell), seed };
}

/** A place of the table, valid while the lock is held. */
type Cell = number;

/**
 * A table of numbers that the worker threads of a process share: two for each key, and one total.
 * A key is known by 64 bits of a seeded hash: two keys that collide count together. Cells are eight to a set; a key
 * has a place in one set only.
 * Cost: about 0.3 µs for each use, of which the lock is held for a third.
 */
class SharedTable {
  private readonly lock: Int32Array;
  private readonly sum: Float64Array;
  private readonly keys: BigUint64Array;
  readonly first: Float64Array;
  readonly second: Float64Array;
  private readonly seed: bigint;

  constructor({ buffer, seed }: SharedMemory) {
    const cells = (buffer.byteLength - headBytes) / bytesPerCell;
    this.lock = new Int32Array(buffer, 0, 1);
    this.sum = new Float64Array(buffer, 8, 1);
    this.keys = new BigUint64Array(buffer, headBytes, cells);
    this.first = new Float64Array(buffer, headBytes + 8 * cells, cells);
    this.second = new Float64Array(buffer, headBytes + 16 * cells, cells);
    this.seed = seed;
  }

  get total(): number {
    return this.sum[0] as number;
  }

  set total(value: number) {
    this.sum[0] = value;
  }

  /** Keys that have a cell. Counts all: for tests and rare readings. */
  get size(): number {
    return this.keys.reduce((count, key) => (key === 0n ? count : count + 1), 0);
  }

  /**
   * Runs `use` while no other thread uses the table. `use` must be short and must not call back here. A thread that was
   * ended while it had the lock keeps it; after two seconds the lock is taken from it, so that the process can end.
   */
  locked<T>(use: () => T): T {
    for (let spins = 0; Atomics.compareExchange(this.lock, 0, 0, 1) !== 0; spins++) {
      if (spins > spinsMax + lockWaitsMax) break;
      // Whoever holds it may not be running just now.
      if (spins > spinsMax) Atomics.wait(this.lock, 0, 1, lockWaitMs);
    }
    try {
      return use();
    } finally {
      Atomics.store(this.lock, 0, 0);
    }
  }

  hashOf(key: string): bigint {
    const hash = BigInt(Bun.hash(key, this.seed));
    return hash === 0n ? 1n : hash;
  }

  /** The cell of a key, or -1. */
  find(hash: bigint): Cell {
    const start = this.setOf(hash);
    for (let cell = start; cell < start + setLength; cell++) if (this.keys[cell] === hash) return cell;
    return -1;
  }

  /** A free cell of the key's set, or -1. It holds zeros. */
  take(hash: bigint): Cell {
    const start = this.setOf(hash);
    for (let cell = start; cell < start + setLength; cell++) {
      if (this.keys[cell] !== 0n) continue;
      return this.claim(cell, hash);
    }
    return -1;
  }

  /** The cell of the key's set with the least second number, whose key is forgotten. */
  takeOldest(hash: bigint): Cell {
    const start = this.setOf(hash);
    let oldest = start;
    for (let cell = start + 1; cell < start + setLength; cell++) {
      if ((this.second[cell] as number) < (this.second[oldest] as number)) oldest = cell;
    }
    return this.claim(oldest, hash);
  }

  free(cell: Cell): void {
    this.keys[cell] = 0n;
  }

  private claim(cell: Cell, hash: bigint): Cell {
    this.keys[cell] = hash;
    this.first[cell] = 0;
    this.second[cell] = 0;
    return cell;
  }

  private setOf(hash: bigint): Cell {
    const sets = this.keys.length / setLength;
    return (Number(hash & 0xffff_ffffn) % sets) * setLength;
  }
}
