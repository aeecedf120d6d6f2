/**
 * Rates: a token bucket for each key over a bounded table. When the table is full, the bucket used
 * longest ago is forgotten, which gives its key a fresh burst: under a flood of keys the limiter
 * fails open, and its memory stays bounded.
 * Source: rules section 5 "Rate limits".
 */
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { clientNetwork, isLoopbackAddress } from "../../core/message/address.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { createFairShare } from "../http/capacity.ts";
import type { Call, RatedRequest } from "../http/route.ts";

export type RateLimit = {
  readonly perSecond: number;
  readonly burst: number;
  /** Keys remembered at once: about 150 bytes each, 10 MB for all by default. */
  readonly keysMax?: number;
};

export type RateLimiter = {
  /**
   * Claims tokens, one unless it is said: 0 when they were there, else the
   * milliseconds until they are.
   */
  readonly claim: (key: string, nowMs: number, tokens?: number) => number;
  /** Takes tokens. The count may go negative; later claims wait. */
  readonly charge: (key: string, nowMs: number, tokens: number) => void;
  readonly size: number;
};

/** The rate and burst that two settings name, read at each claim: a reload changes them. */
export function limitOf<Name extends string>(
  settings: Readonly<Record<NoInfer<Name>, number>>,
  rate: Name,
  burst: Name,
): () => RateLimit {
  return () => ({ perSecond: settings[rate], burst: settings[burst] });
}

/** So many bytes in a day, all of them at once if need be. */
export function bytesOfDay(bytes: number): RateLimit {
  return { perSecond: (bytes * secondMs) / dayMs, burst: bytes };
}

const keysMaxDefault = 65_536;

type Bucket = { tokens: number; atMs: number };

/** A limit that may change is given as a function. */
export function createRateLimiter(given: RateLimit | (() => RateLimit)): RateLimiter {
  const limit = typeof given === "function" ? given : () => given;
  const buckets = new BoundedMap<string, Bucket>(limit().keysMax ?? keysMaxDefault);
  const bucketOf = (key: string, nowMs: number, { perSecond, burst }: RateLimit): Bucket => {
    const bucket = buckets.get(key);
    if (bucket === undefined) return { tokens: burst, atMs: nowMs };
    // A clock that steps back refills nothing and takes nothing away.
    const elapsedMs = Math.max(0, nowMs - bucket.atMs);
    bucket.tokens = Math.min(burst, bucket.tokens + (elapsedMs * perSecond) / 1_000);
    bucket.atMs = nowMs;
    return bucket;
  };
  return {
    claim(key, nowMs, tokens = 1) {
      const now = limit();
      const bucket = bucketOf(key, nowMs, now);
      // Set again at each use, so that the one that goes is the one used longest ago.
      buckets.set(key, bucket);
      if (bucket.tokens < tokens)
        return Math.ceil(((tokens - bucket.tokens) * 1_000) / now.perSecond);
      bucket.tokens -= tokens;
      return 0;
    },
    charge(key, nowMs, tokens) {
      const bucket = bucketOf(key, nowMs, limit());
      buckets.set(key, bucket);
      bucket.tokens -= tokens;
    },
    get size() {
      return buckets.size;
    },
  };
}

type LoopbackRule = { readonly rate_limit_loopback: boolean };

/** The client of a request, asked before its body is read: 429 `rate_limited`. */
export function checkClientRate(
  limiter: RateLimiter,
  {
    client,
    network,
    nowMs,
  }: { readonly client: string; readonly network: string; readonly nowMs: number },
  settings: LoopbackRule,
): Fault | null {
  return isUnlimited(client, settings) ? null : checkRate(limiter, network, nowMs);
}

/** So many bytes of an envelope count as one: large ones cost the node by the byte. */
const countedBytes = 256 * 1024;

/** The rest of what a large envelope counts. Its length is certain only when it has been read. */
export function chargeBody(limiter: RateLimiter, call: Call, settings: LoopbackRule): void {
  chargeClient(limiter, call, Math.ceil(call.body.length / countedBytes) - 1, settings);
}

/** What a request costs on top of what it was checked for, once that is known. */
export function chargeClient(
  limiter: RateLimiter,
  { client, network, nowMs }: RatedRequest,
  more: number,
  settings: LoopbackRule,
): void {
  if (more > 0 && !isUnlimited(client, settings)) limiter.charge(network, nowMs, more);
}

/** Whether no rate applies to a client: with this setting, to those of this machine. */
export function isUnlimited(client: string, settings: LoopbackRule): boolean {
  return !settings.rate_limit_loopback && isLoopbackAddress(client);
}

export type NetworkPlaces = {
  /**
   * Returns `false`, and takes none, when the client's network has its share
   * or all places are taken.
   */
  readonly take: (client: string) => boolean;
  readonly give: (client: string) => void;
};

/**
 * Places of client networks: one gets at most half of all. A client of this machine may have many
 * others behind it, so it counts in the total alone.
 */
export function networkPlaces(max: number): NetworkPlaces {
  const share = createFairShare(max, { isSpared: isLoopbackAddress });
  const keyOf = (client: string) => (isLoopbackAddress(client) ? client : clientNetwork(client));
  return {
    take: (client) => share.take(keyOf(client), 1),
    give: (client) => share.give(keyOf(client), 1),
  };
}

export function checkRate(limiter: RateLimiter, key: string, nowMs: number): Fault | null {
  const waitMs = limiter.claim(key, nowMs);
  if (waitMs === 0) return null;
  return fault("rate_limited", "too many requests in a short time", {
    retryAfterSeconds: Math.ceil(waitMs / 1_000),
  });
}
