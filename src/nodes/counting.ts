/**
 * Where limits are counted: in this thread, or for all worker threads of the process together. Either way a rate
 * is one rate and a budget is one budget for the process.
 * Source: rules section 9, D190.
 */
import { createFairShare, type FairShare, halfOf, type ShareOptions } from "./http/capacity.ts";
import { createRateLimiter, type RateLimit, type RateLimiter, rateKeysMax, refill } from "./rate.ts";
import { createSharedMemory, type SharedMemory, SharedTable } from "./shared-table.ts";

export const limiterNames = [
  "registrations",
  "relay clients",
  "relay recipients",
  "live connections",
  "cache clients",
] as const;
/** Amounts of the public listeners, and of the admin listeners. `deliveries` are the message ids in delivery. */
export const shareNames = [
  ...(["public", "admin"] as const).flatMap((app) =>
    (["work", "reading", "bodies", "reserved work", "reserved reading", "reserved bodies", "answers"] as const).map(
      (what) => `${app} ${what}` as const,
    ),
  ),
  "deliveries",
] as const;

export type LimiterName = (typeof limiterNames)[number];
export type ShareName = (typeof shareNames)[number];

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
