/**
 * Laws of the mailbox: labels and the shares of a quota, reading by ids, mailboxes of several lives of a
 * DID, and times that go back by the skew of clocks.
 */
import { expect } from "bun:test";
import { type Did, mailboxOf } from "../../src/core/codec/did.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import type { ConformanceCase } from "./kit.ts";
import {
  alice,
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
const full = (label: string) => ({ kind: "full", scope: "share", label }) as const;

export const labelCases: readonly ConformanceCase[] = [
  labelCase(
    "a share bounds the active entries of its label in one mailbox, and no others",
    async (mailbox) => {
      const limits = quota({ shares: [{ label: "new", entriesMax: 2, bytesMax: large }] });
      const fresh = (n: number) => entry(n, { labels: ["new", `from:${n}`] });
      for (const n of [1, 2])
        expect(await mailbox.store(fresh(n), limits)).toEqual({ kind: "stored" });
      expect(await mailbox.store(fresh(3), limits)).toEqual(full("new"));
      expect(await mailbox.message(alice, id(3), 2_000)).toEqual({ state: "absent" });
      expect(await mailbox.store(entry(3, { labels: ["from:3"] }), limits)).toEqual({
        kind: "stored",
      });
      expect(await mailbox.store({ ...fresh(4), recipient: bob }, limits)).toEqual({
        kind: "stored",
      });
      await mailbox.remove(alice, [id(1)], 2_000);
      expect(await mailbox.store(fresh(5), limits)).toEqual({ kind: "stored" });
      const late = { storedAtMs: 10_000, expiresAtMs: 20_000 };
      expect(await mailbox.store({ ...fresh(6), ...late, storedAtMs: 9_999 }, limits)).toEqual(
        full("new"),
      );
      expect(await mailbox.store({ ...fresh(6), ...late }, limits)).toEqual({ kind: "stored" });
    },
  ),
  labelCase(
    "shares of bytes are exact under concurrency, and the first exhausted share is answered",
    async (mailbox) => {
      const shares = [
        { label: "net:a", entriesMax: large, bytesMax: 1_000 },
        { label: "new", entriesMax: 7, bytesMax: large },
      ];
      const labelled = (n: number, labels: string[]) =>
        mailbox.store(entry(n, { labels }), quota({ shares }));
      const both = await Promise.all(
        Array.from({ length: 20 }, (_, n) => labelled(n, ["new", "net:a"])),
      );
      expect(kinds(both)).toEqual({ stored: 7, full: 13 });
      expect(both).toContainEqual(full("new"));
      const one = await Promise.all(
        Array.from({ length: 20 }, (_, n) => labelled(n + 20, ["net:a"])),
      );
      expect(kinds(one)).toEqual({ stored: 3, full: 17 });
      expect(await labelled(50, ["new", "net:a"])).toEqual(full("net:a"));
      expect(await labelled(51, ["net:b"])).toEqual({ kind: "stored" });
    },
  ),
  labelCase(
    "a share is checked after the recipient's quota and before the store's",
    async (mailbox) => {
      await mailbox.store(entry(1, { chunk: chunkOf(1, 0, 2), labels: ["new"] }), quota());
      const shares = [{ label: "new", entriesMax: 0, bytesMax: large }];
      const none = quota({ recipientEntriesMax: 1, storeEntriesMax: 1, shares });
      const again = entry(1, { labels: ["new"] });
      expect(await mailbox.store(again, none)).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: true,
      });
      const chunk = chunkOf(1, 0, 2);
      expect(await mailbox.store({ ...again, messageId: id(2), chunk }, none)).toEqual({
        kind: "chunk_conflict",
      });
      expect(await mailbox.store({ ...again, messageId: id(2) }, none)).toEqual({
        kind: "full",
        scope: "recipient",
      });
      expect(await mailbox.store({ ...again, recipient: bob }, none)).toEqual(full("new"));
      expect(await mailbox.store(entry(2, { recipient: bob }), none)).toEqual({
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
      const shares = [{ label: "new", entriesMax: 2, bytesMax: large }];
      const fresh = (n: number) => entry(n, { labels: ["new", "net:a"] });
      for (const n of [1, 2]) await store.capabilities.mailbox!.store(fresh(n), quota({ shares }));
      const mailbox = (await reopen!()).capabilities.mailbox!;
      expect(await mailbox.store(fresh(3), quota({ shares }))).toEqual(full("new"));
      const [removed] = await mailbox.remove(alice, [id(1)], 2_000);
      expect([...removed!.labels].sort()).toEqual(["net:a", "new"]);
      expect(await mailbox.store(fresh(3), quota({ shares }))).toEqual({ kind: "stored" });
    },
  },
];
