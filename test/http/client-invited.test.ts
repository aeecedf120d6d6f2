/**
 * Who brings an invitation back is accepted without a question, on each device of who made it, and
 * once where it says so.
 */
import { expect, test } from "bun:test";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { place, linked } = devicesAt(people);
const withStore = () => people.openStored();
const isKnown = (value: { readonly isKnown: boolean } | null) => value?.isKnown === true;

test("an invitation of one device is good on the other, for one person alone", async () => {
  const first = await people.open(place());
  const second = await linked(first);
  const [bob, carol] = [await withStore(), await withStore()];
  const invitation = first.store.invitation();
  await bob.store.saveProfile({ name: "Bob" });
  await bob.store.savePerson(first.did, { isKnown: true, invitation });
  await bob.send(first.did, "I came by the link");
  for (const device of [first, second])
    expect(await until(() => device.store.person(bob.did), isKnown)).toMatchObject({
      isKnown: true,
      claimed: { name: "Bob" },
    });
  await carol.store.savePerson(first.did, { isKnown: true, invitation });
  await carol.send(first.did, "so did I");
  for (const device of [first, second]) {
    const messages = () => device.store.messages(carol.did);
    expect(await until(messages, ({ length }) => length === 1)).toHaveLength(1);
    expect((await device.store.person(carol.did))?.isKnown).toBe(false);
  }
  // It goes once, and to whom it belongs.
  expect((await bob.store.person(first.did))?.invitation).toBeNull();
}, 120_000);

test("one for everybody accepts also who has no profile; under new keys it accepts no one", async () => {
  const alice = await withStore();
  const invitation = alice.store.invitation({ isOnce: false });
  const bring = async () => {
    const friend = await withStore();
    await friend.store.savePerson(alice.did, { isKnown: true, invitation });
    await friend.send(alice.did, "hello");
    return friend;
  };
  for (const friend of [await bring(), await bring()])
    expect(isKnown(await until(() => alice.store.person(friend.did), isKnown))).toBe(true);
  await alice.devices.replaceKeys();
  const late = await bring();
  await until(
    () => alice.store.messages(late.did),
    ({ length }) => length === 1,
  );
  expect((await alice.store.person(late.did))?.isKnown).toBe(false);
}, 120_000);
