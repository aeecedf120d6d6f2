/** What every mailbox driver decides alike: cursors, numbers of arrival and the edges of a page. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { isFault } from "../../../src/core/fault.ts";
import {
  decideQuota,
  encodeCursor,
  exceedsBounds,
  nextArrival,
  PageFill,
  parseCursor,
} from "../../../src/storage/mailbox-rules.ts";

test("numbers of arrival follow the clock, grow with every entry, and stay exact whatever the clock says", () => {
  expect(nextArrival(0, 1_000)).toBe(1_024_000);
  expect(nextArrival(1_024_000, 1_000)).toBe(1_024_001);
  expect(nextArrival(2_000_000, 1_000)).toBe(2_000_001);
  const last = nextArrival(0, Number.MAX_SAFE_INTEGER);
  expect(last).toBe(2 ** 52);
  expect(nextArrival(last, Number.MAX_SAFE_INTEGER)).toBe(2 ** 52 + 1);
});

test("a page has its first entry however large it is, and none beyond its bounds", () => {
  const page = new PageFill(3, 100);
  expect([page.accepts(500), page.accepts(1)]).toEqual([true, false]);
  const other = new PageFill(2, 100);
  expect([other.accepts(50), other.accepts(50), other.accepts(0)]).toEqual([true, true, false]);
});

describe("cursors", () => {
  test("are printable, short, and read back as the position", () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (position) => {
        const cursor = encodeCursor(position);
        expect(cursor).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        expect(parseCursor(cursor)).toBe(position);
      }),
    );
  });

  test("of another form are refused, and exactly one text means a position", () => {
    for (const cursor of ["", "c", "0", "c01", "c-1", "cG", "c 1", "czzzzzzzzzzz", "c1 ", "C1"]) {
      expect(parseCursor(cursor)).toMatchObject({ code: "invalid_request" });
    }
    fc.assert(
      fc.property(fc.string({ maxLength: 14 }), (some) => {
        const position = parseCursor(some);
        if (!isFault(position)) expect(encodeCursor(position)).toBe(some);
      }),
      { numRuns: 500 },
    );
  });
});

test("an entry that fills a bound is within it, and one more or one byte more is over", () => {
  const held = { entries: 9, bytes: 90 };
  expect(exceedsBounds(held, 10, 10, 100)).toBe(false);
  expect(exceedsBounds(held, 11, 10, 100)).toBe(true);
  expect(exceedsBounds({ ...held, entries: 10 }, 10, 10, 100)).toBe(true);
});

test("an entry gets the labels of the place that it takes, each once", () => {
  const held = { entries: 0, bytes: 0 };
  const sums = { mailbox: () => held, store: () => ({ ...held, ids: 0 }), room: held };
  const share = (label: string) => ({ label, entriesMax: 10, bytesMax: 1_000 });
  const poolMax = { entries: 10, bytes: 1_000 };
  const quota = {
    recipientEntriesMax: 10,
    recipientBytesMax: 1_000,
    storeEntriesMax: 10,
    storeBytesMax: 1_000,
    storeShare: null,
  };
  const decided = (own: string, pool: string) =>
    decideQuota(
      { labels: ["from:a", "new:a"], envelope: new Uint8Array(10) } as never,
      { ...quota, places: [{ own: share(own), pool, poolMax, isRest: false }] },
      sums,
    );
  expect(decided("known:a", "known")).toEqual(["from:a", "new:a", "known:a", "known"]);
  expect(decided("new:a", "new")).toEqual(["from:a", "new:a", "new"]);
  expect(decided("new", "new")).toEqual(["from:a", "new:a", "new"]);
});
