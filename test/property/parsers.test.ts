/**
 * The parsers of untrusted input under mutation, 100,000 inputs in all; `test/campaigns/parsers.ts`
 * runs more.
 */
import { describe, expect, test } from "bun:test";
import { attack } from "../campaigns/parser-kit.ts";
import { targets } from "../campaigns/parsers.ts";

const inputs = Math.ceil(100_000 / targets.length);

describe("a parser answers or refuses, whatever comes", () => {
  test.each(targets.map((target) => [target.name, target] as const))(
    "%s",
    async (_, target) => {
      expect(target.samples.length).toBeGreaterThan(0);
      const figures = await attack(target, inputs, 1);
      expect(figures.inputs).toBe(Math.ceil(inputs / (target.oneOf ?? 1)));
      expect(figures.outcomes).toBeGreaterThan(1);
    },
    60_000,
  );
});

test("the attack notices a parser that throws", async () => {
  const [envelope] = targets;
  if (envelope === undefined) throw new Error("no target");
  const fragile = {
    ...envelope,
    run: (input: Uint8Array) => {
      if (input.length % 97 === 0) throw new TypeError("fragile");
      return "accepted";
    },
  };
  await expect(attack(fragile, 5_000, 1)).rejects.toThrow(/seed 1, input \d+: [0-9a-f]*$/);
});
