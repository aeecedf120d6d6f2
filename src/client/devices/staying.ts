/**
 * Which of the other devices stay under new keys: those that the user has seen. A device of a thief
 * could list a helper between that look and the new keys, or while a removal is interrupted.
 * Source: docs/trust.md ("Own devices").
 */
import type { Did } from "../../core/codec/did.ts";
import { localError } from "../base/failure.ts";
import type { Table } from "../store/table.ts";
import { peersOf } from "./replica.ts";

/** `looked`: the devices that the user has seen last; `null` for all. */
export async function shownPeers(table: Table, looked: readonly Did[] | null): Promise<Did[]> {
  const peers = (await peersOf(table)).filter(({ isLeaving }) => !isLeaving);
  return peers.map(({ did }) => did).filter((did) => looked === null || looked.includes(did));
}

/** All that are not to go. Throws `devices_changed` where the user has not seen one. */
export async function allSeen(table: Table, looked: readonly Did[] | null): Promise<Did[]> {
  const all = await shownPeers(table, null);
  if (looked === null || all.every((did) => looked.includes(did))) return all;
  throw localError("devices_changed", "another device came since the last look: list them again");
}

/** Who is removed, and each that does not stay. */
export async function allGone(
  table: Table,
  removed: readonly Did[],
  stays: readonly Did[],
): Promise<Did[]> {
  const peers = (await peersOf(table)).map(({ did }) => did);
  return [...new Set([...removed, ...peers.filter((did) => !stays.includes(did))])];
}

/** As the removal has noted that was begun; else all that are not to go. */
export async function notedPeers(table: Table): Promise<Did[]> {
  const peers = await peersOf(table);
  const noted = peers.find(({ isLeaving, stays }) => isLeaving && stays !== undefined);
  return shownPeers(table, noted?.stays ?? null);
}
