/** What a device shows of a group, and a device whose row of one is another than it says. */
import { expect } from "bun:test";
import type { GroupRow } from "../../src/client/groups/bundles.ts";
import { groupAt, putGroup } from "../../src/client/store/group-rows.ts";
import { Table } from "../../src/client/store/table.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { type devicesAt, until } from "./own-devices.ts";

export type Place = ReturnType<ReturnType<typeof devicesAt>["place"]>;

export async function meet(...all: readonly Waypost[]): Promise<void> {
  for (const me of all)
    for (const other of all)
      if (me.did !== other.did) await me.store.savePerson(other.did, { isKnown: true });
}
export type Facts = Awaited<ReturnType<typeof factsAt>>;
export const dids = (...all: readonly Waypost[]): Did[] => all.map(({ did }) => did).sort();
export const factsAt = async (me: Waypost, id: string) => {
  const group = await me.groups.get(id);
  if (group === null) return null;
  const { name, admin, members, standing, next } = group;
  return { name, admin, members: [...members], standing, next };
};
export const shows = async (me: Waypost, id: string, wanted: Facts) =>
  expect(
    await until(
      () => factsAt(me, id),
      (found) => Bun.deepEquals(found, wanted),
    ),
  ).toEqual(wanted);

/** A group of people who know one another, which the first has made and all others show. */
export async function makeGroup(admin: Waypost, ...others: readonly Waypost[]) {
  const { id } = await admin.groups.create("Hiking", dids(...others));
  const facts = {
    name: "Hiking",
    admin: admin.did,
    members: dids(admin, ...others),
    standing: "joined" as const,
    next: null,
  };
  for (const one of others) await shows(one, id, facts);
  return { id, facts };
}

type Edit = {
  readonly id: string;
  readonly edit: (row: GroupRow) => GroupRow;
  readonly open: (where: Place) => Promise<Waypost>;
};

/** A device says something else of a group to the others of its identity, and is open again. */
export async function say(
  device: Waypost,
  where: Place,
  { id, edit, open }: Edit,
): Promise<Waypost> {
  await device.close();
  const table = await Table.open(where.store, device.identity.storeKey);
  await table.change(async (batch) => {
    const row = await groupAt(table, id, batch);
    if (row !== null) await putGroup(table, batch, edit(row));
  });
  return open(where);
}

export async function rowAt(device: Waypost, where: Place, id: string): Promise<GroupRow> {
  const table = await Table.open(where.store, device.identity.storeKey);
  return (await groupAt(table, id)) as GroupRow;
}
