/** Group commits over a disk that the test holds: what goes together, and what waits. */
import { expect, test } from "bun:test";
import { Batcher } from "../../../src/storage/batcher.ts";

const mib = 1024 * 1024;
const turns = async (count = 3) => {
  for (let n = 0; n < count; n++) await new Promise<void>((next) => void setImmediate(next));
};

/** Batches that end when the test says so. */
function heldBatches({ runningMax = 1, turnsMax = 0, perKeyMax = Number.POSITIVE_INFINITY } = {}) {
  const batches: { readonly keys: readonly string[]; readonly end: (error?: Error) => void }[] = [];
  const run = (keys: readonly string[]) => {
    const { promise, resolve, reject } = Promise.withResolvers<readonly string[]>();
    const end = (error?: Error) => (error === undefined ? resolve(keys) : reject(error));
    batches.push({ keys, end });
    return promise;
  };
  const batcher = new Batcher<string, string>(run, perKeyMax, {
    operationsMax: 2_048,
    bytesMax: 8 * mib,
    runningMax,
    turnsMax,
  });
  const put = (given: string, { bytes = 0, key = "" } = {}) => batcher.add({ given, bytes, key });
  return { batcher, batches, put };
}

test("a batch begins at the end of the turn, with all that the turn brought", async () => {
  const { batches, put } = heldBatches();
  void put("a");
  void put("b");
  expect(batches).toEqual([]);
  await turns(2);
  expect(batches.map(({ keys }) => keys)).toEqual([["a", "b"]]);
});

test("a batch waits for a few further turns while each brings four", async () => {
  const { batches, put } = heldBatches({ turnsMax: 2 });
  const sizesAfter = async (brought: readonly number[]) => {
    for (const count of brought) {
      for (let n = 0; n < count; n++) void put("a");
      await turns(1);
    }
    const { length } = batches;
    await turns(3);
    batches.at(-1)!.end();
    return [length, batches.at(-1)!.keys.length];
  };
  expect(await sizesAfter([3])).toEqual([1, 3]);
  expect(await sizesAfter([4, 4, 1])).toEqual([2, 9]);
  // It still waited after one turn.
  expect(await sizesAfter([4])).toEqual([2, 4]);
  // The third turn is the last one, whatever it brings.
  expect(await sizesAfter([4, 4, 4])).toEqual([4, 12]);
});

test("a batch of 64 waits for no further turn", async () => {
  const { batches, put } = heldBatches({ turnsMax: 4 });
  for (let n = 0; n < 63; n++) void put("a");
  await turns(1);
  expect(batches).toHaveLength(0);
  for (let n = 0; n < 4; n++) void put("a");
  await turns(1);
  expect(batches.map(({ keys }) => keys.length)).toEqual([67]);
});

test("what arrives while a batch is under way goes into the next one, together", async () => {
  const { batcher, batches, put } = heldBatches();
  const first = put("a");
  await turns();
  const later: Promise<string>[] = [];
  for (const key of ["b", "c", "d"]) {
    later.push(put(key));
    await turns(1);
  }
  expect(batches.length).toBe(1);
  batches[0]!.end();
  expect([await first, batcher.isIdle]).toEqual(["a", false]);
  await turns();
  expect(batches.map(({ keys }) => keys)).toEqual([["a"], ["b", "c", "d"]]);
  batches[1]!.end();
  expect(await Promise.all(later)).toEqual(["b", "c", "d"]);
  await turns();
  expect(batcher.isIdle).toBe(true);
});

test("what is too much for one batch goes into the next ones", async () => {
  const { batches, put } = heldBatches();
  for (let n = 0; n < 3_000; n++) void put(`${n}`);
  await turns();
  batches[0]!.end();
  await turns();
  expect(batches.map(({ keys }) => keys.length)).toEqual([2_048, 952]);
  batches[1]!.end();
  for (const key of ["a", "b", "c"]) void put(key, { bytes: 5 * mib });
  await turns();
  batches[2]!.end();
  await turns();
  expect(batches.slice(2).map(({ keys }) => keys)).toEqual([["a"], ["b"]]);
});

test("so many of one key go together, and the others wait in their order", async () => {
  const { batches, put } = heldBatches({ perKeyMax: 1, runningMax: 2 });
  for (const given of ["a1", "a2", "b1", "a3"]) void put(given, { key: given.charAt(0) });
  await turns();
  expect(batches.map(({ keys }) => keys)).toEqual([["a1", "b1"], ["a2"]]);
  batches[0]!.end();
  await turns();
  expect(batches.at(-1)?.keys).toEqual(["a3"]);
});

test("what waits is bounded in number and bytes, and free again once its batch begins", async () => {
  const { put } = heldBatches();
  const refusal = (given: Promise<string>) => given.catch((error: unknown) => error);
  void put("a", { bytes: 60 * mib });
  expect(await refusal(put("b", { bytes: 60 * mib }))).toMatchObject({ code: "unavailable" });
  await turns();
  void put("c", { bytes: 60 * mib });
  for (let n = 0; n < 4_095; n++) void put(`${n}`);
  expect(await refusal(put("more"))).toMatchObject({ code: "unavailable" });
});

test("a failed batch is an error for all that it held, and the next goes on", async () => {
  const { batches, put } = heldBatches();
  const both = [put("a"), put("b")];
  await turns();
  batches[0]!.end(new Error("the disk is gone"));
  for (const one of await Promise.allSettled(both)) expect(one.status).toBe("rejected");
  const next = put("c");
  await turns();
  batches[1]!.end();
  expect(await next).toBe("c");
});

test("a batch may be filled to the last byte, and no further", async () => {
  const { batches, put } = heldBatches();
  void put("a", { bytes: 5 * mib });
  void put("b", { bytes: 3 * mib });
  void put("c", { bytes: 1 });
  await turns(2);
  expect(batches.map(({ keys }) => keys)).toEqual([["a", "b"]]);
});
