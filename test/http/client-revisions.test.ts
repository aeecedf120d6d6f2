/**
 * What an author makes of a message later: another text, or nothing, for all who have it, in
 * whichever order it comes; and what others say of it counts for nothing.
 */
import { expect, test } from "bun:test";
import { bytesSource } from "../../src/client/mail/content.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { sendPlan } from "../../src/client/mail/send.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { revisionType } from "../../src/client/store/revisions.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { place, linked } = devicesAt(people);

const shown = async (me: Waypost, conversation: string) =>
  (await me.store.messages(conversation)).map(({ text, revised }) => [text, revised]);
const shows = async (me: Waypost, conversation: string, wanted: unknown) =>
  expect(
    await until(
      () => shown(me, conversation),
      (all) => Bun.deepEquals(all, wanted),
    ),
  ).toEqual(wanted as never);
const messageWith = async (me: Waypost, conversation: string, text: string) => {
  const all = () => me.store.messages(conversation);
  const found = await until(all, (list) => list.some((one) => one.text === text));
  return found.find((one) => one.text === text) as (typeof found)[number];
};

test("an edit and a deletion reach the other side and own devices, and the last edit counts", async () => {
  const [alice, phone] = [await people.openStored(), await people.open(place())];
  const laptop = await linked(phone);
  await phone.send(alice.did, "one");
  await phone.send(alice.did, "two");
  const one = await messageWith(phone, alice.did, "one");
  await phone.store.edit(one, "first");
  await phone.store.edit(one, "1st");
  for (const [me, other] of [
    [phone, alice.did],
    [laptop, alice.did],
    [alice, phone.did],
  ] as const)
    await shows(me, other, [
      ["1st", "edited"],
      ["two", null],
    ]);
  await laptop.store.deleteForAll(await messageWith(laptop, alice.did, "1st"));
  // After a deletion comes nothing.
  await phone.store.edit(await messageWith(phone, alice.did, "two"), "second");
  for (const [me, other] of [
    [phone, alice.did],
    [laptop, alice.did],
    [alice, phone.did],
  ] as const)
    await shows(me, other, [
      [null, "deleted"],
      ["second", "edited"],
    ]);
  expect((await alice.store.conversations())[0]?.last?.text).toBe("second");
}, 120_000);

test("what was taken back is gone from the store, a file too, and is not in the list of conversations", async () => {
  const driver = memoryStore();
  const [alice, bob] = [await people.open({ store: driver }), await people.openStored()];
  const file = crypto.getRandomValues(new Uint8Array(200_000));
  await bob.send(alice.did, file, { name: "secret.bin" });
  const list = () => bob.store.messages(alice.did);
  const arrived = () => alice.store.messages(bob.did);
  await until(arrived, ({ length }) => length === 1);
  const before = (await alice.store.usage()).bytes;
  await bob.store.deleteForAll((await list())[0] as never);
  const [left] = await until(arrived, ([one]) => one?.revised === "deleted");
  expect(left).toMatchObject({ revised: "deleted", name: "", text: null, content: "removed" });
  expect((await alice.store.usage()).bytes).toBeLessThan(before - 190_000);
  expect((await alice.store.conversations())[0]?.last).toMatchObject({ revised: "deleted" });
}, 120_000);

test("others change nothing: not the recipient, not a stranger who knows the id", async () => {
  const [alice, bob, eve] = [
    await people.openStored(),
    await people.openStored(),
    await people.openStored(),
  ];
  const sent = await alice.send(bob.did, "mine");
  const got = await messageWith(bob, alice.did, "mine");
  await expect(bob.store.edit(got, "yours")).rejects.toMatchObject({ code: "not_own" });
  await expect(bob.store.deleteForAll(got)).rejects.toMatchObject({ code: "not_own" });
  const forged = { v: 1, to: sent.id, deleted: true };
  await bob.send(alice.did, forged, { mediaType: revisionType });
  await eve.send(bob.did, forged, { mediaType: revisionType });
  await eve.send(alice.did, forged, { mediaType: revisionType });
  // Behind them.
  await bob.send(alice.did, "behind");
  await eve.send(bob.did, "behind");
  await messageWith(alice, bob.did, "behind");
  await messageWith(bob, eve.did, "behind");
  expect(await shown(alice, bob.did)).toEqual([
    ["mine", null],
    ["behind", null],
  ]);
  expect(await shown(bob, alice.did)).toEqual([
    ["mine", null],
    ["behind", null],
  ]);
}, 120_000);

test("a deletion that comes ahead of its message leaves nothing of it", async () => {
  const [alice, bob] = [await people.openStored(), await people.openStored()];
  const id = crypto.randomUUID();
  await alice.send(bob.did, { v: 1, to: id, deleted: true }, { mediaType: revisionType });
  await alice.send(bob.did, "marker");
  await messageWith(bob, alice.did, "marker");
  const source = bytesSource("", "text/plain", utf8("too late"));
  const sender = await senderOf(alice.client, alice.identity);
  const plan = await planSend(alice.client, bob.did, source.file, { id, sender });
  await sendPlan(plan, source, { relay: alice.client.relay });
  await shows(bob, alice.did, [
    ["marker", null],
    [null, "deleted"],
  ]);
}, 120_000);

test("in a group all members see it; only its author's counts", async () => {
  const [alice, bob, carol] = [
    await people.openStored(),
    await people.openStored(),
    await people.openStored(),
  ];
  for (const me of [bob, carol]) await me.store.savePerson(alice.did, { isKnown: true });
  const group = await alice.groups.create("Walk", [bob.did, carol.did]);
  const inGroup = (me: Waypost) =>
    until(
      () => me.groups.get(group.id),
      (found) => found?.standing === "joined",
    );
  await Promise.all([inGroup(bob), inGroup(carol)]);
  const [sent] = await group.send("at noon");
  await Promise.all([bob, carol].map((me) => messageWith(me, group.id, "at noon")));
  await (await inGroup(carol))?.send(
    { v: 1, to: sent?.id, deleted: true },
    { mediaType: revisionType },
  );
  await alice.store.edit(await messageWith(alice, group.id, "at noon"), "at one");
  for (const me of [alice, bob, carol]) {
    const [last] = (
      await until(
        () => shown(me, group.id),
        (all) => all.some(([text]) => text === "at one"),
      )
    ).slice(-1);
    expect(last).toEqual(["at one", "edited"]);
  }
}, 120_000);
