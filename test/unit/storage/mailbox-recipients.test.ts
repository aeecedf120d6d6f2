/** Texts by number that rows share, held against a list of the rows. */
import { describe, expect, test } from "bun:test";
import { TextTable } from "../../../src/storage/mailbox-recipients.ts";
import { seeded } from "../../conformance/samples.ts";

describe("a text", () => {
  test("has one number for all rows that name it, and none when no row does", () => {
    const changes: number[] = [];
    const texts = new TextTable((number) => void changes.push(number));
    const first = texts.add("new net:a");
    expect(texts.add("new net:a")).toBe(first);
    expect(texts.add("net:a new")).not.toBe(first);
    expect([texts.at(first), texts.find("new net:a"), texts.has(first)]).toEqual([
      "new net:a",
      first,
      true,
    ]);
    texts.release(first);
    expect(texts.find("new net:a")).toBe(first);
    texts.release(first);
    expect([texts.find("new net:a"), texts.has(first)]).toEqual([undefined, false]);
    expect(changes).toEqual([0, 1, 0]);
  });

  test("is kept for as long as a row names it, whatever comes and goes beside it, also across loading", () => {
    let texts = new TextTable(() => {});
    const rows: { readonly text: string; readonly number: number }[] = [];
    const random = seeded(7);
    const below = (n: number) => Math.floor(random() * n);
    for (let step = 0; step < 5_000; step++) {
      if (below(2) === 0 || rows.length === 0) {
        const text = `l${below(150)}`;
        rows.push({ text, number: texts.add(text) });
      } else {
        const [gone] = rows.splice(below(rows.length), 1);
        texts.release(gone!.number);
      }
      const row = rows[below(Math.max(rows.length, 1))];
      if (row !== undefined)
        expect([texts.at(row.number), texts.find(row.text)]).toEqual([row.text, row.number]);
      if (step % 1_000 === 999) texts = loaded(texts, rows);
    }
    for (const { number } of rows) texts.release(number);
    // Numbers are used again: as many as were in use at one time at most.
    expect(texts.add("fresh")).toBeLessThan(151);
  });

  function loaded(from: TextTable, rows: readonly { readonly number: number }[]): TextTable {
    const texts = new TextTable(() => {});
    const all = [...from.slice(0, 1_000).entries()].flatMap(([n, text]) =>
      text === undefined ? [] : [[n, text] as const],
    );
    for (const [number, text] of all) texts.load(number, text);
    // What no row names is not kept.
    texts.load(Math.max(...all.map(([number]) => number)) + 1, "nobody's");
    for (const { number } of rows) texts.loadUser(number);
    texts.finishLoading();
    expect(texts.find("nobody's")).toBeUndefined();
    return texts;
  }

  test("that is missing while rows name it is damage", () => {
    const texts = new TextTable(() => {});
    texts.load(1, "one");
    expect(() => texts.loadUser(0)).toThrow("text number 0");
  });
});
