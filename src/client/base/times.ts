/**
 * How far ahead of this device's clock a time may be that another device or a member states. The later choice counts, so a
 * time further ahead would keep every later choice from counting.
 * Source: docs/protocol.md ("Content"), docs/trust.md ("Own devices").
 */
import { dayMs } from "../../core/codec/time.ts";

/** Clocks that are set differ by less. */
const aheadMsMax = dayMs;

/** Whether a clock that is ahead by less than a day can have stated the time. */
export const isReached = (atMs: number, nowMs: number): boolean => atMs <= nowMs + aheadMsMax;

/** The time of a choice of this user on another device: one whose clock is far ahead chose now. */
export const presentMs = (atMs: number, nowMs: number): number =>
  isReached(atMs, nowMs) ? atMs : nowMs;
