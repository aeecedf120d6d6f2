/**
 * What is on its way to one recipient: prepared one after the other, so that times increase in the
 * order of the calls, and up to eight envelopes at once. After a temporary failure the lane waits,
 * and begins with the first again. Each message names what went before it, so that a reader who
 * gets it first can wait for that.
 * Source: docs/protocol.md ("Content").
 */
import { hourMs, secondMs } from "../../core/codec/time.ts";
import type { Slots } from "../../core/std/order.ts";
import { attempt, backoffMs, ClientError, pause, Wakeup } from "../base/failure.ts";
import { idIn, isQuiet } from "../mail/content.ts";
import { isFileLane, laneEndOf, laneIn } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

/** Sent to one recipient at once. */
const flyingMax = 8;
/**
 * Between the beginnings of two, so that they arrive in their order unless something holds one up.
 */
const apartMs = 20;

/** What a lane has sent for it. `Row` is one copy of a message. */
export type Courier<Row> = {
  /** The first copies of a lane, in their order. */
  readonly waiting: (lane: string, count: number) => Promise<(readonly [string, Row])[]>;
  /** Whether it goes alone: what was before it has arrived, and what is behind it waits. */
  readonly isAlone: (row: Row) => boolean;
  /**
   * Fixes the bytes of a copy, and returns what sends them; `null` when the copy has changed or has
   * ended. The number is a pause of so many milliseconds that a node asks for, 0 the usual one.
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
    // A row is read as it was before its flight ends: what flies now begins
    // again with the next look.
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

// ----------------------------------------------------------------------- what the next one follows

/**
 * A copy, as far as it decides whether the next one names it: not what is kept from others, notes,
 * anonymous messages, files.
 */
type Going = {
  readonly file: { readonly mediaType: string };
  readonly options: { readonly anonymous?: boolean; readonly hint?: string };
};
type PreparedRow = { readonly row: Going; readonly nowMs: number };
type LaneEnd = {
  readonly name: string;
  /** In the outbox, as long as it is on its way. */
  readonly place: string;
  readonly atMs: number;
  /** What went before it, in case it fails. */
  readonly former: Omit<LaneEnd, "former"> | null;
};

/** So long after it went, no reader has to wait for it. */
const namedMs = 10 * secondMs;

/** The name by which the next one says that it follows; `null` when nothing follows it. */
function laneEndName(place: string, { file, options }: Going): string | null {
  const isKept = options.anonymous === true || options.hint !== undefined;
  return isKept || isFileLane(laneIn(place)) || isQuiet(file.mediaType)
    ? null
    : idIn(file.mediaType);
}

/** The name of what went before a message that is prepared; `null` when it says none. */
export async function formerName(
  table: Table,
  place: string,
  { row, nowMs }: PreparedRow,
): Promise<string | null> {
  if (laneEndName(place, row) === null) return null;
  const end = await table.get<LaneEnd>(laneEndOf(laneIn(place)));
  if (end === null || end.place === place) return null;
  const isRecent = Math.abs(nowMs - end.atMs) < namedMs;
  return isRecent || (await table.sealed(end.place)) !== null ? end.name : null;
}

/** A message has been prepared: the next one follows it. */
export async function putEnd(
  batch: Batch,
  place: string,
  { row, nowMs: atMs }: PreparedRow,
): Promise<void> {
  const name = laneEndName(place, row);
  if (name === null) return;
  const key = laneEndOf(laneIn(place));
  const before = await batch.get<LaneEnd>(key);
  // One that is prepared anew is behind what it was behind before.
  const isAnew = before?.place === place;
  batch.put(key, {
    name,
    place,
    atMs,
    former: isAnew ? before.former : endOnly(before),
  } satisfies LaneEnd);
}

/** Without what went before it. */
const endOnly = (end: LaneEnd | null): LaneEnd["former"] =>
  end === null ? null : { name: end.name, place: end.place, atMs: end.atMs };

/** A message will not arrive: the next one follows what went before it. */
export async function takeEnd(batch: Batch, place: string): Promise<void> {
  const key = laneEndOf(laneIn(place));
  const end = await batch.get<LaneEnd>(key);
  if (end?.place !== place) return;
  if (end.former === null) batch.delete(key);
  else batch.put(key, { ...end.former, former: null } satisfies LaneEnd);
}
