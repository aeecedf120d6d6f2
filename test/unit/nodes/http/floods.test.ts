/** Requests that a rate refuses: the log has some of them, and names who floods. */
import { beforeEach, expect, test } from "bun:test";
import { watchFloods } from "../../../../src/nodes/http/floods.ts";

type Line = { readonly level: string; readonly fields: unknown };
let lines: Line[] = [];
let nowMs = 0;
let due: { readonly run: () => void; readonly afterMs: number }[] = [];
const floods = () =>
  watchFloods({
    log: (level, _, fields) => lines.push({ level, fields }),
    now: () => nowMs,
    later: (run, afterMs) => due.push({ run, afterMs }),
  });
beforeEach(() => {
  [lines, due, nowMs] = [[], [], 1_000_000_000_000];
});

test("of a minute the first fifty are logged, then one of a hundred, and the next minute begins anew", () => {
  const { refused } = floods();
  const logged = (count: number) => {
    const stands = Array.from({ length: count }, () => refused("203.0.113.0/24"));
    return [stands.filter((one) => one === 1).length, stands.filter((one) => one === 100).length];
  };
  expect(logged(1_000)).toEqual([50, 10]);
  nowMs += 60_000;
  expect(logged(60)).toEqual([50, 0]);
});

test("a flood is one warn that names the network and the count, soon and then once a minute", () => {
  const { refused } = floods();
  for (let i = 0; i < 300; i++) refused("198.51.100.0/24");
  for (let i = 0; i < 11_455; i++) refused("203.0.113.0/24");
  expect(due.map(({ afterMs }) => afterMs)).toEqual([5_000]);
  nowMs += 5_000;
  due[0]?.run();
  const [times, all] = [11_455, 11_755];
  const named = { network: "203.0.113.0/24", times, all, networks: 2, seconds: 5 };
  expect(lines).toEqual([{ level: "warn", fields: named }]);
  for (let i = 0; i < 200; i++) refused("203.0.113.0/24");
  expect(due.map(({ afterMs }) => afterMs)).toEqual([5_000, 60_000]);
  nowMs += 60_000;
  due[1]?.run();
  expect(lines).toHaveLength(2);
});

test("a few clients that slow down are no flood", () => {
  const { refused } = floods();
  for (let i = 0; i < 99; i++) refused("203.0.113.0/24");
  due[0]?.run();
  expect(lines).toEqual([]);
});
