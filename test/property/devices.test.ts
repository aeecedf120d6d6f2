/**
 * Three devices of one identity, at random: they name people, are away, lose messages that a Cache had taken, go on from an
 * older copy of their store, and forget a part of their log. In the end all have what any log still has and what devices
 * named that were never set back; one that was set back also has what it had named and another one knows.
 */
import { expect, test } from "bun:test";
import { syncType } from "../../src/client/content.ts";
import { logStart } from "../../src/client/devices/items.ts";
import { type DeviceLink, type PeerRow, peerKey, Sync } from "../../src/client/devices/sync.ts";
import { ClientError } from "../../src/client/http.ts";
import type { Message } from "../../src/client/message.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { keyOfPerson, log, type Person, putPerson } from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { identityOf } from "../support/identity.ts";

const dids = ["phone", "laptop", "tablet"].map((name) => identityOf(name).did);
const [seeds, steps] = [12, 60];

async function copyOf(driver: StoreDriver): Promise<StoreDriver> {
  const copy = memoryStore();
  await copy.apply(await driver.scan({ from: "", to: "~", limit: 1_000_000 }));
  return copy;
}

type Letter = { readonly from: Did; readonly text: string };

/** The mailboxes of the devices; `lossShare` of what they take is lost. */
class Mail {
  lossShare = 0;
  readonly #boxes = new Map<string, Letter[]>(dids.map((did) => [did, []]));
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  link(did: Did, { signal }: AbortController): Pick<DeviceLink, "send" | "messages"> {
    const boxes = this.#boxes;
    return {
      send: async (to, content) => {
        await Bun.sleep(this.#random() * 4);
        if (signal.aborted) throw new ClientError("unreachable", "unreachable", "it is away");
        if (this.#random() >= this.lossShare) boxes.get(to)?.push({ from: did, text: JSON.stringify(content) });
        const recipient = { did: to as Did, trust: "proven", name: null } as const;
        return { id: "", chunks: 1, groupId: null, messageIds: [], last: null, recipient };
      },
      messages: async function* () {
        for (const box = boxes.get(did) ?? []; !signal.aborted; await Bun.sleep(2)) {
          const [letter] = box;
          if (letter === undefined) continue;
          const ack = async () => void (signal.aborted || box.splice(box.indexOf(letter), 1));
          const json = () => JSON.parse(letter.text);
          yield { from: letter.from, verified: true, mediaType: syncType, json, ack } as Partial<Message> as Message;
        }
      },
    };
  }
}

class Device {
  readonly did: Did;
  readonly named = new Set<string>();
  isSetBack = false;
  #table: Table | null = null;
  #driver = memoryStore();
  #copy: StoreDriver | null = null;
  #stop = new AbortController();
  readonly #mail: Mail;
  readonly #key = crypto.getRandomValues(new Uint8Array(32));

  constructor(did: Did, mail: Mail) {
    this.did = did;
    this.#mail = mail;
  }

  get table(): Table {
    if (this.#table === null) throw new Error("it is off");
    return this.#table;
  }

  async begin(): Promise<void> {
    const begun = { name: "", addedMs: 0, seen: logStart, sent: logStart, history: null, isLeaving: false };
    const table = await Table.open(this.#driver, this.#key);
    await table.change(async (batch) => {
      batch.meta = { hasDevices: true, deviceDid: this.did };
      for (const did of dids) if (did !== this.did) batch.put(peerKey(table, did), { ...begun, did } satisfies PeerRow);
    });
    await this.on();
  }

  async on(): Promise<void> {
    const table = await Table.open(this.#driver, this.#key);
    this.#table = table;
    this.#stop = new AbortController();
    const host = { table, nowMs: Date.now, answerMs: 1_000, tell: () => undefined, take: async () => undefined };
    const link = this.#mail.link(this.did, this.#stop);
    void new Sync({ ...host, link }, (await table.meta()).logged, this.#stop.signal).run();
  }

  async off(): Promise<void> {
    this.#stop.abort();
    this.#table = null;
    await Bun.sleep(20);
  }

  async name(what: string): Promise<void> {
    const { table } = this;
    const { did } = identityOf(what);
    this.named.add(did);
    await table.change(async (batch) => {
      await putPerson(table, batch, did, { name: what, setMs: 1 });
      log(batch, { kind: "row", key: keyOfPerson(table, did) });
    });
  }

  /** The first time it is copied, the next it goes on from the copy. */
  async setBack(): Promise<void> {
    await this.off();
    if (this.#copy === null) this.#copy = await copyOf(this.#driver);
    else {
      this.isSetBack = true;
      [this.#driver, this.#copy] = [this.#copy, await copyOf(this.#driver)];
    }
  }

  async forget(share: number): Promise<void> {
    const rows = await this.table.scan({ prefix: "y/" });
    await this.table.change(async (batch) => {
      for (const [key] of rows.slice(0, Math.ceil(share * rows.length))) batch.delete(key);
    });
  }

  async step(random: () => number, what: string): Promise<void> {
    const drawn = random();
    if (this.#table === null) return drawn < 0.6 ? this.on() : undefined;
    if (drawn < 0.6) return this.name(what);
    if (drawn < 0.75) return this.off();
    return drawn < 0.93 ? this.setBack() : this.forget(random());
  }

  async known(): Promise<Set<string>> {
    return new Set((await this.table.values<Person>("p/")).map(({ did }) => did));
  }

  async logged(): Promise<string[]> {
    const rows = await this.table.values<{ readonly item: { readonly key: string } }>("y/");
    return Promise.all(rows.map(async ({ item }) => (await this.table.get<Person>(item.key))?.did ?? ""));
  }
}

async function lackedBy(device: Device, devices: readonly Device[]): Promise<string[]> {
  const logged = (await Promise.all(devices.map((one) => one.logged()))).flat();
  const known = (await Promise.all(devices.map(async (one) => [...(await one.known())]))).flat();
  const isDue = (did: string) => devices.some((one) => one.named.has(did) && (one === device || !one.isSetBack));
  const held = await device.known();
  return [...new Set([...logged, ...known.filter(isDue)])].filter((did) => !held.has(did));
}

for (let seed = 1; seed <= seeds; seed++)
  test.concurrent(`devices come to the same, with seed ${seed}`, async () => {
    let state = Math.imul(seed, 2_654_435_761);
    const random = () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return state / 2 ** 32;
    };
    const mail = new Mail(random);
    const devices = dids.map((did) => new Device(did, mail));
    for (const device of devices) await device.begin();
    mail.lossShare = seed % 3 === 0 ? 0.2 : 0;
    for (let i = 0; i < steps; i++) {
      await devices[Math.floor(random() * devices.length)]?.step(random, `${seed} ${i}`);
      await Bun.sleep(random() * 40);
    }
    mail.lossShare = 0;
    for (const device of devices) await device.off();
    for (const device of devices) await device.on();
    // A change of each shows the others where it is.
    for (const device of devices) await device.name(`${seed} ${device.did}`);
    const lacked = () => Promise.all(devices.map((device) => lackedBy(device, devices)));
    const endMs = performance.now() + 30_000;
    let left = await lacked();
    for (; left.flat().length > 0 && performance.now() < endMs; await Bun.sleep(50)) left = await lacked();
    expect(left).toEqual(devices.map(() => []));
    for (const device of devices) await device.off();
  }, 90_000);
