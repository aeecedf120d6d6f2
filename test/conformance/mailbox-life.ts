/**
 * Laws of the mailbox: chunk groups, expiry, what is kept after it, and to whom the bytes of an
 * answer belong.
 */
import { expect } from "bun:test";
import type { Mailbox } from "../../src/storage/contract.ts";
import type { ConformanceCase, ExpiryUnit } from "./kit.ts";
import {
  alice,
  answered,
  bob,
  bytesOf,
  chunkOf,
  entry,
  groupOf,
  id,
  ids,
  kinds,
  listAll,
  pageOf,
  quota,
  removedOf,
} from "./samples.ts";

type CaseRun = (mailbox: Mailbox, subject: { readonly expiry: ExpiryUnit }) => Promise<void>;

function mailboxCase(name: string, run: CaseRun): ConformanceCase {
  return {
    name,
    capability: "mailbox",
    run: (subject) => run(subject.store.capabilities.mailbox!, subject),
  };
}

/**
 * The bytes that each read answers of the first three entries: envelopes and, once expired, a
 * preview.
 */
async function bytesOfReads(mailbox: Mailbox): Promise<Uint8Array[]> {
  const listed = await listAll(mailbox, alice, pageOf());
  const read = await mailbox.read(alice, [id(0), id(1), id(2)], 2_000);
  const active = await mailbox.message(alice, id(0), 2_000);
  const expired = await mailbox.message(alice, id(1), 18_000);
  const envelopes = [...listed, ...read].map(({ envelope }) => envelope);
  return [
    ...envelopes,
    ...(active.state === "active" ? [active.message.envelope] : []),
    ...(expired.state === "expired" ? [expired.headerPreview ?? new Uint8Array(0)] : []),
  ];
}

/** One step of expiry with room for all. How many spans there are is the driver's own affair. */
async function expectFreed(
  mailbox: Mailbox,
  unit: ExpiryUnit,
  nowMs: number,
  records: number,
): Promise<void> {
  const freed = await mailbox.expire(nowMs, 100);
  if (unit === "records") expect(freed).toBe(records);
  else expect(freed).toBeLessThanOrEqual(100);
}

const group = chunkOf(1, 0, 1).groupId;

