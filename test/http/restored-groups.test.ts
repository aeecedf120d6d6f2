/**
 * Groups of an identity that was restored from a backup: what it doesn't know of them, and what it
 * changes meanwhile.
 */
import { expect, test } from "bun:test";
import { type GroupRow, renderBundle } from "../../src/client/groups/bundles.ts";
import { emptyGroup, withChange } from "../../src/client/groups/statements.ts";
import { restore } from "../../src/client/identity/backup.ts";
import { groupType } from "../../src/client/mail/content.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import { peopleAtNodes } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";
import { dids, makeGroup, meet, rowAt, say, shows } from "./own-group-facts.ts";

const people = peopleAtNodes();
const { open } = people;
const { place } = devicesAt(people);

test("who restores a backup from before a hand-over, under new keys, comes after the others", async () => {
  const [alice, bob, carol] = [await open(place()), await open(place()), await open(place())];
  await meet(alice, bob, carol);
  const { id, facts } = await makeGroup(alice, bob, carol);
  const file = await new Response(await alice.backup({ passphrase: "p" })).bytes();
  await (await alice.groups.get(id))?.change({ admin: carol.did });
  for (const me of [alice, bob, carol]) await shows(me, id, { ...facts, admin: carol.did });
  await alice.close();
  const where = place();
  await restore(new Response(file).body as ReadableStream<Uint8Array>, {
    ...{ passphrase: "p", keys: where.keys, store: where.store },
    ...{ areOthersLost: true, directoryUrl: people.at.url },
  });
  const again = await open(where);
  await shows(again, id, { ...facts, admin: alice.did });
  await (await carol.groups.get(id))?.send("from Carol");
  await (await bob.groups.get(id))?.send("from Bob");
  await shows(again, id, { ...facts, admin: carol.did });
  const texts = await until(
    async () => (await again.store.messages(id)).map(({ text }) => text),
    (found) => found.includes("from Bob") && found.includes("from Carol"),
  );
  expect(texts).toEqual(expect.arrayContaining(["from Bob", "from Carol"]));
}, 60_000);

test("who was added after the backup of a lost device learns that the restored one has them out", async () => {
  const bobAt = place();
  const [alice, bob, carol] = [await open(place()), await open(bobAt), await open(place())];
  await meet(alice, bob, carol);
  const { id } = await alice.groups.create("Hiking", [bob.did]);
  const standing = async (me: Waypost) => (await me.groups.get(id))?.standing;
  await until(
    () => standing(bob),
    (now) => now === "joined",
  );
  const file = await new Response(await alice.backup({ passphrase: "p" })).bytes();
  await (await alice.groups.get(id))?.change({ add: [carol.did] });
  const shown = async () => (await bob.groups.get(id))?.members.length;
  await until(shown, (count) => count === 3);
  await until(
    () => standing(carol),
    (now) => now === "joined",
  );
  await alice.close();
  const where = place();
  await restore(new Response(file).body as ReadableStream<Uint8Array>, {
    ...{ passphrase: "p", keys: where.keys, store: where.store },
    ...{ areOthersLost: true, directoryUrl: people.at.url },
  });
  const again = await open(where);
  // As he answers her, at most a minute after she has said something.
  const { statements } = await rowAt(bob, bobAt, id);
  const bundle = renderBundle({ statements, leavings: [] });
  await bob.send(again.did, bundle, { group: id, mediaType: groupType, receipt: false });
  expect(await until(shown, (count) => count === 2)).toBe(2);
  // Without a word of hers.
  const now = await until(
    () => standing(carol),
    (one) => one === "out",
  );
  expect(now).toBe("out");
  expect(await standing(again)).toBe("joined");
}, 150_000);

test("whom a restored admin takes out days after a hand-over that it does not know is out under the next admin, and the user is told", async () => {
  const carolAt = place();
  const [alice, bob, carol] = [await open(place()), await open(place()), await open(carolAt)];
  const dave = await open(place());
  await meet(alice, bob, carol, dave);
  const members = dids(alice, bob, carol, dave);
  const begun = emptyGroup(alice.did, crypto.randomUUID());
  const { id } = begun;
  const wish = { name: "Hiking", add: members };
  await alice.groups.talk.create(withChange(begun, wish, Date.now() - 3 * dayMs));
  const facts = { name: "Hiking", members, next: null, standing: "joined" as const };
  for (const me of [bob, carol, dave]) await shows(me, id, { ...facts, admin: alice.did });
  const file = await new Response(await alice.backup({ passphrase: "p" })).bytes();
  await (await alice.groups.get(id))?.change({ admin: carol.did });
  for (const me of [alice, bob, carol, dave]) await shows(me, id, { ...facts, admin: carol.did });
  await alice.close();
  // As if that were two days ago.
  const atMs = Date.now() - 2 * dayMs;
  const edit = (row: GroupRow) => ({
    ...row,
    former: (row.former ?? []).map((one) => ({ ...one, atMs })),
  });
  const next = await say(carol, carolAt, { id, edit, open });
  const where = place();
  await restore(new Response(file).body as ReadableStream<Uint8Array>, {
    ...{ passphrase: "p", keys: where.keys, store: where.store },
    ...{ areOthersLost: true, directoryUrl: people.at.url },
  });
  const events: WaypostEvent[] = [];
  const again = await open({ ...where, onEvent: (event) => void events.push(event) });
  await (await again.groups.get(id))?.change({ name: "Mine", remove: [dave.did] });
  await (await bob.groups.get(id))?.send("from Bob");
  await (await next.groups.get(id))?.send("from Carol");
  const left = { ...facts, members: dids(alice, bob, carol), admin: carol.did };
  for (const me of [again, bob, next]) await shows(me, id, left);
  const isTold = (event: WaypostEvent) => event.type === "changed" && event.what === "overtaken";
  expect(events.some(isTold)).toBe(true);
  const standing = async () => (await dave.groups.get(id))?.standing;
  expect(await until(standing, (now) => now === "out")).toBe("out");
}, 60_000);
