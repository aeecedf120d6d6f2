/**
 * How fast one client network may register, and make the ledger grow, whose records stay for ever: a rate beyond which a
 * registration needs a proof of work (D152), work that doubles with what a network registers by it, and bytes of
 * registrations and changes in a day.
 * Source: rules section 4 ("Growth of the ledger").
 */
import { dayMs, secondMs } from "../../core/codec/time.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { storingNetwork } from "../../core/message/address.ts";
import { verifyWork, workBitsMax } from "../../core/message/proof.ts";
import type { Call, Route } from "../http/route.ts";
import { createRateLimiter, isUnlimited, limitOf } from "../rates.ts";
import type { DirectorySettings } from "./parts.ts";

/** Puts the share of bytes in front of a route that writes: 429 `rate_limited`. */
export function withinDayBytes(settings: DirectorySettings): (route: Route) => Route {
  const limiter = createRateLimiter(() => {
    const burst = settings.network_day_bytes;
    return { perSecond: (burst * secondMs) / dayMs, burst };
  });
  const check = ({ client, network, nowMs, body }: Call): Fault | null => {
    if (isUnlimited(client, settings)) return null;
    const waitMs = limiter.claim(storingNetwork(network), nowMs, body.length);
    if (waitMs === 0) return null;
    const detail = "this client network has written its share of bytes of a day";
    return fault("rate_limited", detail, { retryAfterSeconds: Math.ceil(waitMs / secondMs) });
  };
  return (route) =>
    route.method === "GET" ? route : { ...route, handle: (call) => check(call) ?? route.handle(call) };
}

export const workHeader = "Svc-Work";

/** 429 `rate_limited` names the work that is asked for; `null` lets the registration go on. */
type CheckPace = (call: Pick<Call, "client" | "network" | "nowMs" | "headers" | "body">) => Fault | null;

export function createPace(settings: DirectorySettings): CheckPace {
  const limiter = createRateLimiter(limitOf(settings, "registration_rate", "registration_burst"));
  const growth = createWorkGrowth(settings);
  return ({ client, network, nowMs, headers, body }) => {
    if (isUnlimited(client, settings)) return null;
    const bits = growth.bits(network, nowMs);
    // Work is checked first: it must not cost the tokens of others of the same network.
    const nonce = headers.get(workHeader);
    if (nonce !== null && bits > 0 && verifyWork(body, nonce, bits)) {
      growth.add(network, nowMs);
      return null;
    }
    const waitMs = limiter.claim(network, nowMs);
    return waitMs === 0 ? null : tooFast(waitMs, bits);
  };
}

function tooFast(waitMs: number, bits: number): Fault {
  const retryAfterSeconds = Math.ceil(waitMs / secondMs);
  if (bits === 0) return fault("rate_limited", "too many registrations in a short time", { retryAfterSeconds });
  const detail = `too many registrations in a short time: wait, or send a proof of work of ${bits} bits in ${workHeader}`;
  return fault("rate_limited", detail, { retryAfterSeconds, headers: { [workHeader]: `sha256; bits=${bits}` } });
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
  const counted = createRateLimiter(() => ({
    perSecond: settings.registration_rate,
    burst: doublingCount * workBitsMax,
  }));
  return {
    bits: (network, nowMs) => {
      const least = settings.registration_work_bits;
      const more = Math.floor(counted.used(network, nowMs) / doublingCount);
      return least === 0 ? 0 : Math.min(workBitsMax, least + more);
    },
    add: (network, nowMs) => void counted.claim(network, nowMs),
  };
}
