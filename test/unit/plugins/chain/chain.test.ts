/** The options of the chain driver: defaults, and what is refused under which name. */
import { describe, expect, test } from "bun:test";
import { chainPlugin } from "../../../../src/plugins/load.ts";

describe("options", () => {
  const least = { endpoints: ["ws://127.0.0.1:9944"], operator_key_file: "key", outbox: "outbox" };

  test("the least that is needed gets the documented defaults", () => {
    const parsed = chainPlugin.parseOptions(least);
    expect(parsed.ok && parsed.options).toMatchObject({
      lifetime_blocks: 64,
      tip: 0n,
      free_space_floor_bytes: 256 * 1024 ** 2,
    });
  });

  test("a size is a text with its unit, or bytes", () => {
    for (const size of ["1MiB", 1024 ** 2]) {
      const parsed = chainPlugin.parseOptions({ ...least, free_space_floor_bytes: size });
      expect(parsed.ok && parsed.options).toMatchObject({ free_space_floor_bytes: 1024 ** 2 });
    }
  });

  const wrong: readonly [string, Record<string, unknown>, string][] = [
    ["no endpoint", { endpoints: [] }, "endpoints"],
    ["an endpoint of another protocol", { endpoints: ["http://node"] }, "endpoints.0"],
    ["credentials in an endpoint", { endpoints: ["ws://a:b@node"] }, "endpoints.0"],
    ["a fragment in an endpoint", { endpoints: ["ws://node/#key"] }, "endpoints.0"],
    ["a key in the configuration", { operator_seed: "//Alice" }, "operator_seed"],
    ["a life that is not a power of two", { lifetime_blocks: 60 }, "lifetime_blocks"],
    ["a tip that is not a whole number", { tip: "1.5" }, "tip"],
  ];
  test.each(wrong)("%s is refused", (_, spoiled, setting) => {
    const parsed = chainPlugin.parseOptions({ ...least, ...spoiled });
    expect(parsed.ok ? [] : parsed.problems.map((problem) => problem.setting)).toEqual([setting]);
  });
});
