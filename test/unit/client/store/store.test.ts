/**
 * The rows of a local store: drivers that agree, values that are sealed and bound to their keys,
 * and what comes twice.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileStore } from "../../../../src/cli/files/store.ts";
import type { ClientError } from "../../../../src/client/base/failure.ts";
import { applyItem } from "../../../../src/client/devices/items.ts";
import { buildEnvelope } from "../../../../src/client/mail/send.ts";
import { type LiveEnvelope, liveCopy } from "../../../../src/client/net/caches.ts";
import { memoryStore, type Row, type StoreDriver } from "../../../../src/client/store/driver.ts";
import { keyOfMessage } from "../../../../src/client/store/places.ts";
import { addMessage, type MessageRow, putReaction } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import { ownStoreOf, partsOf } from "../../../support/own-store.ts";
import { content, from, plan, readerSecret, to } from "../../../support/send-plan.ts";

const folder = mkdtempSync(join(tmpdir(), "waypost-store-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const storeKey = new Uint8Array(32).fill(7);
const drivers: readonly [string, () => StoreDriver][] = [
  ["memory", memoryStore],
  ["a file", () => fileStore(join(folder, `${crypto.randomUUID()}.sqlite`))],
];

describe.each(drivers)("a driver of %s", (_, open) => {
  test("reads what was written last, scans in the order of the keys, and forgets what was removed", async () => {
    const driver = open();
    const rows = ["b/2", "a/1", "b/10", "c", "b/1"].map((key) => [key, utf8(key)] as const);
    await driver.apply(rows);
    await driver.apply([
      ["b/1", utf8("new")],
      ["c", null],
    ]);
    const keysOf = async (range: { readonly limit: number; readonly isReverse?: boolean }) =>
      (await driver.scan({ from: "b/", to: "b/~", ...range })).map(([key]) => key);
    expect(await keysOf({ limit: 10 })).toEqual(["b/1", "b/10", "b/2"]);
    expect(await keysOf({ limit: 2, isReverse: true })).toEqual(["b/2", "b/10"]);
    expect([await driver.read("b/1"), await driver.read("c")]).toEqual([utf8("new"), null]);
    await driver.close();
  });

  test("applies a batch whole or not at all", async () => {
    const driver = open();
    const table = await Table.open(driver, storeKey);
    const broken = table.change(async (batch) => {
      batch.put("one", 1);
      throw new Error("a mistake of the work");
    });
    expect(await broken.catch((error: Error) => error.message)).toBe("a mistake of the work");
    expect(await table.get("one")).toBeNull();
    await driver.close();
  });
});

test("a batch that the file refuses in its middle changes nothing", async () => {
  const driver = fileStore(join(folder, "middle.sqlite"));
  // A value that the file can't hold.
  const second = JSON.parse('["second", {}]') as Row;
  const wrong = driver.apply([["first", utf8("1")], second]);
  expect(await wrong.then(() => "applied").catch(() => "refused")).toBe("refused");
  expect(await driver.read("first")).toBeNull();
  await driver.close();
});

test("a disk without room is a full store, also where the file has ended the batch itself", async () => {
  const path = join(folder, "full.sqlite");
  const driver = fileStore(path);
  const table = await Table.open(driver, storeKey);
  const put = (key: string) =>
    table
      .change(async (batch) => batch.put(key, 1))
      .catch((error: ClientError) => error.code as unknown);
  await put("before");
  await driver.close();
  const file = new DatabaseSync(path);
  file.exec(
    "CREATE TRIGGER full BEFORE INSERT ON rows BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
  );
  file.close();
  expect([await put("after"), await table.get("after"), await table.get<number>("before")]).toEqual(
    ["store_full", null, 1],
  );
  await driver.close();
});

test("rows show neither names nor content, can't change places, and open under no other key", async () => {
  const driver = memoryStore();
  const table = await Table.open(driver, storeKey);
  await table.change(async (batch) => {
    batch.put(`p/${table.name("did:svc:somebody")}`, {
      did: "did:svc:somebody",
      name: "a secret name",
    });
    batch.put(`p/${table.name("did:svc:other")}`, { did: "did:svc:other", name: "another" });
  });
  const rows = await driver.scan({ from: table.place, to: `${table.place}~`, limit: 10 });
  const all = rows
    .map(([key, bytes]) => `${key} ${new TextDecoder("latin1").decode(bytes)}`)
    .join(" ");
  expect(all).not.toMatch(/somebody|secret/);
  const [[one = ""] = [], [, bytes = null] = []] = rows.filter(([key]) => key.includes("/p/"));
  await driver.apply([[one, bytes]]);
  const code = await table.values("p/").catch((error: ClientError) => error.code);
  expect(code).toBe("store_unreadable");
  const other = await Table.open(driver, new Uint8Array(32).fill(8));
  expect([other.place === table.place, await other.values("p/")]).toEqual([false, []]);
});

test("one envelope that comes twice at once is one message", async () => {
  const table = await Table.open(memoryStore(), storeKey);
  const { store, incoming } = await partsOf(await ownStoreOf(table, to));
  const { read } = incoming(true).saved;
  const whole = { ...plan, chunkBytes: 10_000, timestamp: new Date().toISOString() };
  const { messageId, body } = await buildEnvelope(whole, 0, content);
  const envelope: LiveEnvelope["envelope"] = JSON.parse(new TextDecoder().decode(body));
  const version = () => {
    const copy = liveCopy({ messageId, expiresAtMs: Date.now() + 60_000, envelope }, null);
    return { groupId: null, total: 1, parts: [[copy]] };
  };
  const sender = { did: from, verified: true, trust: "proven", distrusted: null } as const;
  const recipient = { did: to, secretsOf: () => [readerSecret], senderOf: async () => sender };
  await Promise.all([read(version(), recipient), read(version(), recipient)]);
  await read(version(), recipient);
  expect((await store.messages(from)).map(({ id, name }) => [id, name])).toEqual([
    [plan.id, "photo.jpg"],
  ]);
  expect(await store.unread()).toBe(1);
});

const sentRow: MessageRow = {
  ...{
    id: plan.id,
    conversation: to,
    isOwn: true,
    from,
    verified: true,
    trust: "proven",
    distrusted: null,
  },
  ...{
    sentMs: 1,
    arrivedMs: 1,
    name: "",
    mediaType: "text/plain",
    sizeBytes: 0,
    replyTo: null,
    group: null,
  },
  ...{ wantsReceipt: false, messageIds: [], reaction: null, target: null, digest: "", to: [] },
  body: { is: "inline", base64: "" },
};

test("a read receipt names what was there when it was read, and nothing that arrived behind it", async () => {
  const table = await Table.open(memoryStore(), storeKey);
  const receipts: unknown[] = [];
  const wereRead = async (...receipt: unknown[]) => void receipts.push(receipt);
  const { store } = await partsOf(await ownStoreOf(table, to), { wereRead });
  await store.saveProfile({ isOpen: true });
  await store.savePerson(from, { isKnown: true });
  const asked = { ...sentRow, conversation: from, isOwn: false, wantsReceipt: true };
  const late = { ...asked, id: "2f1c1f1e-8a54-4a0c-9d0e-0d5f6b1f2a3b", arrivedMs: 9 };
  await table.change(async (batch) => {
    await addMessage(table, batch, asked);
    // As it is found when it was added after the mark and before the receipt.
    batch.put(keyOfMessage(table, late), late);
  });
  await store.markRead(from);
  expect(receipts).toEqual([[from, [plan.id]]]);
});

test("what another device says of a delivery takes no receipt back", async () => {
  const table = await Table.open(memoryStore(), storeKey);
  const copy = {
    did: to,
    id: plan.id,
    state: "received",
    code: null,
    reason: null,
    out: null,
  } as const;
  const row: MessageRow = { ...sentRow, to: [copy] };
  const key = await table.change((batch) => addMessage(table, batch, row));
  const say = (state: "sent" | "failed") =>
    applyItem(table, { is: "v", row: { id: plan.id, to: [{ ...copy, state }] } }, Date.now());
  await say("sent");
  expect((await table.get<MessageRow>(key))?.to).toEqual([copy]);
  await say("failed");
  expect((await table.get<MessageRow>(key))?.to[0]?.state).toBe("failed");
});

test("a reaction made here replaces the one before, also when the clock went back in between", async () => {
  const table = await Table.open(memoryStore(), storeKey);
  const put = (reaction: string, sentMs: number, isMade: boolean) =>
    table.change((batch) =>
      putReaction(table, batch, { ...sentRow, reaction, sentMs, target: plan.id }, isMade),
    );
  await put("first", 1_000, true);
  const key = await put("second", 10, true);
  expect(await table.get<MessageRow>(key)).toMatchObject({ reaction: "second", sentMs: 1_001 });
  await put("an earlier one of another device", 1_000, false);
  expect(await table.get<MessageRow>(key)).toMatchObject({ reaction: "second" });
});

test("what has expired is forgotten page by page, and other work goes on in between", async () => {
  const table = await Table.open(memoryStore(), storeKey);
  await table.change(async (batch) => {
    for (let i = 0; i < 3_500; i++)
      batch.put(`s/${String(i).padStart(5, "0")}`, i % 2 === 0 ? 1 : 3);
  });
  const { incoming } = await partsOf(await ownStoreOf(table, to, { nowMs: () => 2 }));
  const largest = { rows: 0, turns: 0, isOver: false };
  const apply = table.driver.apply;
  Object.assign(table.driver, {
    apply: (batch: Parameters<StoreDriver["apply"]>[0]) => {
      largest.rows = Math.max(largest.rows, batch.length);
      return apply(batch);
    },
  });
  const count = () => {
    largest.turns++;
    if (!largest.isOver) setTimeout(count, 0);
  };
  setTimeout(count, 0);
  await incoming(null).sweep(new AbortController().signal);
  largest.isOver = true;
  expect((await table.values<number>("s/")).every((untilMs) => untilMs === 3)).toBe(true);
  expect((await table.values<number>("s/")).length).toBe(1_750);
  expect([largest.turns >= 3, largest.rows < 1_000]).toEqual([true, true]);
});
