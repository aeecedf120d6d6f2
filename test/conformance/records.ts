/**
 * Laws of replay claims and receipts.
 */
import { expect } from "bun:test";
import type { ConformanceCase } from "./kit.ts";
import { bytesOf } from "./samples.ts";

const longText = "Grüße-".padEnd(512, "☃x");
/** 512 bytes. */
const longKey = longText.slice(0, 258);

export const replayCases: readonly ConformanceCase[] = [
  {
    name: "a tag is claimed once until its time is over",
    capability: "replay",
    async run({ store }) {
      const replay = store.capabilities.replay!;
      expect(await replay.claim("tag", 5_000, 1_000)).toBe(true);
      expect(await replay.claim("tag", 9_000, 1_000)).toBe(false);
      expect(await replay.claim("tag", 9_000, 4_999)).toBe(false);
      expect(await replay.claim("other", 9_000, 4_999)).toBe(true);
      expect(await replay.claim("tag", 9_000, 5_000)).toBe(true);
      expect(await replay.claim("tag", 9_900, 8_999)).toBe(false);
    },
  },
  {
    name: "of 100 concurrent claims of one tag exactly one wins",
    capability: "replay",
    async run({ store }) {
      const replay = store.capabilities.replay!;
      for (const tag of ["one", "two", "three"]) {
        const claims = await Promise.all(
          Array.from({ length: 100 }, () => replay.claim(tag, 5_000, 1_000)),
        );
        expect(claims.filter(Boolean).length).toBe(1);
      }
    },
  },
  {
    name: "of 100 concurrent claims of a tag whose claim has ended exactly one wins, swept or not",
    capability: "replay",
    async run({ store }) {
      const replay = store.capabilities.replay!;
      for (const [at, tag] of ["one", "two", "three", "four"].entries()) {
        await replay.claim(tag, 5_000, 1_000);
        const claims = Array.from({ length: 100 }, () => replay.claim(tag, 9_000, 5_000));
        if (at % 2 === 1) await replay.expire(5_000, 100);
        expect((await Promise.all(claims)).filter(Boolean).length).toBe(1);
      }
    },
  },
  {
    name: "tags of 512 characters in any script are distinguished",
    capability: "replay",
    async run({ store }) {
      const replay = store.capabilities.replay!;
      const tags = [
        longText,
        `${longText.slice(0, -1)}y`,
        "a",
        "a\0",
        "A",
        "\u00e1",
        "a\u0301",
        "pull\ndid\nkey",
        "pull\ndid",
      ];
      for (const tag of tags) expect(await replay.claim(tag, 5_000, 1_000)).toBe(true);
      for (const tag of tags) expect(await replay.claim(tag, 5_000, 1_000)).toBe(false);
    },
  },
  {
    name: "expiring claims frees what is due, in bounded steps, and nothing else",
    capability: "replay",
    async run({ store }) {
      const replay = store.capabilities.replay!;
      await Promise.all(
        Array.from({ length: 10 }, (_, i) => replay.claim(`due ${i}`, 2_000 + i, 1_000)),
      );
      await replay.claim("later", 9_000, 1_000);
      // A tag that was claimed again after its end is not forgotten with its first claim.
      await replay.claim("renewed", 2_000, 1_000);
      expect(await replay.claim("renewed", 9_000, 2_000)).toBe(true);
      expect(await replay.expire(1_999, 100)).toBe(0);
      let freed = 0;
      for (let step = 0; step < 10; step++) {
        const now = await replay.expire(2_009, 4);
        expect(now).toBeLessThanOrEqual(4);
        freed += now;
        if (now === 0) break;
      }
      expect(freed).toBe(10);
      expect(await replay.claim("later", 9_500, 2_010)).toBe(false);
      expect(await replay.claim("renewed", 9_500, 2_010)).toBe(false);
      expect(await replay.claim("due 0", 9_500, 2_010)).toBe(true);
    },
  },
  {
    name: "claims survive closing and opening",
    capability: "replay",
    lasting: true,
    async run({ store, reopen }) {
      await store.capabilities.replay!.claim("tag", 5_000, 1_000);
      const replay = (await reopen!()).capabilities.replay!;
      expect(await replay.claim("tag", 9_000, 2_000)).toBe(false);
      expect(await replay.expire(5_000, 10)).toBe(1);
      expect(await replay.claim("tag", 9_000, 5_000)).toBe(true);
    },
  },
];

