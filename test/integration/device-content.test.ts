/**
 * Content between devices: small content follows its message, large content comes when it is
 * opened, of anyone who has it.
 */

import { afterEach, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { isCurrent, type PeerRow } from "../../src/client/devices/replica.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { type Body, saveContent, wholeBody } from "../../src/client/store/files.ts";
import { peerKey } from "../../src/client/store/keys.ts";
import {
  addMessage,
  type MessageRow,
  messageById,
  removeMessage,
} from "../../src/client/store/rows.ts";
import { Table } from "../../src/client/store/table.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { DeviceMail, type Letter, plainSpeech, saidIn } from "../support/device-mail.ts";
import { identityOf } from "../support/identity.ts";
import { syncOf } from "../support/own-store.ts";

const person = identityOf("person").did;
const mebibyte = 1_048_576;
/** More than devices give each other unasked. */
const largeBytes = 8 * mebibyte + 1;
const contentOf = (bytes: number) =>
  new Uint8Array(bytes).map((_, i) => (i * 2_654_435_761) >>> 24);
let stop = new AbortController();
afterEach(() => {
  stop.abort();
  stop = new AbortController();
});

const rowOf = (body: Body, sizeBytes: number): MessageRow => ({
  ...{
    id: crypto.randomUUID(),
    conversation: person,
    isOwn: false,
    from: person,
    verified: true,
    trust: "proven",
  },
  ...{
    distrusted: null,
    sentMs: 1,
    arrivedMs: 1,
    name: "a.bin",
    mediaType: "application/x-a",
    replyTo: null,
  },
  ...{ sizeBytes, group: null, wantsReceipt: false, messageIds: [], reaction: null, target: null },
  ...{ digest: crypto.randomUUID(), body, to: [] },
});

async function devicesOf(
  names: readonly string[],
  isLost: (letter: Letter) => boolean = () => false,
) {
  const { signal } = stop;
  const dids = names.map((name) => identityOf(name).did);
  const asked: string[] = [];
  const mail = new DeviceMail((letter) => {
    if (saidIn(letter)["want"] !== undefined) asked.push(names[dids.indexOf(letter.to)] ?? "");
    return isLost(letter);
  });
  const make = async (did: Did) => {
    const table = await Table.open(memoryStore(), crypto.getRandomValues(new Uint8Array(32)));
    await table.change(async (batch) => {
      batch.meta = { hasDevices: true, deviceDid: did };
      const facts = { name: "", addedMs: 0, seen: 0, sent: 0, isLeaving: false };
      for (const peer of dids)
        if (peer !== did)
          batch.put(peerKey(table, peer), { ...facts, did: peer } satisfies PeerRow);
    });
    const told: string[] = [];
    const tell = ({ type }: { readonly type: string }) => void told.push(type);
    table.makeRoom = async () => {
      told.push("store_full");
      return false;
    };
    const host = { table, nowMs: Date.now, tell, speech: plainSpeech };
    const sync = syncOf({ ...host, ...mail.link(did) }, 0, signal);
    void sync.run();
    return { did, table, sync, told };
  };
  return { devices: await Promise.all(dids.map(make)), asked, mail };
}

type Device = Awaited<ReturnType<typeof devicesOf>>["devices"][0];

/** A message with this content, and its id. */
async function give(at: Device, content: Uint8Array): Promise<string> {
  const { saved } = await saveContent(at.table, Date.now, {
    fill: (write) => write(content),
    rows: async (batch, body) => {
      const key = await addMessage(at.table, batch, rowOf(body, content.length));
      batch.log(key);
      return key;
    },
  });
  return ((await at.table.get<MessageRow>(saved ?? "")) as MessageRow).id;
}

async function contentAt({ table }: Device, id: string): Promise<string | number | bigint> {
  const { row } = (await messageById(table, id)) ?? {};
  if (row === undefined) return "nothing";
  return row.body.is === "pieces" ? Bun.hash(await wholeBody(table, row.body)) : row.body.is;
}

async function becomes(at: Device, id: string, wanted: string | number | bigint): Promise<void> {
  const endMs = performance.now() + 20_000;
  while ((await contentAt(at, id)) !== wanted && performance.now() < endMs) await Bun.sleep(5);
  expect(await contentAt(at, id)).toBe(wanted);
}

async function want(at: Device, id: string): Promise<void> {
  const { key = "" } = (await messageById(at.table, id)) ?? {};
  await at.sync.want(key);
}

test("small content follows its message, large content comes when it is opened, and both are files of the store", async () => {
  const { devices, asked } = await devicesOf(["phone", "laptop"]);
  const [phone, laptop] = devices as [Device, Device];
  const [small, large] = [contentOf(100_000), contentOf(largeBytes)];
  const first = await give(phone, small);
  await becomes(laptop, first, Bun.hash(small));
  const second = await give(phone, large);
  await becomes(laptop, second, "elsewhere");
  expect(asked).toEqual([]);
  const changes = laptop.told.length;
  await want(laptop, second);
  await becomes(laptop, second, Bun.hash(large));
  expect([asked, laptop.told.slice(changes)]).toEqual([["phone"], ["changed"]]);
  expect((await laptop.table.values<string>("a/")).length).toBe(2);
  for (const id of [first, second])
    await laptop.table.change(async (batch) =>
      removeMessage(laptop.table, batch, (await messageById(laptop.table, id, batch))?.key ?? ""),
    );
  expect([await laptop.table.values("a/"), (await laptop.table.meta()).bytes < 10_000]).toEqual([
    [],
    true,
  ]);
}, 30_000);

test("content that is refused for good holds up nothing behind it", async () => {
  const { devices } = await devicesOf(["phone", "laptop"], (letter) => {
    if (saidIn(letter)["content"] === undefined) return false;
    throw new ClientError("refused", "payload_too_large", "too large", { status: 413 });
  });
  const [phone, laptop] = devices as [Device, Device];
  await becomes(laptop, await give(phone, contentOf(100_000)), "elsewhere");
  await becomes(laptop, await give(phone, contentOf(1)), "inline");
  const hasAll = async () =>
    isCurrent(phone.table, (await phone.table.values<PeerRow>("d/"))[0] as PeerRow);
  for (const endMs = performance.now() + 3_000; !(await hasAll()) && performance.now() < endMs; )
    await Bun.sleep(5);
  expect(await hasAll()).toBe(true);
}, 30_000);

test("content that is lost on its way, or comes twice, may be asked for again and is taken once", async () => {
  const away = { isIt: true };
  const { devices, mail } = await devicesOf(["phone", "laptop"], (letter) => {
    const isContent = saidIn(letter)["content"] !== undefined;
    if (!away.isIt && isContent) mail.put(letter);
    return away.isIt && isContent;
  });
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(100_000);
  const id = await give(phone, content);
  await becomes(laptop, id, "elsewhere");
  away.isIt = false;
  await want(laptop, id);
  await becomes(laptop, id, Bun.hash(content));
  while (mail.boxOf(laptop.did).length > 0) await Bun.sleep(5);
  const { bytes } = await laptop.table.meta();
  expect(bytes > 100_000 && bytes < 110_000).toBe(true);
}, 30_000);

test("without room nothing of it is kept, and it comes when there is room", async () => {
  const { devices } = await devicesOf(["phone", "laptop"]);
  const [phone, laptop] = devices as [Device, Device];
  const driver = laptop.table.driver as { bytesMax: number };
  const room = driver.bytesMax;
  driver.bytesMax = mebibyte;
  const content = contentOf(2 * mebibyte);
  const id = await give(phone, content);
  while (!laptop.told.includes("store_full")) await Bun.sleep(5);
  expect([await contentAt(laptop, id), await laptop.table.scan({ prefix: "f/" })]).toEqual([
    "elsewhere",
    [],
  ]);
  driver.bytesMax = room;
  await becomes(laptop, id, Bun.hash(content));
}, 30_000);

test("what can't be asked for now fails, and may be asked for again", async () => {
  const away = { isIt: false };
  const { devices } = await devicesOf(["phone", "laptop"], (letter) => {
    if (away.isIt && saidIn(letter)["want"] !== undefined)
      throw new ClientError("unreachable", "unreachable", "it is away");
    return false;
  });
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(largeBytes);
  const id = await give(phone, content);
  await becomes(laptop, id, "elsewhere");
  away.isIt = true;
  expect(await want(laptop, id).catch((error: ClientError) => error.code)).toBe("unreachable");
  away.isIt = false;
  await want(laptop, id);
  await becomes(laptop, id, Bun.hash(content));
}, 30_000);

test("when the device that had it was removed the others are asked", async () => {
  const { devices, asked } = await devicesOf(["phone", "laptop", "tablet"]);
  const [phone, laptop, tablet] = devices as [Device, Device, Device];
  const content = contentOf(largeBytes);
  const id = await give(phone, content);
  for (const device of [laptop, tablet]) await becomes(device, id, "elsewhere");
  await want(laptop, id);
  await becomes(laptop, id, Bun.hash(content));
  await tablet.table.change(async (batch) => batch.delete(peerKey(tablet.table, phone.did)));
  await tablet.sync.refresh();
  await want(tablet, id);
  await becomes(tablet, id, Bun.hash(content));
  expect(asked).toEqual(["phone", "laptop"]);
}, 120_000);

test("content of another size, or of another message, is nobody's", async () => {
  const { devices, mail } = await devicesOf(["phone", "laptop"]);
  const [phone, laptop] = devices as [Device, Device];
  const id = await give(phone, contentOf(largeBytes));
  await becomes(laptop, id, "elsewhere");
  const { digest = "" } = (await messageById(phone.table, id))?.row ?? {};
  for (const [name, sizeBytes] of [
    ["another", largeBytes],
    [digest, 100_000],
  ] as const) {
    const source = {
      file: {
        name,
        mediaType: "application/vnd.waypost.content",
        sizeBytes,
        sha256: new Uint8Array(0),
      },
    };
    const read = async () => contentOf(sizeBytes);
    await mail.link(phone.did).send(laptop.did, { ...source, read }, { replyTo: id });
  }
  while (mail.boxOf(laptop.did).length > 0) await Bun.sleep(5);
  expect([await contentAt(laptop, id), await laptop.table.scan({ prefix: "f/" })]).toEqual([
    "elsewhere",
    [],
  ]);
}, 30_000);
