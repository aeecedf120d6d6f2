/**
 * Files that arrive in runs: each run counts once, over restarts, and nothing is taken of strangers
 * or of what is false.
 */
import { expect, test } from "bun:test";
import { buildEnvelope, type SendPlan } from "../../../../src/client/mail/send.ts";
import {
  type LiveEnvelope,
  liveCopy,
  type PendingMessage,
} from "../../../../src/client/net/caches.ts";
import { memoryStore, type StoreDriver } from "../../../../src/client/store/driver.ts";
import { keyOfPerson, rowsOf } from "../../../../src/client/store/keys.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { ownStoreOf, partsOf } from "../../../support/own-store.ts";
import { content, from, plan as oldPlan, readerSecret, to } from "../../../support/send-plan.ts";

const sender = { did: from, verified: true, trust: "proven", distrusted: null } as const;
const recipient = { did: to, secretsOf: () => [readerSecret], senderOf: async () => sender };

const plan: SendPlan = { ...oldPlan, timestamp: new Date().toISOString() };

/** Some chunks of the plan, as a Cache lists them. */
async function waitingOf(chunks: readonly number[], of: SendPlan = plan): Promise<PendingMessage> {
  const parts = chunks.map(async (chunk) => {
    const data = content.subarray(chunk * 1_000, (chunk + 1) * 1_000);
    const { messageId, body } = await buildEnvelope(of, chunk, data);
    const envelope: LiveEnvelope["envelope"] = JSON.parse(new TextDecoder().decode(body));
    return [liveCopy({ messageId, expiresAtMs: Date.now() + 60_000, envelope }, null)];
  });
  return { groupId: of.id, total: 3, parts: await Promise.all(parts) };
}

/** As after a start: only the rows are there. */
async function started(driver: StoreDriver, isKnown = true) {
  const table = await Table.open(driver, new Uint8Array(32).fill(7));
  const person = { did: from, name: "", alias: null, isKnown, isBlocked: false };
  await table.change(async (batch) => batch.put(keyOfPerson(table, from), person));
  const { store, incoming } = await partsOf(await ownStoreOf(table, to));
  const take = async (message: PendingMessage) => {
    const run = await incoming(null).saved.takeRun?.(message, recipient);
    return run === null || run === undefined ? null : [run.copies.length, run.read !== null];
  };
  return { table, store, take };
}

test("runs that come one by one, again, and after restarts are one message", async () => {
  const driver = memoryStore();
  const runs: [chunks: number[], result: [number, boolean] | null][] = [
    // What does not follow waits.
    [[1, 2], null],
    [[0], [1, false]],
    [
      [0, 1],
      [2, false],
    ],
    [
      [0, 1],
      [2, false],
    ],
    [[2], [1, true]],
  ];
  for (const [chunks, result] of runs)
    expect(await (await started(driver)).take(await waitingOf(chunks))).toEqual(result);
  const { store, table } = await started(driver);
  const [message, ...others] = await store.messages(from);
  if (message === undefined) throw new Error("no message");
  expect([others.length, message.name, await store.unread()]).toEqual([0, "photo.jpg", 1]);
  expect(await (await store.file(message)).bytes()).toEqual(content);
  expect(await table.scan({ prefix: rowsOf.arriving })).toEqual([]);
  expect(await table.scan({ prefix: rowsOf.pieces })).toEqual([]);
});

test("of a stranger nothing is taken before it is whole", async () => {
  const { take, table } = await started(memoryStore(), false);
  expect(await take(await waitingOf([0, 1]))).toBeNull();
  expect(await table.scan({ prefix: rowsOf.arriving })).toEqual([]);
});

test("a file that is not what its sender measured is forgotten when it is whole", async () => {
  const { take, store, table } = await started(memoryStore());
  const other = { ...plan, file: { ...plan.file, sha256: new Uint8Array(32) } };
  expect(await take(await waitingOf([0, 1, 2], other))).toEqual([3, false]);
  expect(await store.messages(from)).toEqual([]);
  for (const prefix of [rowsOf.arriving, rowsOf.pieces])
    expect(await table.scan({ prefix })).toEqual([]);
});
