/**
 * Pools of a mailbox: who counts under which label, how much each may hold, and whom a mailbox
 * knows.
 */
import { describe, expect, test } from "bun:test";
import { type Did, mailboxOf } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import {
  createKnownSenders,
  rememberSenders,
  sendingOf,
} from "../../../../src/nodes/cache/known.ts";
import {
  labelsOf,
  type MailboxSender,
  networkOfLabel,
  type Origin,
  placesOf,
  storeShareOf,
} from "../../../../src/nodes/cache/pools.ts";
import { authorLabel } from "../../../../src/nodes/parties/author.ts";
import type { Receipts } from "../../../../src/storage/contract.ts";
import { cacheDefault } from "../../../support/settings.ts";

const far: Origin = { client: "198.51.100.7", network: "198.51.100.7" };
const near: Origin = { client: "127.0.0.1", network: "127.0.0.1" };
const friend: MailboxSender = { isKnown: true, label: "from:a", who: "from:a", people: 20 };
const newcomer: MailboxSender = { isKnown: false, label: "from:a" };
const unsigned: MailboxSender = { isKnown: false, label: null };
const mebibyte = 1024 ** 2;
const settings = {
  ...cacheDefault,
  recipient_entries_max: 10_000,
  recipient_bytes_max: 100 * mebibyte,
};
const roomOf = (sending: MailboxSender, changes = {}) =>
  placesOf(sending, far, { ...settings, ...changes }).map(({ own, pool, poolMax, isRest }) => ({
    own: [own.entriesMax, own.bytesMax],
    pool: [pool, poolMax.entries, poolMax.bytes],
    isRest,
  }));

describe("an entry", () => {
  test("has the labels of its signer and its network, and of the place that it takes", () => {
    const { label } = storeShareOf(far, settings);
    expect(labelsOf(friend, far)).toEqual(["from:a", label]);
    expect(labelsOf(newcomer, far)).toEqual(["from:a", label]);
    expect(labelsOf(unsigned, far)).toEqual([label]);
    const owners = (sending: MailboxSender, origin = far) =>
      placesOf(sending, origin, settings).map(({ own }) => own.label);
    expect(owners(friend)).toEqual(["known:from:a", "known-rest:from:a"]);
    expect(owners(friend)).toEqual(owners(friend, near));
    expect(owners(unsigned)).toEqual([
      expect.stringMatching(/^new:net:[0-9a-f]{16}$/),
      expect.stringMatching(/^new-rest:net:[0-9a-f]{16}$/),
    ]);
    expect(owners(newcomer)).toEqual(owners(unsigned));
    expect(owners(unsigned)).not.toEqual(owners(unsigned, near));
    expect([...owners(newcomer), label].map(networkOfLabel)).toEqual(
      new Array(3).fill(far.network),
    );
  });

  test("of known people takes the floor of its sender, else the rest of six tenths", () => {
    expect(roomOf(friend)).toEqual([
      {
        own: [166, Math.floor((40 * mebibyte) / 24)],
        pool: ["known", 4_000, 40 * mebibyte],
        isRest: false,
      },
      {
        own: [2_000, 20 * mebibyte],
        pool: ["known-rest", 2_000, 20 * mebibyte],
        isRest: true,
      },
    ]);
  });

  test("of newcomers takes two entries of its network, else the rest of four tenths", () => {
    const expected = [
      { own: [2, 64 * 1024], pool: ["new", 3_000, 30 * mebibyte], isRest: false },
      {
        own: [1_000, 10 * mebibyte],
        pool: ["new-rest", 1_000, 10 * mebibyte],
        isRest: true,
      },
    ];
    expect(roomOf(newcomer)).toEqual(expected);
    expect(roomOf(unsigned)).toEqual(expected);
  });

  test("of an IPv6 client counts for the /48, and of others for the address", () => {
    const labels = (network: string) => placesOf(unsigned, { client: "", network }, settings);
    expect(labels("2001:db8:1:1::/64")).toEqual(labels("2001:db8:1:ffff::/64"));
    expect(labels("2001:db8:1:1::/64")).not.toEqual(labels("2001:db8:2:1::/64"));
    expect(labels("198.51.100.7")).not.toEqual(labels("198.51.100.8"));
  });
});

