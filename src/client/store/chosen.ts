/**
 * What this user has chosen in a conversation: words that are not sent, whether it is pinned, muted
 * or put away, and how long its messages last. Each choice has a time of its own, so devices of one
 * identity merge them in any order: the later one counts.
 * Source: docs/client.md "A local store", docs/protocol.md ("Content").
 */
import { type Did, isDid } from "../../core/codec/did.ts";
import { secondMs } from "../../core/codec/time.ts";
import { isRecord } from "../base/shapes.ts";
import { chosenMs, type HeardTimes, isReached } from "../base/times.ts";
import { lastsSecondsMax, timerType } from "../mail/content.ts";
import { essenceOf, jsonIn } from "../mail/message.ts";
import { groupAt } from "./group-rows.ts";
import { keyOfChosen } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

type Choice<T> = { readonly value: T; readonly atMs: number };

/** How long messages last from now on; 0: until they are deleted. */
type Timer = { readonly seconds: number; readonly version: number; readonly by: Did };

export type ChosenRow = {
  readonly id: string;
  readonly draft?: Choice<string>;
  readonly isPinned?: Choice<boolean>;
  readonly isMuted?: Choice<boolean>;
  readonly isArchived?: Choice<boolean>;
  readonly timer?: Timer;
};

type Name = "draft" | "isPinned" | "isMuted" | "isArchived";
const names: readonly Name[] = ["draft", "isPinned", "isMuted", "isArchived"];

export type Chosen = {
  readonly isPinned: boolean;
  /** No notifications, and its unread messages count for nothing. */
  readonly isMuted: boolean;
  /** Until something comes, unless it is muted. */
  readonly isArchived: boolean;
  /** How long its messages last, in seconds; 0: until they are deleted. */
  readonly lastsSeconds: number;
};

export const chosenAt = (
  table: Table,
  id: string,
  from: Pick<Batch, "get"> = table,
): Promise<ChosenRow | null> => from.get(keyOfChosen(table, id));

/** `lastMs`: the time of its last message. */
export function chosenOf(row: ChosenRow | null, lastMs: number): Chosen {
  const isMuted = row?.isMuted?.value ?? false;
  const { value: isAway = false, atMs = 0 } = row?.isArchived ?? {};
  return {
    isPinned: row?.isPinned?.value ?? false,
    isMuted,
    isArchived: isAway && (isMuted || lastMs <= atMs),
    lastsSeconds: row?.timer?.seconds ?? 0,
  };
}

/** Later than what it replaces, whatever the clock says. */
export async function putChoice(
  table: Table,
  batch: Batch,
  id: string,
  { choice, nowMs }: { readonly choice: Partial<Record<Name, unknown>>; readonly nowMs: number },
): Promise<void> {
  const before: ChosenRow = (await chosenAt(table, id, batch)) ?? { id };
  const made = Object.entries(choice).map(([name, value]) => {
    const atMs = Math.max(nowMs, (before[name as Name]?.atMs ?? 0) + 1);
    return [name, { value, atMs }] as const;
  });
  batch.put(keyOfChosen(table, id), { ...before, ...Object.fromEntries(made) });
}

/** Of two devices: by each choice the later one, and no timer of a time to come. */
export function mergeChosen(held: ChosenRow, given: ChosenRow, nowMs: number): ChosenRow {
  const later = names.flatMap((name) => {
    const [a, b] = [held[name], given[name]];
    const choice = (b?.atMs ?? -1) > (a?.atMs ?? -1) ? b : a;
    return choice === undefined ? [] : [[name, choice] as const];
  });
  const isTimely = isReached((given.timer?.version ?? 0) * secondMs, nowMs);
  const timer = isTimely ? laterTimer(held.timer, given.timer) : held.timer;
  return {
    id: held.id,
    ...Object.fromEntries(later),
    ...(timer === undefined ? {} : { timer }),
  };
}

/** What another device says: none was made later than it says so. */
export function presentChoices(row: ChosenRow, heard: HeardTimes): ChosenRow {
  const made = names.flatMap((name) => {
    const choice = row[name];
    if (choice === undefined) return [];
    return [[name, { ...choice, atMs: chosenMs(choice.atMs, heard) }] as const];
  });
  return { ...row, ...Object.fromEntries(made) };
}

// ------------------------------------------------------------------------------- how long it lasts

/** What a member says of how long messages last. `null` for other content. */
export function timerIn(
  typed: { readonly mediaType: string },
  content: Uint8Array,
): Omit<Timer, "by"> | null {
  return essenceOf(typed) === timerType ? parseTimer(jsonIn(content)) : null;
}

export function parseTimer(json: unknown): Omit<Timer, "by"> | null {
  const { v, seconds, version } = isRecord(json) ? json : {};
  const isFit = (value: unknown): value is number =>
    Number.isSafeInteger(value) && Number(value) >= 0;
  if (v !== 1 || !isFit(seconds) || seconds > lastsSecondsMax || !isFit(version)) return null;
  return { seconds, version };
}

/** The one that all come to: by version, and of one version by who chose it. */
function laterTimer(a: Timer | undefined, b: Timer | undefined): Timer | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const isLater = b.version === a.version ? b.by > a.by : b.version > a.version;
  return isLater ? b : a;
}

/**
 * A choice that somebody has made, this user too: in a group its admin's alone counts. `false` when
 * it doesn't, or a later one holds.
 */
export async function putTimer(
  table: Table,
  batch: Batch,
  id: string,
  { given, nowMs }: { readonly given: Timer; readonly nowMs: number },
): Promise<boolean> {
  const group = isDid(id) ? null : await groupAt(table, id, batch);
  if (!isDid(id) && group?.state.maker !== given.by) return false;
  if (!isReached(given.version * secondMs, nowMs)) return false;
  const before: ChosenRow = (await chosenAt(table, id, batch)) ?? { id };
  if (laterTimer(before.timer, given) !== given) return false;
  batch.put(keyOfChosen(table, id), { ...before, timer: given } satisfies ChosenRow);
  batch.log(keyOfChosen(table, id));
  return true;
}

/** Greater than what is known, and at least the seconds since 1970. */
export const nextVersion = (row: ChosenRow | null, nowMs: number): number =>
  Math.max(Math.floor(nowMs / secondMs), (row?.timer?.version ?? 0) + 1);
