/**
 * Times that other devices state: how far ahead of this one's clock they may be. What is further ahead would end all that is
 * said later.
 * Source: docs/protocol.md ("Content"), docs/trust.md ("Own devices").
 */
import { dayMs } from "../../core/codec/time.ts";

/** Clocks differ by less. */
const aheadMsMax = dayMs;

/** What others say of a time that isn't reached counts for nothing. */
export const isReached = (atMs: number, nowMs: number): boolean => atMs <= nowMs + aheadMsMax;

/** What the own user chose on a device whose clock is far ahead was chosen now. */
export const notAhead = (atMs: number, nowMs: number): number =>
  isReached(atMs, nowMs) ? atMs : nowMs;
