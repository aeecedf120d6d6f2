/**
 * When an authorization is in time: an end that is named must lie ahead, but not far; a timestamp without
 * an end must be near the node's clock.
 * Source: rules sections 4 ("Signing order of checks") and 10 ("Registration").
 */
import { badInput, type Fault } from "../../core/fault.ts";

type EndRule = { readonly aheadMsMax: number; readonly pointer: string };

/** now < end <= now + the window. `authorization_expired`, `authorization_too_far_ahead`. */
export function decideEnd(endMs: bigint, nowMs: number, rule: EndRule): Fault | null {
  if (endMs <= BigInt(nowMs)) return badInput("authorization_expired", rule.pointer, "has passed");
  if (endMs <= BigInt(nowMs + rule.aheadMsMax)) return null;
  return badInput("authorization_too_far_ahead", rule.pointer, `is more than ${rule.aheadMsMax / 1_000} s ahead`);
}

/** Within the skew, either way. The same two codes. */
export function decideFreshness(timestampMs: number, nowMs: number, skewMs: number): Fault | null {
  if (timestampMs < nowMs - skewMs) return badInput("authorization_expired", "/timestamp", "is too old");
  if (timestampMs <= nowMs + skewMs) return null;
  return badInput("authorization_too_far_ahead", "/timestamp", "lies too far in the future");
}
