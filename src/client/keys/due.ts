/**
 * When the secret that others seal to is replaced. A page that says hello needs no more of these
 * rules (`agreements.ts`).
 * Source: docs/trust.md ("The sealing key").
 */
import { dayMs } from "../../core/codec/time.ts";

export type SealingFacts = {
  /** Which root seed was in force when it was made: under another one it is never published. */
  readonly under: string;
  /** Later than all that its maker knew. */
  readonly madeMs: number;
  /** After this nothing sealed to it can be waiting; `null` for the published one. */
  readonly destroyAtMs: number | null;
};

/** The time of a new secret: behind all others, whatever the clocks of other devices said. */
export const nextMadeMs = (held: readonly SealingFacts[], nowMs: number): number =>
  held.reduce((last, { madeMs }) => Math.max(last, madeMs + 1), nowMs);

/** Each device gives those with a lower DID a day more. */
const turnMs = (rank: number, everyMs: number): number => rank * Math.min(dayMs, everyMs / 7);

export function isSealingDue({
  nowMs,
  sinceMs,
  everyMs,
  rank,
}: {
  readonly nowMs: number;
  /** Since when this device knows the published key. */
  readonly sinceMs: number;
  /** How old the published key may become; infinite for never. */
  readonly everyMs: number;
  /** Of its DID among those of all devices: 0 is the lowest. */
  readonly rank: number;
}): boolean {
  return everyMs !== Number.POSITIVE_INFINITY && nowMs - sinceMs >= everyMs + turnMs(rank, everyMs);
}
