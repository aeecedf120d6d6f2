/**
 * What is chosen in a conversation, over running nodes: on all devices of one identity, and what
 * both sides keep, which is how long messages last. And what an author says of a message besides:
 * whom it calls, and that it was passed on.
 */
import { expect, test } from "bun:test";
import { timerType } from "../../src/client/mail/content.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { clientCode } from "../support/client-code.ts";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, shows, until } from "./own-devices.ts";
import { meet } from "./own-group-facts.ts";

const people = peopleAtNodes();
const { open, openStored } = people;
const { place, linked } = devicesAt(people);

const choicesOf = async (me: Waypost, conversation: string) => ({
  ...(await me.store.chosen(conversation)),
  draft: await me.store.draft(conversation),
});
const comesTo = async (me: Waypost, conversation: string, wanted: object) =>
  expect(
    await until(
      () => choicesOf(me, conversation),
      (now) => Bun.deepEquals({ ...now, ...wanted }, now),
    ),
  ).toMatchObject(wanted);

test("a draft, a pin, a mute and what is put away are the same on all devices, also on a new one", async () => {
  const [alice, phone] = [await openStored(), await open(place())];
  await meet(alice, phone);
  await phone.send(alice.did, "hello");
  const laptop = await linked(phone);
  await phone.store.saveDraft(alice.did, "half a sen");
  await phone.store.saveDraft(alice.did, "half a sentence");
  await phone.store.choose(alice.did, { isPinned: true, isMuted: true });
  const wanted = { draft: "half a sentence", isPinned: true, isMuted: true, isArchived: false };
  await comesTo(laptop, alice.did, wanted);
  await laptop.store.saveDraft(alice.did, "");
  await laptop.store.choose(alice.did, { isPinned: false, isArchived: true });
  const now = { draft: "", isPinned: false, isMuted: true, isArchived: true };
  await comesTo(phone, alice.did, now);
  await phone.store.saveDraft(alice.did, "for the third");
  await comesTo(await linked(phone), alice.did, { ...now, draft: "for the third" });
  // Muted: neither counts, nor does it come back.
  await alice.send(phone.did, "are you there?");
  const seen = async () => (await phone.store.messages(alice.did)).length;
  expect(await until(seen, (count) => count === 2)).toBe(2);
  expect(await phone.store.unread()).toBe(0);
  expect((await phone.store.conversations())[0]).toMatchObject({ unread: 1, isArchived: true });
}, 60_000);

test("both keep how long messages last: what was read is gone at both, and what was said before stays", async () => {
  const [alice, bob] = [await openStored(), await openStored()];
  await meet(alice, bob);
  await alice.send(bob.did, "for good");
  await alice.store.setTimer(bob.did, 2);
  await comesTo(bob, alice.did, { lastsSeconds: 2 });
  await alice.send(bob.did, "for two seconds");
  const came = async () => (await bob.store.messages(alice.did)).length;
  await until(came, (count) => count === 3);
  await bob.send(alice.did, "so do I");
  const all = ["for good", expect.stringContaining('"seconds":2'), "for two seconds", "so do I"];
  for (const [me, other] of [
    [alice, bob],
    [bob, alice],
  ] as const) {
    const texts = async () => (await me.store.messages(other.did)).map(({ text }) => text);
    expect(await until(texts, ({ length }) => length === 4)).toEqual(all);
  }
  const [, timer, brief] = await bob.store.messages(alice.did);
  expect([timer?.mediaType, brief?.lastsSeconds]).toEqual([timerType, 2]);
  // Bob has not read it: at his side its life has not begun.
  const left = async (me: Waypost, other: Waypost) =>
    (await me.store.messages(other.did)).filter(({ mediaType }) => mediaType !== timerType).length;
  expect(
    await until(
      () => left(bob, alice),
      (count) => count === 2,
    ),
  ).toBe(2);
  const [, , unread] = await bob.store.messages(alice.did);
  expect(unread?.text).toBe("for two seconds");
  for (const [me, other] of [
    [alice, bob],
    [bob, alice],
  ] as const) {
    await me.store.markRead(other.did);
    expect(
      await until(
        () => left(me, other),
        (count) => count === 1,
      ),
    ).toBe(1);
  }
  await bob.store.setTimer(alice.did, 0);
  await comesTo(alice, bob.did, { lastsSeconds: 0 });
  expect(await clientCode(() => alice.store.setTimer(bob.did, 40_000_000))).toBe(
    "invalid_argument",
  );
}, 60_000);

test("in a group its admin says how long messages last, and no one else", async () => {
  const all = [await openStored(), await openStored(), await openStored()] as const;
  const [alice, bob, carol] = all;
  await meet(...all);
  const group = await alice.groups.create("Hiking", [bob.did, carol.did]);
  await comesTo(bob, group.id, { lastsSeconds: 0 });
  await until(
    async () => bob.groups.get(group.id),
    (found) => found !== null,
  );
  expect(await clientCode(() => bob.store.setTimer(group.id, 60))).toBe("not_admin");
  // Whatever a member's program says of it.
  const said = { v: 1, seconds: 60, version: Math.floor(Date.now() / 1_000) };
  await (await bob.groups.get(group.id))?.send(said, { mediaType: timerType });
  await (await bob.groups.get(group.id))?.send("and words");
  const words = async () => (await carol.groups.get(group.id))?.messages() ?? [];
  await until(words, (found) => found.some(({ text }) => text === "and words"));
  for (const me of [bob, carol])
    expect(await me.store.chosen(group.id)).toMatchObject({ lastsSeconds: 0 });
  await alice.store.setTimer(group.id, 3_600);
  for (const me of [bob, carol]) await comesTo(me, group.id, { lastsSeconds: 3_600 });
  await (await carol.groups.get(group.id))?.send("an hour");
  const last = async () => (await (await bob.groups.get(group.id))?.messages())?.at(-1);
  const found = await until(last, (one) => one?.text === "an hour");
  expect(found?.lastsSeconds).toBe(3_600);
}, 60_000);

test("a message says whom it calls and that it was passed on; of strange forms nothing is taken", async () => {
  const [alice, bob] = [await openStored(), await openStored()];
  await meet(alice, bob);
  const group = await alice.groups.create("Two", [bob.did]);
  await group.send("@Bob, look", { mentions: [bob.did] });
  await group.send("what they said", { isForwarded: true });
  await group.send("odd", {
    mediaType: "text/plain;waypost=1;mentions=bob,;lasts=1e3;forwarded=yes",
  });
  const texts = async () => (await bob.groups.get(group.id))?.messages() ?? [];
  const found = await until(texts, (all) => all.some(({ text }) => text === "odd"));
  expect(
    found
      .filter(({ mediaType }) => mediaType.startsWith("text/"))
      .map(({ text, mentions, isForwarded, lastsSeconds }) => [
        text,
        mentions,
        isForwarded,
        lastsSeconds,
      ]),
  ).toEqual([
    ["@Bob, look", [bob.did], undefined, undefined],
    ["what they said", undefined, true, undefined],
    ["odd", undefined, undefined, undefined],
  ]);
  const many = Array.from({ length: 33 }, () => bob.did);
  expect(await clientCode(() => group.send("all", { mentions: many }))).toBe("invalid_argument");
  await shows(alice, bob.did, []);
}, 60_000);
