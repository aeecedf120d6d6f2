/**
 * The world of `test/model/own-evidence.ts` for some seconds: whatever a Directory shows to which
 * own device, at the end all of them believe the same of a person, and so does one that is linked
 * later or restored. Rules with a planted defect must be found.
 */
import { expect, test } from "bun:test";
import { type Rules, realRules, runSchedule } from "../model/own-evidence.ts";
import { times } from "../support/whole.ts";

const schedules = times(24, 300);

test(`${schedules} schedules end with all own devices believing the same of a person`, async () => {
  const wrong: string[] = [];
  for (let from = 0; from < schedules; from++)
    for (const what of await runSchedule(from)) wrong.push(`seed ${from}: ${what}`);
  expect(wrong).toEqual([]);
});

const isFirst = <T>(_: T, i: number): boolean => i === 0;
const defects: Readonly<Record<string, Partial<Rules>>> = {
  "what another device has seen is a verdict": { examines: false },
  "devices that have seen contradicting keys go on believing their own": {
    contradict: async () => undefined,
  },
  "what a Directory shows at that moment counts as another device's word": {
    hear: (trust, did, bytes) => trust.prove(did, bytes),
  },
  "a device passes on one of two proofs that contradict": {
    passes: (rows) => rows.filter(isFirst),
  },
  "a backup has one of two proofs that contradict": { saves: (rows) => rows.filter(isFirst) },
  "what was seen of who was a stranger then is lost": { recalls: false },
  "a backup has no evidence": { saves: () => [] },
};

/** Near the first schedule that shows it, of those that few show. */
const firstSeeds: Readonly<Record<string, number>> = {
  "what a Directory shows at that moment counts as another device's word": 1_030,
};

for (const [what, rules] of Object.entries(defects))
  test(`the world finds that ${what}`, async () => {
    let found: readonly string[] = [];
    const first = firstSeeds[what] ?? 0;
    for (let from = first; from < first + 100 && found.length === 0; from++)
      found = await runSchedule(from, { ...realRules, ...rules });
    expect(found).not.toEqual([]);
  });