export const receiptsCases: readonly ConformanceCase[] = [
  {
    name: "a receipt is what was put last, until its time is over",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      expect(await receipts.get("key", 1_000)).toBeNull();
      await receipts.put("key", bytesOf(1, 300), 5_000);
      expect(await receipts.get("key", 4_999)).toEqual(bytesOf(1, 300));
      await receipts.put("key", bytesOf(2, 10), 7_000);
      expect(await receipts.get("key", 6_999)).toEqual(bytesOf(2, 10));
      expect(await receipts.get("key", 7_000)).toBeNull();
      await receipts.put("shorter", bytesOf(3, 10), 9_000);
      await receipts.put("shorter", bytesOf(4, 10), 8_000);
      expect(await receipts.get("shorter", 8_000)).toBeNull();
    },
  },
  {
    name: "keys of 512 bytes, empty values and values of 64 KiB are kept exactly",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      const values = {
        [longKey]: bytesOf(1, 64 * 1024),
        e: new Uint8Array(0),
        "e\0": bytesOf(3, 1),
      };
      for (const [key, value] of Object.entries(values)) await receipts.put(key, value, 5_000);
      for (const [key, value] of Object.entries(values))
        expect(await receipts.get(key, 1_000)).toEqual(value);
    },
  },
  {
    name: "bytes of receipts are not shared with the caller",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      const value = bytesOf(1, 8);
      await receipts.put("key", value, 5_000);
      value.fill(0);
      const first = await receipts.get("key", 1_000);
      expect(first).toEqual(bytesOf(1, 8));
      first!.fill(0);
      expect(await receipts.get("key", 1_000)).toEqual(bytesOf(1, 8));
    },
  },
  {
    name: "putIfAbsent sets once, answers the value that stands, and sets again after its end",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      const answers = await Promise.all(
        Array.from({ length: 100 }, (_, i) =>
          receipts.putIfAbsent("key", bytesOf(i, 20), 5_000, 1_000),
        ),
      );
      expect(answers.filter((answer) => answer === null).length).toBe(1);
      const standing = bytesOf(answers.indexOf(null), 20);
      for (const answer of answers) if (answer !== null) expect(answer).toEqual(standing);
      expect(await receipts.get("key", 1_000)).toEqual(standing);
      expect(await receipts.putIfAbsent("key", bytesOf(7, 5), 9_000, 4_999)).toEqual(standing);
      expect(await receipts.putIfAbsent("key", bytesOf(7, 5), 9_000, 5_000)).toBeNull();
      expect(await receipts.get("key", 8_999)).toEqual(bytesOf(7, 5));
    },
  },
  {
    name: "of 100 concurrent putIfAbsent on a receipt whose time is over exactly one sets",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      for (const key of ["one", "two", "three"]) {
        await receipts.putIfAbsent(key, bytesOf(200, 20), 5_000, 1_000);
        const answers = await Promise.all(
          Array.from({ length: 100 }, (_, i) =>
            receipts.putIfAbsent(key, bytesOf(i, 20), 9_000, 5_000),
          ),
        );
        expect(answers.filter((answer) => answer === null).length).toBe(1);
        const standing = bytesOf(answers.indexOf(null), 20);
        for (const answer of answers) if (answer !== null) expect(answer).toEqual(standing);
        expect(await receipts.get(key, 5_000)).toEqual(standing);
      }
    },
  },
  {
    name: "a removed receipt is absent, and removing what is absent is not an error",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      await receipts.put("key", bytesOf(1, 20), 5_000);
      await receipts.remove("key");
      await receipts.remove("key");
      expect(await receipts.get("key", 1_000)).toBeNull();
      expect(await receipts.putIfAbsent("key", bytesOf(2, 20), 5_000, 1_000)).toBeNull();
    },
  },
  {
    name: "a receipt that was replaced is not removed by the value that it had",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      for (const key of ["key", "/key"]) {
        await receipts.put(key, bytesOf(1, 20), 5_000);
        await receipts.put(key, bytesOf(2, 20), 5_000);
        await receipts.remove(key, bytesOf(1, 20));
        expect(await receipts.get(key, 1_000)).toEqual(bytesOf(2, 20));
        await receipts.remove(key, bytesOf(2, 20));
        expect(await receipts.get(key, 1_000)).toBeNull();
        await receipts.remove(key, bytesOf(2, 20));
        await receipts.put(key, new Uint8Array(0), 5_000);
        await receipts.remove(key, bytesOf(2, 20));
        expect(await receipts.get(key, 1_000)).toEqual(new Uint8Array(0));
        await receipts.remove(key, new Uint8Array(0));
        expect(await receipts.get(key, 1_000)).toBeNull();
      }
    },
  },
  {
    name: "a scan finds each valid receipt below its prefix once, page by page, and no other",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      const ends = [
        "",
        "0",
        "a",
        "a\0",
        "a/b",
        "\uffff",
        "\uffff\uffff",
        "é",
        "☃",
        "\u2f00",
        longText.slice(0, 250),
      ];
      const below = ends.map((end) => `/at/${end}`);
      for (const [i, key] of below.entries()) await receipts.put(key, bytesOf(i, 30 + i), 5_000);
      for (const key of ["/at", "/au/a", "/a", "at/", "/At/a", "/", `/at${longText.slice(0, 240)}`])
        await receipts.put(key, bytesOf(99, 5), 5_000);
      await receipts.put("/at/over", bytesOf(98, 5), 2_000);
      await receipts.put("/at/gone", bytesOf(97, 5), 5_000);
      await receipts.remove("/at/gone");
      for (const limit of [1, 3, 100]) {
        const found: (readonly [string, Uint8Array])[] = [];
        for (let after: string | null = null; ; after = found.at(-1)![0]) {
          const page = await receipts.scan("/at/", { after, limit, nowMs: 2_000 });
          expect(page.length).toBeLessThanOrEqual(limit);
          found.push(...page);
          // A driver whose pages don't advance must not scan for ever.
          if (page.length < limit || found.length > below.length) break;
        }
        expect(found.length).toBe(below.length);
        const byKey = new Map(found);
        for (const [i, key] of below.entries()) expect(byKey.get(key)).toEqual(bytesOf(i, 30 + i));
      }
      expect(await receipts.scan("/at/", { after: null, limit: 10, nowMs: 5_000 })).toEqual([]);
      expect(await receipts.scan("/none/", { after: null, limit: 10, nowMs: 1_000 })).toEqual([]);
      expect((await receipts.scan("/", { after: null, limit: 100, nowMs: 2_000 })).length).toBe(
        below.length + 6,
      );
    },
  },
  {
    name: "a prefix without a slash at its beginning is a mistake of the caller",
    capability: "receipts",
    async run({ store }) {
      const page = { after: null, limit: 10, nowMs: 1_000 };
      for (const prefix of ["", "a", "a/"])
        await expect(store.capabilities.receipts!.scan(prefix, page)).rejects.toBeInstanceOf(
          RangeError,
        );
    },
  },
  {
    name: "what a scan has found does not change, and it sees what was put, replaced and freed since the last one",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      const page = { after: null, limit: 10, nowMs: 1_000 };
      await receipts.put("/k", bytesOf(1, 8), 5_000);
      await receipts.put("/l", bytesOf(2, 8), 2_000);
      const first = await receipts.scan("/", page);
      first[0]![1].fill(0);
      await receipts.put("/k", bytesOf(3, 8), 6_000);
      expect(new Map(await receipts.scan("/", page))).toEqual(
        new Map([
          ["/k", bytesOf(3, 8)],
          ["/l", bytesOf(2, 8)],
        ]),
      );
      expect(await receipts.expire(2_000, 10)).toBe(1);
      expect(await receipts.scan("/", page)).toEqual([["/k", bytesOf(3, 8)]]);
      expect(await receipts.putIfAbsent("/l", bytesOf(4, 8), 7_000, 3_000)).toBeNull();
      expect(new Map(await receipts.scan("/", { ...page, nowMs: 6_500 }))).toEqual(
        new Map([["/l", bytesOf(4, 8)]]),
      );
    },
  },
  {
    name: "expiring receipts frees what is due, in bounded steps, and nothing else",
    capability: "receipts",
    async run({ store }) {
      const receipts = store.capabilities.receipts!;
      for (let i = 0; i < 10; i++) await receipts.put(`due ${i}`, bytesOf(i, 50), 2_000 + i);
      await receipts.put("longer", bytesOf(1, 50), 2_000);
      await receipts.put("longer", bytesOf(2, 50), 9_000);
      await receipts.put("gone", bytesOf(1, 50), 2_000);
      await receipts.remove("gone");
      expect(await receipts.expire(1_999, 100)).toBe(0);
      let freed = 0;
      for (let step = 0; step < 10; step++) {
        const now = await receipts.expire(2_009, 4);
        expect(now).toBeLessThanOrEqual(4);
        freed += now;
        if (now === 0) break;
      }
      expect(freed).toBe(10);
      expect(await receipts.get("longer", 2_010)).toEqual(bytesOf(2, 50));
    },
  },
  {
    name: "receipts survive closing and opening",
    capability: "receipts",
    lasting: true,
    async run({ store, reopen }) {
      await store.capabilities.receipts!.put("key", bytesOf(1, 2_000), 5_000);
      await store.capabilities.receipts!.put("/scanned", bytesOf(3, 20), 9_000);
      await store.capabilities.receipts!.put("gone", bytesOf(1, 20), 5_000);
      await store.capabilities.receipts!.remove("gone");
      const receipts = (await reopen!()).capabilities.receipts!;
      expect(await receipts.get("key", 4_999)).toEqual(bytesOf(1, 2_000));
      expect(await receipts.get("gone", 1_000)).toBeNull();
      const page = { after: null, limit: 10, nowMs: 5_000 };
      expect(await receipts.scan("/", page)).toEqual([["/scanned", bytesOf(3, 20)]]);
      expect(await receipts.expire(5_000, 10)).toBe(1);
    },
  },
];
