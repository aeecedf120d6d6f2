/**
 * Groups in the rows of a local store: where a group is, what a program sees of it, and messages
 * that show where its state says, also those that came before it.
 * Source: docs/client.md "People and groups", docs/protocol.md "Groups".
 */

import type { Did } from "../../core/codec/did.ts";
import {
  type GroupRow,
  placeOf,
  type Standing,
  standingOf,
  upgradeRow,
} from "../groups/bundles.ts";
import { namesOf } from "../groups/handing.ts";
import { isIn, membersOf, stateDigest } from "../groups/statements.ts";
import { groupType } from "../mail/content.ts";
import { keyOfGroup, misfiledKey, misfiledOf, nameOfGroup } from "./keys.ts";
import { type MessageRow, moveMessage } from "./rows.ts";
import type { Batch, Table } from "./table.ts";

/** By any id that the group has had here. */
export async function groupAt(
  table: Table,
  id: string,
  from: Pick<Batch, "get"> = table,
): Promise<GroupRow | null> {
  const named = await from.get<string>(nameOfGroup(table, id));
  const row = await from.get<GroupRow>(named ?? keyOfGroup(table, id));
  return row === null ? null : upgradeRow(row);
}

export async function putGroup(table: Table, batch: Batch, row: GroupRow): Promise<void> {
  const key = keyOfGroup(table, placeOf(row));
  batch.put(key, row);
  for (const id of namesOf(row).slice(1)) batch.put(nameOfGroup(table, id), key);
  batch.log(key);
}

/** A group as it is when it is asked for. */
export type GroupFacts = {
  readonly id: string;
  readonly name: string;
  readonly admin: Did;
  readonly members: readonly Did[];
  /**
   * `asked`: somebody who isn't known put this identity into it. `out`: it left, or was taken out.
   */
  readonly standing: Standing;
  /** To whom the admin hands it over: they are the admin as soon as their device knows. */
  readonly next: Did | null;
  /** To whom an admin has handed it over as well, which no one here follows. */
  readonly second: Did | null;
};

export const factsOf = (row: GroupRow, own: Did): GroupFacts => {
  const { name, maker, next = null } = row.state;
  const { second = null, handing = null } = row;
  const [members, standing] = [membersOf(row.state), standingOf(row, own)];
  const wished = maker === own ? (handing?.to ?? null) : null;
  return {
    id: placeOf(row),
    name: name[0],
    admin: maker,
    members,
    standing,
    next: next ?? wished,
    second,
  };
};

// ------------------------------------------------------------------------------------------ filing

type Said = {
  readonly group: string;
  readonly from: Did;
  readonly own: Did;
  readonly isKnown: boolean;
};

/**
 * Where a message belongs that somebody sent to a group: to the group when they are in
 * it. Else to themselves, as a stranger's request if they are one. `null`: nowhere,
 * since this identity has left.
 */
export async function conversationOf(
  table: Table,
  batch: Batch,
  { group, from, own, isKnown }: Said,
): Promise<string | null> {
  const row = await groupAt(table, group, batch);
  // A group whose state has not come so far, or of a program without a store.
  if (row === null || isEmpty(row)) return isKnown ? group : from;
  if (standingOf(row, own) === "out") return null;
  return isIn(row.state, from) ? placeOf(row) : from;
}

/** Nothing of it has counted so far. */
export const isEmpty = ({ state }: GroupRow): boolean => Object.keys(state.members).length === 0;

/**
 * A message that was filed before the state said that its sender is in the group:
 * the state may still say it.
 */
export const markMisfiled = (table: Table, batch: Batch, group: string, key: string): void =>
  batch.put(misfiledKey(table, group, key), key);

export async function refile(table: Table, batch: Batch, row: GroupRow, own: Did): Promise<void> {
  if (isEmpty(row)) return;
  const place = placeOf(row);
  for (const name of namesOf(row))
    for (const [mark, key] of await table.scan<string>({ prefix: misfiledOf(table, name) })) {
      const message = await batch.get<MessageRow>(key);
      const isHere =
        message?.from !== undefined && message.from !== null && isIn(row.state, message.from);
      if (message !== null && !(isHere && standingOf(row, own) !== "out")) continue;
      batch.delete(mark);
      if (message !== null && message.conversation !== place)
        await moveMessage(table, batch, key, { conversation: place, group: place });
    }
}

// ------------------------------------------------------------------------------------------ saying

/** What goes with a message of the group. */
export const addressed = (row: GroupRow) => ({
  id: row.state.id,
  place: placeOf(row),
  digest: stateDigest(row.state),
});

/** With the longest life: who comes back late learns of it. */
export const changing = (group: string) =>
  ({ group, mediaType: groupType, receipt: false, ttl: "30d" }) as const;
