/** Content that is too large for the log of devices: asked for when it is opened, part by part, of whoever has it. */
import { afterEach, expect, test } from "bun:test";
import { syncType } from "../../../../src/client/content.ts";
import { applyItem, logStart, type SyncMessage } from "../../../../src/client/devices/items.ts";
import { type DeviceLink, peerKey, Sync } from "../../../../src/client/devices/sync.ts";
import { ClientError } from "../../../../src/client/http.ts";
import { type Message, messageOf } from "../../../../src/client/message.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { type Body, saveContent, wholeBody } from "../../../../src/client/store/files.ts";
import { addMessage, type MessageRow, removeMessage } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";

const person = identityOf("person").did;
const part = 4 * 1_048_576;
const contentOf = (bytes: number) => new Uint8Array(bytes).map((_, i) => (i * 2_654_435_761) >>> 24);
let stop = new AbortController();
afterEach(() => {
  stop.abort();
  stop = new AbortController();
});

const rowOf = (body: Body, sizeBytes = 0): MessageRow => ({
  ...{ id: crypto.randomUUID(), conversation: person, isOwn: false, from: person, verified: true, trust: "proven" },
  ...{ distrusted: null, sentMs: 1, arrivedMs: 1, name: "a.bin", mediaType: "application/x-a", replyTo: null },
  ...{ sizeBytes, group: null, wantsReceipt: false, messageIds: [], reaction: null, target: null },
  ...{ digest: crypto.randomUUID(), body, to: [] },
});

/** Own devices that reach one another at once; `lost` takes a message away on its way. */
async function devicesOf(
  names: readonly string[],
  lost: (message: SyncMessage) => boolean = () => false,
  answerMs = 60_000,
) {
  const { signal } = stop;
  const dids = names.map((name) => identityOf(name).did);
  const asked: [to: string, from: number][] = [];
  const inboxes = new Map<string, (message: Message) => void>();
  const nowMs = Date.now;
  const make = async (did: Did) => {
    const table = await Table.open(memoryStore(), crypto.getRandomValues(new Uint8Array(32)));
    await table.change(async (batch) => {
      batch.meta = { hasDevices: true, deviceDid: did };
      const facts = { name: "", addedMs: 0, seen: logStart, sent: logStart, history: null, isLeaving: false };
      for (const peer of dids) if (peer !== did) batch.put(peerKey(table, peer), { ...facts, did: peer });
    });
    const send: DeviceLink["send"] = async (to, content, { mediaType = "" }) => {
      const message = content as SyncMessage;
      if ("want" in message) asked.push([names[dids.indexOf(to as Did)] ?? "", message.want.from]);
      const { to: _, body: __, ...facts } = { ...rowOf({ is: "removed" }), from: did, mediaType };
      const nothing = async () => Promise.reject(new Error("nothing is answered"));
      const actions = { ack: async () => undefined, send: nothing };
      if (!lost(message)) inboxes.get(to)?.(messageOf(facts, utf8(JSON.stringify(content)), actions));
      const recipient = { did: to as Did, trust: "proven", name: null } as const;
      return { id: "", chunks: 1, groupId: null, messageIds: [], last: null, recipient };
    };
    const messages = async function* () {
      const waiting: Message[] = [];
      let came = Promise.withResolvers<void>();
      inboxes.set(did, (message) => {
        waiting.push(message);
        came.resolve();
      });
      for (; !signal.aborted; came = Promise.withResolvers()) {
        await came.promise;
        yield* waiting.splice(0);
      }
    };
    const told: string[] = [];
    const tell = ({ type }: { readonly type: string }) => void told.push(type);
    const run = (waitMs = answerMs) => {
      const link = { send, messages };
      const sync = new Sync({ table, nowMs, tell, answerMs: waitMs, link, take: async () => undefined }, 0, signal);
      void sync.run();
      return sync;
    };
    const say = (to: Did, message: SyncMessage) => send(to, { ...message }, { mediaType: syncType });
    return { did, table, sync: run(), run, told, say };
  };
  return { devices: await Promise.all(dids.map(make)), asked };
}

