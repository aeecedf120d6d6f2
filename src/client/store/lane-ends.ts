/**
 * What went last to a recipient: the next message names it, so that a reader who gets that one first can wait for it. Of what
 * reached the node long ago nothing is named, nor of what is kept from others: notes, anonymous messages, files.
 * Source: docs/protocol.md ("Content").
 */
import { secondMs } from "../../core/codec/time.ts";
import { idIn, isQuiet } from "../mail/content.ts";
import { isFileLane, laneEndOf, laneIn } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

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
