/**
 * Reports on the operator's machine: on disk and sealed until they are closed, and bounded for each
 * reporter.
 */
import { afterEach, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  KeptReports,
  keptPerReporter,
  type SignedReport,
} from "../../src/cli/files/kept-reports.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { scratchFolder } from "../support/executable.ts";

const folder = scratchFolder();
const path = join(folder.path, "reports.sqlite");
const storeKey = new Uint8Array(32).fill(7);
const [alice, bob, mallory] = ["anne", "bob", "mary"].map(
  (name) => `did:svc:${name.padEnd(20, "1")}` as Did,
);
if (!alice || !bob || !mallory) throw new Error("people are missing");

const signed = (number: number, reporter: Did, words = "an insult"): SignedReport => ({
  id: `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`,
  reporter,
  sentMs: 1_790_000_000_000 + number,
  report: {
    reason: `reason ${number}`,
    messages: [
      {
        id: "m",
        from: mallory,
        sentMs: 1_790_000_000_000,
        group: null,
        name: "",
        mediaType: "text/plain",
        sizeBytes: words.length,
        data: new TextEncoder().encode(words),
        authorship: null,
      },
    ],
  },
});

let kept: KeptReports | null = null;
const open = async (): Promise<KeptReports> => {
  await kept?.close();
  kept = await KeptReports.open(path, storeKey);
  return kept;
};
afterEach(async () => {
  await kept?.close();
  kept = null;
  folder.remove();
});

test("a report is there until it is closed, as it came, for the key of its identity alone", async () => {
  const first = await open();
  expect(await first.add(signed(2, alice))).toBe(true);
  expect(await first.add(signed(1, bob))).toBe(true);
  const [theirs, other] = await (await open()).list();
  if (theirs === undefined || other === undefined || kept === null) throw new Error("it is gone");
  expect([theirs.reporter, other.reporter]).toEqual([bob, alice]);
  expect(theirs).toMatchObject({ count: 1, authors: [mallory], reason: "reason 1" });
  expect(await kept.reportOf(theirs)).toEqual(signed(1, bob).report);
  await kept.remove([theirs]);
  expect((await (await open()).list()).map(({ reporter }) => reporter)).toEqual([alice]);
  await kept.close();
  for (const name of readdirSync(folder.path)) {
    const bytes = readFileSync(join(folder.path, name), "latin1");
    for (const secret of [alice, bob, mallory, "an insult", "reason"])
      expect([name, bytes.includes(secret)]).toEqual([name, false]);
  }
  await KeptReports.open(path, new Uint8Array(32).fill(8)).then(async (strange) => {
    expect(await strange.list()).toEqual([]);
    await strange.close();
  });
});

test("a report that comes again is one; another one under its id is another", async () => {
  const reports = await open();
  for (const one of [signed(1, bob), signed(1, bob), signed(1, bob, "a threat"), signed(1, alice)])
    expect(await reports.add(one)).toBe(true);
  expect(await reports.list()).toHaveLength(3);
  expect(await (await open()).list()).toHaveLength(3);
});

test("of one reporter so many are open; the others of all have room", async () => {
  const reports = await open();
  for (let i = 0; i < keptPerReporter; i++) expect(await reports.add(signed(i, bob))).toBe(true);
  expect(await reports.add(signed(keptPerReporter, bob))).toBe(false);
  expect(await reports.add(signed(0, bob))).toBe(true);
  expect(await reports.add(signed(0, alice))).toBe(true);
  await reports.remove((await reports.list()).slice(0, 1));
  expect(await reports.add(signed(keptPerReporter, bob))).toBe(true);
});

test("a second command at once is refused until the first one is over", async () => {
  const first = await open();
  await expect(KeptReports.open(path, storeKey)).rejects.toMatchObject({ code: "busy" });
  await first.close();
  expect(await (await open()).list()).toEqual([]);
});
