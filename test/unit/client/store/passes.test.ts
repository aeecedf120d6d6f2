/** Which of two passes of one person is kept. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { keyOfPass } from "../../../../src/client/store/keys.ts";
import { type PassRow, putPass } from "../../../../src/client/store/passes.ts";
import { Table } from "../../../../src/client/store/table.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { makePass, passPeriod, renderPass } from "../../../../src/core/message/pass.ts";

const did = "did:svc:3vQB7B6MrGQZaxCuFg4oh1" as Did;
const keys = { secret: new Uint8Array(32).fill(1), namingKey: new Uint8Array(32).fill(2) };
const given = (nowMs: number, by = keys): PassRow => ({
  did,
  pass: renderPass(makePass(by, did, passPeriod(nowMs))),
});
const autumn = Date.UTC(2026, 10, 28);
const winter = Date.UTC(2027, 0, 28);

async function keptOf(...rows: readonly PassRow[]): Promise<string | undefined> {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  for (const row of rows) await table.change((batch) => putPass(table, batch, row, autumn));
  return (await table.get<PassRow>(keyOfPass(table, did)))?.pass;
}

test("the one that counts for longer is kept, whichever came first", async () => {
  const [early, late] = [given(autumn), given(winter)];
  expect(await keptOf(early, late)).toBe(late.pass);
  expect(await keptOf(late, early)).toBe(late.pass);
});

test("of two of one quarter the one that came last is kept, and what is not a pass replaces none", async () => {
  const first = given(autumn);
  const afterNewKeys = given(autumn, { ...keys, secret: new Uint8Array(32).fill(3) });
  expect(await keptOf(first, afterNewKeys)).toBe(afterNewKeys.pass);
  expect(await keptOf(afterNewKeys, first)).toBe(first.pass);
  expect(await keptOf(first, { did, pass: "not a pass" })).toBe(first.pass);
});

test("a pass that counts for longer than any that is given now is not taken, and one that is held gives way", async () => {
  const [real, made] = [given(autumn), given(Date.UTC(2140, 0, 1))];
  expect(await keptOf(real, made)).toBe(real.pass);
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  const later = Date.UTC(2140, 0, 2);
  await table.change((batch) => putPass(table, batch, made, later));
  await table.change((batch) => putPass(table, batch, real, autumn));
  expect(await table.get<PassRow>(keyOfPass(table, did))).toEqual(real);
});
