/**
 * A Directory lies while a group is made and changed, a device linked and removed, a member
 * removed, the group handed over, and its admin restored from a backup. Each step ends as it
 * should, with a code, or waits; of all that is sent the Directory's own identity, Eve, opens
 * nothing. Once it is honest the step is done again where it failed, and there is one group, with
 * the right members, at each; everyone in it reads what is written, and who was removed is sent
 * nothing.
 *
 * `bun test/campaigns/liar-groups.ts --worlds 20 [--from 0]` ends with 1 on a finding. The first
 * ten worlds have one of the lies of `test/support/own-lies.ts` each, told to all; the others have
 * a new one at each step, told to some. `--canary`: the people have random DIDs, of which nothing
 * is proven, and the Directory offers its own key: that must be found.
 */
import { parseArgs } from "node:util";
import { ClientError } from "../../src/client/base/failure.ts";
import { restore } from "../../src/client/identity/backup.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { randomOf } from "../model/own-world.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { startTestNodes } from "../support/nodes.ts";
import { type Envelope, liesOf, type OwnLie, openedBy, ownLies } from "../support/own-lies.ts";
import { Findings } from "./stage.ts";

const { values } = parseArgs({
  options: {
    worlds: { type: "string", default: "20" },
    from: { type: "string", default: "0" },
    canary: { type: "boolean", default: false },
  },
});
const findings = new Findings();
const waiting = { timeoutMs: 60_000, intervalMs: 20 };
/** A step that lasts longer waits for the truth. */
const patienceMs = 1_500;
/** What a step left in the outbox is sent while the Directory lies. */
const sendingMs = 500;
/** What takes longer when the Directory is honest doesn't come. */
const comesMs = 100_000;
const nodes = await startTestNodes();
const eve = await Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, rotateMs: false });
const lies = await liesOf(nodes.url, eve);
const ends: Record<string, number> = {};

/** Everything that leaves for a Relay. */
let sent: Envelope[] = [];
let envelopes = 0;
const honestFetch = globalThis.fetch;
globalThis.fetch = Object.assign(async (input: Request | string | URL, init?: RequestInit) => {
  const isEnvelope = init?.method === "POST" && String(input).includes("/relay/");
  if (isEnvelope) sent.push(JSON.parse(await new Response(init.body as BodyInit).text()));
  return honestFetch(input, init);
}, honestFetch);

/** What the Directory's own identity can open is found. */
async function judgeSent(): Promise<void> {
  const all = sent;
  sent = [];
  envelopes += all.length;
  for (const one of all)
    findings.expect(
      (await openedBy(eve, one)) === null,
      `Eve opens what is sealed to ${one["to"]}`,
    );
}

// ----------------------------------------------------------------------------------------- a world

/** A device that asks a Directory of its own. */
class Device {
  readonly proxy: LyingDirectory = lyingDirectory(nodes.url);
  keys = memoryKeys();
  store = memoryStore();
  me!: Waypost;

  options(): WaypostOptions & { readonly store: StoreDriver } {
    const { keys, store, proxy } = this;
    const places = { directoryUrl: proxy.url, relayUrl: nodes.url, cacheUrl: nodes.url };
    return { ...places, keys, store, waiting, rotateMs: false, allowRandom: values.canary };
  }

  async open(): Promise<this> {
    this.me = await Waypost.open(this.options());
    return this;
  }

  async close(): Promise<void> {
    await this.me.close();
    await this.proxy.stop();
  }
}

async function comes(holds: () => Promise<boolean>): Promise<boolean> {
  const endMs = performance.now() + comesMs;
  for (; performance.now() < endMs; await Bun.sleep(30)) if (await holds()) return true;
  return false;
}

class World {
  readonly name: string;
  readonly #random: () => number;
  readonly #isEach: boolean;
  readonly #seed: number;
  readonly devices: Device[] = [];
  /** Of the group, once it is made. */
  id = "";
  #texts = 0;

  constructor(seed: number) {
    this.#seed = seed;
    this.#isEach = seed < ownLies.length;
    this.#random = randomOf(seed);
    this.name = this.#isEach ? `${seed}, ${ownLies[seed]}` : String(seed);
  }

  expect(holds: boolean, what: string): void {
    findings.expect(holds, `${this.name}: ${what}`);
  }

