/** When garbage is collected: by what requests leave, and all of it when survivors gather. */
import { expect, test } from "bun:test";
import { collectByRequests } from "../../../src/app/garbage.ts";

const mebibyte = 2 ** 20;

/** A heap that says what was asked of it, and how much survives. */
function heapOf(survivors: readonly number[]) {
  const asked: string[] = [];
  const sizes = [...survivors];
  const collected = (kind: string) => () => {
    asked.push(kind);
    return (sizes.shift() ?? 0) * mebibyte;
  };
  const heap = { collectYoung: collected("young"), collectAll: collected("all") };
  return { asked, answered: collectByRequests(heap) };
}

const turn = () => new Promise<void>((done) => setImmediate(done));

test("garbage is collected once for five thousand small requests, after their turn", async () => {
  const { asked, answered } = heapOf([]);
  for (let n = 0; n < 5_000; n++) answered(0);
  await turn();
  expect(asked).toEqual([]);
  for (let n = 0; n < 200; n++) answered(0);
  expect(asked).toEqual([]);
  await turn();
  expect(asked).toEqual(["young"]);
});

test("a body counts with its copies", async () => {
  const { asked, answered } = heapOf([]);
  for (let n = 0; n < 9; n++) answered(mebibyte);
  await turn();
  expect(asked).toEqual([]);
  answered(mebibyte);
  await turn();
  expect(asked).toEqual(["young"]);
});

test("all objects are collected when what survives has grown by 24 MiB since the least", async () => {
  const { asked, answered } = heapOf([100, 90, 114, 115, 95, 119, 120, 90]);
  for (let n = 0; n < 6; n++) {
    answered(10 * mebibyte);
    await turn();
  }
  expect(asked).toEqual(["young", "young", "young", "young", "all", "young", "young", "all"]);
});
