/**
 * Groups in the rows of a local store. Changes come as messages, own ones too, and are applied by the same rules.
 * Source: docs/client.md "People and groups".
 */

import type { Did } from "../../core/codec/did.ts";
import {
  decideChange,
  decideFirst,
  type GroupChange,
  type GroupRow,
  isIn,
  membersOf,
  type Standing,
  standingOf,
} from "../groups/group-rules.ts";
import { keyOfGroup, rowsOf } from "./keys.ts";
import type { Batch, Table } from "./table.ts";

/** Of all, and of those whom strangers put this identity into: further ones are ignored. */
const [groupsMax, askedMax] = [1_000, 50];

type Putting = GroupChange & { readonly own: Did; readonly isKnown: boolean };

/** Applies a change. `false` when it changes nothing here. Who isn't known asks first. */
export async function putChange(
  table: Table,
  batch: Batch,
  { own, isKnown, ...change }: Putting,
): Promise<boolean> {
  const { id, from } = change;
  const before = await batch.get<GroupRow>(keyOfGroup(table, id));
  const state = decideChange(before, change) ?? decideFirst(before, change, own);
  if (state === null) return false;
  const joined = from === own ? state.version : (before?.joined ?? (isKnown ? state.version : 0));
  const row = { ...state, joined };
  if (standingOf(before, own) === "out" && standingOf(row, own) === "out") return false;
  if (before === null && !(await hasRoom(table, standingOf(row, own), own))) return false;
  putGroup(table, batch, row);
  return true;
}

async function hasRoom(table: Table, standing: Standing, own: Did): Promise<boolean> {
  const rows = await table.scan<GroupRow>({ prefix: rowsOf.groups, limit: groupsMax });
  const asked = rows.filter(([, row]) => standingOf(row, own) === "asked");
  return rows.length < groupsMax && (standing === "joined" || asked.length < askedMax);
}

export function putGroup(table: Table, batch: Batch, group: GroupRow): void {
  const key = keyOfGroup(table, group.id);
  batch.put(key, group);
  batch.log(key);
}

type Said = {
  readonly group: string;
  readonly from: Did;
  readonly own: Did;
  readonly isKnown: boolean;
};

/**
 * Where a message belongs that somebody sent to a group: to the group when they are in it. Else to themselves, as a
 * stranger's request if they are one. `null`: nowhere, since this identity has left.
 */
export async function conversationOf(
  table: Table,
  batch: Batch,
  said: Said,
): Promise<string | null> {
  const { group, from, own, isKnown } = said;
  const row = await batch.get<GroupRow>(keyOfGroup(table, group));
  // A group without a state, of a program without a store.
  if (row === null) return isKnown ? group : from;
  if (standingOf(row, own) === "out") return null;
  return isIn(row, from) ? group : from;
}

/** A group as it is when it is asked for. */
export type GroupFacts = {
  readonly id: string;
  readonly name: string;
  readonly admin: Did;
  readonly members: readonly Did[];
  /** `asked`: somebody who isn't known put this identity into it. `out`: it left, or was taken out. */
  readonly standing: Standing;
};

export const factsOf = (row: GroupRow, own: Did): GroupFacts => {
  const { id, name, admin } = row;
  return { id, name, admin, members: membersOf(row), standing: standingOf(row, own) };
};
