/**
 * A disk that is set back: a device goes on from an older copy of its store, or two copies of one
 * device do. Its numbers then mean different things, and the other devices must neither lose one of
 * them nor show it twice.
 */
import { afterAll, expect, test } from "bun:test";
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileStore } from "../../src/cli/files/store.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { scratchFolder } from "../support/executable.ts";
import { identityOf } from "../support/identity.ts";
import { peopleAtNodes, untilWaiting } from "../support/people.ts";
import { devicesAt, shows, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open } = people;
const { place, linked } = devicesAt(people);
const scratch = scratchFolder();
afterAll(() => scratch.remove());

/** A device whose disk can be copied, and set back. */
function onDisk(name: string) {
  const disk = (copy: string) => join(scratch.path, name, copy);
  const where = place(fileStore(join(disk("present"), "store.sqlite")));
  const swap = (from: string, to: string) => {
    rmSync(disk(to), { recursive: true, force: true });
    cpSync(disk(from), disk(to), { recursive: true });
  };
  return {
    where,
    opened: () => open(where),
    save: (copy: string) => swap("present", copy),
    setBack: (copy: string) => swap(copy, "present"),
  };
}

const namesOf = async (me: Waypost) =>
  (await me.store.people()).map(({ name }) => name).filter((name) => name !== "");
const knows = async (me: Waypost, names: readonly string[]) => {
  const wanted = [...names].sort();
  const read = async () => (await namesOf(me)).sort();
  expect(await until(read, (found) => Bun.deepEquals(found, wanted))).toEqual(wanted);
};
const range = (of: string, count: number) => Array.from({ length: count }, (_, i) => `${of} ${i}`);
async function name(me: Waypost, names: readonly string[]): Promise<void> {
  for (const one of names) await me.store.savePerson(identityOf(one).did, { name: one });
}

test("an older copy of a store that has logged more than was lost shares all of it, and gets back what it lacks", async () => {
  const alice = await open();
  const { opened, save, setBack } = onDisk("overlap");
  const phone = await opened();
  const laptopAt = place();
  const laptop = await linked(phone, laptopAt);
  await alice.send(phone.did, "before");
  for (const device of [phone, laptop]) await shows(device, alice.did, ["before"]);
  await phone.close();
  save("older");

  const later = await opened();
  await alice.send(phone.did, "while it was there");
  await (await later.send(alice.did, "answered")).delivered;
  await name(later, range("lost", 20));
  await shows(laptop, alice.did, ["before", "while it was there", "answered"]);
  await knows(laptop, range("lost", 20));
  await untilWaiting(phone, 0);
  await Promise.all([later.close(), laptop.close()]);
  setBack("older");

  // More than the others know, before one of them can say so.
  const older = await opened();
  await (await older.send(alice.did, "set back")).delivered;
  await name(older, range("new", 60));
  const all = ["before", "while it was there", "answered", "set back"];
  const laptopAgain = await open(laptopAt);
  for (const device of [laptopAgain, older]) {
    await knows(device, [...range("lost", 20), ...range("new", 60)]);
    await shows(device, alice.did, all);
  }
  await name(laptopAgain, ["at last"]);
  await knows(older, [...range("lost", 20), ...range("new", 60), "at last"]);
}, 90_000);

test("the newer one of two copies that comes back loses nothing either, and gets what the older one has done", async () => {
  const { opened, save, setBack } = onDisk("return");
  const phone = await opened();
  const laptopAt = place();
  const laptop = await linked(phone, laptopAt);
  await name(phone, range("common", 3));
  await knows(laptop, range("common", 3));
  await phone.close();
  save("older");
  const newer = await opened();
  await name(newer, range("newer", 5));
  await knows(laptop, [...range("common", 3), ...range("newer", 5)]);
  await laptop.close();
  // Of these the laptop has nothing yet.
  await name(newer, range("waiting", 2));
  await newer.close();
  save("newer");

  setBack("older");
  const older = await opened();
  await name(older, range("older", 9));
  const laptopAgain = await open(laptopAt);
  const both = [...range("common", 3), ...range("newer", 5), ...range("older", 9)];
  await until(
    () => namesOf(laptopAgain),
    (names) => names.includes("older 8"),
  );
  // A copy that ends sooner than the laptop has answered it leaves no trace of what it did to the
  // one that comes back.
  await until(
    () => namesOf(older),
    (names) => names.includes("newer 4"),
  );
  await older.close();

  setBack("newer");
  const back = await opened();
  await name(back, range("back", 4));
  for (const device of [laptopAgain, back])
    await knows(device, [...both, ...range("waiting", 2), ...range("back", 4)]);
}, 90_000);

test("a device that is set back to where it had told nothing gets what it had told", async () => {
  const phone = await open(place());
  const { where, opened, save, setBack } = onDisk("empty");
  await (await linked(phone, where)).close();
  save("empty");
  const laptop = await opened();
  await name(laptop, range("lost", 5));
  await knows(phone, range("lost", 5));
  await laptop.close();
  setBack("empty");
  const empty = await opened();
  await name(empty, ["new"]);
  for (const device of [phone, empty]) await knows(device, [...range("lost", 5), "new"]);
}, 90_000);
