/** How many threads a node answers with, by its settings and its machine. */
import { describe, expect, test } from "bun:test";
import { parseQuota, threadCount } from "../../../src/app/workers.ts";
import { checkConfig } from "../../../src/config/config.ts";
import type { ConfigInput } from "../../../src/config/schema.ts";

function countOf(server: NonNullable<ConfigInput["server"]>, cores: number): { count: number; lines: string[] } {
  const checked = checkConfig({ server, directory: { enabled: true } });
  if (!checked.ok) throw new Error(JSON.stringify(checked.problems));
  const lines: string[] = [];
  return { count: threadCount(checked.config, (_, message) => lines.push(message), cores), lines };
}

describe.if(process.platform === "linux")("the number of threads", () => {
  const listen = ["127.0.0.1:7400"];

  test("is one for each core, and is bounded", () => {
    const counts = [1, 2, 3, 4, 8, 9, 64].map((cores) => countOf({ listen }, cores).count);
    expect(counts).toEqual([1, 2, 3, 4, 8, 8, 8]);
  });

  test("is the setting's where there is one", () => {
    expect(countOf({ listen, workers: 4 }, 1).count).toBe(4);
    expect(countOf({ listen, workers: 1 }, 64).count).toBe(1);
  });

  test("is one at a Unix socket alone, which is said only to those who asked for more", () => {
    const unix = { listen: ["unix:/run/waypost.sock"] };
    expect(countOf(unix, 8)).toEqual({ count: 1, lines: [] });
    expect(countOf({ ...unix, workers: 2 }, 8)).toEqual({ count: 1, lines: ["the node runs without workers"] });
  });
});

test("a container's quota is whole cores, and at least one", () => {
  const lines = ["max 100000\n", "200000 100000\n", "350000 100000", "50000 100000", "", "nonsense"];
  expect(lines.map(parseQuota)).toEqual([null, 2, 3, 1, null, null]);
});
