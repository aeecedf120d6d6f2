/**
 * What is on its way to one recipient: prepared one after the other, so that times increase in the order of the calls, and
 * up to eight envelopes at once. After a temporary failure the lane waits, and begins with the first again.
 */
import { hourMs } from "../../core/codec/time.ts";
import type { Slots } from "../../core/std/order.ts";
import { attempt, backoffMs, ClientError, pause } from "../base/failure.ts";
import { Wakeup } from "../base/wakeup.ts";

/** Sent to one recipient at once. */
const flyingMax = 8;
/** Between the beginnings of two, so that they arrive in their order unless something holds one up. */
const apartMs = 20;

/** What a lane has sent for it. `Row` is one copy of a message. */
export type Courier<Row> = {
  /** The first copies of a lane, in their order. */
  readonly waiting: (lane: string, count: number) => Promise<(readonly [string, Row])[]>;
  /** Whether it goes alone: what was before it has arrived, and what is behind it waits. */
  readonly isAlone: (row: Row) => boolean;
  /**
   * Fixes the bytes of a copy, and returns what sends them; `null` when the copy has changed or has ended. The number is
   * a pause of so many milliseconds that a node asks for, 0 the usual one.
   */
  readonly prepare: (place: string, row: Row) => Promise<Flight | number | null>;
};

/** Sends: `null` when the lane may go on, otherwise the pause. */
export type Flight = () => Promise<number | null>;

export class Lane<Row> {
  readonly #prefix: string;
  readonly #courier: Courier<Row>;
  readonly #slots: Slots;
  readonly #signal: AbortSignal;
  readonly #news = new Wakeup();
  readonly #flying = new Map<string, Promise<void>>();
  #hasNews = false;
  #failures = 0;
  /** When the last one left, by `performance.now()`. */
  #leftMs = 0;
  /** Nothing leaves before, by `performance.now()`; `null` when nothing holds it up. */
  #untilMs: number | null = null;
  #running: Promise<void> | null = null;

  constructor(prefix: string, courier: Courier<Row>, slots: Slots, signal: AbortSignal) {
    this.#prefix = prefix;
    this.#courier = courier;
    this.#slots = slots;
    this.#signal = signal;
  }

  /** Something is new in it. */
  wake(): void {
    this.#hasNews = true;
    this.#news.wake();
    this.#running ??= this.#run();
  }

  /** The network may be back: nothing waits for the end of its pause. */
  retry(): void {
    this.#untilMs = null;
    this.#news.wake();
  }

  /** A part has arrived: the next failure is the first one again. */
  progressed(): void {
    this.#failures = 0;
  }

  /** Resolves when nothing of it is on its way, and nothing begins. */
  async ended(): Promise<void> {
    await this.#running;
  }

  /** Until it is empty. */
  async #run(): Promise<void> {
    while (!this.#signal.aborted) {
      this.#news.begin();
      this.#hasNews = false;
      const isEmpty = await this.#launch();
      if (isEmpty && !this.#hasNews) break;
      await this.#news.next(this.#waitMs(), this.#signal);
    }
    await Promise.all(this.#flying.values());
    this.#running = null;
    if (this.#hasNews && !this.#signal.aborted) this.wake();
  }

  get #isPaused(): boolean {
    return this.#untilMs !== null && performance.now() < this.#untilMs;
  }

  /** Until the pause ends, which may be now; without a pause, news ends the wait. */
  #waitMs(): number {
    if (this.#untilMs === null) return hourMs;
    return Math.max(0, Math.ceil(this.#untilMs - performance.now()));
  }

  /** `true` when nothing is left. */
  async #launch(): Promise<boolean> {
    if (this.#isPaused) return false;
    this.#untilMs = null;
    // A row is read as it was before its flight ends: what flies now begins again with the next look.
    const flying = new Set(this.#flying.keys());
    // A store that fails has changed nothing: the same is tried again.
    const rows = await attempt(() => this.#courier.waiting(this.#prefix, flyingMax + 1));
    if (rows instanceof ClientError) this.#pause(0);
    else
      for (const [place, row] of rows) {
        const goesOn = flying.has(place)
          ? !this.#courier.isAlone(row)
          : await this.#begin(place, row);
        if (!goesOn) break;
      }
    return !(rows instanceof ClientError) && rows.length === 0 && this.#flying.size === 0;
  }

  /** `false` when what is behind it waits. */
  async #begin(place: string, row: Row): Promise<boolean> {
    const isAlone = this.#courier.isAlone(row);
    if (this.#signal.aborted || this.#isPaused) return false;
    if (this.#flying.size >= (isAlone ? 1 : flyingMax)) return false;
    const flight = await this.#courier.prepare(place, row);
    if (typeof flight === "number") this.#pause(flight);
    else if (flight === null) this.#news.wake();
    if (flight === null || typeof flight === "number") return false;
    const apart = this.#leftMs + apartMs - performance.now();
    if (this.#flying.size > 0 && apart > 0) await pause(apart, this.#signal);
    this.#leftMs = performance.now();
    const flying = this.#slots.use(flight).then((pauseMs) => {
      this.#flying.delete(place);
      if (pauseMs === null) this.#failures = 0;
      else this.#pause(pauseMs);
      this.#news.wake();
    });
    this.#flying.set(place, flying);
    return !isAlone;
  }

  /** Several that fail together are one failure. */
  #pause(askedMs: number): void {
    if (this.#isPaused) return;
    const pauseMs = askedMs > 0 ? askedMs : backoffMs(this.#failures);
    this.#failures++;
    this.#untilMs = performance.now() + pauseMs;
  }
}
