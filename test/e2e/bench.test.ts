/**
 * The benchmark comparison fails when a ratio has fallen: the comparison by itself, and the command
 * that CI runs. And the laws of the model of cells (`bench/cells.ts`).
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CellsOptions, cellsDefaults, simulate } from "../../bench/cells.ts";
import { findFallen, keptShares } from "../../bench/report.ts";

describe("findFallen", () => {
  const baseline = { store: 0.4, decode: 0.8 };

  test("a ratio may be a tenth below its baseline, or a quarter elsewhere, and no more", () => {
    const { same, other } = keptShares;
    expect(findFallen({ store: 0.4 * other, decode: 2 }, baseline, other)).toEqual([]);
    expect(findFallen({ store: 0.4 * same, decode: 2 }, baseline, same)).toEqual([]);
    expect(findFallen({ store: 0.29, decode: 0.8 }, baseline, other)).toEqual([
      "store: 0.29, and the baseline is 0.4",
    ]);
    expect(findFallen({ store: 0.355, decode: 0.8 }, baseline, same)).toEqual([
      "store: 0.355, and the baseline is 0.4",
    ]);
  });

  test("what was not measured, and what has no baseline, is named", () => {
    expect(findFallen({ decode: 0.8 }, baseline, 0.75)).toEqual(["store: not measured"]);
    expect(findFallen({ store: 0.4, decode: 0.8, other: 1 }, baseline, 0.75)).toEqual([
      "other: no baseline",
    ]);
  });
});

describe("the command that CI runs", () => {
  const folder = mkdtempSync(join(tmpdir(), "waypost-bench-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  const root = join(import.meta.dir, "..", "..");

  async function run(ratio: number): Promise<{ code: number; output: string; errors: string }> {
    const file = join(folder, `${ratio}.json`);
    writeFileSync(
      file,
      JSON.stringify({ hotPaths: { "SCALE payload encode / @polkadot codec": ratio } }),
    );
    const args = [
      "bench/run.ts",
      "--short",
      "--json",
      "--only",
      "SCALE payload encode",
      "--baseline",
      file,
    ];
    const child = Bun.spawn([process.execPath, ...args], {
      cwd: root,
      stdout: "pipe",
      stderr: "pipe",
    });
    const [output, errors] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
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

describe("cells on paper", () => {
  const few: CellsOptions = {
    ...cellsDefaults,
    cells: 20,
    recipients: 20_000,
    secondShare: 0.25,
    followed: 20_000,
  };

  test("one seed gives one result, and another seed another", () => {
    const one = simulate(few);
    expect(simulate(few)).toEqual(one);
    expect(simulate({ ...few, seed: 2 }).spread).not.toEqual(one.spread);
  });

  test("a lost cell touches its own recipients and no others, and a second cell is what helps", () => {
    for (const seed of [1, 2, 3]) {
      const { spread, lost, hottest, refusedShare } = simulate({ ...few, seed });
      expect(spread.recipients.min).toBeGreaterThan(0);
      for (const { recipientsShare, messagesShare, messagesFailingShare, recipientsWithSecond } of [
        lost.busiest,
        lost.median,
      ]) {
        expect(recipientsShare * few.recipients).toBeLessThanOrEqual(spread.recipients.max);
        expect(messagesFailingShare).toBeLessThan(messagesShare);
        expect(recipientsWithSecond).toBeGreaterThan(0);
      }
      expect(lost.median.messagesShare).toBeLessThanOrEqual(lost.busiest.messagesShare);
      expect(hottest.shareOfAll).toBeGreaterThan(0.05);
      expect(refusedShare).toBe(0);
    }
    const { lost: alone } = simulate({ ...few, secondShare: 0 });
    expect(alone.busiest.messagesFailingShare).toBe(alone.busiest.messagesShare);
  });

  test("a hot recipient is held to its rate", () => {
    const { refusedShare, takenPerSecond, sentPerSecond } = simulate({
      ...few,
      recipientPerSecond: 1,
    });
    expect(refusedShare).toBeGreaterThan(0);
    expect(takenPerSecond).toBeLessThan(sentPerSecond);
  });

  test("a move loses nothing when the old cell stays in the document for the longest life", () => {
    const { followed } = simulate(few).move;
    const [early, , , late] = Object.values(followed);
    expect(late?.lost).toBe(0);
    expect(early?.lost).toBeGreaterThan(0);
    for (const { read, expired, lost } of Object.values(followed))
      expect(read + expired + lost).toBe(few.followed);
  });

  test("the command takes its options by name and prints JSON", async () => {
    const args = [
      "bench/cells.ts",
      "--cells",
      "4",
      "--recipients",
      "400",
      "--followed",
      "100",
      "--second-share",
      "0.5",
    ];
    const child = Bun.spawn([process.execPath, ...args], {
      cwd: join(import.meta.dir, "..", ".."),
      stdout: "pipe",
    });
    const printed: unknown = await new Response(child.stdout).json();
    expect(printed).toEqual(
      JSON.parse(
        JSON.stringify(
          simulate({
            ...cellsDefaults,
            cells: 4,
            recipients: 400,
            followed: 100,
            secondShare: 0.5,
          }),
        ),
      ),
    );
  }, 120_000);
});
