/**
 * Lies that end, in the virtual world, and what they leave behind: nothing. A nonce that is too
 * high for some seconds, with no later call to fill the gap; a body that is the root node of its
 * trie. Then the canaries: each takes one rule out of the driver again, and its schedule must find
 * that.
 */
import { describe, expect, test } from "bun:test";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { blake2b256 } from "../../src/core/codec/crypto.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { SubmissionPool } from "../../src/plugins/chain/pool.ts";
import { isRootOf } from "../../src/plugins/chain/trie.ts";
import { times } from "../support/whole.ts";
import { believeBodies, replace } from "./virtual-replace.ts";
import { runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";
import { isClean, type Verdict } from "./virtual-verdict.ts";

const minuteMs = 60_000;

/**
 * 64 blocks, in which an extrinsic above a gap outlives, and some in which its call is signed
 * again.
 */
const outlivedMsMax = 384_000 + 2 * minuteMs;

/** What is wrong, if anything. */
function flawsOf(verdict: Verdict, calls: number, waitMsMax: number): readonly unknown[] {
  const { accepted, waits, stuck, notes } = verdict;
  const slowestMs = Math.max(...waits.map(({ waitMs }) => waitMs));
  return [
    ...(isClean(verdict) ? [] : [stuck, ...notes.slice(-3)]),
    ...(accepted >= calls ? [] : [{ accepted }]),
    ...(slowestMs < waitMsMax ? [] : [{ slowestMs }]),
  ];
}

const signers = 5;
/**
 * Of the node in use, from just before the calls until twenty seconds after, and no call comes
 * later.
 */
const wrongNonce = (endpoints: number): ScheduleOptions => ({
  calls: signers,
  endpoints,
  callsFromMs: 3 * minuteMs,
  callsUntilMs: 3 * minuteMs + 4_000,
  lasting: [
    {
      node: 0,
      fault: "nonce",
      nonceAhead: 1_000,
      fromMs: 3 * minuteMs - 13_000,
      untilMs: 3 * minuteMs + 7_000,
    },
  ],
});

async function flawsIn(options: ScheduleOptions, waitMsMax: number): Promise<readonly unknown[]> {
  const flaws: unknown[] = [];
  for (let seed = 1; seed <= times(3, 6); seed++) {
    const verdict = await runSchedule(seed, options);
    flaws.push(...flawsOf(verdict, options.calls, waitMsMax));
  }
  return flaws;
}

/**
 * As it was before the agreed head decided, and before a gap had to be closed by those above it.
 */
const headOfOne = () =>
  replace(Endpoints.prototype, {
    nonce(this: Endpoints) {
      return this.session().head.nonce;
    },
  });
const signAboveGaps = () => replace(SubmissionPool.prototype, { isAboveGap: () => false });

async function withBoth<T>(undo: readonly (() => void)[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } finally {
    for (const one of undo) one();
  }
}

describe("a nonce that is 1,000 too high for twenty seconds, and no later call", () => {
  test.each([2, 3])("delays no call of %i endpoints", async (endpoints) => {
    expect(await flawsIn(wrongNonce(endpoints), 2 * minuteMs)).toEqual([]);
  });

  test("of the only endpoint delays calls by one life", async () => {
    expect(await flawsIn(wrongNonce(1), outlivedMsMax)).toEqual([]);
  });

  test("would delay them with three if one endpoint decided, and the gap would close", async () => {
    const flaws = (waitMsMax: number) => flawsIn(wrongNonce(3), waitMsMax);
    expect(await withBoth([headOfOne()], () => flaws(outlivedMsMax))).toEqual([]);
    expect(await withBoth([headOfOne()], () => flaws(2 * minuteMs))).not.toEqual([]);
  });

  test("would delay them life after life if they were signed again above the gap", async () => {
    const undo = [headOfOne(), signAboveGaps()];
    const flaws = () => flawsIn(wrongNonce(3), outlivedMsMax);
    expect(await withBoth(undo, flaws)).not.toEqual([]);
  });
});

/** Of the only endpoint, before anything was final, and honest again. */
const highHead: ScheduleOptions = {
  calls: signers,
  endpoints: 1,
  callsFromMs: 2 * minuteMs,
  callsUntilMs: 3 * minuteMs,
  lasting: [{ node: 0, fault: "head", fromMs: minuteMs, untilMs: 4 * minuteMs }],
};

test("a head of an only endpoint that is 1,000 blocks too high delays no call once it is over", async () => {
  expect(await flawsIn(highHead, 4 * minuteMs)).toEqual([]);
});

/** Of the only endpoint, and honest again. */
const hiding = (fault: "swallows" | "nonce" | "records"): ScheduleOptions => ({
  calls: signers,
  endpoints: 1,
  callsFromMs: 2 * minuteMs,
  callsUntilMs: 4 * minuteMs,
  lasting: [{ node: 0, fault, nonceAhead: 1_000, fromMs: minuteMs, untilMs: 31 * minuteMs }],
});
/** Lost, doubled, said wrongly, or waiting: without the reads, which an only endpoint decides. */
async function callFlawsIn(options: ScheduleOptions): Promise<readonly string[]> {
  const { lost, doubled, falselyEnded, stuck } = await runSchedule(1, options);
  const flaws = Object.entries({ lost, doubled, falselyEnded, stuck });
  return flaws.filter(([, count]) => count > 0).map(([name]) => name);
}

describe("an only endpoint that for half an hour", () => {
  test.each(["swallows", "nonce", "records"] as const)("%s drops no call", async (fault) => {
    expect(await callFlawsIn(hiding(fault))).toEqual([]);
  });

  test("hides blocks and records leaves calls pending for as long as it does", async () => {
    const { lasting = [], ...others } = hiding("records");
    const forGood = lasting.map(({ untilMs: _, ...one }) => one);
    const options = { ...others, endMs: 90 * minuteMs, lasting: forGood };
    expect(await callFlawsIn(options)).toEqual(["stuck"]);
  });

  test.each([
    ["swallows", "lost"],
    ["records", "falselyEnded"],
  ] as const)("%s would end calls if one endpoint were enough", async (fault, flaw) => {
    const witnessed = Object.getOwnPropertyDescriptor(Endpoints.prototype, "isWitnessed")!;
    Object.defineProperty(Endpoints.prototype, "isWitnessed", { ...witnessed, get: () => true });
    try {
      expect(await callFlawsIn(hiding(fault))).toEqual([flaw]);
    } finally {
      Object.defineProperty(Endpoints.prototype, "isWitnessed", witnessed);
    }
  });
});

/** For five minutes, in which clients register, and honest again. */
const rootNodeBodies = (endpoints: number): ScheduleOptions => ({
  calls: signers,
  endpoints,
  names: true,
  callsFromMs: 3 * minuteMs,
  callsUntilMs: 4 * minuteMs,
  lasting: [{ node: 0, fault: "root node", fromMs: 2 * minuteMs, untilMs: 7 * minuteMs }],
});

async function unprovenIn(options: ScheduleOptions): Promise<number> {
  const verdict = await runSchedule(1, options);
  expect(isClean(verdict) ? [] : verdict.notes.slice(-3)).toEqual([]);
  return verdict.unprovenAtEnd;
}

describe("a body that is the root node of its trie", () => {
  test.each([1, 2, 3])("hides no call from %i endpoints", async (endpoints) => {
    expect(await unprovenIn(rootNodeBodies(endpoints))).toBe(0);
  });

  test("would hide them if all extrinsics in a row had the root of the header", async () => {
    const inARow = (root: string, extrinsics: readonly Uint8Array[]) =>
      isRootOf(root, extrinsics) || encodeHex0x(blake2b256(Buffer.concat(extrinsics))) === root;
    const undo = [believeBodies(inARow)];
    const { unprovenAtEnd } = await withBoth(undo, () => runSchedule(1, rootNodeBodies(1)));
    expect(unprovenAtEnd).toBeGreaterThan(0);
  });
});