/** The message of a device, with its content, and what others know of it. */
async function give(
  from: Table,
  others: readonly Table[],
  content: Uint8Array,
): Promise<[key: string, keys: string[]]> {
  const { saved } = await saveContent(from, Date.now, {
    fill: (write) => write(content),
    rows: (batch, body) => addMessage(from, batch, rowOf(body, content.length)),
  });
  const row = (await from.get<MessageRow>(saved ?? "")) as MessageRow;
  const at = (await from.meta()).deviceDid as Did;
  const item = { kind: "message", row: { ...row, body: { is: "elsewhere", id: "", sizeBytes: 0, at } }, content: null };
  const keys = others.map(async (table) => {
    await applyItem({ table, nowMs: Date.now }, JSON.parse(JSON.stringify(item)));
    const [[key = ""] = []] = await table.scan({ prefix: "m/" });
    return key;
  });
  return [saved ?? "", await Promise.all(keys)];
}

type Device = Awaited<ReturnType<typeof devicesOf>>["devices"][0];

async function contentAt(table: Table, key: string): Promise<string | number | bigint> {
  const { body } = (await table.get<MessageRow>(key)) as MessageRow;
  return body.is === "pieces" ? Bun.hash(await wholeBody(table, body)) : body.is;
}

/** What a device has of the content after it was asked for; that is a change of the message. */
async function fetched(at: Device, key: string, sync = at.sync) {
  const changes = at.told.filter((type) => type === "changed").length;
  await sync.want(key);
  expect(at.told.filter((type) => type === "changed").length).toBe(changes + 1);
  return contentAt(at.table, key);
}

/** Takes away the first part that goes on with content, and says when. */
function dropOne() {
  const { promise, resolve } = Promise.withResolvers<void>();
  let isDone = false;
  const lost = (message: SyncMessage) => {
    const isIt = "part" in message && message.part.from > 0 && !isDone;
    isDone ||= isIt;
    if (isIt) resolve();
    return isIt;
  };
  return { lost, dropped: promise };
}

test("it comes in parts, goes on in the next run where it was, and is a file of the store then", async () => {
  const { lost, dropped } = dropOne();
  const { devices, asked } = await devicesOf(["phone", "laptop"], lost);
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(part + 5);
  const [, [key = ""]] = await give(phone.table, [laptop.table], content);
  expect(await contentAt(laptop.table, key)).toBe("elsewhere");
  void laptop.sync.want(key);
  await dropped;
  expect(await fetched(laptop, key, laptop.run())).toBe(Bun.hash(content));
  expect(asked).toEqual([0, part, part].map((from) => ["phone", from]));
  expect(await laptop.table.values<string>("a/")).toEqual([key]);
  await laptop.table.change((batch) => removeMessage(laptop.table, batch, key));
  expect([await laptop.table.values("a/"), (await laptop.table.meta()).bytes < 10_000]).toEqual([[], true]);
}, 30_000);

test("a part that comes late is kept, and who asks again goes on behind it", async () => {
  const late: SyncMessage[] = [];
  const isFirst = (message: SyncMessage) => "part" in message && late.length === 0 && late.push(message) > 0;
  const { devices, asked } = await devicesOf(["phone", "laptop"], isFirst, 200);
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(part + 5);
  const [, [key = ""]] = await give(phone.table, [laptop.table], content);
  expect(await fetched(laptop, key)).toBe("elsewhere");
  const bodyHere = async () => (await laptop.table.get<MessageRow>(key))?.body;
  const before = await bodyHere();
  await phone.say(laptop.did, late[0] as SyncMessage);
  while (Bun.deepEquals(await bodyHere(), before)) await Bun.sleep(5);
  expect(await fetched(laptop, key, laptop.run(60_000))).toBe(Bun.hash(content));
  expect(asked).toEqual([0, part].map((from) => ["phone", from]));
}, 30_000);

test("an answer that is lost is a change of the message, which may be asked for again", async () => {
  const away = { isIt: true };
  const { devices } = await devicesOf(["phone", "laptop"], (message) => away.isIt && "part" in message, 20);
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(100_000);
  const [, [key = ""]] = await give(phone.table, [laptop.table], content);
  expect(await fetched(laptop, key)).toBe("elsewhere");
  away.isIt = false;
  expect(await fetched(laptop, key, laptop.run(60_000))).toBe(Bun.hash(content));
}, 30_000);

test("a part that comes twice is taken once, and says nothing of what was asked for then", async () => {
  const again = { message: null as SyncMessage | null };
  const { devices } = await devicesOf(["phone", "laptop"], (message) => {
    if ("part" in message && message.part.from === 0) again.message = message;
    return false;
  });
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(part + 5);
  const [, [key = ""]] = await give(phone.table, [laptop.table], content);
  const told = laptop.told.length;
  const fetching = laptop.sync.want(key);
  while (laptop.told.length === told && again.message === null) await Bun.sleep(0);
  await phone.say(laptop.did, again.message as SyncMessage);
  await fetching;
  expect(await contentAt(laptop.table, key)).toBe(Bun.hash(content));
}, 30_000);

