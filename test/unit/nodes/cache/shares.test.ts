/** Shares of a mailbox: who counts under which label, how much each may hold, and whom a mailbox knows. */
import { describe, expect, test } from "bun:test";
import { type Did, mailboxOf } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import {
  createKnownSenders,
  isKnown,
  labelsOf,
  type Origin,
  remember,
  type Sending,
  senderLabel,
  sharesOf,
} from "../../../../src/nodes/cache/shares.ts";
import type { Receipts } from "../../../../src/storage/contract.ts";
import { cacheDefault } from "../../../support/settings.ts";

const far: Origin = { client: "198.51.100.7", network: "198.51.100.7" };
const near: Origin = { client: "127.0.0.1", network: "127.0.0.1" };
const friend: Sending = { label: "from:a", known: true };
const newcomer: Sending = { label: "from:a", known: false };
const mebibyte = 1024 ** 2;
const settings = {
  ...cacheDefault,
  recipient_entries_max: 1_000,
  recipient_bytes_max: 100 * mebibyte,
  stranger_share: 50,
  network_share: 20,
  rate_limit_loopback: false,
};

describe("an entry", () => {
  test("of a known sender counts for itself, of a new one for the strangers and its network too", () => {
    expect(labelsOf(friend, far)).toEqual(["from:a"]);
    expect(labelsOf(newcomer, far).slice(0, 2)).toEqual(["from:a", "new"]);
    expect(labelsOf("unsigned", far)[0]).toBe("new");
    expect(labelsOf("unsigned", far)).not.toEqual(labelsOf("unsigned", near));
  });

  test("holds at most its share, and an unsigned one leaves a fifth of the network's to those who sign", () => {
    const entries = (sending: Sending, origin: Origin) =>
      sharesOf(sending, origin, settings).map((one) => one.entriesMax);
    expect(entries(friend, far)).toEqual([500]);
    expect(entries(newcomer, far)).toEqual([500, 200]);
    expect(entries("unsigned", far)).toEqual([500, 160]);
    expect(entries(newcomer, near)).toEqual([500, 300]);
    expect(sharesOf(newcomer, far, settings).map((one) => one.bytesMax)).toEqual([50 * mebibyte, 20 * mebibyte]);
  });
});

test("however small a mailbox is, a share holds 100 entries and a mebibyte", () => {
  const small = { ...settings, recipient_entries_max: 10, recipient_bytes_max: 2 * mebibyte };
  for (const share of sharesOf("unsigned", far, small)) {
    expect([share.entriesMax, share.bytesMax]).toEqual([100, mebibyte]);
  }
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
  const learn = (numbers: number[], nowMs: number) =>
    remember(
      known,
      box,
      numbers.map((n) => senderLabel(sender(n))),
      nowMs,
    );
  return { writes, learn, knows: (n: number, nowMs: number) => isKnown(known, box, sender(n), nowMs) };
}

test("a sender is known for 90 days after the last acknowledgement, and new on the next", async () => {
  const { learn, knows } = memory();
  await learn([1], day(0));
  expect([await knows(1, day(0)), await knows(1, day(90)), await knows(1, day(91))]).toEqual([true, true, false]);
  expect(await knows(2, day(0))).toBe(false);
});

test("a sender that is seen again is written again after 30 days, and not before", async () => {
  const { learn, knows, writes } = memory();
  await learn([1], day(0));
  await learn([1], day(30));
  expect(writes).toEqual([day(90)]);
  await learn([1], day(31));
  expect(writes).toEqual([day(90), day(121)]);
  expect(await knows(1, day(121))).toBe(true);
});

test("of more than a thousand those seen longest ago are forgotten", async () => {
  const { learn, knows } = memory();
  const numbers = Array.from({ length: 1_000 }, (_, n) => n);
  await learn(numbers, day(0));
  await learn([0], day(40));
  await learn([1_000], day(40));
  expect([await knows(0, day(40)), await knows(1_000, day(40))]).toEqual([true, true]);
  expect([await knows(1, day(40)), await knows(2, day(40))]).toEqual([false, true]);
});

test("an acknowledgement of unsigned entries writes nothing", async () => {
  const { writes, learn } = memory();
  await learn([], day(0));
  expect(writes).toEqual([]);
});
