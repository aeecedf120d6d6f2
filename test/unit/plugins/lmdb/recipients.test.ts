/** Sets of labels that rows share, held against a list of the rows. */
import { describe, expect, test } from "bun:test";
import { LabelSets, noLabels } from "../../../../src/plugins/lmdb/recipients.ts";

describe("a set of labels", () => {
  test("is one for all rows that have it, in the order given, and none is number 0", () => {
    const sets = new LabelSets();
    const first = sets.take(["new", "net:a"]);
    expect(sets.take(["new", "net:a"])).toBe(first);
    expect(sets.take(["net:a", "new"])).not.toBe(first);
    expect(sets.labels(first)).toEqual(["new", "net:a"]);
    expect([sets.take([]), sets.labels(noLabels)]).toEqual([noLabels, []]);
    sets.release(noLabels);
  });

  test("is kept for as long as a row has it, whatever comes and goes beside it", () => {
    const sets = new LabelSets();
    const rows: { readonly labels: readonly string[]; readonly number: number }[] = [];
    let seed = 7;
    const next = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return seed % below;
    };
    for (let step = 0; step < 5_000; step++) {
      if (next(2) === 0 || rows.length === 0) {
        const labels = Array.from({ length: next(4) }, () => `l${next(5)}`);
        rows.push({ labels, number: sets.take(labels) });
      } else {
        const [gone] = rows.splice(next(rows.length), 1);
        sets.release(gone!.number);
      }
      const { labels, number } = rows[next(rows.length)] ?? { labels: [], number: noLabels };
      expect(sets.labels(number)).toEqual(labels);
    }
    for (const { number } of rows) sets.release(number);
    // Numbers are used again: as many as were in use at one time at most.
    expect(sets.take(["fresh"])).toBeLessThan(5 ** 3 + 5 ** 2 + 5 + 2);
  });
});
