/**
 * The name of a message is its author's: it stays when the message goes out under another envelope,
 * and no other sender can take it. Over running nodes, with a proxy in front of the Relay.
 */
import { expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { bytesSource } from "../../src/client/mail/content.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { sendPlan } from "../../src/client/mail/send.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { clientCode } from "../support/client-code.ts";
import { peopleAtNodes } from "../support/people.ts";
import { meet } from "./own-group-facts.ts";

const people = peopleAtNodes();

type Post = { readonly to: string; readonly id: string };

/**
 * In front of the Relay: what `before` answers is the answer, and what `after` answers one to what
 * was delivered.
 */
function relayAt(hooks: {
  readonly before?: (post: Post) => Promise<Response | null>;
  readonly after?: (post: Post) => Response | null;
}) {
  const posts: Post[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      const body = method === "GET" ? null : await request.text();
      const isMessage = pathname.startsWith("/relay/");
      const { to = "", message_id: id = "" } = isMessage ? JSON.parse(body ?? "{}") : {};
      if (isMessage) posts.push({ to, id });
      const refused = isMessage ? await hooks.before?.({ to, id }) : null;
      if (refused) return refused;
      const real = await fetch(`${people.at.url}${pathname}${search}`, { method, headers, body });
      const lost = isMessage ? hooks.after?.({ to, id }) : null;
      return lost ?? new Response(await real.bytes(), real);
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, posts, stop: () => server.stop(true) };
}

const conflict = () =>
  Response.json({ code: "duplicate_conflict", message: "used for other content" }, { status: 409 });

/** With a store, behind a Relay that does not name this address: registered at the nodes before. */
async function openBehind(relayUrl: string): Promise<Waypost> {
  const keys = memoryKeys();
  await people.open({ keys });
  return people.openStored({ relayUrl, keys, rotateMs: false });
}

async function until(read: () => Promise<unknown>, wanted: unknown): Promise<void> {
  for (const endMs = performance.now() + 30_000; ; await Bun.sleep(20)) {
    const value = await read();
    if (Bun.deepEquals(value, wanted) || performance.now() > endMs)
      return expect(value).toEqual(wanted);
  }
}
const textsAt = async (me: Waypost, conversation: string) =>
  (await me.store.messages(conversation)).flatMap(({ text, mediaType }) =>
    mediaType.startsWith("text/plain") ? [text] : [],
  );

test("a reaction to a message that was sent again shows, at all who have the message", async () => {
  const [alice, bob] = [await people.openStored(), await people.openStored()];
  const place = { keys: memoryKeys(), store: memoryStore() };
  const away = await people.open(place);
  await meet(alice, bob, away);
  const group = await alice.groups.create("Hiking", [bob.did, away.did]);
  await until(async () => (await away.groups.get(group.id))?.standing, "joined");
  await away.close();
  const failed = async (id: string) => (await alice.store.message(id))?.delivery?.state;
  const [toGroup] = await group.send("in the group", { hint: "direct" });
  const toOne = await alice.send(away.did, "to one", { hint: "direct" });
  for (const { id = "" } of [toGroup ?? {}, toOne]) await until(() => failed(id), "failed");

  const carol = await people.open(place);
  // Until her live session has begun.
  for (const { id = "" } of [toGroup ?? {}, toOne])
    for (; (await failed(id)) !== "sent"; await Bun.sleep(20))
      if ((await failed(id)) === "failed") await alice.store.resend(id);
  await until(() => textsAt(carol, group.id), ["in the group"]);
  await until(() => textsAt(carol, alice.did), ["to one"]);
  expect((await carol.store.message(toOne.id))?.text).toBe("to one");
  await (await carol.groups.get(group.id))?.react(toGroup?.id ?? "", "👍");
  await carol.react(alice.did, toOne.id, "👋");
  const reactionsAt = async (me: Waypost, id: string) => (await me.store.message(id))?.reactions;
  for (const me of [alice, bob])
    await until(() => reactionsAt(me, toGroup?.id ?? ""), [{ from: carol.did, reaction: "👍" }]);
  await until(() => reactionsAt(alice, toOne.id), [{ from: carol.did, reaction: "👋" }]);
});

test("a member who says something else under the ids of the others' messages keeps none of them away", async () => {
  const count = 12;
  const [bob, mallory] = [await people.openStored(), await people.openStored()];
  const suppressed = new Map<string, Promise<unknown>>();
  const relay = relayAt({
    before: async ({ to, id }) => {
      // What is for Bob waits until Mallory has been there under the ids that she knows.
      if (to === mallory.did) return null;
      await suppressed.get(id);
      return null;
    },
  });
  const alice = await openBehind(relay.url);
  await meet(alice, bob, mallory);
  const group = await alice.groups.create("Three", [bob.did, mallory.did]);
  for (const me of [bob, mallory])
    await until(async () => (await me.groups.get(group.id))?.standing, "joined");
  const sender = await senderOf(mallory.client, mallory.identity);
  const says = async (id: string, name: string): Promise<void> => {
    const type = `text/plain;waypost=1;id=${name};group=${group.id}`;
    const source = bytesSource("", type, new TextEncoder().encode("."));
    const plan = await planSend(mallory.client, bob.did, source.file, { sender, id });
    await sendPlan(plan, source, { relay: mallory.client.relay, retries: 0 });
  };
  const texts = Array.from({ length: count }, (_, i) => `message ${i}`);
  for (const text of texts) {
    const [sent] = await group.send(text);
    const name = sent?.id ?? "";
    const isHers = async () => (await textsAt(mallory, group.id)).includes(text);
    const known = relay.posts.filter(({ to }) => to === mallory.did).map(({ id }) => id);
    const attack = Promise.all(
      [name, ...known.slice(-1)].map((id) => clientCode(() => says(id, name))),
    );
    for (const { to, id } of relay.posts) if (to === bob.did) suppressed.set(id, attack);
    await Promise.all([attack, until(isHers, true)]);
  }
  const fromAlice = async () =>
    (await bob.store.messages(group.id)).flatMap(({ from, text, mediaType }) =>
      from === alice.did && mediaType.startsWith("text/plain") ? [text] : [],
    );
  await until(async () => (await fromAlice()).toSorted(), texts.toSorted());
  const ids = new Set(relay.posts.map(({ id }) => id));
  expect(ids.size).toBe(relay.posts.length);
  // Each has its own reactions, also where two have the same name.
  const [first] = (await bob.store.messages(group.id)).filter(({ text }) => text === "message 0");
  // Mallory's may have come before Alice's.
  await (await bob.groups.get(group.id))?.react(first?.id ?? "", "👍", alice.did);
  const shown = async (author: Did) =>
    (await bob.store.message(first?.id ?? "", author))?.reactions.length;
  await until(() => shown(alice.did), 1);
  expect((await bob.store.message(first?.id ?? "", alice.did))?.text).toBe("message 0");
  await relay.stop();
});

/** Mallory's words to Bob or Alice under a name that she chooses. */
async function saysUnder(
  mallory: Waypost,
  to: Did,
  { text, type }: { readonly text: string; readonly type: string },
): Promise<void> {
  const sender = await senderOf(mallory.client, mallory.identity);
  const source = bytesSource("", `text/plain;waypost=1;${type}`, new TextEncoder().encode(text));
  const plan = await planSend(mallory.client, to, source.file, { sender });
  await sendPlan(plan, source, { relay: mallory.client.relay, retries: 0 });
}

test("an answer quotes what it answers, whoever has called other words by the same id", async () => {
  const [alice, mallory] = [await people.openStored(), await people.openStored()];
  let held = Promise.resolve();
  const relay = relayAt({
    before: async ({ to }) => {
      if (to === alice.did) await held;
      return null;
    },
  });
  const bob = await openBehind(relay.url);
  await meet(alice, bob, mallory);
  const group = await alice.groups.create("Three", [bob.did, mallory.did]);
  for (const me of [bob, mallory])
    await until(async () => (await me.groups.get(group.id))?.standing, "joined");
  const bobs = await bob.groups.get(group.id);
  /** Alice has Mallory's words under the id of Bob's before she has Bob's. */
  const asked = async (text: string, isInGroup: boolean) => {
    const { promise, resolve: goOn } = Promise.withResolvers<void>();
    held = promise;
    const [{ id } = { id: "" }] = (await bobs?.send(text)) ?? [];
    const has = async (me: Waypost, what: string, place = group.id) =>
      until(async () => (await textsAt(me, place)).includes(what), true);
    await has(mallory, text);
    const others = `instead of: ${text}`;
    const type = isInGroup ? `id=${id};group=${group.id}` : `id=${id}`;
    for (const to of [alice.did, bob.did]) await saysUnder(mallory, to, { text: others, type });
    for (const me of [alice, bob]) await has(me, others, isInGroup ? group.id : mallory.did);
    goOn();
    await has(alice, text);
    return id;
  };
  const quoted = async (text: string) => {
    const answer = (await bob.store.messages(group.id)).find((one) => one.text === text);
    const what = answer === undefined ? null : await bob.store.answered(answer);
    return [answer?.replyFrom ?? null, what?.text ?? null];
  };
  const first = await asked("Shall we go?", false);
  // Who has written elsewhere is nothing that is said here.
  await group.send("yes", { replyTo: first });
  await until(() => quoted("yes"), [null, "Shall we go?"]);
  const second = await asked("And stay?", true);
  await group.send("gladly", { replyTo: second, replyFrom: bob.did });
  await until(() => quoted("gladly"), [bob.did, "And stay?"]);
  await relay.stop();
});

test("a message of another conversation is not what one answers, for who has learned its id", async () => {
  const [alice, bob, mallory] = [
    await people.openStored(),
    await people.openStored(),
    await people.openStored(),
  ];
  await meet(alice, bob, mallory);
  const secret = await bob.send(alice.did, "private words");
  await until(() => textsAt(alice, bob.did), ["private words"]);
  const type = `reply-to=${secret.id};reply-from=${bob.did}`;
  await saysUnder(mallory, alice.did, { text: "look", type });
  await until(() => textsAt(alice, mallory.did), ["look"]);
  const [look] = await alice.store.messages(mallory.did);
  expect([look?.replyTo, look?.replyFrom]).toEqual([secret.id, bob.did]);
  expect(look === undefined ? "none" : await alice.store.answered(look)).toBeNull();
  await bob.send(alice.did, "and more", { replyTo: secret.id });
  await until(() => textsAt(alice, bob.did), ["private words", "and more"]);
  const more = (await alice.store.messages(bob.did)).at(-1);
  expect(more === undefined ? null : (await alice.store.answered(more))?.text).toBe(
    "private words",
  );
});

test("under an id that a node knows for something else a message goes out again under a new one, and keeps its name", async () => {
  const state = { refusals: 1 };
  const relay = relayAt({
    before: async () => (state.refusals-- > 0 ? conflict() : null),
  });
  const bob = await people.openStored({ receipts: true });
  const alice = await openBehind(relay.url);
  await meet(alice, bob);
  const sent = await alice.send(bob.did, "hello", { receipt: true });
  expect((await sent.delivered)?.id).toBe(sent.id);
  expect(relay.posts.map(({ id }) => id === sent.id)).toEqual([true, false]);
  await until(async () => (await bob.store.message(sent.id))?.text, "hello");
  await until(async () => (await alice.store.message(sent.id))?.delivery?.state, "received");
  state.refusals = 1;
  const keys = memoryKeys();
  await people.open({ keys });
  const without = await people.open({ relayUrl: relay.url, keys, rotateMs: false });
  const said = await without.send(bob.did, "without a store");
  await until(async () => (await bob.store.message(said.id))?.text, "without a store");
  // A node that refuses every id gets no more than four.
  state.refusals = Number.POSITIVE_INFINITY;
  const before = relay.posts.length;
  const refused = await alice.send(bob.did, "never", { receipt: false });
  expect(await clientCode(async () => refused.delivered)).toBe("duplicate_conflict");
  expect(relay.posts.length - before).toBe(4);
  await relay.stop();
});

test("a message that has arrived, and is sent again under another id, shows once", async () => {
  const state = { lies: 1 };
  const relay = relayAt({ after: () => (state.lies-- > 0 ? conflict() : null) });
  const bob = await people.openStored();
  const alice = await openBehind(relay.url);
  await meet(alice, bob);
  const file = new Uint8Array(1_500_000).fill(7);
  await (await alice.send(bob.did, "once")).delivered;
  await (await alice.send(bob.did, "after it")).delivered;
  expect(relay.posts.length).toBe(3);
  await until(() => textsAt(bob, alice.did), ["once", "after it"]);
  state.lies = 1;
  await (await alice.send(bob.did, file)).delivered;
  await (await alice.send(bob.did, "after the file")).delivered;
  await until(async () => (await textsAt(bob, alice.did)).at(-1), "after the file");
  const sizes = async () => (await bob.store.messages(alice.did)).map((one) => one.sizeBytes);
  await until(async () => (await sizes()).toSorted((a, b) => a - b), [4, 8, 14, 1_500_000]);
  await relay.stop();
});
