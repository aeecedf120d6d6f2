/**
 * How far ahead of this device's clock a time may be that another device or a member states. The
 * later choice counts, so a time further ahead would keep every later choice from counting.
 * Source: docs/protocol.md ("Content"), docs/trust.md ("Own devices").
 */
import { dayMs } from "../../core/codec/time.ts";

/** Clocks that are set differ by less. */
const aheadMsMax = dayMs;

/** Whether a clock that is ahead by less than a day can have stated the time. */
export const isReached = (atMs: number, nowMs: number): boolean => atMs <= nowMs + aheadMsMax;

/**
 * When this device hears something, and when it was said, by the message that brings it:
 * the same at all devices.
 */
export type HeardTimes = { readonly nowMs: number; readonly saidMs: number };

/**
 * The time of a choice of this user on another device: no later than its message, nor than it was
 * heard. What a device says before it is removed overrides no choice that is made later.
 */
export const chosenMs = (atMs: number, { nowMs, saidMs }: HeardTimes): number =>
  Math.min(atMs, saidMs, nowMs);

/**
 * The time of a message that another device has: one whose clock is far ahead says when it said so.
 */
export const presentMs = (atMs: number, { nowMs, saidMs }: HeardTimes): number =>
  isReached(atMs, nowMs) ? atMs : Math.min(saidMs, nowMs);
