/** Messages that last for a time, with clocks that run, jump and stand still. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { keyOfConversation } from "../../../../src/client/store/keys.ts";
import { Lasting } from "../../../../src/client/store/lasting.ts";
import {
  addMessage,
  type ConversationRow,
  type Copy,
  type MessageRow,
} from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf } from "../../../support/own-store.ts";

const [own, bob] = [identityOf("own").did, identityOf("bob").did];
const yearMs = 365 * 86_400_000;
const startMs = 1_800_000_000_000;

/**
 * A store whose clocks the test moves: that of the machine, the program's, and those of the nodes.
 */
async function scene() {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const at = { wallMs: startMs, runMs: 0 };
  const ownStore = await ownStoreOf(table, own, { nowMs: () => at.wallMs });
  const relay = ownStore.identity.client.relay.clock;
  const directory = { ...relay };
  Object.assign(ownStore.identity.client.directory, {
    endpoint: { ...ownStore.identity.client.directory.endpoint, clock: directory },
  });
  const start = () => new Lasting(ownStore, () => at.runMs);
  let lasting = start();
  const pass = (ms: number) => {
    at.wallMs += ms;
    at.runMs += ms;
  };
  return {
    table,
    at,
    pass,
    /** They answer, with clocks so far ahead of the machine's. */
    hear: (aheadMs: number, nodes = [directory, relay]) => {
      for (const node of nodes) Object.assign(node, { aheadMs, answers: node.answers + 1 });
    },
    directory,
    relay,
    /** The program ends, and begins after a time that only the clock of the machine counts. */
    restart: (ms: number) => {
      at.wallMs += ms;
      at.runMs = 0;
      lasting = start();
    },
    look: () => lasting.look(),
    texts: async () => (await table.values<MessageRow>("m/")).map(({ id }) => id).sort(),
  };
}
type Scene = Awaited<ReturnType<typeof scene>>;

async function put({ table }: Scene, id: string, more: Partial<MessageRow> = {}): Promise<void> {
  const row: MessageRow = {
    ...{ id, from: bob, verified: true, trust: "proven", distrusted: null, name: "" },
    ...{ mediaType: "text/plain", sizeBytes: 1, replyTo: null, group: null, wantsReceipt: false },
    ...{ messageIds: [id], sentMs: startMs, conversation: bob, isOwn: false, arrivedMs: startMs },
    ...{ reaction: null, target: null, digest: id, body: { is: "inline", base64: "" }, to: [] },
    lastsSeconds: 60,
    ...more,
  };
  await table.change((batch) => addMessage(table, batch, row));
}

async function read({ table }: Scene): Promise<void> {
  await table.change(async (batch) => {
    const place = keyOfConversation(table, bob);
    const row = (await batch.get<ConversationRow>(place)) as ConversationRow;
    batch.put(place, { ...row, unread: 0, readMs: row.arrivedMs });
  });
}

test("one that was read lasts as long as it says from then on, and others stay", async () => {
  const it = await scene();
  await put(it, "brief");
  await put(it, "long", { lastsSeconds: 3_600 });
  await put(it, "lasting", { lastsSeconds: 0 });
  await it.look();
  it.pass(10 * yearMs);
  await it.look();
  expect(await it.texts()).toEqual(["brief", "lasting", "long"]);
  await read(it);
  expect(await it.look()).toBe(60_000);
  it.pass(59_000);
  expect(await it.look()).toBe(1_000);
  it.pass(1_000);
  await it.look();
  expect(await it.texts()).toEqual(["lasting", "long"]);
});

test("an own one lasts from the moment that nothing of it waits", async () => {
  const it = await scene();
  const copy = (out: string | null): Copy => ({
    ...{ did: bob, id: "mine", state: "waiting", code: null, reason: null },
    out,
  });
  await put(it, "mine", { isOwn: true, from: own, to: [copy("o/1")] });
  it.pass(120_000);
  await it.look();
  const [[key = "", row] = []] = await it.table.scan<MessageRow>({ prefix: "m/" });
  await it.table.change(async (batch) => batch.put(key, { ...row, to: [copy(null)] }));
  await it.look();
  it.pass(59_999);
  await it.look();
  expect(await it.texts()).toEqual(["mine"]);
  it.pass(1);
  await it.look();
  expect(await it.texts()).toEqual([]);
});

test("a clock that jumps ends nothing: not while the program runs, and not between two runs", async () => {
  const it = await scene();
  await put(it, "brief");
  await read(it);
  await it.look();
  it.at.wallMs += yearMs;
  await it.look();
  it.restart(yearMs);
  await it.look();
  // One node that agrees with no one may lie.
  it.hear(-yearMs, [it.relay]);
  await it.look();
  expect(await it.texts()).toEqual(["brief"]);
  it.pass(60_000);
  await it.look();
  expect(await it.texts()).toEqual([]);
});

test("the time between two runs counts when a node agrees with the clock, or both with each other", async () => {
  for (const aheadMs of [0, 7 * yearMs]) {
    const it = await scene();
    await put(it, "brief");
    await read(it);
    it.hear(aheadMs);
    await it.look();
    it.restart(3_600_000);
    await it.look();
    expect(await it.texts()).toEqual(["brief"]);
    it.hear(aheadMs);
    await it.look();
    expect(await it.texts()).toEqual([]);
  }
});

test("time is counted once, by the program or by the clocks, however often they are looked at", async () => {
  const it = await scene();
  await put(it, "brief");
  await read(it);
  await it.look();
  for (let i = 0; i < 59; i++) {
    it.pass(1_000);
    if (i % 3 === 0) it.hear(0);
    await it.look();
  }
  expect(await it.texts()).toEqual(["brief"]);
  it.at.wallMs -= 3_600_000;
  it.hear(3_600_000);
  await it.look();
  expect(await it.texts()).toEqual(["brief"]);
  it.pass(1_000);
  await it.look();
  expect(await it.texts()).toEqual([]);
});
