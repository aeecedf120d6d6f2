/** Answers of the chain's nodes: what is read of them, and what is refused. */
import { expect, test } from "bun:test";
import { parseObject, parseStorage } from "../../../../src/plugins/chain/rpc.ts";

test("a frame is a JSON object of a bounded length, and nothing else", () => {
  expect(parseObject('{"id":1,"result":null}')).toEqual({ id: 1, result: null });
  for (const text of ["", "{", "[]", "null", "7", '"text"', undefined, 7, new Uint8Array(2), {}])
    expect(parseObject(text)).toBeNull();
  expect(parseObject(`{"id":"${"x".repeat(64 * 1024 * 1024)}"}`)).toBeNull();
});

test("answers of storage must have every key of the block that was asked for", () => {
  const [block, other] = [`0x${"11".repeat(32)}`, `0x${"22".repeat(32)}`];
  const parse = parseStorage(["0xaa", "0xbb"], block);
  const set = (at: string, ...changes: unknown[]) => [{ block: at, changes }];
  expect(parse(set(block, ["0xbb", "0x07"], ["0xaa", null]))).toEqual([null, Uint8Array.of(7)]);
  expect(parse([])).toBeNull();
  expect(() => parse(set(block, ["0xaa", null]))).toThrow("leaves out a key");
  expect(() => parse(set(other, ["0xaa", null], ["0xbb", "0x07"]))).toThrow("another block");
  expect(() => parse(set(block))).toThrow("leaves out a key");
});
