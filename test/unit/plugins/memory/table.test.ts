/** The table in memory against a sorted list: ranges, undone changes, bounds. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { MemoryTable } from "../../../../src/plugins/memory/table.ts";
import { failureOf, isFull } from "../../../conformance/samples.ts";

describe("the memory table", () => {
  const bytes = (n: number) => Uint8Array.of(n & 0xff, n >> 8);

  test("returns ranges like a sorted list, after any changes, and undoes a commit that throws", async () => {
    const change = fc.record({
      puts: fc.array(
        fc.string({ unit: fc.constantFrom("a", "b", "c", "!", "~"), minLength: 1, maxLength: 4 }),
      ),
      removes: fc.array(fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: 2 })),
      fails: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(change, { maxLength: 8 }),
        fc.constantFrom("", "a", "ab", "~"),
        async (steps, prefix) => {
          const table = new MemoryTable(1 << 20);
          let naive = new Map<string, Uint8Array>();
          for (const [n, { puts, removes, fails }] of steps.entries()) {
            const next = new Map(naive);
            const done = table.commit((view) => {
              for (const key of puts) view.put(key, bytes(n));
              for (const key of removes) view.remove(key);
              if (fails) throw new RangeError("no");
            });
            for (const key of puts) next.set(key, bytes(n));
            for (const key of removes) next.delete(key);
            const failure = await failureOf(() => done);
            expect(failure instanceof RangeError).toBe(fails);
            if (!fails) naive = next;
          }
          const sorted = [...naive].sort(([a], [b]) =>
            Buffer.compare(Buffer.from(a), Buffer.from(b)),
          );
          const expected = sorted.filter(([key]) => key.startsWith(prefix));
          expect(table.range(prefix, { limit: 100 })).toEqual(expected);
          const after = expected[1]?.[0];
          if (after !== undefined)
            expect(table.range(prefix, { after, limit: 2 })).toEqual(expected.slice(2, 4));
        },
      ),
      { numRuns: 200 },
    );
  });

  test("keeps thousands of keys in order", async () => {
    const table = new MemoryTable(1 << 24);
    const key = (n: number) => `k/${String(Math.imul(n, 40_503) & 0xffff).padStart(5, "0")}`;
    await table.commit((view) => {
      for (let n = 0; n < 5_000; n++) view.put(key(n), bytes(n));
      for (let n = 0; n < 5_000; n += 3) view.remove(key(n));
    });
    const keys = table.range("k/", { limit: 10_000 }).map(([one]) => one);
    expect(keys).toEqual([...keys].sort());
    expect(keys.length).toBe(5_000 - 1_667);
  });

  test("refuses records beyond its limit and malformed keys", async () => {
    const table = new MemoryTable(10_000);
    const full = await failureOf(() =>
      table.commit((view) => view.put("k", new Uint8Array(20_000))),
    );
    expect(isFull(full)).toBe(true);
    expect(table.get("k")).toBeNull();
    for (const key of ["", "a b", "\u{7f}", "é", "x".repeat(1_601)]) {
      expect(await failureOf(() => table.commit((view) => view.put(key, bytes(1))))).toBeInstanceOf(
        RangeError,
      );
    }
  });
});
