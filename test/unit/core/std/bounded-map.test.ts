/** A map with a bound: which entry goes when one more comes. */
import { describe, expect, test } from "bun:test";
import { BoundedMap } from "../../../../src/core/std/bounded-map.ts";

describe("BoundedMap", () => {
  test("over the bound the entry set longest ago goes", () => {
    const map = new BoundedMap<string, number>(2);
    map.set("a", 1);
    map.set("b", 2);
    map.set("a", 3);
    map.set("c", 4);
    expect([...map]).toEqual([
      ["a", 3],
      ["c", 4],
    ]);
    expect([map.size, map.has("b"), map.get("a")]).toEqual([2, false, 3]);
  });

  test("deletes and clears", () => {
    const map = new BoundedMap<number, string>(8);
    map.set(1, "x");
    expect([map.delete(1), map.delete(1), map.size]).toEqual([true, false, 0]);
    map.set(2, "y");
    map.clear();
    expect(map.size).toBe(0);
  });
});
