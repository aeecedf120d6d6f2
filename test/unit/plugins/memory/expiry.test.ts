/** The heap: least first, whatever the order of arrival. */
import { describe, expect, test } from "bun:test";
import { Heap } from "../../../../src/plugins/memory/expiry.ts";

describe("Heap", () => {
  test("returns items in order, whatever the order in which they were added", () => {
    const heap = new Heap<number>((a, b) => a < b);
    let seed = 7;
    const numbers = Array.from({ length: 500 }, () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % 100;
    });
    for (const number of numbers) heap.push(number);
    expect([heap.size, heap.first()]).toEqual([500, Math.min(...numbers)]);
    const drained = numbers.map(() => heap.pop());
    expect(drained).toEqual(numbers.toSorted((a, b) => a - b));
    expect([heap.pop(), heap.first(), heap.size]).toEqual([undefined, undefined, 0]);
  });

  test("replaces all items", () => {
    const heap = new Heap<number>((a, b) => a < b);
    heap.push(1);
    heap.replace([9, 4, 6]);
    heap.push(5);
    expect([heap.pop(), heap.pop(), heap.pop(), heap.pop()]).toEqual([4, 5, 6, 9]);
  });
});
