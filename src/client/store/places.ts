/**
 * Where a message stands in its conversation: messages of one sender in the order of their
 * times, at every reader; those of two senders by the earlier of both times of each, when it was
 * sent and when it arrived.
 * Source: docs/client.md "A local store".
 */
import type { Did } from "../../core/codec/did.ts";
import { hourMs } from "../../core/codec/time.ts";
import { endOf, messageKey, messagesFrom, messagesOf } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

type Times = {
  /** By the clock of the sender. */
  readonly sentMs: number;
  readonly arrivedMs: number;
  readonly placedMs?: number;
};
type Placed = Times & {
  readonly conversation: string;
  readonly from: Did | null;
  readonly isOwn: boolean;
};
type Named = Placed & { readonly id: string; readonly digest: string };
type Talk = { readonly arrivedMs: number; readonly aheadMs?: number };

/** So many messages are looked at for a later one of the same sender. */
const lookedMax = 256;

/** A sender's clock that is ahead puts no message behind later ones of others. */
export const orderOf = ({ sentMs, arrivedMs, placedMs }: Times): number =>
  placedMs ?? Math.min(sentMs, arrivedMs);

export function keyOfMessage(table: Table, row: Named): string {
  const { conversation, sentMs, id, digest } = row;
  return messageKey(table, { conversation, atMs: orderOf(row), sentMs, id, digest });
}

/**
 * Times of arrival in a conversation differ and increase: read marks and the order of own messages
 * compare them. One by a clock that was ahead is followed by none.
 */
export const arrivalOf = (before: Talk, givenMs: number, nowMs = givenMs): number =>
  wasAhead(before, nowMs) ? givenMs : Math.max(givenMs, before.arrivedMs + 1);

export const wasAhead = ({ arrivedMs }: Talk, nowMs: number): boolean => arrivedMs > nowMs + hourMs;

/**
 * Where a message stands before its own times, since one that its sender wrote
 * later does; else `null`.
 */
export async function placeAmong(
  table: Table,
  batch: Batch,
  { aheadMs = 0 }: Talk,
  row: Placed,
): Promise<number | null> {
  // Only behind the times of a clock that is ahead may a later one stand earlier.
  return row.sentMs < aheadMs ? placeOfLater(table, batch, row) : null;
}

/**
 * The place of the first message that the same sender wrote later, where it is
 * before that of this one.
 */
async function placeOfLater(table: Table, batch: Batch, row: Placed): Promise<number | null> {
  const prefix = messagesOf(table, row.conversation);
  const to = endOf(messagesFrom(table, row.conversation, orderOf(row)));
  const range = { prefix, to, limit: lookedMax, isReverse: true };
  let placeMs: number | null = null;
  for (const [key] of await table.scan(range)) {
    // One change may put several.
    const other = await batch.get<Placed>(key);
    if (other?.from !== row.from || other.isOwn !== row.isOwn) continue;
    if (other.sentMs <= row.sentMs) break;
    placeMs = orderOf(other);
  }
  return placeMs;
}

/** Until when messages of this conversation may stand before their times. */
export const aheadIn = ({ aheadMs = 0 }: Talk, row: Times): Pick<Talk, "aheadMs"> =>
  row.sentMs > Math.max(aheadMs, orderOf(row)) ? { aheadMs: row.sentMs } : {};