  async device(): Promise<Device> {
    const device = new Device();
    if (values.canary) device.proxy.lie = lies["limits without self-certifying DIDs"];
    await device.open();
    device.proxy.lie = {};
    this.devices.push(device);
    return device;
  }

  #lie(): OwnLie {
    if (values.canary) return "its own key to seal to";
    const drawn = Math.floor(this.#random() * ownLies.length);
    return ownLies[this.#isEach ? this.#seed : drawn] as OwnLie;
  }

  /**
   * Does a step while the Directory lies, and again when it is honest, where that is needed.
   * `isDone` is asked of an honest one.
   */
  async step(
    what: string,
    work: () => Promise<unknown>,
    isDone: () => Promise<boolean>,
  ): Promise<void> {
    const lie = this.#lie();
    for (const { proxy } of this.devices)
      if (this.#isEach || values.canary || this.#random() < 0.7) proxy.lie = lies[lie];
    let end = "waits";
    const running = work().then(
      () => {
        end = "done";
      },
      (error: unknown) => {
        end = error instanceof ClientError ? error.code : "an error without a code";
        this.expect(error instanceof ClientError, `${what}, ${lie}: ${(error as Error).stack}`);
      },
    );
    await Promise.all([Promise.race([running, Bun.sleep(patienceMs)]), Bun.sleep(sendingMs)]);
    const lied = end;
    ends[`${what}: ${end}`] = (ends[`${what}: ${end}`] ?? 0) + 1;
    for (const { proxy } of this.devices) proxy.lie = {};
    await running;
    await judgeSent();
    if (values.canary || (await isDone())) return;
    await work().catch((error: Error) =>
      this.expect(false, `${what} failed after ${lied}, ${lie}, when honest: ${error.stack}`),
    );
  }

  /** One group at each of these, with these members, in which each reads what each writes, once. */
  async shows(what: string, { devices, members, name, admin, out = [] }: Shown): Promise<void> {
    // Whom a word of the group has not reached learns of it with the next one, and who shows an old
    // state is answered.
    for (const { me } of devices) await (await me.groups.list())[0]?.send(`begin ${this.#texts++}`);
    const wanted = members.map(({ me }) => me.did).sort();
    const viewOf = async ({ me }: Device) =>
      (await me.groups.list()).map(
        (one) => `${one.name} of ${one.admin}: ${[...one.members].sort()} ${one.standing}`,
      );
    const view = [`${name} of ${admin.me.did}: ${wanted} joined`];
    for (const one of devices) {
      const isRight = await comes(async () => Bun.deepEquals(await viewOf(one), view));
      this.expect(isRight, `${what}: ${await viewOf(one)} instead of ${view}`);
    }
    const texts = devices.map(() => `text ${this.#texts++}`);
    for (const [i, { me }] of devices.entries()) {
      const [group] = await me.groups.list();
      await group?.send(texts[i] as string);
      const own = await me.store.messages(this.id, { limit: 1_000 });
      const to = own
        .filter(({ text, isOwn }) => isOwn && text === texts[i])
        .flatMap(({ delivery }) => (delivery?.to ?? []).map(({ did }) => did));
      this.expect(!out.some((gone) => to.includes(gone.me.did)), `${what}: sealed to who is out`);
    }
    for (const one of devices) {
      const counts = async () => {
        const all = await textsAt(one, this.id);
        return texts.map((text) => all.filter((other) => other === text).length);
      };
      const isOnce = await comes(async () => (await counts()).every((count) => count === 1));
      this.expect(isOnce, `${what}: what was written shows ${await counts()} times`);
    }
    for (const one of out) {
      const read = (await textsAt(one, this.id)).filter((text) => texts.includes(text ?? ""));
      this.expect(read.length === 0, `${what}: who is out reads ${read}`);
    }
  }
}

type Shown = {
  readonly devices: readonly Device[];
  readonly members: readonly Device[];
  readonly name: string;
  readonly admin: Device;
  readonly out?: readonly Device[];
};

const textsAt = async ({ me }: Device, id: string) =>
  (await me.store.messages(id, { limit: 1_000 })).map(({ text }) => text);

async function run(seed: number): Promise<void> {
  const world = new World(seed);
  const [alice, bob, carol, dave] = [
    await world.device(),
    await world.device(),
    await world.device(),
    await world.device(),
  ];
  const people = [alice, bob, carol, dave];
  for (const one of people)
    for (const other of people)
      if (one !== other) await one.me.store.savePerson(other.me.did, { isKnown: true });
  const at = async ({ me }: Device) => {
    const group = await me.groups.get(world.id);
    if (group === null) throw new Error("the group is gone");
    return group;
  };

  await world.step(
    "made",
    () => alice.me.groups.create("G", [bob.me.did, carol.me.did]),
    async () => (await alice.me.groups.list()).length > 0,
  );
  if (values.canary) return end(world);
  world.id = (await alice.me.groups.list())[0]?.id ?? "";
  let members = [alice, bob, carol];
  await world.shows("made", { devices: members, members, name: "G", admin: alice });

  await world.step(
    "changed",
    async () => (await at(alice)).change({ name: "H", add: [dave.me.did] }),
    async () => (await at(alice)).members.includes(dave.me.did),
  );
  members = people;
  await world.shows("changed", { devices: members, members, name: "H", admin: alice });

  const tablet = new Device();
  world.devices.push(tablet);
  const link = async () => {
    const linking = await Waypost.link(tablet.options());
    const opened = linking.opened.then((me) => {
      tablet.me = me;
    });
    opened.catch(() => undefined);
    await alice.me.devices.acceptLink(linking.code, "tablet").catch(async (error: unknown) => {
      await linking.cancel();
      throw error;
    });
    await opened;
  };
  await world.step("linked", link, async () => tablet.me !== undefined);
  await world.shows("linked", { devices: [...members, tablet], members, name: "H", admin: alice });

  await world.step(
    "member removed",
    async () => {
      await (await at(tablet)).change({ remove: [carol.me.did] });
      await (await at(bob)).send("said while it lies");
    },
    async () => !(await at(tablet)).members.includes(carol.me.did),
  );
  members = [alice, bob, dave];
  const out = [carol];
  await world.shows("member removed", {
    devices: [...members, tablet],
    members,
    name: "H",
    admin: alice,
    out,
  });

  const gone = (await tablet.me.devices.list()).find(({ isThis }) => isThis)?.did;
  await world.step(
    "device removed",
    () => alice.me.devices.remove(gone as string),
    async () => (await alice.me.devices.list()).length === 1,
  );
  await world.shows("device removed", { devices: members, members, name: "H", admin: alice, out });

  await world.step(
    "handed over",
    async () => (await at(alice)).change({ admin: bob.me.did }),
    async () => (await at(alice)).admin === bob.me.did,
  );
  await world.shows("handed over", { devices: members, members, name: "H", admin: bob, out });

  const saved = await new Response(await bob.me.backup({ passphrase: "p" })).bytes();
  await bob.me.close();
  const back = async () => {
    [bob.keys, bob.store] = [memoryKeys(), memoryStore()];
    const { keys, store, proxy } = bob;
    const places = { directoryUrl: proxy.url, relayUrl: nodes.url, cacheUrl: nodes.url };
    const options = { passphrase: "p", keys, store, areOthersLost: true, ...places };
    await restore(new Blob([saved]).stream(), options);
  };
  await world.step("restored", back, async () => (await bob.keys.load("default")) !== null);
  await bob.open();
  await (await at(bob)).change({ name: "restored" });
  await world.shows("restored", { devices: members, members, name: "restored", admin: bob, out });
  await end(world);
}

async function end(world: World): Promise<void> {
  for (const one of world.devices) await one.close();
  await judgeSent();
}

const [first, count] = [Number(values.from), Number(values.worlds)];
const startedMs = performance.now();
for (let seed = first; seed < first + count; seed += 5) {
  const some = Array.from({ length: Math.min(5, first + count - seed) }, (_, i) => seed + i);
  await Promise.all(
    some.map((one) =>
      run(one).catch((error: Error) => findings.expect(false, `${one}: ${error.stack}`)),
    ),
  );
}
const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
console.log(JSON.stringify(ends, Object.keys(ends).sort(), 1));
console.log(`${count} worlds, ${envelopes} envelopes in ${seconds} s`);
await eve.close();
await nodes.stop();
findings.exit();
