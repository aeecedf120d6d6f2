/**
 * Laws of the mailbox: storing, listing, acknowledging. Chunks and expiry are in mailbox-life.ts.
 */
import { expect } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import type { ConformanceCase, Subject } from "./kit.ts";
import { labelCases } from "./mailbox-labels.ts";
import { lifeCases } from "./mailbox-life.ts";
import {
  alice,
  answered,
  bob,
  bytesOf,
  did,
  entry,
  failureOf,
  holding,
  id,
  ids,
  kinds,
  listAll,
  pageOf,
  quota,
  removedOf,
} from "./samples.ts";

function mailboxCase(
  name: string,
  run: (mailbox: Mailbox, subject: Subject) => Promise<void>,
): ConformanceCase {
  return {
    name,
    capability: "mailbox",
    run: (subject) => run(subject.store.capabilities.mailbox!, subject),
  };
}

export const mailboxCases: readonly ConformanceCase[] = [
  mailboxCase("what was stored is listed with its exact bytes, oldest first", async (mailbox) => {
    const sizes = [100, 1, 5_000, 40_000, 3 * 1024 * 1024, 300, 64];
    for (const [n, size] of sizes.entries()) {
      expect(await mailbox.store(entry(n, { envelope: bytesOf(n, size) }), quota())).toEqual({
        kind: "stored",
      });
    }
    const held = await listAll(mailbox, alice, pageOf());
    expect(ids(held)).toEqual(sizes.map((_, n) => id(n)));
    for (const [n, size] of sizes.entries()) {
      expect(Bun.hash(held[n]!.envelope)).toBe(Bun.hash(bytesOf(n, size)));
      expect(held[n]).toMatchObject({ chunk: null, expiresAtMs: 10_000 });
    }
    expect(await mailbox.stats(2_000)).toEqual({
      entries: 7,
      bytes: sizes.reduce((a, b) => a + b),
    });
  }),
  mailboxCase("the order of arrival holds among entries of one millisecond", async (mailbox) => {
    const order = [5, 3, 9, 1, 7, 2, 8];
    for (const n of order) await mailbox.store(entry(n), quota());
    expect(ids(await listAll(mailbox, alice, pageOf({ entriesMax: 2 })))).toEqual(order.map(id));
  }),
  mailboxCase(
    "concurrent stores are all kept, in one order that does not change",
    async (mailbox) => {
      const outcomes = await Promise.all(
        Array.from({ length: 300 }, (_, n) =>
          mailbox.store(entry(n, { recipient: did(n % 3) }), quota()),
        ),
      );
      expect(kinds(outcomes)).toEqual({ stored: 300 });
      for (let r = 0; r < 3; r++) {
        const first = ids(await listAll(mailbox, did(r), pageOf()));
        expect(first.length).toBe(100);
        expect(ids(await listAll(mailbox, did(r), pageOf({ entriesMax: 7 })))).toEqual(first);
      }
    },
  ),
  mailboxCase("bytes of entries are not shared with the caller", async (mailbox) => {
    const envelope = bytesOf(1, 500);
    const stored = mailbox.store(entry(1, { envelope }), quota());
    await stored;
    envelope.fill(0);
    const [first] = await listAll(mailbox, alice, pageOf());
    expect(first!.envelope).toEqual(bytesOf(1, 500));
    first!.envelope.fill(0);
    const [second] = await listAll(mailbox, alice, pageOf());
    expect(second!.envelope).toEqual(bytesOf(1, 500));
  }),
  mailboxCase(
    "a repeated id is a duplicate with the first entry's expiry, per recipient",
    async (mailbox) => {
      await mailbox.store(entry(1), quota());
      const again = entry(1, { expiresAtMs: 50_000, envelope: bytesOf(2, 9) });
      expect(await mailbox.store(again, quota())).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: false,
        author: null,
      });
      const changed = bytesOf(1, 100).with(99, bytesOf(1, 100)[99]! ^ 1);
      expect(await mailbox.store(holding(again, changed), quota())).toMatchObject({
        isSame: false,
        author: null,
      });
      expect(await mailbox.store(holding(again, bytesOf(1, 100)), quota())).toMatchObject({
        isSame: true,
        author: null,
      });
      expect(await mailbox.store({ ...again, recipient: bob }, quota())).toEqual({
        kind: "stored",
      });
      const held = await listAll(mailbox, alice, pageOf());
      expect(held.map((one) => one.envelope)).toEqual([bytesOf(1, 100)]);
      expect(await mailbox.stats(2_000)).toEqual({ entries: 2, bytes: 109 });
    },
  ),
  mailboxCase("of 100 concurrent stores of one id exactly one is stored", async (mailbox) => {
    for (const n of [1, 2, 3]) {
      const outcomes = await Promise.all(
        Array.from({ length: 100 }, (_, i) =>
          mailbox.store(entry(n, { envelope: bytesOf(i, 50 + i) }), quota()),
        ),
      );
      expect(kinds(outcomes)).toEqual({ stored: 1, duplicate: 99 });
      const winner = outcomes.findIndex((outcome) => outcome.kind === "stored");
      const message = await mailbox.message(alice, id(n), 2_000);
      expect(message.state === "active" && message.message.envelope).toEqual(
        bytesOf(winner, 50 + winner),
      );
    }
  }),
  mailboxCase("the quota of entries is exact under concurrency", async (mailbox) => {
    const limits = quota({ recipientEntriesMax: 37 });
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, (_, n) => mailbox.store(entry(n), limits)),
    );
    expect(kinds(outcomes)).toEqual({ stored: 37, full: 63 });
    expect(outcomes).toContainEqual({ kind: "full", scope: "recipient" });
    expect((await mailbox.stats(2_000)).entries).toBe(37);
    expect(await mailbox.store(entry(500, { recipient: bob }), limits)).toEqual({ kind: "stored" });
  }),
  mailboxCase("the quota of bytes is exact under concurrency", async (mailbox) => {
    const limits = quota({ recipientBytesMax: 1_000 });
    const outcomes = await Promise.all(
      Array.from({ length: 50 }, (_, n) => mailbox.store(entry(n), limits)),
    );
    expect(kinds(outcomes)).toEqual({ stored: 10, full: 40 });
    const one = entry(90, { recipient: bob, envelope: bytesOf(1, 1_001) });
    expect(await mailbox.store(one, limits)).toEqual({ kind: "full", scope: "recipient" });
    expect(await mailbox.store(holding(one, bytesOf(1, 1_000)), limits)).toEqual({
      kind: "stored",
    });
  }),
  mailboxCase("the quotas of the whole store are exact under concurrency", async (mailbox) => {
    const spread = (n: number) => entry(n, { recipient: did(n) });
    const byEntries = quota({ storeEntriesMax: 20 });
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, (_, n) => mailbox.store(spread(n), byEntries)),
    );
    expect(kinds(outcomes)).toEqual({ stored: 20, full: 40 });
    const byBytes = quota({ storeBytesMax: 2_500 });
    const more = await Promise.all(
      Array.from({ length: 60 }, (_, n) => mailbox.store(spread(n + 100), byBytes)),
    );
    expect(kinds(more)).toEqual({ stored: 5, full: 55 });
    expect(more).toContainEqual({ kind: "full", scope: "store" });
    expect(await mailbox.stats(2_000)).toEqual({ entries: 25, bytes: 2_500 });
  }),
  mailboxCase(
    "a duplicate is answered before the quota, and the recipient's quota before the store's",
    async (mailbox) => {
      await mailbox.store(entry(1), quota());
      const none = quota({ recipientEntriesMax: 1, storeEntriesMax: 1 });
      expect(await mailbox.store(entry(1), none)).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: true,
        author: null,
      });
      expect(await mailbox.store(entry(2), none)).toEqual({ kind: "full", scope: "recipient" });
      expect(await mailbox.store(entry(2, { recipient: bob }), none)).toEqual({
        kind: "full",
        scope: "store",
      });
    },
  ),
  mailboxCase(
    "an acknowledged id frees its quota, stays known until its expiry, and no longer",
    async (mailbox) => {
      const one = quota({ recipientEntriesMax: 1 });
      await mailbox.store(entry(1), one);
      expect(await mailbox.remove(alice, [id(1)], 2_000)).toEqual(removedOf([id(1)]));
      expect(await mailbox.stats(2_000)).toEqual({ entries: 0, bytes: 0 });
      expect(await mailbox.message(alice, id(1), 2_000)).toEqual({ state: "acked" });
      const late = entry(1, { storedAtMs: 9_999, expiresAtMs: 30_000 });
      expect(await mailbox.store(late, one)).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: true,
        author: null,
      });
      const other = holding(late, bytesOf(2, 100));
      expect(await mailbox.store(other, one)).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: false,
        author: null,
      });
      expect(await listAll(mailbox, alice, pageOf())).toEqual([]);
      expect(await mailbox.store({ ...late, messageId: id(2) }, one)).toEqual({ kind: "stored" });
      expect(await mailbox.message(alice, id(1), 10_000)).toEqual({ state: "absent" });
      expect(await mailbox.store({ ...late, storedAtMs: 10_000 }, quota())).toEqual({
        kind: "stored",
      });
      expect(ids(await listAll(mailbox, alice, pageOf({ nowMs: 10_001 })))).toEqual([id(2), id(1)]);
    },
  ),
  mailboxCase(
    "the author of a known id is told, whether it waits or was acknowledged, until its expiry",
    async (mailbox) => {
      const place = { own: { label: "own:from:b", entriesMax: 9, bytesMax: 9_000 }, pool: "pool" };
      const places = [{ ...place, poolMax: { entries: 9, bytes: 9_000 }, isRest: false }];
      await mailbox.store(entry(1, { labels: ["via:1", "from:b"] }), quota({ places }));
      await mailbox.store(entry(2, { labels: ["via:1"] }), quota({ places }));
      const [one, two] = [entry(1, { labels: ["from:c"] }), entry(2, { labels: ["from:c"] })];
      for (let round = 0; round < 2; round++) {
        const known = { expiresAtMs: 10_000, isSame: true, author: "from:b" };
        expect(await mailbox.store(one, quota())).toEqual({ kind: "duplicate", ...known });
        expect(await mailbox.known(alice, one, 9_999)).toEqual(known);
        const other = { ...known, isSame: false };
        expect(await mailbox.known(alice, holding(one, bytesOf(7, 100)), 9_999)).toEqual(other);
        const unsigned = { ...known, author: null };
        expect(await mailbox.store(two, quota())).toEqual({ kind: "duplicate", ...unsigned });
        expect(await mailbox.known(alice, two, 9_999)).toEqual(unsigned);
        await mailbox.remove(alice, [id(1), id(2)], 2_000);
      }
      expect(await mailbox.known(bob, one, 2_000)).toBeNull();
      expect(await mailbox.known(alice, entry(3), 2_000)).toBeNull();
      expect(await mailbox.known(alice, one, 10_000)).toBeNull();
    },
  ),
  mailboxCase(
    "an acknowledgement removes what it names and holds, and answers it sorted",
    async (mailbox) => {
      for (let n = 0; n < 6; n++) await mailbox.store(entry(n), quota());
      await mailbox.store(entry(7, { recipient: bob }), quota());
      const named = [id(4), id(2), id(99), id(7), id(4), id(0)];
      expect(await mailbox.remove(alice, named, 2_000)).toEqual(removedOf([id(4), id(2), id(0)]));
      expect(ids(await listAll(mailbox, alice, pageOf()))).toEqual([id(1), id(3), id(5)]);
      expect(ids(await listAll(mailbox, bob, pageOf()))).toEqual([id(7)]);
      expect(await mailbox.remove(alice, named, 2_000)).toEqual([]);
      expect(await mailbox.remove(did(9), named, 2_000)).toEqual([]);
      expect(await mailbox.remove(alice, [], 2_000)).toEqual([]);
    },
  ),
  mailboxCase("concurrent acknowledgements remove each id once", async (mailbox) => {
    for (let n = 0; n < 40; n++) await mailbox.store(entry(n), quota());
    const all = Array.from({ length: 40 }, (_, n) => id(n));
    const removed = await Promise.all(
      Array.from({ length: 10 }, () => mailbox.remove(alice, all, 2_000)),
    );
    expect(ids(removed.flat()).sort()).toEqual(all.sort());
    expect(await mailbox.stats(2_000)).toEqual({ entries: 0, bytes: 0 });
  }),
  {
    name: "a claim and a removal happen together, once, and the claim stands in the way of every other",
    capability: "mailbox",
    async run({ store }) {
      const { mailbox } = store.capabilities;
      for (let n = 0; n < 6; n++) await mailbox!.store(entry(n), quota());
      const claim = { tag: "tag", untilMs: 5_000 };
      expect(await mailbox!.claimAndRemove(claim, alice, [id(2), id(1), id(99)], 2_000)).toEqual(
        removedOf([id(1), id(2)]),
      );
      expect(await mailbox!.claimAndRemove(claim, alice, [id(3)], 4_999)).toBeNull();
      expect(ids(await listAll(mailbox!, alice, pageOf()))).toEqual([0, 3, 4, 5].map(id));
      expect(await mailbox!.claimAndRemove(claim, alice, [], 5_000)).toEqual([]);
      const other = await mailbox!.claimAndRemove(
        { tag: "other", untilMs: 9_000 },
        alice,
        [id(3)],
        5_000,
      );
      expect(other).toEqual(removedOf([id(3)]));
      // Nothing to remove, and a mailbox that never was: the claim stands all the same.
      expect(
        await mailbox!.claimAndRemove({ tag: "none", untilMs: 9_000 }, did(9), [id(1)], 5_000),
      ).toEqual([]);
      expect(
        await mailbox!.claimAndRemove({ tag: "none", untilMs: 9_000 }, did(9), [id(4)], 5_000),
      ).toBeNull();
    },
  },
  mailboxCase("of concurrent claims of one tag exactly one removes", async (mailbox) => {
    const all = Array.from({ length: 20 }, (_, n) => id(n));
    await Promise.all(all.map((_, n) => mailbox.store(entry(n), quota())));
    const claim = { tag: "one of many", untilMs: 5_000 };
    const calls = Array.from({ length: 20 }, (_, n) =>
      mailbox.claimAndRemove(claim, alice, [all[n]!], 2_000),
    );
    const won = (await Promise.all(calls)).filter((removed) => removed !== null);
    expect(won.map(({ length }) => length)).toEqual([1]);
    expect((await mailbox.stats(2_000)).entries).toBe(19);
  }),
  mailboxCase("an acknowledgement is seen wholly or not at all", async (mailbox) => {
    const all = Array.from({ length: 200 }, (_, n) => id(n));
    await Promise.all(all.map((_, n) => mailbox.store(entry(n), quota())));
    const removal = mailbox.remove(alice, all, 2_000);
    const seen = await Promise.all(
      Array.from({ length: 20 }, () => listAll(mailbox, alice, pageOf())),
    );
    expect((await removal).length).toBe(200);
    for (const entries of seen) expect([0, 200]).toContain(entries.length);
    expect(await listAll(mailbox, alice, pageOf())).toEqual([]);
  }),
  mailboxCase(
    "a page ends at its number of entries or bytes, and its first entry may be larger",
    async (mailbox) => {
      const sizes = [5_000, 100, 100, 100, 900, 2_000, 10];
      for (const [n, size] of sizes.entries()) {
        await mailbox.store(entry(n, { envelope: bytesOf(n, size) }), quota());
      }
      const pages: number[] = [];
      let after: string | null = null;
      do {
        const page: { entries: readonly unknown[]; next: string | null } = answered(
          await mailbox.list(alice, pageOf({ after, entriesMax: 3, bytesMax: 1_000 })),
        );
        pages.push(page.entries.length);
        after = page.next;
      } while (after !== null);
      expect(pages).toEqual([1, 3, 1, 1, 1]);
      const exact = answered(await mailbox.list(alice, pageOf({ entriesMax: sizes.length })));
      expect(exact.next).toBeNull();
    },
  ),
  mailboxCase(
    "a cursor continues after its place, whatever was removed or arrived meanwhile",
    async (mailbox) => {
      for (let n = 0; n < 10; n++) await mailbox.store(entry(n), quota());
      const first = answered(await mailbox.list(alice, pageOf({ entriesMax: 4 })));
      expect(first.next).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
      await mailbox.remove(alice, [id(2), id(3), id(4), id(8)], 2_000);
      await mailbox.store(entry(10), quota());
      const rest = await listAll(mailbox, alice, pageOf({ after: first.next, entriesMax: 2 }));
      expect(ids(rest)).toEqual([5, 6, 7, 9, 10].map(id));
    },
  ),
  mailboxCase(
    "a cursor that stands at the end finds what arrives later, even after all was removed",
    async (mailbox) => {
      for (let n = 0; n < 3; n++) await mailbox.store(entry(n), quota());
      const summary = answered(await mailbox.summary(alice, pageOf()));
      const end = summary.entries.at(-1)!.cursor;
      await mailbox.remove(alice, ids(summary.entries), 2_000);
      expect(answered(await mailbox.list(alice, pageOf({ after: end }))).entries).toEqual([]);
      await mailbox.expire(10_000, 100);
      await mailbox.store(entry(3, { storedAtMs: 10_000, expiresAtMs: 20_000 }), quota());
      const later = answered(await mailbox.list(alice, pageOf({ after: end, nowMs: 10_000 })));
      expect(ids(later.entries)).toEqual([id(3)]);
    },
  ),
  mailboxCase("a summary names the labels of an entry", async (mailbox) => {
    await mailbox.store(entry(1, { labels: ["net:a", "from:b"] }), quota());
    await mailbox.store(entry(2, { labels: [] }), quota());
    const { entries } = answered(await mailbox.summary(alice, pageOf()));
    expect(entries.map(({ labels }) => [...labels].sort())).toEqual([["from:b", "net:a"], []]);
  }),
  mailboxCase("a cursor that no store gave out is refused", async (mailbox) => {
    await mailbox.store(entry(1), quota());
    for (const after of [
      "",
      "x",
      "c",
      "!",
      "c-1",
      "cZZ",
      "c00",
      "🙂",
      "c9".padEnd(64, "9"),
      " c1",
      "c1 ",
    ]) {
      expect(isFault(await mailbox.list(alice, pageOf({ after })))).toBe(true);
      expect(isFault(await mailbox.summary(alice, pageOf({ after })))).toBe(true);
      expect(isFault(await mailbox.list(did(9), pageOf({ after })))).toBe(true);
    }
  }),
  mailboxCase(
    "a summary names the same entries, and every one of its cursors continues a list",
    async (mailbox) => {
      for (let n = 0; n < 9; n++) await mailbox.store(entry(n), quota());
      const page = answered(await mailbox.summary(alice, pageOf({ entriesMax: 6, bytesMax: 1 })));
      expect(ids(page.entries)).toEqual([0, 1, 2, 3, 4, 5].map(id));
      expect(page.next).not.toBeNull();
      for (const [n, one] of page.entries.entries()) {
        expect(one).toMatchObject({ expiresAtMs: 10_000, chunk: null, envelopeBytes: 100 });
        const rest = await listAll(mailbox, alice, pageOf({ after: one.cursor }));
        expect(ids(rest)[0]).toBe(id(n + 1));
      }
      expect(
        ids(answered(await mailbox.summary(alice, pageOf({ after: page.next }))).entries),
      ).toEqual([6, 7, 8].map(id));
    },
  ),
  mailboxCase("a message is found by its id, for its recipient only", async (mailbox) => {
    await mailbox.store(entry(1), quota());
    expect(await mailbox.message(alice, id(1), 2_000)).toEqual({
      state: "active",
      message: { messageId: id(1), chunk: null, expiresAtMs: 10_000, envelope: bytesOf(1, 100) },
    });
    expect(await mailbox.message(bob, id(1), 2_000)).toEqual({ state: "absent" });
    expect(await mailbox.message(alice, id(2), 2_000)).toEqual({ state: "absent" });
  }),
  mailboxCase("a refused store leaves nothing behind", async (mailbox) => {
    const nothing = quota({ recipientEntriesMax: 0 });
    expect(await mailbox.store(entry(1), nothing)).toEqual({ kind: "full", scope: "recipient" });
    expect(
      await failureOf(() => mailbox.store(entry(2, { expiresAtMs: 1_000 }), quota())),
    ).not.toBeNull();
    expect(await mailbox.message(alice, id(1), 2_000)).toEqual({ state: "absent" });
    expect(await mailbox.message(alice, id(2), 500)).toEqual({ state: "absent" });
    expect(await mailbox.stats(2_000)).toEqual({ entries: 0, bytes: 0 });
    expect(await mailbox.store(entry(1), quota())).toEqual({ kind: "stored" });
  }),
  {
    name: "a cursor finds what arrives after everything was removed, the store was reopened and the clock stood still",
    capability: "mailbox",
    lasting: true,
    async run({ store, reopen }) {
      let mailbox = store.capabilities.mailbox!;
      for (let n = 0; n < 3; n++) await mailbox.store(entry(n), quota());
      const end = answered(await mailbox.summary(alice, pageOf())).entries.at(-1)!.cursor;
      await mailbox.remove(alice, [0, 1, 2].map(id), 2_000);
      await mailbox.expire(10_000, 100);
      for (let n = 3; n < 30; n++) await mailbox.expire(10_000 + n, 100);
      mailbox = (await reopen!()).capabilities.mailbox!;
      await mailbox.store(entry(40, { storedAtMs: 1_000, expiresAtMs: 20_000 }), quota());
      expect(
        ids(answered(await mailbox.list(alice, pageOf({ after: end, nowMs: 1_000 }))).entries),
      ).toEqual([id(40)]);
    },
  },
  {
    name: "entries, acknowledgements, order and cursors survive closing and opening",
    capability: "mailbox",
    lasting: true,
    async run({ store, reopen }) {
      const before = store.capabilities.mailbox!;
      const sizes = [100, 70_000, 30, 5_000, 400_000, 12];
      for (const [n, size] of sizes.entries())
        await before.store(entry(n, { envelope: bytesOf(n, size) }), quota());
      await before.store(entry(20, { recipient: bob }), quota());
      await before.store(entry(21, { labels: ["net:a", "from:b"] }), quota());
      await before.remove(alice, [id(1), id(5), id(21)], 2_000);
      const cursor = answered(await before.list(alice, pageOf({ entriesMax: 1 }))).next;
      const mailbox = (await reopen!()).capabilities.mailbox!;
      const held = await listAll(mailbox, alice, pageOf());
      expect(ids(held)).toEqual([0, 2, 3, 4].map(id));
      for (const one of held) {
        const n = [0, 1, 2, 3, 4].find((k) => id(k) === one.messageId)!;
        expect(Bun.hash(one.envelope)).toBe(Bun.hash(bytesOf(n, sizes[n]!)));
      }
      expect(await mailbox.message(alice, id(5), 2_000)).toEqual({
        state: "acked",
      });
      const known = { kind: "duplicate", expiresAtMs: 10_000, author: null } as const;
      const whole = entry(1, { envelope: bytesOf(1, 70_000) });
      expect(await mailbox.store(whole, quota())).toEqual({ ...known, isSame: true });
      expect(await mailbox.store(entry(1), quota())).toEqual({ ...known, isSame: false });
      expect(await mailbox.store(entry(0), quota())).toEqual({ ...known, isSame: true });
      const author = { ...known, isSame: true, author: "from:b" };
      expect(await mailbox.store(entry(21), quota())).toEqual(author);
      expect(await mailbox.stats(2_000)).toEqual({
        entries: 5,
        bytes: 100 + 30 + 5_000 + 400_000 + 100,
      });
      await mailbox.store(entry(30), quota());
      expect(ids(await listAll(mailbox, alice, pageOf({ after: cursor })))).toEqual(
        [2, 3, 4, 30].map(id),
      );
    },
  },
  ...labelCases,
  ...lifeCases,
];
