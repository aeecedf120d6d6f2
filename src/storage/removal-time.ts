/**
 * Until when what has ended may be removed. What is removed is lost, and a clock that is
 * wrong for seconds must cost nothing: so the wall clock is compared with the monotonic
 * one, and a jump ahead counts for removals only when it has lasted. Reads go by the wall
 * clock alone.
 *
 * - Records: after a jump of more than five minutes, also between two runs, nothing that
 *   the jump ended is removed for an hour.
 * - Claims, whose proofs work again once the clock is back: after any jump for ten minutes,
 *   the longest life of a proof, and for as long after a start.
 */
import { hourMs, minuteMs } from "../core/codec/time.ts";

const jumpMsMin = 5 * minuteMs;
const recordsHoldMs = hourMs;
const claimsHoldMs = 10 * minuteMs;

type Clocks = {
  readonly now: () => number;
  /** Monotonic milliseconds from any beginning; a machine that sleeps may stop it. */
  readonly uptimeMs: () => number;
};

export type Jump = {
  readonly aheadMs: number;
  /** Whether it was found at the start: then the process may only have been stopped for so long. */
  readonly isOfStart: boolean;
};

/** How far the wall clock was ahead of the monotonic one, at a time of that. */
type Look = { readonly atMs: number; readonly offsetMs: number };

export class RemovalTime {
  /** The wall clock, ahead of the monotonic one, that counts for records; `null` before `begin`. */
  private offsetMs: number | null = null;
  /** The jump that is waited for. */
  private jump: (Look & { readonly isOfStart: boolean }) | null = null;
  /** What counted in the last ten minutes, and before them. */
  private looks: Look[] = [];
  private beganAtMs = 0;

  constructor(private readonly clocks: Clocks) {}

  /** Until then nothing may be removed. */
  get hasBegun(): boolean {
    return this.offsetMs !== null;
  }

  /** `lastMs`: until when the run before has removed records; `null` for none. */
  begin(lastMs: number | null): void {
    const { atMs, offsetMs } = this.glance();
    this.beganAtMs = atMs;
    this.offsetMs = lastMs === null ? offsetMs : Math.min(offsetMs, lastMs - atMs);
    this.look();
    if (this.jump !== null) this.jump = { ...this.jump, isOfStart: true };
  }

  private glance(): Look {
    const atMs = this.clocks.uptimeMs();
    return { atMs, offsetMs: this.clocks.now() - atMs };
  }

  /**
   * Compares the clocks; the caller does so every few seconds. Returns the jump that is
   * waited for, or `null`.
   */
  look(): Jump | null {
    const { atMs, offsetMs } = this.glance();
    const aheadMs = offsetMs - (this.offsetMs ?? offsetMs);
    if (this.hasCome(aheadMs, { atMs, offsetMs })) {
      this.jump = null;
      this.offsetMs = offsetMs;
    }
    const past = this.looks.findLastIndex((look) => look.atMs <= atMs - claimsHoldMs);
    this.looks = [...this.looks.slice(Math.max(0, past)), { atMs, offsetMs: this.offsetMs! }];
    return this.jump === null ? null : { aheadMs, isOfStart: this.jump.isOfStart };
  }

  /** Whether the wall clock counts as it is: it did not jump, or the jump has lasted. */
  private hasCome(aheadMs: number, { atMs, offsetMs }: Look): boolean {
    if (aheadMs <= jumpMsMin) return true;
    // A second jump is waited for anew.
    if (this.jump === null || Math.abs(offsetMs - this.jump.offsetMs) > jumpMsMin)
      this.jump = { atMs, offsetMs, isOfStart: false };
    return atMs - this.jump.atMs >= recordsHoldMs;
  }

  /** Records that ended by then may be removed. */
  recordsMs(): number {
    return this.offsetMs === null ? 0 : this.at(this.offsetMs);
  }

  /** Claims that ended by then may be forgotten. */
  claimsMs(): number {
    if (!this.hasBegun || this.clocks.uptimeMs() - this.beganAtMs < claimsHoldMs) return 0;
    return this.at(Math.min(...this.looks.map(({ offsetMs }) => offsetMs)));
  }

  /**
   * The time by an offset that counts, in whole milliseconds, and never ahead of the wall
   * clock.
   */
  private at(offsetMs: number): number {
    return Math.floor(Math.min(offsetMs + this.clocks.uptimeMs(), this.clocks.now()));
  }
}
