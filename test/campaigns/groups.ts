/**
 * Groups over the real SDK: an admin with two devices and three others, behind Relays that lose,
 * repeat and hold up what is sent, and programs that end between any two messages. At the end
 * everything is delivered: all who are in have one state, a removal holds, nothing is sealed to who
 * is out, and what is written then shows everywhere once. Then a member tries to keep the others'
 * messages away, over one provider and over two.
 *
 * `bun test/campaigns/groups.ts --schedules 20 --messages 200 [--from 0]` ends with 1 on a finding.
 */
import { parseArgs } from "node:util";
import { stateDigest } from "../../src/client/groups/statements.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { bytesSource } from "../../src/client/mail/content.ts";
import { planSend } from "../../src/client/mail/plan.ts";
import { sendPlan } from "../../src/client/mail/send.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { groupAt } from "../../src/client/store/group-rows.ts";
import { Table } from "../../src/client/store/table.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { randomOf } from "../model/own-world.ts";
import { freePort } from "../support/executable.ts";
import { startProvider } from "../support/providers.ts";
import { Findings } from "./stage.ts";

const { values } = parseArgs({
  options: {
    schedules: { type: "string", default: "20" },
    messages: { type: "string", default: "200" },
    from: { type: "string", default: "0" },
  },
});
const findings = new Findings();
const waiting = { timeoutMs: 60_000, intervalMs: 20 };
/** By the address that its nodes have. */
const start = async () => {
  const provider = await startProvider({ port: freePort() });
  return { ...provider, url: `http://${provider.home}` };
};
const [here, there] = [await start(), await start()];
const online = setInterval(() => globalThis.dispatchEvent(new Event("online")), 50);
const opened = new Set<Waypost>();

/** One device, with its keys and store, behind a Relay of its own. */
class Device {
  readonly keys: KeyStore = memoryKeys();
  readonly store: StoreDriver = memoryStore();
  readonly #random: () => number;
  readonly #server;
  /** Of what is sent so many are held, lost and repeated. */
  faults = { isHeld: false, lost: 0, repeated: 0 };
  me!: Waypost;

  constructor(random: () => number) {
    this.#random = random;
    this.#server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: (one) => this.#pass(one) });
  }

