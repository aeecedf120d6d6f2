/**
 * Three devices of one identity, at random: they name people, are away, and lose messages that a
 * Cache had taken, or one of them goes on from an older copy of its store, again and again. In the
 * end all have what any log still has and what devices named that were never set back; one that was
 * set back also has what it had named and another one knows.
 */

import { expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import type { PeerRow } from "../../src/client/devices/replica.ts";
import { memoryStore, type StoreDriver } from "../../src/client/store/driver.ts";
import { keyOfPerson, peerKey } from "../../src/client/store/keys.ts";
import type { Person } from "../../src/client/store/person-shape.ts";
import { putPerson } from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { DeviceMail, plainSpeech } from "../support/device-mail.ts";
import { identityOf } from "../support/identity.ts";
import { syncOf } from "../support/own-store.ts";
import { pause } from "../support/wait.ts";
import { times } from "../support/whole.ts";

const dids = ["phone", "laptop", "tablet"].map((name) => identityOf(name).did);
const [seeds, steps] = [times(6, 12), 60];

async function copyOf(driver: StoreDriver): Promise<StoreDriver> {
  const copy = memoryStore();
  await copy.apply(await driver.scan({ from: "", to: "~", limit: 1_000_000 }));
  return copy;
}

class Device {
  readonly did: Did;
  readonly named = new Set<string>();
  isSetBack = false;
  #table: Table | null = null;
  #driver = memoryStore();
  #copy: StoreDriver | null = null;
  #stop = new AbortController();
  readonly #mail: DeviceMail;
  readonly #key = crypto.getRandomValues(new Uint8Array(32));

  constructor(did: Did, mail: DeviceMail) {
    this.did = did;
    this.#mail = mail;
  }

  get isOff(): boolean {
    return this.#table === null;
  }

  get table(): Table {
    if (this.#table === null) throw new Error("it is off");
    return this.#table;
  }

  async begin(): Promise<void> {
    const begun = { name: "", addedMs: 0, seen: 0, sent: 0, isLeaving: false };
    const table = await Table.open(this.#driver, this.#key);
    await table.change(async (batch) => {
      batch.meta = { hasDevices: true, deviceDid: this.did };
      for (const did of dids)
        if (did !== this.did) batch.put(peerKey(table, did), { ...begun, did } satisfies PeerRow);
    });
    await this.on();
  }

  async on(): Promise<void> {
    const table = await Table.open(this.#driver, this.#key);
    this.#table = table;
    this.#stop = new AbortController();
    const host = {
      table,
      nowMs: Date.now,
      tell: () => undefined,
      speech: plainSpeech,
    };
    const link = this.#mail.link(this.did);
    void syncOf({ ...host, ...link }, (await table.meta()).logged, this.#stop.signal).run();
  }

  async off(): Promise<void> {
    this.#stop.abort();
    this.#table = null;
    await pause(20, "what is under way ends");
  }

  async name(what: string): Promise<void> {
    const { table } = this;
    const { did } = identityOf(what);
    this.named.add(did);
    await table.change(async (batch) => {
      await putPerson(table, batch, did, { name: what, setMs: 1 });
      batch.log(keyOfPerson(table, did));
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

  async step(random: () => number, what: string, maySetBack: boolean): Promise<void> {
    const drawn = random();
    if (this.#table === null) return drawn < 0.6 ? this.on() : undefined;
    if (drawn < 0.6) return this.name(what);
    return drawn < 0.8 || !maySetBack ? this.off() : this.setBack();
  }

  async known(): Promise<Set<string>> {
    return new Set((await this.table.values<Person>("p/")).map(({ did }) => did));
  }

  async logged(): Promise<string[]> {
    const keys = (await this.table.values<string>("y/")).filter((key) => key.startsWith("p/"));
    return Promise.all(keys.map(async (key) => (await this.table.get<Person>(key))?.did ?? ""));
  }
}

async function lackedBy(device: Device, devices: readonly Device[]): Promise<string[]> {
  const logged = (await Promise.all(devices.map((one) => one.logged()))).flat();
  const known = (await Promise.all(devices.map(async (one) => [...(await one.known())]))).flat();
  const isDue = (did: string) =>
    devices.some((one) => one.named.has(did) && (one === device || !one.isSetBack));
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
    const isLossy = seed % 3 === 0;
    let lossShare = isLossy ? 0.2 : 0;
    const mail = new DeviceMail(async ({ from }) => {
      await Bun.sleep(random() * 4);
      if (devices.find(({ did }) => did === from)?.isOff !== false)
        throw new ClientError("unreachable", "unreachable", "it is away");
      return random() < lossShare;
    });
    const devices = dids.map((did) => new Device(did, mail));
    for (const device of devices) await device.begin();
    for (let i = 0; i < steps; i++) {
      const device = devices[Math.floor(random() * devices.length)];
      await device?.step(random, `${seed} ${i}`, !isLossy && device === devices[0]);
      await Bun.sleep(random() * 40);
    }
    lossShare = 0;
    for (const device of devices) await device.off();
    for (const device of devices) await device.on();
    const lacked = () => Promise.all(devices.map((device) => lackedBy(device, devices)));
    const endMs = performance.now() + 30_000;
    let left = await lacked();
    for (; left.flat().length > 0 && performance.now() < endMs; await Bun.sleep(50))
      left = await lacked();
    expect(left).toEqual(devices.map(() => []));
    for (const device of devices) await device.off();
  }, 90_000);