test("without room it is a change of the message, nothing of it is kept, and it may be asked for again", async () => {
  const full = { isIt: false };
  const { devices } = await devicesOf(["phone", "laptop"], (message) => {
    if (full.isIt && "part" in message && message.part.from > 0) driver.bytesMax = part + 20_000;
    return false;
  });
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(part + 100_000);
  const [, [key = ""]] = await give(phone.table, [laptop.table], content);
  const driver = laptop.table.driver as { bytesMax: number };
  const [room] = [driver.bytesMax];
  // From the beginning, and from the second part on.
  driver.bytesMax = part + 20_000;
  expect(await fetched(laptop, key)).toBe("elsewhere");
  driver.bytesMax = room;
  full.isIt = true;
  expect(await fetched(laptop, key)).toBe("elsewhere");
  expect(laptop.told.filter((type) => type === "store_full").length).toBe(2);
  expect((await laptop.table.meta()).bytes < 10_000).toBe(true);
  driver.bytesMax = room;
  full.isIt = false;
  expect(await fetched(laptop, key)).toBe(Bun.hash(content));
}, 30_000);

test("what can't be asked for now is a change of the message, which may be asked for again", async () => {
  const away = { isIt: true };
  const { devices } = await devicesOf(["phone", "laptop"], () => {
    if (away.isIt) throw new ClientError("unreachable", "unreachable", "it is away");
    return false;
  });
  const [phone, laptop] = devices as [Device, Device];
  const content = contentOf(100_000);
  const [, [key = ""]] = await give(phone.table, [laptop.table], content);
  expect(await fetched(laptop, key)).toBe("elsewhere");
  away.isIt = false;
  expect(await fetched(laptop, key)).toBe(Bun.hash(content));
}, 10_000);

test("who lacks it says so, then the others are asked, and it is gone when all lack it", async () => {
  const { devices, asked } = await devicesOf(["phone", "laptop", "tablet"]);
  const [phone, laptop, tablet] = devices as [Device, Device, Device];
  const content = contentOf(100_000);
  const [held, [atLaptop = "", atTablet = ""]] = await give(phone.table, [laptop.table, tablet.table], content);
  expect(await fetched(laptop, atLaptop)).toBe(Bun.hash(content));
  const remove = async (table: Table, key: string) =>
    table.change(async (batch) => {
      batch.put(key, { ...(await batch.get<MessageRow>(key)), body: { is: "removed" } });
    });
  await remove(phone.table, held);
  expect(await fetched(tablet, atTablet)).toBe(Bun.hash(content));
  expect(new Set(asked.map(([to]) => to))).toEqual(new Set(["phone", "laptop"]));
  const other = await give(tablet.table, [laptop.table, phone.table], content);
  await remove(tablet.table, other[0]);
  const rows = await phone.table.scan<MessageRow>({ prefix: "m/" });
  const [key = ""] = rows.find(([, { body }]) => body.is === "elsewhere") ?? [];
  expect(await fetched(phone, key)).toBe("removed");
});

test("a device that says again that it lacks content does not answer for the next one", async () => {
  const answered = { isAgain: false };
  const { devices } = await devicesOf(["phone", "laptop", "tablet"], (message) => {
    if ("want" in message && lackers.has(message.want.id)) {
      // The next device is asked: the answer to an earlier question of the first comes just then.
      if (asks.push(message.want.from) === 2) {
        answered.isAgain = true;
        void phone.say(tablet.did, { v: 1, part: { ...message.want, content: null } });
      }
    }
    return false;
  });
  const lackers = new Set<string>();
  const asks: number[] = [];
  const [phone, laptop, tablet] = devices as [Device, Device, Device];
  const content = contentOf(100_000);
  const [held, [atLaptop = "", atTablet = ""]] = await give(phone.table, [laptop.table, tablet.table], content);
  expect(await fetched(laptop, atLaptop)).toBe(Bun.hash(content));
  await phone.table.change(async (batch) => {
    const row = (await batch.get<MessageRow>(held)) as MessageRow;
    lackers.add(row.id);
    batch.put(held, { ...row, body: { is: "removed" } });
  });
  expect(await fetched(tablet, atTablet)).toBe(Bun.hash(content));
  expect(answered.isAgain).toBe(true);
});
