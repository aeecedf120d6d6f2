/**
 * A short compact text is read by its length alone, any other by a scan: both say the same of every
 * text. Without any one of its guards the first way is found. `JSON_TEXTS=10000000` tries more
 * texts; one that fails is printed.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { readJson } from "../../src/core/codec/json.ts";
import { createRandom } from "../campaigns/parser-kit.ts";
import { disagreement, nextBytes } from "../support/json-ways.ts";

const texts = Number(process.env["JSON_TEXTS"] ?? 50_000);
const seed = 20_261_129;

/**
 * What is written shorter than it is shown, so that a text is as long as its tree although a member
 * is dropped.
 */
const hiding = [
  '{"":0,"":1e7}',
  '{"":0,"":1E7}',
  '{"a":{"":0,"":-1e7}}',
  '{"":0,"":1e-6,"a":1e-3}',
  '{"":0,"":1e20,"a":1}',
].map(utf8);

/** The first of so many texts of which the two ways don't say the same; `null` without one. */
function firstFinding(read: typeof readJson, most: number): string | null {
  const dice = createRandom(seed);
  for (let i = 0; i < most; i++) {
    const bytes = hiding[i] ?? nextBytes(dice);
    const found = disagreement(read, bytes, i % 2 === 0 ? null : "payload");
    if (found !== null) return `${new TextDecoder().decode(bytes)}\n${found}`;
  }
  return null;
}

test(`both ways say the same of ${texts} texts`, () => {
  expect(firstFinding(readJson, texts)).toBeNull();
}, 3_600_000);

describe("without a guard the ways differ", () => {
  const source = join(import.meta.dir, "..", "..", "src", "core", "codec", "json.ts");
  const folder = mkdtempSync(join(tmpdir(), "waypost-json-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const guards = [
    ["length of the text", "text.length > plainCharsMax", "false"],
    ["names at the root", "value === undefined || hasPrototypeName(value)", "value === undefined"],
    ["length of the tree", "plainLength(value, 1) === text.length", "plainLength(value, 1) > 0"],
    ["depth", "if (depth > jsonDepthMax) return Number.NaN;", ""],
    ["__proto__", 'if (name === "__proto__") return Number.NaN;', ""],
    ["integers", "Number.isInteger(value) && Math.abs", "Math.abs"],
    ["size of numbers", " && Math.abs(value) < 1_000", ""],
  ] as const;

  test.each(guards)(
    "%s",
    async (name, guard, without) => {
      const text = readFileSync(source, "utf8");
      expect(text.split(guard)).toHaveLength(2);
      const whole = text
        .replace(guard, without)
        .replaceAll(
          /from "(\.[^"]+)"/g,
          (_, path: string) => `from ${JSON.stringify(join(source, "..", path))}`,
        );
      const path = join(folder, `${name.replaceAll(" ", "-")}.ts`);
      writeFileSync(path, whole);
      const { readJson: broken } = (await import(path)) as { readJson: typeof readJson };
      expect(firstFinding(broken, 200_000)).not.toBeNull();
    },
    120_000,
  );
});
