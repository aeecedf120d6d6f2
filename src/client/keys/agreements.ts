/**
 * The secrets that others seal to, as pure rules. Each is fresh randomness, so that no earlier
 * state of a device leads to a later one. Of several devices the one with the lowest DID replaces
 * the key first; the others' Caches have the new secret before it is published. Who meets a
 * published key without its secret asks them, and after an hour publishes another.
 * Source: docs/trust.md ("The sealing key").
 */

import { dayMs, hourMs } from "../../core/codec/time.ts";
import { integer, object, text } from "../base/shapes.ts";
import { isSealingDue, type SealingFacts } from "./due.ts";

/**
 * The published key whose secret this device lacks, since when, and when it
 * last published another one.
 */
export const lackingShape = object({ key: text, sinceMs: integer, replacedMs: integer });

/** How long the other devices' Caches may take before a secret is published without them. */
const offerMsMax = dayMs;
/** How long other devices may take to answer. */
const askMs = hourMs;

/**
 * Of one root seed the last: the key to publish, for all devices the same as
 * soon as they have the same.
 */
export const newestUnder = <T extends SealingFacts>(held: readonly T[], under: string): T | null =>
  held.findLast((one) => one.under === under) ?? null;

/**
 * Both sets, without secrets that are over: by time, and of one time by name. What this
 * device knows of an end stays.
 */
export function joinSecrets<T extends SealingFacts>(
  held: readonly T[],
  given: readonly T[],
  { nameOf, nowMs }: { readonly nameOf: (one: T) => string; readonly nowMs: number },
): readonly T[] {
  const isOver = ({ destroyAtMs }: T) => destroyAtMs !== null && destroyAtMs <= nowMs;
  const all = new Map(held.map((one) => [nameOf(one), one]));
  for (const one of given) if (!all.has(nameOf(one)) && !isOver(one)) all.set(nameOf(one), one);
  if (all.size === held.length) return held;
  return [...all.values()].sort((a, b) => a.madeMs - b.madeMs || (nameOf(a) < nameOf(b) ? -1 : 1));
}

type Look = {
  readonly nowMs: number;
  /** For how long something sealed to a key may wait after it was replaced. */
  readonly keptMs: number;
  /** Secrets of a root seed that is not in force so far stay as they are. */
  readonly next: string | null;
};

/**
 * After a look at the document: the published one has no end, all others have one,
 * and those past it are gone.
 */
export function withEnds<T extends SealingFacts>(
  held: readonly T[],
  published: T,
  { nowMs, keptMs, next }: Look,
): T[] {
  const ended = held.map((one): T => {
    if (one === published) return one.destroyAtMs === null ? one : { ...one, destroyAtMs: null };
    if (one.under === next || one.destroyAtMs !== null) return one;
    return { ...one, destroyAtMs: nowMs + keptMs };
  });
  return ended.filter(({ destroyAtMs }) => destroyAtMs === null || destroyAtMs > nowMs);
}

/**
 * The one to publish after `published`: made later, under the root seed in force, and
 * by no means near its end.
 */
export function pendingAfter<T extends SealingFacts>(
  held: readonly T[],
  published: T,
  { under, nowMs }: { readonly under: string; readonly nowMs: number },
): T | null {
  const newest = newestUnder(held, under);
  if (newest === null || newest === published || newest.madeMs <= published.madeMs) return null;
  const { madeMs, destroyAtMs } = newest;
  // Others may have destroyed theirs at the same time.
  const isNearEnd = destroyAtMs !== null && nowMs > madeMs + (destroyAtMs - madeMs) / 2;
  return isNearEnd ? null : newest;
}

/** What a device may know of the published key and of the other devices. */
export type SealingSituation = {
  readonly nowMs: number;
  /** Since when this device knows the published key. */
  readonly sinceMs: number;
  /** How old the published key may become; infinite for never. */
  readonly everyMs: number;
  /** Of its DID among those of all devices: 0 is the lowest. */
  readonly rank: number;
  readonly others: number;
  readonly pending: SealingFacts | null;
  /** The others' Caches have the pending one. */
  readonly isShared: boolean;
};

type SealingStep = "wait" | "make" | "share" | "publish";

/** What is next, for a device that has the published secret. */
export function decideSealing(situation: SealingSituation): SealingStep {
  const { nowMs, pending, isShared, others } = situation;
  if (!isSealingDue(situation)) return "wait";
  if (pending === null) return "make";
  const isLate = nowMs - pending.madeMs >= offerMsMax;
  return others === 0 || isShared || isLate ? "publish" : "share";
}

/** What is next, for a device that lacks the published secret since a time. */
export function decideLacking({
  nowMs,
  sinceMs,
  replacedMs,
  others,
}: {
  readonly nowMs: number;
  readonly sinceMs: number;
  /** When it last published another one in such a case. */
  readonly replacedMs: number;
  readonly others: number;
}): "ask" | "wait" | "replace" {
  if (others > 0 && nowMs - sinceMs < askMs) return "ask";
  // Copies of one key file that don't know each other would replace each other's key all the time.
  return nowMs - replacedMs < askMs ? "wait" : "replace";
}
