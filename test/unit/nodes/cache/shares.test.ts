/** Shares of a mailbox: who counts under which label, how much each may hold, and whom a mailbox knows. */
import { describe, expect, test } from "bun:test";
import { type Did, mailboxOf } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import {
  createKnownSenders,
  isKnownSender,
  remember,
  senderLabel,
} from "../../../../src/nodes/cache/known.ts";
import {
  labelsOf,
  type Origin,
  type Sending,
  sharesOf,
  storeShareOf,
} from "../../../../src/nodes/cache/shares.ts";
import type { Receipts } from "../../../../src/storage/contract.ts";
import { cacheDefault } from "../../../support/settings.ts";

const far: Origin = { client: "198.51.100.7", network: "198.51.100.7" };
const near: Origin = { client: "127.0.0.1", network: "127.0.0.1" };
const friend: Sending = { label: "from:a", isKnown: true };
const newcomer: Sending = { label: "from:a", isKnown: false };
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
  test("of a known sender uses no share of strangers, of a new one that of all and that of its network", () => {
    const { label } = storeShareOf(far, settings);
    const net = expect.stringMatching(/^net:[0-9a-f]{16}$/);
    expect(labelsOf(friend, far)).toEqual([
      "from:a",
      expect.stringMatching(/^known:[0-9a-f]{16}$/),
      label,
    ]);
    for (const { label: share } of sharesOf("unsigned", far, settings))
      expect(labelsOf(friend, far)).not.toContain(share);
    expect(labelsOf(newcomer, far)).toEqual(["from:a", "new", net, label]);
    expect(labelsOf("unsigned", far)).toEqual(["new", net, label]);
    expect(labelsOf("unsigned", far)).not.toEqual(labelsOf("unsigned", near));
  });

  test("holds at most its share", () => {
    const entries = (sending: Sending) =>
      sharesOf(sending, far, settings).map(({ entriesMax }) => entriesMax);
    expect([entries(friend), entries(newcomer), entries("unsigned")]).toEqual([
      [500],
      [500, 200],
      [500, 200],
    ]);
    const bytes = sharesOf(newcomer, far, settings).map(({ bytesMax }) => bytesMax);
    expect(bytes).toEqual([50 * mebibyte, 20 * mebibyte]);
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
  for (const { entriesMax, bytesMax } of sharesOf("unsigned", far, small))
    expect([entriesMax, bytesMax]).toEqual([100, mebibyte]);
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
  const learn = (numbers: number[], nowMs: number) =>
    remember(
      known,
      box,
      numbers.map((n) => ({ labels: [senderLabel(sender(n))] })),
      nowMs,
    );
  return {
    writes,
    learn,
    is: (n: number, nowMs: number) => isKnownSender(known, box, sender(n), nowMs),
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
  expect(await is(8, day(3))).toBe(true);
  const before = writes.length;
  await learn([2_499], day(3));
  expect(writes.length).toBe(before);
});

test("an acknowledgement of unsigned entries writes nothing", async () => {
  const { writes, learn } = memory();
  await learn([], day(0));
  expect(writes).toEqual([]);
});
