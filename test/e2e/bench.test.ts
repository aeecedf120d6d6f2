/** That a benchmark fails when a ratio has fallen: the comparison by itself, and the command that CI runs. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findFallen, keptShare } from "../../bench/report.ts";

describe("findFallen", () => {
  const baseline = { store: 0.4, decode: 0.8 };

  test("a ratio may be a quarter below its baseline, and no more", () => {
    expect(findFallen({ store: 0.4 * keptShare, decode: 2 }, baseline)).toEqual([]);
    expect(findFallen({ store: 0.29, decode: 0.8 }, baseline)).toEqual(["store: 0.29, and the baseline is 0.4"]);
  });

  test("what was not measured, and what has no baseline, is named", () => {
    expect(findFallen({ decode: 0.8 }, baseline)).toEqual(["store: not measured"]);
    expect(findFallen({ store: 0.4, decode: 0.8, other: 1 }, baseline)).toEqual(["other: no baseline"]);
  });
});

describe("the command that CI runs", () => {
  const folder = mkdtempSync(join(tmpdir(), "waypost-bench-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const root = join(import.meta.dir, "..", "..");

  async function run(ratio: number): Promise<{ code: number; output: string; errors: string }> {
    const file = join(folder, `${ratio}.json`);
    writeFileSync(file, JSON.stringify({ hotPaths: { "SCALE payload encode / @polkadot codec": ratio } }));
    const args = ["bench/run.ts", "--short", "--json", "--only", "SCALE payload encode", "--baseline", file];
    const child = Bun.spawn([process.execPath, ...args], { cwd: root, stdout: "pipe", stderr: "pipe" });
    const [output, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
    return { code: await child.exited, output, errors };
  }

  test("ends with 0 when nothing has fallen, and reports machine, commit and ratios", async () => {
    const { code, output } = await run(0.001);
    const answer = JSON.parse(output) as Record<string, unknown>;
    expect([code, answer["fallen"]]).toEqual([0, []]);
    expect(answer["machine"]).toMatchObject({ system: `${process.platform} ${process.arch}` });
    expect(Object.keys(answer["ratios"] as object)).toHaveLength(1);
    expect(answer).toHaveProperty("commit");
  }, 120_000);

  test("ends with 1 when a ratio has fallen, and names it", async () => {
    const { code, errors } = await run(1_000);
    expect(code).toBe(1);
    expect(errors).toContain("FALLEN SCALE payload encode / @polkadot codec: ");
  }, 120_000);
});
