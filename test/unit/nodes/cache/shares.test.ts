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
  storeShareOf,
} from "../../../../src/nodes/cache/shares.ts";
import type { Receipts, Rest } from "../../../../src/storage/contract.ts";
import { cacheDefault } from "../../../support/settings.ts";

const far: Origin = { client: "198.51.100.7", network: "c6336407" };
const near: Origin = { client: "127.0.0.1", network: "7f000001" };
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
    expect(labelsOf(friend, far)).toEqual(["from:a", storeShareOf(far, settings).label]);
    expect(labelsOf(newcomer, far).slice(0, 2)).toEqual(["from:a", "new"]);
    expect(labelsOf(newcomer, far).at(-1)).toBe(storeShareOf(far, settings).label);
    expect(labelsOf("unsigned", far)[0]).toBe("new");
    expect(labelsOf("unsigned", far)).not.toEqual(labelsOf("unsigned", near));
  });

  test("holds at most its share, and an unsigned one leaves a fifth of the network's to those who sign", () => {
    const entries = (sending: Sending, origin: Origin) => sharesOf(sending, origin, settings).map(aloneEntries);
    expect(entries(friend, far)).toEqual([500]);
    expect(entries(newcomer, far)).toEqual([500, 950, 200]);
    expect(entries("unsigned", far)).toEqual([500, 950, 160]);
    expect(entries(newcomer, near)).toEqual([500, 950, 300]);
    const bytes = sharesOf(newcomer, far, settings).map(({ bytesMax, rest }) => bytesMax * (rest?.part ?? 1));
    expect(bytes.map(Math.round)).toEqual([50 * mebibyte, 95 * mebibyte, 20 * mebibyte]);
  });

  test("of an IPv6 client counts for the /48, and of others for the address", () => {
    const labels = (network: string) => labelsOf("unsigned", { client: "", network });
    expect(labels("20010db800010001")).toEqual(labels("20010db80001ffff"));
    expect(labels("20010db800010001")).not.toEqual(labels("20010db800020001"));
    expect(labels("c6336407")).not.toEqual(labels("c6336408"));
  });
});

test("however small a mailbox is, a share holds 100 entries and a mebibyte", () => {
  const small = { ...settings, recipient_entries_max: 10, recipient_bytes_max: 2 * mebibyte };
  for (const share of sharesOf("unsigned", far, small)) {
    expect(aloneEntries(share)).toBe(100);
    expect(Math.round(share.bytesMax * (share.rest?.part ?? 1))).toBeWithin(mebibyte, 2 * mebibyte);
  }
});

test("one network holds half of the store while it is alone, one of this machine three quarters", () => {
  const store = { ...settings, store_entries_max: 1_000_000, store_bytes_max: 1_000 * mebibyte };
  expect(aloneEntries(storeShareOf(far, store))).toBe(500_000);
  expect(aloneEntries(storeShareOf(near, store))).toBe(750_000);
  expect(storeShareOf(far, store).rest).toMatchObject({ entriesMin: 100, bytesMin: 256_000 });
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
      numbers.map((n) => ({ labels: [senderLabel(sender(n))] })),
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

/** How many entries a label may have when no other has any. */
function aloneEntries({ entriesMax, rest }: { readonly entriesMax: number; readonly rest: Rest | null }): number {
  return Math.round(entriesMax * (rest?.part ?? 1));
}
