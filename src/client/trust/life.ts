/**
 * How long a message lives: as its author signed it, whatever a Cache or a Relay says. What was
 * received is remembered for longer than that, so nothing that is delivered again is new.
 * Source: docs/client.md "Receiving".
 */
import { dayMs } from "../../core/codec/time.ts";

/** No envelope lives longer. */
const ttlMsMax = 30 * dayMs;
/** For devices that get it later from another one, and for clocks. */
const seenMsMore = 3 * dayMs;

type Life = {
  readonly sentMs: number;
  readonly ttlMs: number;
  readonly nowMs: number;
};

/** Of a signed message: whether its time is over, and until when its name is remembered. */
export function decideLife({ sentMs, ttlMs, nowMs }: Life): {
  readonly isOver: boolean;
  readonly seenUntilMs: number;
} {
  const endMs = sentMs + Math.min(ttlMs, ttlMsMax);
  return { isOver: nowMs > endMs, seenUntilMs: endMs + seenMsMore };
}
