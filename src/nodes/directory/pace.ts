/**
 * The pace of registrations: each client network has a token bucket, and beyond it a registration must carry a proof
 * of work in `Svc-Work`. Whoever registers a few DIDs never notices; whoever registers many pays for each.
 * Source: D152.
 */

import { type Fault, fault } from "../../core/fault.ts";
import { isLoopbackAddress } from "../../core/message/address.ts";
import { verifyWork } from "../../core/message/work.ts";
import type { Counting } from "../counting.ts";
import type { Call } from "../http/route.ts";
import { rateKeysMax } from "../rate.ts";
import type { DirectorySettings } from "./parts.ts";

export const workHeader = "Svc-Work";

/** 429 `rate_limited` with the work that is asked for; `null` when the registration may go on. */
type CheckPace = (call: Pick<Call, "client" | "network" | "nowMs" | "headers" | "body">) => Fault | null;

export function createPace(settings: DirectorySettings, counting: Counting): CheckPace {
  const limiter = counting.limiter("registrations", {
    get perSecond() {
      return settings.registration_rate;
    },
    get burst() {
      return settings.registration_burst;
    },
    keysMax: rateKeysMax,
  });
  return (call) => {
    if (!settings.rate_limit_loopback && isLoopbackAddress(call.client)) return null;
    const bits = settings.registration_work_bits;
    // Work is checked first: it must not cost the tokens of others of the same network.
    const nonce = call.headers.get(workHeader);
    if (nonce !== null && bits > 0 && verifyWork(call.body, nonce, bits)) return null;
    const waitMs = limiter.claim(call.network, call.nowMs);
    return waitMs === 0 ? null : tooFast(waitMs, bits);
  };
}

function tooFast(waitMs: number, bits: number): Fault {
  const retryAfterSeconds = Math.ceil(waitMs / 1_000);
  if (bits === 0) return fault("rate_limited", "too many registrations in a short time", { retryAfterSeconds });
  const detail = `too many registrations in a short time: wait, or send a proof of work of ${bits} bits in ${workHeader}`;
  return fault("rate_limited", detail, { retryAfterSeconds, headers: { [workHeader]: `sha256; bits=${bits}` } });
}
