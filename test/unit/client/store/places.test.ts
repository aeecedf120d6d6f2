/**
 * Where messages stand in a conversation: each sender's in the order of sending, whatever clocks
 * say and in whichever order they come.
 */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { messagesOf } from "../../../../src/client/store/keys.ts";
import { addMessage, type MessageRow, moveMessage } from "../../../../src/client/store/rows.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { identityOf } from "../../../support/identity.ts";
import { times } from "../../../support/whole.ts";

const [alice, bob] = [identityOf("alice").did, identityOf("bob").did];
const startMs = 1_800_000_000_000;

/** The same in every run: mulberry32. */
function numbersBelow(seed: number): (count: number) => number {
  let state = seed;
  return (count) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % count;
  };
}

type Said = { readonly from: Did; readonly sentMs: number; readonly arrivedMs: number };

const rowOf = ({ from, sentMs, arrivedMs }: Said, conversation: string): MessageRow => {
  const id = `${from}-${sentMs}`;
  return {
    ...{ conversation, isOwn: false, id, from, verified: true, trust: "proven", distrusted: null },
    ...{ name: "", mediaType: "text/plain", sizeBytes: 1, replyTo: null, group: null },
    ...{ wantsReceipt: false, messageIds: [id], sentMs, arrivedMs, reaction: null, target: null },
    ...{ digest: id, body: { is: "inline", base64: "" }, to: [] },
  };
};

/** What a reader shows to whom these arrive one after the other. */
async function shown(arriving: readonly Said[], conversation: string = alice) {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  for (const said of arriving)
    await table.change((batch) => addMessage(table, batch, rowOf(said, conversation)));
  const rows = await table.values<MessageRow>(messagesOf(table, conversation));
  return { table, rows };
}

const timesOf = (rows: readonly MessageRow[], from: Did) =>
  rows.filter((row) => row.from === from).map(({ sentMs }) => sentMs - startMs);

test("of a sender whose clock is ahead, what arrives behind a later message stands before it", async () => {
  const said = (sentMs: number, arrivedMs: number) => ({
    from: alice,
    sentMs: startMs + sentMs,
    arrivedMs: startMs + arrivedMs,
  });
  const { rows } = await shown([said(5_020, 1_000), said(5_000, 1_010), said(5_010, 1_020)]);
  expect(timesOf(rows, alice)).toEqual([5_000, 5_010, 5_020]);
  // Also what comes when its time is no longer ahead.
  const late = await shown([said(5_020, 1_000), said(5_000, 9_000), said(5_040, 9_010)]);
  expect(timesOf(late.rows, alice)).toEqual([5_000, 5_020, 5_040]);
  // Two people: a clock that is ahead puts nothing behind what comes later.
  const answer = { from: bob, sentMs: startMs + 1_500, arrivedMs: startMs + 1_500 };
  const both = await shown([said(5_020, 1_000), said(5_000, 1_010), answer]);
  expect(both.rows.at(-1)?.from).toBe(bob);
});

const runs = times(20, 40);
test(`${runs} runs of three senders whose clocks differ show the same order of each at every reader`, async () => {
  const people: readonly Did[] = [alice, bob, identityOf("carol").did];
  const below = numbersBelow(44);
  for (let run = 0; run < runs; run++) {
    const aheadMs = people.map(() => below(3) * 2_000 - 2_000);
    const sent = Array.from({ length: 30 }, (_, i) => {
      const who = below(people.length);
      return { from: people[who] as Did, sentMs: startMs + i * 100 + (aheadMs[who] ?? 0) };
    });
    for (let reader = 0; reader < 2; reader++) {
      const delayed = sent.map((one, i) => ({ ...one, atMs: i * 100 + below(2_000) }));
      delayed.sort((a, b) => a.atMs - b.atMs);
      const arriving = delayed.map((one) => ({ ...one, arrivedMs: startMs + one.atMs }));
      const { rows } = await shown(arriving, "a group");
      for (const from of people) {
        const times = sent.filter((one) => one.from === from).map(({ sentMs }) => sentMs - startMs);
        expect(timesOf(rows, from)).toEqual(times);
      }
    }
  }
});

test("a message that is shown elsewhere stands among its sender's there too", async () => {
  const said = (sentMs: number, arrivedMs: number) => ({
    from: alice,
    sentMs: startMs + sentMs,
    arrivedMs: startMs + arrivedMs,
  });
  const { table } = await shown([said(5_010, 1_000), said(5_000, 1_010), said(5_020, 1_020)]);
  for (const [key] of await table.scan<MessageRow>({
    prefix: messagesOf(table, alice),
    isReverse: true,
  }))
    await table.change((batch) =>
      moveMessage(table, batch, key, { conversation: "a group", group: "a group" }),
    );
  const rows = await table.values<MessageRow>(messagesOf(table, "a group"));
  expect(timesOf(rows, alice)).toEqual([5_000, 5_010, 5_020]);
});
