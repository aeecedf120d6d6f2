/**
 * How fast one client network may make the ledger grow, whose records stay for ever: bytes of registrations and changes
 * in a day, and work that doubles with what a network registers by work.
 * Source: rules section 4 ("Growth of the ledger").
 */
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { isLoopbackAddress, storingNetwork } from "../../core/message/address.ts";
import { workBitsMax } from "../../core/message/proof.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import type { Call, Route } from "../http/route.ts";
import { createRateLimiter, rateKeysMax } from "../rates.ts";
import type { DirectorySettings } from "./parts.ts";

/** Puts the share of bytes in front of a route that writes: 429 `rate_limited`. */
export function withinDayBytes(settings: DirectorySettings): (route: Route) => Route {
  const limiter = createRateLimiter({
    get perSecond() {
      return (settings.network_day_bytes * secondMs) / dayMs;
    },
    get burst() {
      return settings.network_day_bytes;
    },
    keysMax: rateKeysMax,
  });
  const check = ({ client, network, nowMs, body }: Call): Fault | null => {
    if (!settings.rate_limit_loopback && isLoopbackAddress(client)) return null;
    const waitMs = limiter.claim(storingNetwork(network), nowMs, body.length);
    if (waitMs === 0) return null;
    const detail = "this client network has written its share of bytes of a day";
    return fault("rate_limited", detail, { retryAfterSeconds: Math.ceil(waitMs / secondMs) });
  };
  return (route) =>
    route.method === "GET" ? route : { ...route, handle: (call) => check(call) ?? route.handle(call) };
}

/** Registrations by work that double it. */
const doublingCount = 256;

type WorkGrowth = {
  /** Zero bits that a network must show now. */
  readonly bits: (network: string, nowMs: number) => number;
  /** Counts a registration by work. */
  readonly add: (network: string, nowMs: number) => void;
};

/** The count falls again at the rate of registrations. */
export function createWorkGrowth(settings: DirectorySettings): WorkGrowth {
  const counts = new BoundedMap<string, { readonly count: number; readonly atMs: number }>(rateKeysMax);
  const countOf = (network: string, nowMs: number): number => {
    const { count = 0, atMs = nowMs } = counts.get(network) ?? {};
    return Math.max(0, count - (Math.max(0, nowMs - atMs) / secondMs) * settings.registration_rate);
  };
  return {
    bits: (network, nowMs) => {
      const least = settings.registration_work_bits;
      return least === 0 ? 0 : Math.min(workBitsMax, least + Math.floor(countOf(network, nowMs) / doublingCount));
    },
    add: (network, nowMs) => void counts.set(network, { count: countOf(network, nowMs) + 1, atMs: nowMs }),
  };
}
