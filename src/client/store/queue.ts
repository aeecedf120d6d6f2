/**
 * What a program that acknowledges by itself is to get next: in the order of arrival, but no
 * message before one that its sender sent ahead of it, unless that one does not come within a
 * second: one that was acknowledged in an earlier run never does.
 * Source: docs/client.md "Receiving", docs/protocol.md ("Content").
 */
import { secondMs } from "../../core/codec/time.ts";
import type { Message } from "../mail/message.ts";

type Waiting = {
  readonly message: Message;
  /** Of its envelopes, and its own. */
  readonly marks: ReadonlySet<string>;
  /** The mark of the message that it follows; `null` when it is known, or none is named. */
  readonly follows: string | null;
  /** Called when the program gets it. */
  readonly onGiven: () => void;
};
type Held = Waiting & { readonly sinceMs: number };

/** How long a message waits for the one that was sent before it. */
export const heldMs = secondMs;
/** Messages that are opened and not yet read by the program. */
const queuedMax = 32;
/** So many marks of what was handed over are remembered. */
const handedMax = 1_000;

/** What the program was given, in each of its loops. */
export class Handed {
  readonly #marks = new Set<string>();

  has(mark: string): boolean {
    return this.#marks.has(mark);
  }

  add(marks: Iterable<string>): void {
    for (const mark of marks) this.#marks.add(mark);
    for (const mark of this.#marks)
      if (this.#marks.size > handedMax) this.#marks.delete(mark);
      else break;
  }
}

export class Queue {
  readonly #waiting: Held[] = [];
  readonly #handed: Handed;

  constructor(handed: Handed) {
    this.#handed = handed;
  }

  get isFull(): boolean {
    return this.#waiting.length >= queuedMax;
  }

  add(waiting: Waiting): void {
    this.#waiting.push({ ...waiting, sinceMs: performance.now() });
  }

  clear(): void {
    this.#waiting.length = 0;
  }

  /**
   * The first that waits for no other; `null` when there is none now. In a full queue what they
   * wait for has no place: then the first of all.
   */
  take(): Message | null {
    const held = new Set<string>();
    const place = this.#waiting.findIndex((one) => {
      const waits = this.#waits(one, held);
      if (waits) for (const mark of one.marks) held.add(mark);
      return !waits;
    });
    if (place === -1 && !this.isFull) return null;
    const [taken] = this.#waiting.splice(Math.max(place, 0), 1);
    if (taken === undefined) return null;
    this.#handed.add(taken.marks);
    taken.onGiven();
    return taken.message;
  }

  /** When to look again, unless something comes. */
  waitMs(unless: number): number {
    return this.#waiting.length > 0 ? heldMs / 4 : unless;
  }

  #waits({ follows, sinceMs }: Held, held: ReadonlySet<string>): boolean {
    if (follows === null || performance.now() - sinceMs >= heldMs) return false;
    return held.has(follows) || !this.#handed.has(follows);
  }
}
