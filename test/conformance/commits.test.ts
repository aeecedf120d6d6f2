/**
 * Operations that one commit gathers are decided in the order of their calls: a mailbox over an
 * index answers as the naive twin does, whatever stores, acknowledgements and expiries meet, loses
 * nothing when blocks are freed, and takes out a bounded number of rows that are due.
 */
import { describe, expect, test } from "bun:test";
import type { Uuid } from "../../src/core/codec/did.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Mailbox, Store } from "../../src/storage/contract.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";
import { testEnvironment } from "./kit.ts";
import { optionsOf } from "./options.ts";
import {
  alice,
  bob,
  bytesOf,
  chunkOf,
  did,
  entry,
  failureOf,
  id,
  ids,
  listAll,
  pageOf,
  quota,
  seeded,
} from "./samples.ts";
import { openTwin } from "./twin.ts";

const newPath = scratchPaths("commits", folderInMemory());
type Open = (path: string) => Promise<Store>;

const openDisk: Open = (path) =>
  openLmdb(optionsOf(lmdbPlugin, { path, reserve_bytes: 8 * 1024 * 1024 }), testEnvironment());
const openMemory: Open = () => memoryPlugin.open(optionsOf(memoryPlugin, {}), testEnvironment());

describe.concurrent("a message stays when those before it in its block ended within the commit", () => {
  const ends: [name: string, begin: (mailbox: Mailbox) => Promise<unknown>[]][] = [
    [
      "acknowledged",
      (mailbox) => [mailbox.store(entry(1), quota()), mailbox.remove(alice, [id(1)], 1_001)],
    ],
    [
      "expired",
      (mailbox) => [mailbox.store(entry(1, { expiresAtMs: 1_002, keptUntilMs: 1_002 }), quota())],
    ],
    [
      "expired but for what is kept, and that too",
      (mailbox) => {
        const kept = { onExpiry: "KeepHeaderPreview", headerPreview: bytesOf(4, 33) } as const;
        return [
          mailbox.store(entry(1, { ...kept, expiresAtMs: 1_002, keptUntilMs: 1_004 }), quota()),
          mailbox.expire(1_003, 10),
        ];
      },
    ],
  ];
  test.each(ends)("%s", async (_, begin) => {
    const path = newPath();
    let store = await openDisk(path);
    const mailbox = store.capabilities.mailbox!;
    await Promise.all([
      ...begin(mailbox),
      mailbox.store(entry(2, { recipient: bob, storedAtMs: 1_005 }), quota()),
    ]);
    // A sweep frees blocks; nothing is due.
    await mailbox.expire(1_000, 10);
    const envelopes = async () =>
      (await listAll(store.capabilities.mailbox!, bob, pageOf())).map((one) => one.envelope);
    expect(await envelopes()).toEqual([bytesOf(2, 100)]);
    await store.close();
    store = await openDisk(path);
    expect(await envelopes()).toEqual([bytesOf(2, 100)]);
    await store.close();
  });
});

