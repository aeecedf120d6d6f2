/** Shares of a mailbox: who counts under which label, how much each may hold, and whom a mailbox knows. */
import { describe, expect, test } from "bun:test";
import { type Did, mailboxOf } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { acquaintanceOf, createKnownSenders, remember, senderLabel } from "../../../../src/nodes/cache/known.ts";
import { labelsOf, type Origin, type Sending, sharesOf, storeShareOf } from "../../../../src/nodes/cache/shares.ts";
import type { Receipts, Rest } from "../../../../src/storage/contract.ts";
import { cacheDefault } from "../../../support/settings.ts";

const far: Origin = { client: "198.51.100.7", network: "198.51.100.7" };
const near: Origin = { client: "127.0.0.1", network: "127.0.0.1" };
const friend: Sending = { label: "from:a", acquaintance: "known" };
const familiar: Sending = { label: "from:a", acquaintance: "familiar" };
const newcomer: Sending = { label: "from:a", acquaintance: "stranger" };
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
  test("of a known sender counts for itself and the known ones of its network, of a new one for the strangers too", () => {
    const { label } = storeShareOf(far, settings);
    expect(labelsOf(friend, far)).toEqual(["from:a", expect.stringMatching(/^known:[0-9a-f]{16}$/), label]);
    expect(labelsOf(familiar, far)).toEqual(["from:a", expect.stringMatching(/^familiar:[0-9a-f]{16}$/), label]);
    expect(labelsOf(newcomer, far).slice(0, 2)).toEqual(["from:a", "new"]);
    expect(labelsOf(newcomer, far).at(-1)).toBe(storeShareOf(far, settings).label);
    expect(labelsOf("unsigned", far)[0]).toBe("new");
    expect(labelsOf("unsigned", far)).not.toEqual(labelsOf("unsigned", near));
  });

  test("holds at most its share, and an unsigned one leaves a fifth of the network's to those who sign", () => {
    const entries = (sending: Sending, origin: Origin) => sharesOf(sending, origin, settings).map(aloneEntries);
    expect(entries(friend, far)).toEqual([500, 500]);
    expect(entries(friend, near)).toEqual([500, 500]);
    expect(entries(newcomer, far)).toEqual([500, 950, 200]);
    expect(entries("unsigned", far)).toEqual([500, 950, 160]);
    expect(entries(newcomer, near)).toEqual([500, 950, 200]);
    const bytes = sharesOf(newcomer, far, settings).map(({ bytesMax, rest }) => bytesMax * (rest?.part ?? 1));
    expect(bytes.map(Math.round)).toEqual([50 * mebibyte, 95 * mebibyte, 20 * mebibyte]);
  });

  test("of an IPv6 client counts for the /48, and of others for the address", () => {
    const labels = (network: string) => labelsOf("unsigned", { client: "", network });
    expect(labels("2001:db8:1:1::/64")).toEqual(labels("2001:db8:1:ffff::/64"));
    expect(labels("2001:db8:1:1::/64")).not.toEqual(labels("2001:db8:2:1::/64"));
    expect(labels("198.51.100.7")).not.toEqual(labels("198.51.100.8"));
  });
});

test("however small a mailbox is, a share holds 100 entries and a mebibyte", () => {
  const small = { ...settings, recipient_entries_max: 10, recipient_bytes_max: 2 * mebibyte };
  for (const share of sharesOf("unsigned", far, small)) {
    expect(aloneEntries(share)).toBe(100);
    expect(Math.round(share.bytesMax * (share.rest?.part ?? 1))).toBeWithin(mebibyte, 2 * mebibyte);
  }
});

test("one network holds half of the store while it is alone", () => {
  const store = { ...settings, store_entries_max: 1_000_000, store_bytes_max: 1_000 * mebibyte };
  expect(aloneEntries(storeShareOf(far, store))).toBe(500_000);
  expect(aloneEntries(storeShareOf(near, store))).toBe(500_000);
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
  return { writes, learn, is: (n: number, nowMs: number) => acquaintanceOf(known, box, sender(n), nowMs) };
}

test("a sender is known for 90 days after the last acknowledgement, and new on the next", async () => {
  const { learn, is } = memory();
  await learn([1], day(0));
  expect([await is(1, day(0)), await is(1, day(90)), await is(1, day(91))]).toEqual(["known", "known", "stranger"]);
  expect(await is(2, day(0))).toBe("stranger");
});

test("a sender is familiar after acknowledgements on seven days, each written once, and then once in 30 days", async () => {
  const { learn, is, writes } = memory();
  for (let n = 0; n < 6; n++) for (let again = 0; again < 3; again++) await learn([1], day(n));
  expect([await is(1, day(5)), writes.length]).toEqual(["known", 6]);
  await learn([1], day(6));
  expect([await is(1, day(6)), await is(1, day(96)), await is(1, day(97))]).toEqual([
    "familiar",
    "familiar",
    "stranger",
  ]);
  await learn([1], day(36));
  expect(writes.length).toBe(7);
  await learn([1], day(37));
  expect(writes.at(-1)).toBe(day(127));
});

test("of more than a thousand the newest of those acknowledged on the fewest days are forgotten", async () => {
  const { learn, is } = memory();
  for (const n of [0, 1]) await learn([7], day(n));
  await learn([8], day(1));
  const flood = Array.from({ length: 1_500 }, (_, n) => 1_000 + n);
  await learn(flood, day(2));
  expect([await is(7, day(2)), await is(8, day(2)), await is(1_000, day(2))]).toEqual(["known", "known", "known"]);
  expect([await is(1_997, day(2)), await is(1_998, day(2)), await is(2_499, day(2))]).toEqual([
    "known",
    "stranger",
    "stranger",
  ]);
  await learn([8], day(3));
  expect(await is(8, day(3))).toBe("known");
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