test("floors of all known people are within their pool, and change with each eighth person only", () => {
  for (let people = 1; people <= 1_000; people++) {
    const [floor] = placesOf({ ...friend, people }, far, settings);
    expect(floor.own.entriesMax * people).toBeLessThanOrEqual(floor.poolMax.entries);
    expect(floor.own.bytesMax * people).toBeLessThanOrEqual(floor.poolMax.bytes);
  }
  const floors = [1, 8, 9, 16, 1_000].map((people) => roomOf({ ...friend, people })[0]!.own[0]);
  expect(floors).toEqual([500, 500, 250, 250, 4]);
});

test("however small a mailbox is, a pool holds 100 entries and 4 MiB", () => {
  const small = { recipient_entries_max: 10, recipient_bytes_max: 2 * mebibyte };
  for (const sending of [friend, unsigned])
    for (const { pool } of roomOf(sending, small))
      expect(pool.slice(1)).toEqual([100, 4 * mebibyte]);
});

test("one network holds half of the store", () => {
  const store = { ...settings, store_entries_max: 1_000_000, store_bytes_max: 1_000 * mebibyte };
  expect(storeShareOf(far, store)).toMatchObject({ entriesMax: 500_000, bytesMax: 500 * mebibyte });
});

const box = mailboxOf("did:svc:1111111111111111111111" as Did, 0);
const sender = (n: number) => `did:svc:sender${n}` as Did;
const day = (n: number) => (20_000 + n) * dayMs;

/** Receipts that count what is written and forget nothing by themselves. */
function memory() {
  const held = new Map<string, Uint8Array>();
  const writes: number[] = [];
  const receipts: Pick<Receipts, "get" | "put"> = {
    get: async (key) => held.get(key) ?? null,
    put: async (key, value, untilMs) => {
      held.set(key, value);
      writes.push(untilMs);
    },
  };
  const known = createKnownSenders(receipts as Receipts, () => {});
  const seen = (n: number, nowMs: number) =>
    sendingOf(
      known,
      box,
      { author: authorLabel(sender(n)), pass: null, envelope: new Uint8Array() },
      nowMs,
    );
  const learn = async (numbers: number[], nowMs: number) => {
    const sendings = await Promise.all(numbers.map((n) => seen(n, nowMs)));
    const acknowledged = sendings.map(({ label }) => ({ labels: label === null ? [] : [label] }));
    return rememberSenders(known, box, acknowledged, nowMs);
  };
  return {
    writes,
    learn,
    is: async (n: number, nowMs: number) => (await seen(n, nowMs)).isKnown,
  };
}

test("a sender is known for 90 days after the last acknowledgement, and new on the next", async () => {
  const { learn, is } = memory();
  await learn([1], day(0));
  expect([await is(1, day(0)), await is(1, day(90)), await is(1, day(91))]).toEqual([
    true,
    true,
    false,
  ]);
  expect(await is(2, day(0))).toBe(false);
});

test("an acknowledgement is written once a day for each sender", async () => {
  const { learn, is, writes } = memory();
  for (let n = 0; n < 3; n++) for (let again = 0; again < 3; again++) await learn([1], day(n));
  expect([await is(1, day(92)), await is(1, day(93)), writes]).toEqual([
    true,
    false,
    [day(90), day(91), day(92)],
  ]);
});

test("of more than a thousand the newest are forgotten", async () => {
  const { learn, is, writes } = memory();
  await learn([7, 8], day(0));
  await learn(
    Array.from({ length: 1_500 }, (_, n) => 1_000 + n),
    day(2),
  );
  expect([await is(7, day(2)), await is(8, day(2)), await is(1_997, day(2))]).toEqual([
    true,
    true,
    true,
  ]);
  expect([await is(1_998, day(2)), await is(2_499, day(2))]).toEqual([false, false]);
  await learn([8], day(3));
  // One that is known stays so by its next acknowledgement, though there is no room for others.
  expect([await is(7, day(93)), await is(8, day(93))]).toEqual([false, true]);
  const before = writes.length;
  await learn([2_499], day(3));
  expect(writes.length).toBe(before);
});

test("an acknowledgement of unsigned entries writes nothing", async () => {
  const { writes, learn } = memory();
  await learn([], day(0));
  expect(writes).toEqual([]);
});