export const lifeCases: readonly ConformanceCase[] = [
  mailboxCase(
    "a group's chunks are those of the summary by sequence, which has them in the order of arrival",
    async (mailbox) => {
      for (const sequence of [3, 0, 4, 2]) {
        await mailbox.store(entry(sequence, { chunk: chunkOf(1, sequence, 5) }), quota());
      }
      const partial = await groupOf(mailbox, alice, group);
      expect(ids(partial.entries)).toEqual([0, 2, 3, 4].map(id));
      expect(partial).toMatchObject({ total: 5, complete: false });
      await mailbox.store(entry(1, { chunk: chunkOf(1, 1, 5) }), quota());
      const whole = await groupOf(mailbox, alice, group);
      expect(whole).toMatchObject({ total: 5, complete: true });
      expect(whole.entries.map((one) => one.chunk)).toEqual(
        [0, 1, 2, 3, 4].map((n) => chunkOf(1, n, 5)),
      );
      const { entries } = answered(await mailbox.summary(alice, pageOf()));
      expect(entries.map((one) => one.chunk?.sequence)).toEqual([3, 0, 4, 2, 1]);
      expect(whole.entries).toEqual([1, 4, 3, 0, 2].map((place) => entries[place]!));
    },
  ),
  mailboxCase(
    "an unknown group is empty, and a group belongs to its recipient",
    async (mailbox) => {
      const nothing = { entries: [], total: null, complete: false };
      expect(await groupOf(mailbox, alice, group)).toEqual(nothing);
      await mailbox.store(entry(1, { chunk: chunkOf(1, 0, 1) }), quota());
      expect(await groupOf(mailbox, bob, group)).toEqual(nothing);
      const other = entry(2, { recipient: bob, chunk: chunkOf(1, 0, 9) });
      expect(await mailbox.store(other, quota())).toEqual({ kind: "stored" });
      expect(await groupOf(mailbox, alice, group)).toMatchObject({ total: 1, complete: true });
      expect(await groupOf(mailbox, bob, group)).toMatchObject({ total: 9, complete: false });
    },
  ),
  mailboxCase(
    "another message for a held sequence, or another total, is a conflict",
    async (mailbox) => {
      await mailbox.store(entry(1, { chunk: chunkOf(1, 0, 3) }), quota());
      expect(await mailbox.store(entry(2, { chunk: chunkOf(1, 0, 3) }), quota())).toEqual({
        kind: "chunk_conflict",
      });
      expect(await mailbox.store(entry(2, { chunk: chunkOf(1, 1, 4) }), quota())).toEqual({
        kind: "chunk_conflict",
      });
      const nothing = quota({ recipientEntriesMax: 0 });
      expect(await mailbox.store(entry(2, { chunk: chunkOf(1, 1, 4) }), nothing)).toEqual({
        kind: "chunk_conflict",
      });
      const repeat = await mailbox.store(entry(1, { chunk: chunkOf(1, 2, 9) }), quota());
      expect(repeat).toEqual({
        kind: "duplicate",
        expiresAtMs: 10_000,
        isSame: true,
        author: null,
      });
      expect(await mailbox.store(entry(2, { chunk: chunkOf(1, 1, 3) }), quota())).toEqual({
        kind: "stored",
      });
      expect(await mailbox.store(entry(3, { chunk: chunkOf(2, 0, 4) }), quota())).toEqual({
        kind: "stored",
      });
    },
  ),
  mailboxCase(
    "of 50 concurrent messages for one sequence exactly one is stored",
    async (mailbox) => {
      const outcomes = await Promise.all(
        Array.from({ length: 50 }, (_, n) =>
          mailbox.store(entry(n, { chunk: chunkOf(1, 0, 2) }), quota()),
        ),
      );
      expect(kinds(outcomes)).toEqual({ stored: 1, chunk_conflict: 49 });
      const found = await groupOf(mailbox, alice, group);
      expect(found.entries.length).toBe(1);
      expect(found.complete).toBe(false);
    },
  ),
  mailboxCase(
    "an acknowledged chunk leaves its group, and an empty group is forgotten",
    async (mailbox) => {
      for (const sequence of [0, 1])
        await mailbox.store(entry(sequence, { chunk: chunkOf(1, sequence, 2) }), quota());
      await mailbox.remove(alice, [id(0)], 2_000);
      const rest = await groupOf(mailbox, alice, group);
      expect(ids(rest.entries)).toEqual([id(1)]);
      expect(rest).toMatchObject({ total: 2, complete: false });
      expect(await mailbox.store(entry(5, { chunk: chunkOf(1, 0, 2) }), quota())).toEqual({
        kind: "stored",
      });
      await mailbox.remove(alice, [id(1), id(5)], 2_000);
      expect((await groupOf(mailbox, alice, group)).total).toBeNull();
      expect(await mailbox.store(entry(6, { chunk: chunkOf(1, 0, 7) }), quota())).toEqual({
        kind: "stored",
      });
    },
  ),
  mailboxCase("expired chunks neither count for completeness nor collide", async (mailbox) => {
    await mailbox.store(entry(0, { chunk: chunkOf(1, 0, 2), expiresAtMs: 3_000 }), quota());
    await mailbox.store(entry(1, { chunk: chunkOf(1, 1, 2) }), quota());
    expect((await groupOf(mailbox, alice, group, 2_999)).complete).toBe(true);
    const late = await groupOf(mailbox, alice, group, 3_000);
    expect(late).toMatchObject({ complete: false, total: 2 });
    expect(ids(late.entries)).toEqual([id(1)]);
    const again = entry(2, { chunk: chunkOf(1, 0, 2), storedAtMs: 3_000 });
    expect(await mailbox.store(again, quota())).toEqual({ kind: "stored" });
    expect((await groupOf(mailbox, alice, group, 10_000)).total).toBeNull();
    const other = entry(3, { chunk: chunkOf(1, 0, 8), storedAtMs: 10_000, expiresAtMs: 20_000 });
    expect(await mailbox.store(other, quota())).toEqual({ kind: "stored" });
  }),
  mailboxCase(
    "an entry is visible up to its last millisecond and not beyond, swept or not",
    async (mailbox) => {
      await mailbox.store(entry(1), quota());
      await mailbox.store(entry(2, { expiresAtMs: 20_000 }), quota());
      expect(ids(await listAll(mailbox, alice, pageOf({ nowMs: 9_999 })))).toEqual([id(1), id(2)]);
      expect(ids(await listAll(mailbox, alice, pageOf({ nowMs: 10_000 })))).toEqual([id(2)]);
      expect(
        ids(answered(await mailbox.summary(alice, pageOf({ nowMs: 10_000 }))).entries),
      ).toEqual([id(2)]);
      expect(await mailbox.message(alice, id(1), 10_000)).toEqual({ state: "absent" });
      expect(await mailbox.remove(alice, [id(1), id(2)], 10_000)).toEqual(removedOf([id(2)]));
      expect(await mailbox.stats(10_000)).toEqual({ entries: 0, bytes: 0 });
    },
  ),
  mailboxCase(
    "the entry that has waited longest is known, of all recipients, swept or not",
    async (mailbox) => {
      expect(await mailbox.oldest(2_000)).toBeNull();
      await mailbox.store(entry(1, { storedAtMs: 1_000, expiresAtMs: 3_000 }), quota());
      await mailbox.store(entry(2, { storedAtMs: 1_500 }), quota());
      await mailbox.store(entry(3, { storedAtMs: 1_200, recipient: bob }), quota());
      expect(await mailbox.oldest(2_999)).toBe(1_000);
      await mailbox.remove(bob, [id(3)], 2_999);
      expect(await mailbox.oldest(3_000)).toBe(1_500);
      await mailbox.remove(alice, [id(2)], 3_000);
      expect(await mailbox.oldest(3_000)).toBeNull();
    },
  ),
  mailboxCase(
    "expired entries count for no quota and do not collide, though nothing swept them",
    async (mailbox) => {
      const limits = quota({
        recipientEntriesMax: 2,
        storeEntriesMax: 3,
        recipientBytesMax: 250,
        storeBytesMax: 350,
      });
      for (const n of [1, 2]) await mailbox.store(entry(n), limits);
      await mailbox.store(entry(3, { recipient: bob }), limits);
      const late = { storedAtMs: 10_000, expiresAtMs: 20_000 };
      expect(await mailbox.store(entry(4, { ...late, storedAtMs: 9_999 }), limits)).toMatchObject({
        kind: "full",
      });
      expect(await mailbox.store(entry(1, { ...late, envelope: bytesOf(9, 100) }), limits)).toEqual(
        { kind: "stored" },
      );
      expect(await mailbox.store(entry(5, late), limits)).toEqual({ kind: "stored" });
      expect(await mailbox.store(entry(6, late), limits)).toEqual({
        kind: "full",
        scope: "recipient",
      });
      const held = await listAll(mailbox, alice, pageOf({ nowMs: 10_000 }));
      expect(ids(held)).toEqual([id(1), id(5)]);
      expect(held[0]!.envelope).toEqual(bytesOf(9, 100));
    },
  ),
  mailboxCase(
    "expiry frees what is due in bounded steps and leaves the rest",
    async (mailbox, { expiry }) => {
      for (let n = 0; n < 10; n++)
        await mailbox.store(entry(n, { expiresAtMs: 3_000 + n }), quota());
      await mailbox.store(entry(50), quota());
      await mailbox.remove(alice, [id(0), id(1)], 2_000);
      await expectFreed(mailbox, expiry, 2_999, 0);
      let freed = 0;
      for (let step = 0; step < 20; step++) {
        const now = await mailbox.expire(3_009, 3);
        expect(now).toBeLessThanOrEqual(3);
        freed += now;
        if (now === 0) break;
      }
      if (expiry === "records") expect(freed).toBe(10);
      expect(await mailbox.stats(3_009)).toEqual({ entries: 1, bytes: 100 });
      expect(ids(await listAll(mailbox, alice, pageOf({ nowMs: 3_009 })))).toEqual([id(50)]);
      expect(await mailbox.message(alice, id(0), 3_009)).toEqual({ state: "absent" });
    },
  ),
  mailboxCase(
    "what an expiration behavior keeps is reported until its end, swept or not",
    async (mailbox, { expiry }) => {
      const preview = bytesOf(77, 40);
      const behaviors = [
        "DeleteOnExpiry",
        "KeepHeaderPreview",
        "TombstoneReference",
        "KeepHeaderPreview",
      ] as const;
      for (const [n, onExpiry] of behaviors.entries()) {
        await mailbox.store(
          entry(n, { onExpiry, headerPreview: n === 3 ? null : preview }),
          quota(),
        );
      }
      const expected = [
        { state: "absent" },
        { state: "expired", expiresAtMs: 10_000, headerPreview: preview },
        { state: "expired", expiresAtMs: 10_000, headerPreview: null },
        { state: "expired", expiresAtMs: 10_000, headerPreview: null },
      ] as const;
      for (const sweep of [false, true]) {
        if (sweep) await expectFreed(mailbox, expiry, 18_000, 4);
        for (const [n, state] of expected.entries())
          expect(await mailbox.message(alice, id(n), 18_999)).toEqual(state);
      }
      for (let n = 0; n < 4; n++)
        expect(await mailbox.message(alice, id(n), 19_000)).toEqual({ state: "absent" });
      expect(await mailbox.stats(18_000)).toEqual({ entries: 0, bytes: 0 });
      await expectFreed(mailbox, expiry, 19_000, 3);
      await expectFreed(mailbox, expiry, 90_000, 0);
      for (let n = 0; n < 4; n++)
        expect(await mailbox.message(alice, id(n), 18_999)).toEqual({ state: "absent" });
    },
  ),
  mailboxCase(
    "nothing is kept after expiry of what was acknowledged, swept or not",
    async (mailbox, { expiry }) => {
      const behaviors = ["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"] as const;
      for (const [n, onExpiry] of behaviors.entries()) {
        await mailbox.store(entry(n, { onExpiry, headerPreview: bytesOf(77, 40) }), quota());
      }
      await mailbox.remove(alice, [id(0), id(1), id(2)], 5_000);
      for (const n of behaviors.keys())
        expect(await mailbox.message(alice, id(n), 9_999)).toEqual({
          state: "acked",
        });
      for (const sweep of [false, true]) {
        if (sweep) await expectFreed(mailbox, expiry, 10_000, 3);
        for (const n of behaviors.keys()) {
          expect(await mailbox.message(alice, id(n), 10_000)).toEqual({ state: "absent" });
        }
      }
      await expectFreed(mailbox, expiry, 90_000, 0);
    },
  ),
  mailboxCase(
    "what is kept after expiry gives way to a new life of the same id",
    async (mailbox, { expiry }) => {
      await mailbox.store(
        entry(1, { onExpiry: "KeepHeaderPreview", headerPreview: bytesOf(1, 10) }),
        quota(),
      );
      await mailbox.expire(11_000, 10);
      const again = entry(1, {
        storedAtMs: 12_000,
        expiresAtMs: 30_000,
        keptUntilMs: 40_000,
        envelope: bytesOf(5, 60),
      });
      expect(await mailbox.store(again, quota())).toEqual({ kind: "stored" });
      const found = await mailbox.message(alice, id(1), 12_000);
      expect(found.state === "active" && found.message.envelope).toEqual(bytesOf(5, 60));
      await expectFreed(mailbox, expiry, 20_000, 0);
      expect((await mailbox.message(alice, id(1), 20_000)).state).toBe("active");
    },
  ),
  mailboxCase(
    "what a read has answered is the reader's own: no later write changes it, nor it the store",
    async (mailbox) => {
      const keeping = { onExpiry: "KeepHeaderPreview", headerPreview: bytesOf(77, 40) } as const;
      for (let n = 0; n < 3; n++) await mailbox.store(entry(n, keeping), quota());
      const [first, later] = [await bytesOfReads(mailbox), await bytesOfReads(mailbox)];
      const expected = first.map((bytes) => bytes.slice());
      for (let n = 3; n < 40; n++) {
        await mailbox.store(entry(n), quota());
        await mailbox.remove(alice, [id(n)], 2_000);
      }
      expect(await bytesOfReads(mailbox)).toEqual(expected);
      expect(first).toEqual(expected);
      for (const bytes of first) bytes.fill(0);
      expect(await bytesOfReads(mailbox)).toEqual(expected);
      await mailbox.remove(alice, [id(0), id(1), id(2)], 2_000);
      await mailbox.expire(19_000, 100);
      for (let n = 40; n < 60; n++) await mailbox.store(entry(n), quota());
      expect(later).toEqual(expected);
    },
  ),
  {
    name: "groups, expiry and what is kept survive closing and opening",
    capability: "mailbox",
    lasting: true,
    async run({ store, reopen, expiry }) {
      let mailbox = store.capabilities.mailbox!;
      await mailbox.store(entry(0, { chunk: chunkOf(1, 0, 2), expiresAtMs: 50_000 }), quota());
      const keeping = { onExpiry: "KeepHeaderPreview", headerPreview: bytesOf(4, 33) } as const;
      await mailbox.store(entry(1, keeping), quota());
      await mailbox.store(entry(2, { onExpiry: "TombstoneReference" }), quota());
      await mailbox.store(entry(3), quota());
      mailbox = (await reopen!()).capabilities.mailbox!;
      const conflicting = entry(4, { chunk: chunkOf(1, 0, 2) });
      expect(await mailbox.store(conflicting, quota())).toEqual({ kind: "chunk_conflict" });
      await mailbox.store(entry(4, { chunk: chunkOf(1, 1, 2), expiresAtMs: 50_000 }), quota());
      await expectFreed(mailbox, expiry, 10_000, 3);
      mailbox = (await reopen!()).capabilities.mailbox!;
      expect(await groupOf(mailbox, alice, group, 10_000)).toMatchObject({ complete: true });
      const kept = { state: "expired", expiresAtMs: 10_000, headerPreview: bytesOf(4, 33) };
      expect(await mailbox.message(alice, id(1), 18_000)).toEqual(kept as never);
      expect((await mailbox.message(alice, id(2), 18_000)).state).toBe("expired");
      expect((await mailbox.message(alice, id(3), 18_000)).state).toBe("absent");
      expect(await mailbox.stats(10_000)).toEqual({ entries: 2, bytes: 200 });
      await expectFreed(mailbox, expiry, 19_000, 2);
      mailbox = (await reopen!()).capabilities.mailbox!;
      expect(await mailbox.message(alice, id(1), 18_000)).toEqual({ state: "absent" });
      expect(ids(await listAll(mailbox, alice, pageOf({ nowMs: 19_000 })))).toEqual([0, 4].map(id));
    },
  },
];
