/**
 * Laws of the mailbox: labels and the places of a quota, reading by ids, mailboxes of several lives
 * of a DID, and times that go back by the skew of clocks.
 */
import { expect } from "bun:test";
import { type Did, mailboxOf } from "../../src/core/codec/did.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import type { MailboxPlace } from "../../src/storage/quota.ts";
import type { ConformanceCase } from "./kit.ts";
import {
  alice,
  answered,
  bob,
  bytesOf,
  chunkOf,
  entry,
  failureOf,
  id,
  ids,
  kinds,
  listAll,
  pageOf,
  quota,
} from "./samples.ts";

function labelCase(name: string, run: (mailbox: Mailbox) => Promise<void>): ConformanceCase {
  return {
    name,
    capability: "mailbox",
    run: (subject) => run(subject.store.capabilities.mailbox!),
  };
}

const large = Number.MAX_SAFE_INTEGER;
const full = (label: string) => ({ kind: "full", scope: "pool", label }) as const;

/**
 * A place in the pool `floors`, of two entries for each sender, and behind it one in the pool
 * `rest`.
 */
const floorOf = (label: string, changes: Partial<MailboxPlace> = {}): MailboxPlace => ({
  own: { label, entriesMax: 2, bytesMax: large },
  pool: "floors",
  poolMax: { entries: 5, bytes: large },
  isRest: false,
  ...changes,
});
const restOf = (label: string, changes: Partial<MailboxPlace> = {}): MailboxPlace => ({
  own: { label, entriesMax: large, bytesMax: large },
  pool: "rest",
  poolMax: { entries: 8, bytes: large },
  isRest: true,
  ...changes,
});

