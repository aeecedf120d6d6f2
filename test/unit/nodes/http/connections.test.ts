/** Which connections are too many: the newest of a network beyond half, and of the largest what is too much in all. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { decideSurplus, type HeldConnection } from "../../../../src/nodes/http/connections.ts";

/** Connections with growing inodes, as they came. */
function held(...counts: [string, number][]): HeldConnection[] {
  let inode = 1_000;
  return counts.flatMap(([address, count]) =>
    Array.from({ length: count }, () => ({ inode: String(inode++), address })),
  );
}

const counted = (connections: readonly HeldConnection[]) =>
  Object.fromEntries([...Map.groupBy(connections, ({ address }) => address)].map(([key, list]) => [key, list.length]));

test("one network keeps half, and its newest go", () => {
  const connections = held(["198.51.100.1", 80], ["198.51.100.2", 10]);
  const surplus = decideSurplus(connections, 100, []);
  expect(surplus.map(({ connection }) => connection)).toEqual(connections.slice(50, 80));
  expect(surplus.every(({ scope }) => scope === "network")).toBe(true);
});

test("addresses of one /64 are one network", () => {
  const connections = held(["2001:db8:0:1::1", 40], ["2001:db8:0:1::2", 40], ["2001:db8:0:2::1", 10]);
  expect(decideSurplus(connections, 100, []).length).toBe(30);
});

test("a trusted proxy and this machine count in all only", () => {
  for (const [many, trusted] of [
    ["192.0.2.1", ["192.0.2.0/24"]],
    ["192.0.2.9", ["192.0.2.9"]],
    ["127.0.0.1", []],
    ["::1", ["192.0.2.9"]],
  ] as const) {
    const connections = held([many, 90], ["198.51.100.2", 5]);
    expect(decideSurplus(connections, 100, trusted)).toEqual([]);
    const gone = decideSurplus(connections, 50, trusted).map(({ connection }) => connection);
    expect(counted(gone)).toEqual({ [many]: 45 });
  }
});

test("what is left fits, nobody small loses, and nothing goes without need", () => {
  const networks = fc.array(fc.nat(60), { minLength: 1, maxLength: 12 });
  fc.assert(
    fc.property(networks, fc.integer({ min: 12, max: 200 }), (counts, max) => {
      const connections = held(...counts.map((count, i): [string, number] => [`198.51.100.${i}`, count]));
      const gone = new Set(decideSurplus(connections, max, []).map(({ connection }) => connection));
      const kept = counted(connections.filter((connection) => !gone.has(connection)));
      const left = Object.values(kept).reduce((sum, count) => sum + count, 0);
      expect(left).toBeLessThanOrEqual(max);
      const share = Math.floor(Math.min(max / 2, max / counts.length));
      for (const [i, count] of counts.entries()) {
        expect(kept[`198.51.100.${i}`] ?? 0).toBeGreaterThanOrEqual(Math.min(count, share));
      }
      if (connections.length <= max && Math.max(...counts) <= max / 2) expect(gone.size).toBe(0);
    }),
  );
});
