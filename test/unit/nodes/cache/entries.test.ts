/** Which messages one answer without a cursor holds, and that its cursor reaches all the others. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Uuid } from "../../../../src/core/codec/did.ts";
import { type PlanEntry, planWhole, startCursor } from "../../../../src/nodes/cache/entries.ts";

const id = (text: string) => text as Uuid;
const message = (name: string, bytes = 10): PlanEntry => ({
  messageId: id(name),
  chunk: null,
  envelopeBytes: bytes,
  cursor: `c${name}`,
});
const chunk = (
  name: string,
  place: [group: string, sequence: number, total: number],
  bytes = 10,
): PlanEntry => ({
  ...message(name, bytes),
  chunk: { groupId: id(place[0]), sequence: place[1], total: place[2] },
});
const bounds = { entriesMax: 5, bytesMax: 100, more: false };
const planned = (entries: PlanEntry[], change: Partial<typeof bounds> = {}) => {
  const { selected, next } = planWhole(entries, { ...bounds, ...change });
  return [selected.map((entry) => entry.messageId).join(" "), next];
};

describe("an answer without a cursor", () => {
  test("holds everything when everything fits, and then has no cursor", () => {
    expect(planned([])).toEqual(["", null]);
    expect(
      planned([message("a"), chunk("b", ["g", 0, 2]), message("c"), chunk("d", ["g", 1, 2])]),
    ).toEqual(["a b c d", null]);
  });

  test("stops before the first message that does not fit, in entries and in bytes", () => {
    const six = ["a", "b", "c", "d", "e", "f"].map((name) => message(name));
    expect(planned(six)).toEqual(["a b c d e", "ce"]);
    expect(planned([message("a", 60), message("b", 60), message("c", 10)])).toEqual(["a", "ca"]);
    expect(
      planned([message("a", 90), chunk("b", ["g", 0, 2]), chunk("c", ["g", 1, 2]), message("d")]),
    ).toEqual(["a", "ca"]);
  });

  test("holds the first message however large it is", () => {
    expect(planned([message("a", 500), message("b")])).toEqual(["a", "ca"]);
  });

  test("passes over an unfinished set, and its cursor comes before it", () => {
    expect(planned([message("a"), chunk("b", ["g", 0, 2]), message("c")])).toEqual(["a c", "ca"]);
    expect(planned([chunk("b", ["g", 0, 2]), message("c")])).toEqual(["c", startCursor]);
  });

  test("passes over a set that no answer could hold", () => {
    const large = [0, 1, 2, 3, 4, 5].map((sequence) =>
      chunk(`l${sequence}`, ["g", sequence, 6], 1),
    );
    expect(planned([...large, message("z")])).toEqual(["z", startCursor]);
    const heavy = [0, 1].map((sequence) => chunk(`h${sequence}`, ["g", sequence, 2], 60));
    expect(planned([...heavy, message("z")])).toEqual(["z", startCursor]);
  });

  test("continues behind the last entry when there are more", () => {
    expect(planned([message("a"), message("b")], { more: true })).toEqual(["a b", "cb"]);
  });

  test("never holds half a message, keeps to its bounds, and leaves nothing out of the cursor's reach", () => {
    const groups = fc.constantFrom("g", "h", "k");
    const entry = fc.record({
      group: fc.option(groups),
      total: fc.integer({ min: 1, max: 3 }),
      bytes: fc.nat(60),
    });
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 24 }), (drawn) => {
        const totals = new Map<string, number>();
        const counts = new Map<string, number>();
        const entries = drawn.map(({ group, total, bytes }, index) => {
          if (group === null) return message(String(index), bytes);
          const sequence = counts.get(group) ?? 0;
          counts.set(group, sequence + 1);
          totals.set(group, totals.get(group) ?? total + 1);
          return chunk(String(index), [group, sequence, totals.get(group) as number], bytes);
        });
        const { selected, next } = planWhole(entries, bounds);
        const names = new Set(selected.map((one) => one.messageId));
        const bytes = selected.reduce((sum, one) => sum + one.envelopeBytes, 0);
        expect(
          selected.length === 1 ||
            (selected.length <= bounds.entriesMax && bytes <= bounds.bytesMax),
        ).toBe(true);
        for (const group of counts.keys()) {
          const held = selected.filter((one) => one.chunk?.groupId === group).length;
          expect([0, totals.get(group) as number]).toContain(held);
        }
        const from =
          next === null ? entries.length : entries.findIndex((one) => one.cursor === next) + 1;
        expect(entries.slice(0, from).every((one) => names.has(one.messageId))).toBe(true);
        expect(next === null).toBe(selected.length === entries.length);
      }),
    );
  });
});