export const labelCases: readonly ConformanceCase[] = [
  labelCase(
    "an entry takes the first place with room, and gets the labels of that place",
    async (mailbox) => {
      const limits = quota({ places: [floorOf("f:a"), restOf("r:a")] });
      for (const n of [1, 2, 3])
        expect(await mailbox.store(entry(n, { labels: ["via:1"] }), limits)).toEqual({
          kind: "stored",
        });
      const { entries } = answered(await mailbox.summary(alice, pageOf()));
      expect(entries.map(({ labels }) => [...labels].sort())).toEqual([
        ["f:a", "floors", "via:1"],
        ["f:a", "floors", "via:1"],
        ["r:a", "rest", "via:1"],
      ]);
      const free = await mailbox.store(entry(4, { recipient: bob, labels: ["via:1"] }), quota());
      expect(free).toEqual({ kind: "stored" });
      const [unplaced] = answered(await mailbox.summary(bob, pageOf())).entries;
      expect(unplaced!.labels).toEqual(["via:1"]);
      const crowded = entry(5, { labels: ["via:1", "from:a", "x"] });
      expect(await failureOf(() => mailbox.store(crowded, limits))).toBeInstanceOf(RangeError);
      const three = quota({ places: [floorOf("a"), floorOf("a"), restOf("a")] });
      expect(await failureOf(() => mailbox.store(entry(5), three))).toBeInstanceOf(RangeError);
    },
  ),
  labelCase(
    "of a pool of floors each sender gets its floor while the pool lasts, in one mailbox",
    async (mailbox) => {
      const put = (n: number, label: string, changes = {}) =>
        mailbox.store(entry(n, changes), quota({ places: [floorOf(label)] }));
      for (const [n, label] of ["f:a", "f:a", "f:b", "f:c", "f:c"].entries())
        expect(await put(n, label)).toEqual({ kind: "stored" });
      expect(await put(5, "f:a")).toEqual(full("floors"));
      expect(await put(6, "f:b")).toEqual(full("floors"));
      expect(await mailbox.message(alice, id(6), 2_000)).toEqual({ state: "absent" });
      expect(await put(6, "f:b", { recipient: bob })).toEqual({ kind: "stored" });
      await mailbox.remove(alice, [id(0)], 2_000);
      expect(await put(7, "f:b")).toEqual({ kind: "stored" });
      expect(await put(8, "f:a")).toEqual(full("floors"));
      const late = { storedAtMs: 9_999, expiresAtMs: 20_000 };
      expect(await put(9, "f:a", late)).toEqual(full("floors"));
      expect(await put(9, "f:a", { ...late, storedAtMs: 10_000 })).toEqual({ kind: "stored" });
    },
  ),
  labelCase(
    "of a rest each sender gets at most half of what the others leave, in entries and bytes",
    async (mailbox) => {
      const put = (n: number, label: string, changes: Partial<MailboxPlace> = {}) =>
        mailbox.store(entry(n), quota({ places: [restOf(label, changes)] }));
      const fill = async (from: number, label: string, changes: Partial<MailboxPlace> = {}) => {
        let n = from;
        while (n < from + 10 && (await put(n, label, changes)).kind === "stored") n++;
        return n - from;
      };
      expect([await fill(1, "r:a"), await fill(11, "r:b"), await fill(21, "r:c")]).toEqual([
        5, 2, 1,
      ]);
      expect(await put(31, "r:d")).toEqual(full("rest"));
      await mailbox.remove(
        alice,
        Array.from({ length: 30 }, (_, n) => id(n)),
        2_000,
      );
      const bytes = { poolMax: { entries: large, bytes: 850 } };
      expect([await fill(41, "r:a", bytes), await fill(51, "r:b", bytes)]).toEqual([5, 2]);
    },
  ),
  labelCase("bytes of a floor are exact under concurrency", async (mailbox) => {
    const own = { label: "f:a", entriesMax: large, bytesMax: 1_000 };
    const poolMax = { entries: large, bytes: 1_500 };
    const put = (n: number, label: string) =>
      mailbox.store(
        entry(n),
        quota({ places: [floorOf(label, { own: { ...own, label }, poolMax })] }),
      );
    const both = await Promise.all(
      Array.from({ length: 40 }, (_, n) => put(n, n % 2 === 0 ? "f:a" : "f:b")),
    );
    expect(kinds(both)).toEqual({ stored: 15, full: 25 });
    const alone = Array.from({ length: 20 }, (_, n) =>
      mailbox.store(
        entry(n, { recipient: bob }),
        quota({ places: [floorOf("f:a", { own, poolMax })] }),
      ),
    );
    expect(kinds(await Promise.all(alone))).toEqual({ stored: 10, full: 10 });
  }),
  labelCase("no race of senders exceeds a pool, and each gets its floor", async (mailbox) => {
    const senders = Array.from({ length: 20 }, (_, n) => `f:${n}`);
    const tries = senders.flatMap((label, sender) =>
      Array.from({ length: 5 }, (_, n) => ({ label, n: sender * 5 + n })),
    );
    const outcomes = await Promise.all(
      tries.map(({ label, n }) => {
        const floor = floorOf(label, { poolMax: { entries: 40, bytes: large } });
        return mailbox.store(entry(n), quota({ places: [floor, restOf(`r${label}`)] }));
      }),
    );
    const { entries } = answered(await mailbox.summary(alice, pageOf()));
    const heldBy = (label: string) => entries.filter(({ labels }) => labels.includes(label)).length;
    expect(kinds(outcomes)).toEqual({ stored: 48, full: 52 });
    expect([heldBy("floors"), heldBy("rest")]).toEqual([40, 8]);
    expect(senders.map(heldBy)).toEqual(senders.map(() => 2));
  }),
  labelCase(
    "places are checked after the recipient's quota and before the store's",
    async (mailbox) => {
      await mailbox.store(entry(1, { chunk: chunkOf(1, 0, 2) }), quota());
      const places = [floorOf("f:a", { poolMax: { entries: 0, bytes: large } })];
      const none = quota({ recipientEntriesMax: 1, storeEntriesMax: 1, places });
      expect(await mailbox.store(entry(1), none)).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: true,
        author: null,
      });
      const chunk = chunkOf(1, 0, 2);
      expect(await mailbox.store({ ...entry(1), messageId: id(2), chunk }, none)).toEqual({
        kind: "chunk_conflict",
      });
      expect(await mailbox.store(entry(2), none)).toEqual({ kind: "full", scope: "recipient" });
      expect(await mailbox.store(entry(2, { recipient: bob }), none)).toEqual(full("floors"));
      const placed = { ...none, places: [floorOf("f:a")] };
      expect(await mailbox.store(entry(2, { recipient: bob }), placed)).toEqual({
        kind: "full",
        scope: "store",
      });
    },
  ),
  labelCase(
    "a share of the store counts its label in all mailboxes, after the quota of the store",
    async (mailbox) => {
      const storeShare = { label: "via:a", entriesMax: 6, bytesMax: large };
      const put = (n: number, label: string, recipient = alice) =>
        mailbox.store(
          entry(n, { recipient, labels: [label] }),
          quota({ storeShare: { ...storeShare, label } }),
        );
      const none = { kind: "full", scope: "store_share", label: "via:a" } as const;
      for (const n of [1, 2, 3]) expect(await put(n, "via:a")).toEqual({ kind: "stored" });
      for (const n of [1, 2, 3]) expect(await put(n, "via:a", bob)).toEqual({ kind: "stored" });
      expect(await put(4, "via:a", bob)).toEqual(none);
      expect(await put(4, "new", bob)).toEqual({ kind: "stored" });
      expect(await put(5, "via:b", bob)).toEqual({ kind: "stored" });
      expect((await put(1, "via:a")).kind).toBe("duplicate");
      await mailbox.remove(alice, [1, 2].map(id), 2_000);
      expect(await put(6, "via:a", bob)).toEqual({ kind: "stored" });
      expect(await put(7, "via:a", bob)).toEqual({ kind: "stored" });
      expect(await put(9, "via:a", bob)).toEqual(none);
      const last = entry(8, { labels: ["via:a"] });
      expect(await mailbox.store(last, quota({ storeShare, storeEntriesMax: 7 }))).toEqual({
        kind: "full",
        scope: "store",
      });
      expect(
        await mailbox.store(
          { ...last, storedAtMs: 10_000, expiresAtMs: 20_000 },
          quota({ storeShare }),
        ),
      ).toEqual({
        kind: "stored",
      });
    },
  ),
  labelCase("an acknowledgement returns the labels of what it removed", async (mailbox) => {
    const labels = ["net:1a2b", "new", "from:Zz_-9", "a".repeat(48)];
    await mailbox.store(entry(1, { labels }), quota());
    await mailbox.store(entry(2), quota());
    const removed = await mailbox.remove(alice, [id(2), id(1)], 2_000);
    expect(ids(removed)).toEqual([id(1), id(2)].sort());
    const found = removed.find((one) => one.messageId === id(1))!;
    expect([...found.labels].sort()).toEqual([...labels].sort());
    expect(removed.find((one) => one.messageId === id(2))!.labels).toEqual([]);
  }),
  labelCase("labels that break the contract are a mistake of the caller", async (mailbox) => {
    const wrong = [["a", "b", "c", "d", "e"], [""], ["a b"], ["a".repeat(49)], ["é"], ["a", "a"]];
    for (const labels of wrong) {
      expect(await failureOf(() => mailbox.store(entry(1, { labels }), quota()))).toBeInstanceOf(
        RangeError,
      );
    }
    const short = entry(1, { digest: new Uint8Array(15) });
    expect(await failureOf(() => mailbox.store(short, quota()))).toBeInstanceOf(RangeError);
    expect(await mailbox.message(alice, id(1), 2_000)).toEqual({ state: "absent" });
  }),
  labelCase(
    "a read returns the active entries in the order asked and leaves out the others",
    async (mailbox) => {
      for (let n = 0; n < 6; n++)
        await mailbox.store(entry(n, { chunk: chunkOf(n, 0, 2) }), quota());
      await mailbox.store(entry(7, { expiresAtMs: 3_000 }), quota());
      await mailbox.store(entry(8, { recipient: bob }), quota());
      await mailbox.remove(alice, [id(2)], 2_000);
      const asked = [5, 2, 0, 99, 8, 7, 3].map(id);
      const found = await mailbox.read(alice, asked, 2_999);
      expect(ids(found)).toEqual([5, 0, 7, 3].map(id));
      expect(found[0]).toEqual({
        messageId: id(5),
        chunk: chunkOf(5, 0, 2),
        expiresAtMs: 10_000,
        envelope: bytesOf(5, 100),
      });
      expect(ids(await mailbox.read(alice, asked, 3_000))).toEqual([5, 0, 3].map(id));
      found[0]!.envelope.fill(0);
      expect((await mailbox.read(alice, [id(5)], 2_000))[0]!.envelope).toEqual(bytesOf(5, 100));
      expect(await mailbox.read(alice, [], 2_000)).toEqual([]);
      expect(await mailbox.read(bob, [id(0)], 2_000)).toEqual([]);
    },
  ),
  labelCase("lives of one DID have mailboxes of their own", async (mailbox) => {
    const did = `did:svc:${"Z".repeat(96)}` as Did;
    const lives = [0, 1, 12, 1_000_000].map((life) => mailboxOf(did, life));
    for (const recipient of lives)
      expect(await mailbox.store(entry(1, { recipient }), quota())).toEqual({ kind: "stored" });
    await mailbox.remove(lives[1]!, [id(1)], 2_000);
    const counts = await Promise.all(
      lives.map(async (key) => (await listAll(mailbox, key, pageOf())).length),
    );
    expect(counts).toEqual([1, 0, 1, 1]);
    expect((await mailbox.stats(2_000)).entries).toBe(3);
  }),
  labelCase(
    "times that go back by the skew of clocks break neither counts nor order",
    async (mailbox) => {
      const limits = quota({ recipientEntriesMax: 3 });
      await mailbox.store(entry(1, { expiresAtMs: 5_000, storedAtMs: 4_000 }), limits);
      await mailbox.store(entry(2, { storedAtMs: 4_000 }), limits);
      // Another node's clock is ahead: entry 1 is over there.
      expect(await mailbox.stats(5_000)).toEqual({ entries: 1, bytes: 100 });
      await mailbox.store(entry(3, { storedAtMs: 4_500 }), limits);
      await mailbox.remove(alice, [id(1)], 4_600);
      const again = await mailbox.store(entry(1, { storedAtMs: 5_001 }), limits);
      expect(["stored", "duplicate"]).toContain(again.kind);
      await mailbox.expire(5_002, 100);
      await mailbox.store(entry(4, { storedAtMs: 4_700 }), limits);
      const held = await listAll(mailbox, alice, pageOf({ nowMs: 5_003 }));
      expect(held.length).toBe(3);
      expect((await mailbox.stats(5_003)).entries).toBe(3);
      expect(await mailbox.store(entry(5, { storedAtMs: 5_003 }), limits)).toEqual({
        kind: "full",
        scope: "recipient",
      });
      await mailbox.remove(alice, ids(held), 5_003);
      expect(await mailbox.stats(5_003)).toEqual({ entries: 0, bytes: 0 });
    },
  ),
  {
    name: "what is stored after a clock that was far ahead has come back survives closing and opening",
    capability: "mailbox",
    lasting: true,
    async run({ store, reopen }) {
      const mailbox = store.capabilities.mailbox!;
      for (const n of [1, 2, 3]) await mailbox.store(entry(n), quota());
      expect((await mailbox.stats(1_000_000)).entries).toBe(0);
      while ((await mailbox.expire(1_000_000, 100)) >= 100);
      for (const n of [4, 5])
        expect(await mailbox.store(entry(n), quota())).toEqual({ kind: "stored" });
      await mailbox.remove(alice, [id(4)], 2_000);
      const again = (await reopen!()).capabilities.mailbox!;
      // What was over may come back with the clock, or stay over.
      const held = ids(await listAll(again, alice, pageOf()));
      expect(held).toContain(id(5));
      expect(held).not.toContain(id(4));
      expect(await again.message(alice, id(4), 2_000)).toEqual({ state: "acked" });
      expect((await again.store(entry(4), quota())).kind).toBe("duplicate");
    },
  },
  {
    name: "labels survive closing and opening",
    capability: "mailbox",
    lasting: true,
    async run({ store, reopen }) {
      const limits = quota({ places: [floorOf("f:a")] });
      const fresh = (n: number) => entry(n, { labels: ["net:a"] });
      for (const n of [1, 2]) await store.capabilities.mailbox!.store(fresh(n), limits);
      const mailbox = (await reopen!()).capabilities.mailbox!;
      expect(await mailbox.store(fresh(3), limits)).toEqual(full("floors"));
      const [removed] = await mailbox.remove(alice, [id(1)], 2_000);
      expect([...removed!.labels].sort()).toEqual(["f:a", "floors", "net:a"]);
      expect(await mailbox.store(fresh(3), limits)).toEqual({ kind: "stored" });
    },
  },
];
