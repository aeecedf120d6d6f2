/**
 * Choices in a conversation: devices that merge them in any order and come to the same, and timers
 * that count.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type ChosenRow,
  chosenAt,
  chosenOf,
  mergeChosen,
  parseTimer,
  putChoice,
  putTimer,
} from "../../../../src/client/store/chosen.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { identityOf } from "../../../support/identity.ts";

const [one, other] = [identityOf("one").did, identityOf("other").did];
/** A device makes no two choices at one time, so the value follows from the time. */
const times = fc.option(fc.nat(4), { nil: undefined });
const rows = fc
  .record({
    draft: times,
    pinned: times,
    muted: times,
    archived: times,
    version: times,
    by: fc.constantFrom(one, other),
  })
  .map(({ draft, pinned, muted, archived, version, by }): ChosenRow => {
    const on = (atMs: number) => ({ value: atMs % 2 === 0, atMs });
    return {
      id: "c",
      ...(draft === undefined ? {} : { draft: { value: `at ${draft}`, atMs: draft } }),
      ...(pinned === undefined ? {} : { isPinned: on(pinned) }),
      ...(muted === undefined ? {} : { isMuted: on(muted) }),
      ...(archived === undefined ? {} : { isArchived: on(archived) }),
      ...(version === undefined ? {} : { timer: { seconds: version * 10, version, by } }),
    };
  });

test("devices come to the same choices, in whichever order and however often they hear of them", () => {
  fc.assert(
    fc.property(fc.array(rows, { minLength: 1, maxLength: 5 }), fc.nat(), (given, seed) => {
      const join = (all: readonly ChosenRow[]) => all.reduce(mergeChosen, { id: "c" });
      const shuffled = given.toSorted(
        (a, b) => ((seed ^ Bun.hash.crc32(JSON.stringify([a, b]))) % 2) - 0.5,
      );
      expect(join(shuffled.concat(given))).toEqual(join(given));
    }),
    { numRuns: 300 },
  );
});

describe("in a store", () => {
  const open = () => Table.open(memoryStore(), new Uint8Array(32).fill(7));

  test("a choice replaces the one before it, also after the clock went back", async () => {
    const table = await open();
    for (const [draft, nowMs] of [
      ["first", 1_000],
      ["second", 500],
    ] as const)
      await table.change((batch) => putChoice(table, batch, "c", { choice: { draft }, nowMs }));
    expect((await chosenAt(table, "c"))?.draft).toEqual({ value: "second", atMs: 1_001 });
  });

  test("what was put away comes back with the next message, unless it is muted", () => {
    const away = { value: true, atMs: 100 };
    const row = { id: "c", isArchived: away };
    expect([50, 100, 101].map((lastMs) => chosenOf(row, lastMs).isArchived)).toEqual([
      true,
      true,
      false,
    ]);
    expect(chosenOf({ ...row, isMuted: away }, 101).isArchived).toBe(true);
  });

  test("the later timer holds, of one version that of the greater DID, and none of a far clock counts", async () => {
    const table = await open();
    const nowMs = 1_700_000_000_000;
    const put = (seconds: number, version: number, by = one) =>
      table.change((batch) =>
        putTimer(table, batch, other, { given: { seconds, version, by }, nowMs }),
      );
    const [low, high] = [one, other].toSorted();
    expect(await put(60, 10, low)).toBe(true);
    expect(await put(30, 9, high)).toBe(false);
    expect(await put(90, 10, high)).toBe(true);
    expect(await put(70, 10, low)).toBe(false);
    expect(await put(0, nowMs / 1_000 + 90_000)).toBe(false);
    expect(chosenOf(await chosenAt(table, other), 0).lastsSeconds).toBe(90);
    // An unknown group has no admin.
    const inGroup = { given: { seconds: 60, version: 10, by: one }, nowMs };
    expect(await table.change((batch) => putTimer(table, batch, "group", inGroup))).toBe(false);
  });

  test.each([
    [
      { v: 1, seconds: 60, version: 1 },
      { seconds: 60, version: 1 },
    ],
    [
      { v: 1, seconds: 0, version: 1, more: 1 },
      { seconds: 0, version: 1 },
    ],
    [{ v: 2, seconds: 60, version: 1 }, null],
    [{ v: 1, seconds: -1, version: 1 }, null],
    [{ v: 1, seconds: 1.5, version: 1 }, null],
    [{ v: 1, seconds: 31_622_401, version: 1 }, null],
    [{ v: 1, seconds: "60", version: 1 }, null],
    [{ v: 1, seconds: 60 }, null],
    [null, null],
    [[], null],
  ])("of %j is read %j", (json, timer) => {
    expect(parseTimer(json)).toEqual(timer);
  });
});