  async #pass(request: Request): Promise<Response> {
    const { pathname, search } = new URL(request.url);
    const { method, headers } = request;
    const body = method === "GET" ? null : await request.text();
    const isMessage = pathname.startsWith("/relay/");
    const { isHeld, lost, repeated } = this.faults;
    if (isMessage && isHeld) return Response.json({ code: "busy" }, { status: 503 });
    const said = { success: true, code: "delivered", message: "as it says" };
    if (isMessage && this.#random() < lost) return Response.json(said);
    const post = () => fetch(`${here.url}${pathname}${search}`, { method, headers, body });
    const real = await post();
    if (isMessage && this.#random() < repeated) await post();
    return new Response(await real.bytes(), real);
  }

  async open(isBehind = true): Promise<void> {
    const relayUrl = `http://127.0.0.1:${this.#server.port}`;
    const { keys, store } = this;
    const place = { url: here.url, keys, store, waiting, rotateMs: false } as const;
    this.me = await Waypost.open(isBehind ? { ...place, relayUrl } : place);
    opened.add(this.me);
  }

  async restart(): Promise<void> {
    await this.close();
    await this.open();
  }

  async close(): Promise<void> {
    opened.delete(this.me);
    await this.me.close();
  }

  async end(): Promise<void> {
    await this.close();
    await this.#server.stop(true);
  }
}

async function linked(first: Device, random: () => number): Promise<Device> {
  const device = new Device(random);
  const { keys, store } = device;
  const linking = await Waypost.link({ url: here.url, keys, store, waiting, rotateMs: false });
  await first.me.devices.acceptLink(linking.code, "second");
  device.me = await linking.opened;
  opened.add(device.me);
  await device.restart();
  return device;
}

async function world(random: () => number) {
  const people = [1, 2, 3, 4].map(() => new Device(random));
  const [phone, bob, carol, eve] = people as [Device, Device, Device, Device];
  for (const one of people) await one.open(false);
  for (const one of people)
    for (const other of people)
      if (one !== other) await one.me.store.savePerson(other.me.did, { isKnown: true });
  const tablet = await linked(phone, random);
  for (const one of people) await one.restart();
  return { phone, tablet, bob, carol, eve };
}

async function comes(holds: () => Promise<boolean>, seconds: number): Promise<boolean> {
  const endMs = performance.now() + seconds * 1_000;
  for (; performance.now() < endMs; await Bun.sleep(50)) if (await holds()) return true;
  return false;
}

const textsAt = async ({ me }: Device, id: string) =>
  (await me.store.messages(id, { limit: 1_000 })).flatMap(({ text, mediaType }) =>
    mediaType.startsWith("text/plain") && text !== null ? [text] : [],
  );
const groupOf = async ({ me }: Device, id: string) => me.groups.get(id);
const digestAt = async ({ me, store }: Device, id: string) => {
  const row = await groupAt(await Table.open(store, me.identity.storeKey), id);
  return row === null ? "" : stateDigest(row.state);
};

async function schedule(seed: number): Promise<void> {
  const random = randomOf(seed);
  const { phone, tablet, bob, carol, eve } = await world(random);
  const all = [phone, tablet, bob, carol, eve];
  const made = await phone.me.groups.create("G", [bob.me.did, carol.me.did, eve.me.did]);
  const { id } = made;
  const joined = async () =>
    (await Promise.all(all.map((one) => groupOf(one, id)))).every(
      (one) => one?.standing === "joined",
    );
  findings.expect(await comes(joined, 30), `${seed}: not all have joined`);
  let isRemoved = false;
  const pick = <T>(some: readonly T[]): T => some[Math.floor(random() * some.length)] as T;
  for (const one of all) one.faults = { isHeld: false, lost: 0.2, repeated: 0.2 };
  for (let step = 0; step < 24; step++) {
    const device = pick(all);
    const admin = pick([phone, tablet]);
    const drawn = random();
    const work = async () => {
      if (drawn < 0.2) device.faults.isHeld = !device.faults.isHeld;
      else if (drawn < 0.45) await (await groupOf(device, id))?.send(`text ${seed} ${step}`);
      else if (drawn < 0.6) await (await groupOf(admin, id))?.change({ name: `name ${step}` });
      else if (drawn < 0.75) {
        await (await groupOf(admin, id))?.change({ remove: [eve.me.did] });
        isRemoved = true;
      } else if (drawn < 0.9) await device.restart();
      else await Bun.sleep(random() * 300);
    };
    // Who is out can't write, and whom another device has removed can't be removed again.
    await work().catch((error: { readonly code?: string }) => {
      if (error.code !== "not_member") throw error;
    });
  }
  for (const one of all) one.faults = { isHeld: false, lost: 0, repeated: 0 };
  if (!isRemoved)
    await (await groupOf(phone, id))?.change({ remove: [eve.me.did] }).catch(() => undefined);
  const members = [phone, tablet, bob, carol];
  const isOne = async () =>
    new Set(await Promise.all(members.map((one) => digestAt(one, id)))).size === 1;
  for (let round = 0; round < 12; round++) {
    for (const one of members) await (await groupOf(one, id))?.send(`round ${seed} ${round}`);
    if (await comes(isOne, 5)) break;
  }
  const views = await Promise.all(members.map((one) => groupOf(one, id)));
  findings.expect(
    await isOne(),
    `${seed}: ${views.map((one) => `${one?.name} ${one?.members.length}`)}`,
  );
  findings.expect(
    views.every((one) => one?.members.includes(eve.me.did) === false),
    `${seed}: a removal was undone`,
  );
  const last = members.map((_, i) => `last ${seed} ${i}`);
  for (const [i, one] of members.entries()) await (await groupOf(one, id))?.send(last[i] as string);
  for (const one of members) {
    const has = async () => {
      const texts = await textsAt(one, id);
      return last.every((text) => texts.filter((other) => other === text).length === 1);
    };
    findings.expect(await comes(has, 20), `${seed}: ${await textsAt(one, id)} of ${last}`);
  }
  const seen = await textsAt(eve, id);
  findings.expect(!last.some((text) => seen.includes(text)), `${seed}: who is out reads`);
  for (const one of members) {
    const own = (await one.me.store.messages(id, { limit: 1_000 })).filter(
      ({ text, isOwn }) => isOwn && last.includes(text ?? ""),
    );
    const to = own.flatMap(({ delivery }) => (delivery?.to ?? []).map(({ did }) => did));
    findings.expect(to.length > 0 && !to.includes(eve.me.did), `${seed}: sealed to who is out`);
  }
  for (const one of all) await one.end();
}

/** Mallory says "." to Bob under every id that she knows of a message, before Bob has that. */
async function suppress(url: string, count: number, name: string): Promise<void> {
  const [alice, mallory, bob] = await Promise.all(
    [here.url, here.url, url].map((at) =>
      Waypost.open({ url: at, keys: memoryKeys(), store: memoryStore(), waiting, rotateMs: false }),
    ),
  );
  if (alice === undefined || mallory === undefined || bob === undefined) return;
  for (const one of [alice, mallory, bob]) opened.add(one);
  const home = url === here.url ? "" : `@${there.home}`;
  const toBob = `${bob.did}${home}`;
  await (await alice.send(toBob, "hello")).delivered;
  await (await mallory.send(toBob, "hello")).delivered;
  for (const one of [alice, mallory]) await bob.store.savePerson(one.did, { isKnown: true });
  await mallory.store.savePerson(alice.did, { isKnown: true });
  const group = await alice.groups.create("Three", [toBob, mallory.did]);
  const bobs = async () => (await bob.groups.get(group.id))?.standing === "joined";
  findings.expect(await comes(bobs, 30), `${name}: Bob has not joined`);
  const sender = await senderOf(mallory.client, mallory.identity);
  let attacks = 0;
  const attacking: Promise<void>[] = [];
  mallory.on((event) => {
    if (event.type !== "changed" || event.what !== "message" || event.id === null) return;
    const attack = async () => {
      const message = await mallory.store.message(event.id ?? "");
      if (message?.from !== alice.did || message.group === null) return;
      for (const id of [message.id, ...message.messageIds]) {
        const type = `text/plain;waypost=1;id=${message.id};group=${group.id}`;
        const source = bytesSource("", type, new TextEncoder().encode("."));
        const plan = await planSend(mallory.client, bob.did, source.file, { sender, id });
        await sendPlan(plan, source, { relay: mallory.client.relay, retries: 0 }).catch(() => null);
        attacks++;
      }
    };
    attacking.push(attack().catch(() => undefined));
  });
  const texts = Array.from({ length: count }, (_, i) => `message ${i}`);
  for (const text of texts) await group.send(text, { receipt: false });
  const shown = async () => {
    const all = await bob.store.messages(group.id, { limit: 1_000 });
    return texts.filter((text) => all.some((one) => one.from === alice.did && one.text === text));
  };
  await comes(async () => (await shown()).length === count, 60);
  await comes(async () => attacking.length >= count, 30);
  await Promise.all(attacking);
  const missing = count - (await shown()).length;
  findings.expect(
    missing === 0 && attacks > 0,
    `${name}: ${missing} suppressed, ${attacks} attacks`,
  );
  console.log(`${name}: ${missing} of ${count} suppressed, ${attacks} attacks`);
}

const [first, schedules, messages] = [values.from, values.schedules, values.messages].map(
  Number,
) as [number, number, number];
for (let seed = first; seed < first + schedules; seed++) await schedule(seed);
console.log(`${schedules} schedules`);
await suppress(here.url, messages, "one provider");
await suppress(there.url, messages, "two providers");
clearInterval(online);
await Promise.all([...opened].map((one) => one.close()));
await Promise.all([here.stop(), there.stop()]);
findings.exit();
