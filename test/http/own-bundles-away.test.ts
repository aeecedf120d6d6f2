/**
 * Key bundles of an identity whose devices were away, or asleep, for longer than a bundle lasts: it
 * is written to again, and its devices have each other's news, soon after one of them is there.
 */
import { expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { changeIdentity } from "../../src/client/keys/stored.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { passingTime } from "../support/passing-time.ts";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, shows, textsOf, until } from "./own-devices.ts";

const { passDays } = passingTime();
const people = peopleAtNodes();
const { open, openStored } = people;
const { place, linked } = devicesAt(people);
/** They find out that they were asleep with their next look into the Caches. */
const pollMs = 200;

/** The id of the bundle that the Cache shows. */
async function shownId(me: Waypost): Promise<string | null> {
  const answer = await fetch(`${people.at.url}/cache/keys/${me.did}`);
  return answer.status === 200 ? String((await answer.json()).key_id) : null;
}
const hasBundle = async (me: Waypost) => (await shownId(me)) !== null;

test("a device that is opened when no bundle counts any more has one at once, while the other device is off", async () => {
  const [at, otherAt] = [place(), place()];
  const phone = await openStored(at);
  const laptop = await linked(phone, otherAt);
  const friend = await openStored();
  await (await friend.send(phone.did, "before")).delivered;
  await shows(laptop, friend.did, ["before"]);
  await Promise.all([phone.close(), laptop.close()]);

  passDays(8);
  expect(await hasBundle(phone)).toBe(false);
  const back = await openStored(at);
  expect(await until(() => hasBundle(back), Boolean)).toBe(true);
  await (await friend.send(back.did, "after")).delivered;
  await shows(back, friend.did, ["before", "after"]);

  // The other one asks for the seed of that time, and opens what was sealed to it.
  const other = await openStored(otherAt);
  await shows(other, friend.did, ["before", "after"]);
  await (await friend.send(back.did, "to both")).delivered;
  await shows(other, friend.did, ["before", "after", "to both"]);
}, 60_000);

test("what waited for a machine that was asleep comes soon after it wakes", async () => {
  const me = await openStored({ pollMs });
  const friend = await openStored();
  passDays(8);
  expect(await hasBundle(me)).toBe(false);
  await friend.send(me.did, "hello");
  await shows(me, friend.did, ["hello"]);
}, 60_000);

test("a device that was off has the news of one that was asleep, soon after both are there", async () => {
  const otherAt = place();
  const phone = await openStored({ ...place(), pollMs });
  const laptop = await linked(phone, otherAt);
  const friend = await openStored();
  await (await friend.send(phone.did, "before")).delivered;
  await shows(laptop, friend.did, ["before"]);
  await laptop.close();
  await (await friend.send(phone.did, "meanwhile")).delivered;
  await shows(phone, friend.did, ["before", "meanwhile"]);

  passDays(8);
  // Nothing is left for it at its Cache.
  const back = await openStored(otherAt);
  await shows(back, friend.did, ["before", "meanwhile"]);
}, 60_000);

test("two devices that make a bundle at once both open what is sealed to the one that counts", async () => {
  const [at, otherAt] = [place(), place()];
  const phone = await openStored(at);
  const laptop = await linked(phone, otherAt);
  const friend = await openStored();
  await Promise.all([phone.close(), laptop.close()]);
  passDays(8);
  const both = await Promise.all([openStored(at), openStored(otherAt)]);
  const [back] = both;
  await until(() => hasBundle(back), Boolean);
  await (await friend.send(back.did, "hello")).delivered;
  for (const one of both) await shows(one, friend.did, ["hello"]);
  const shown = await shownId(back);
  for (const one of both)
    expect(
      await until(
        async () => one.identity.bundleKeys.map(({ id }) => id),
        (ids) => ids.includes(shown ?? ""),
      ),
    ).toContain(shown as string);
}, 60_000);

test("nodes whose clock was ahead for a while leave nobody without a bundle", async () => {
  const me = await openStored({ pollMs });
  const friend = await openStored();
  const first = await shownId(me);
  passDays(30);
  const ahead = await until(
    () => shownId(me),
    (id) => id !== null,
  );
  expect(ahead).not.toBe(first);
  await (await friend.send(me.did, "ahead")).delivered;
  passDays(-30);
  // What it has is of the future.
  const after = await until(
    () => shownId(me),
    (id) => id !== null,
  );
  expect(after).not.toBe(ahead);
  await (await friend.send(me.did, "later")).delivered;
  const texts = await until(
    () => textsOf(me, friend.did),
    ({ length }) => length === 2,
  );
  // In the order of their times.
  expect(texts.toSorted()).toEqual(["ahead", "later"]);
}, 60_000);

test("a bundle by a thief of the keys is reported at the next hourly look, and replaced", async () => {
  const where = place();
  const events: WaypostEvent[] = [];
  const me = await openStored({ ...where, pollMs, onEvent: (event) => events.push(event) });
  const stolen = memoryKeys();
  await stolen.save("default", (await where.keys.load("default")) as string);
  await changeIdentity(stolen, me.identity, (stored) => ({ ...stored, bundleKeys: [] }));
  const first = await shownId(me);
  const thief = await open({ keys: stolen });
  const theirs = await until(
    () => shownId(thief),
    (id) => id !== first,
  );
  expect(events.map(({ type }) => type)).not.toContain("stranger_change");

  passDays(1 / 20);
  const after = await until(
    () => shownId(me),
    (id) => id !== theirs,
  );
  expect([first, theirs]).not.toContain(after);
  expect(me.identity.bundleKeys.at(-1)?.id).toBe(after as string);
  expect(events).toContainEqual({ type: "stranger_change", what: "sealing_key" });
  const failed = events.flatMap((event) => (event.type === "failed" ? [event.error.code] : []));
  expect(failed).toEqual(["key_lost"]);
}, 60_000);