describe("operations that are gathered answer as the naive twin does, in the order of their calls", () => {
  test.each([1, 2, 3, 4, 5, 6])("seed %i", async (seed) => {
    const random = seeded(seed);
    const below = (n: number) => Math.floor(random() * n);
    const limits = quota({ recipientEntriesMax: 12, storeEntriesMax: 30 });
    const twin = openTwin();
    const path = newPath();
    let store = await openDisk(path);
    let nowMs = 1_000;
    const begin = (mailbox: Mailbox): [answer: Promise<unknown>, expected: unknown] => {
      nowMs += below(12);
      const recipient = did(below(3));
      const roll = random();
      if (roll < 0.6) {
        const lifeMs = 1 + below(random() < 0.5 ? 20 : 900);
        const given = entry(below(60), {
          recipient,
          chunk: random() < 0.2 ? chunkOf(below(2), below(2), 2) : null,
          storedAtMs: nowMs,
          expiresAtMs: nowMs + lifeMs,
          keptUntilMs: nowMs + 2 * lifeMs,
          onExpiry: (["DeleteOnExpiry", "KeepHeaderPreview", "TombstoneReference"] as const)[
            below(3)
          ]!,
          headerPreview: random() < 0.5 ? bytesOf(below(100), below(50)) : null,
          envelope: bytesOf(below(100), 1 + below(random() < 0.2 ? 9_000 : 900)),
        });
        return [mailbox.store(given, limits), twin.store(given, limits)];
      }
      if (roll < 0.9) {
        const named = Array.from({ length: 1 + below(30) }, () => id(below(60)));
        return [mailbox.remove(recipient, named, nowMs), twin.remove(recipient, named, nowMs)];
      }
      return [mailbox.expire(nowMs, 1 + below(10)).then((freed) => freed <= 10), true];
    };
    for (let round = 0; round < 150; round++) {
      const mailbox = store.capabilities.mailbox!;
      const begun = Array.from({ length: 1 + below(16) }, () => begin(mailbox));
      expect(await Promise.all(begun.map(([answer]) => answer))).toEqual(
        begun.map(([, expected]) => expected),
      );
      if (random() < 0.1) {
        await store.close();
        store = await openDisk(path);
      }
      const page = pageOf({ nowMs });
      for (const recipient of [0, 1, 2].map(did)) {
        const found = await listAll(store.capabilities.mailbox!, recipient, page);
        expect(found).toEqual(twin.list(recipient, page, 0).entries);
        for (let n = 0; n < 60; n += 7) {
          const message = await store.capabilities.mailbox!.message(recipient, id(n), nowMs);
          expect(message).toEqual(twin.message(recipient, id(n), nowMs));
        }
      }
    }
    await store.close();
  });
});

describe("after a long stop, a commit takes out some of what is due", () => {
  const due = 3_000;
  const perCommit = 1_024;
  const late = { storedAtMs: 10_000, expiresAtMs: 20_000 };
  const filled = async (open: Open): Promise<Store> => {
    const store = await open(newPath());
    const mailbox = store.capabilities.mailbox!;
    const stores = Array.from({ length: due }, (_, n) =>
      mailbox.store(entry(n, { expiresAtMs: 3_000 + n }), quota()),
    );
    await Promise.all(stores);
    return store;
  };
  const storeSoon = async (mailbox: Mailbox, messageId: Uuid, entriesMax: number) => {
    const outcomes: unknown[] = [];
    for (let tries = 0; tries < 3; tries++) {
      const given = entry(9_000, { ...late, messageId });
      const stored = mailbox.store(given, quota({ recipientEntriesMax: entriesMax }));
      outcomes.push((await failureOf(() => stored)) ?? (await stored));
    }
    return outcomes;
  };
  const soon = [{ code: "unavailable" }, { code: "unavailable" }, { kind: "stored" }];

  test("lmdb: however many stores it gathers", async () => {
    const store = await filled(openDisk);
    const mailbox = store.capabilities.mailbox!;
    const outcomes = await Promise.all(
      [1, 2, 3].map((n) => mailbox.store(entry(due + n, late), quota())),
    );
    expect(outcomes).toEqual([1, 2, 3].map(() => ({ kind: "stored" })));
    expect(await mailbox.expire(10_000, due)).toBe(due - perCommit);
    await store.close();
  });

  const drivers = [
    { name: "lmdb", open: openDisk },
    { name: "memory", open: openMemory },
  ];
  for (const { name, open } of drivers) {
    test(`${name}: and says nothing wrong of quotas and ids meanwhile`, async () => {
      for (const [messageId, entriesMax] of [
        [id(9_000), 10] as const,
        [id(due - 1), due] as const,
      ]) {
        const store = await filled(open);
        expect(await storeSoon(store.capabilities.mailbox!, messageId, entriesMax)).toMatchObject(
          soon,
        );
        await store.close();
      }
    });

    test(`${name}: and knows what it holds`, async () => {
      const store = await filled(open);
      const mailbox = store.capabilities.mailbox!;
      expect(await mailbox.store(entry(9_001, late), quota())).toEqual({ kind: "stored" });
      const again = await mailbox.store(entry(9_001, { ...late, storedAtMs: 10_001 }), quota());
      expect(again).toEqual({ kind: "duplicate", expiresAtMs: 20_000, isSame: true, author: null });
      expect(ids(await listAll(mailbox, alice, pageOf({ nowMs: 10_001 })))).toEqual([id(9_001)]);
      expect(await mailbox.stats(10_001)).toEqual({ entries: 1, bytes: 100 });
      await store.close();
    });
  }
});
