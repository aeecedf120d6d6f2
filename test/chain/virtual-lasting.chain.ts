/**
 * Faults that stay, in the virtual world: one of two or three endpoints stands still, is gone, or
 * does one thing wrong for good, the one in use or another one; and a clock that was wrong. Every
 * call ends right, in about the time that one honest endpoint would need, and an outage is one line
 * of the log. Then the canaries: each takes one rule out of the driver again, and its schedule must
 * find that.
 */
import { describe, expect, test } from "bun:test";
import { Connections } from "../../src/plugins/chain/connections.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { Submissions } from "../../src/plugins/chain/submissions.ts";
import { times } from "../support/whole.ts";
import {
  believeBodies,
  methodOf,
  ownValues,
  replace,
  replaceAnchor,
  signUnseen,
  submitToOne,
} from "./virtual-replace.ts";
import { type Lasting, runSchedule, type ScheduleOptions } from "./virtual-schedule.ts";
import { isClean, type Verdict } from "./virtual-verdict.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const calls = 20;
/**
 * Ten minutes without a second endpoint, one round of 16 blocks with a node that includes nothing,
 * and what follows.
 */
const waitMsMax = 20 * minuteMs;
/** An outage of an endpoint is one line, whatever it leads to. */
const linesMax = 1;

const plain: readonly Lasting["fault"][] = [
  "stands",
  "gone",
  "silent",
  "swallows",
  "bans",
  "body",
  "head",
  "keys",
  "block",
  "genesis",
  "garbage",
  "hash",
];
/** Of two endpoints that disagree about a state, neither is known to be right: no call ends. */
const ofThree: readonly Lasting["fault"][] = [...plain, "version", "nonce"];
const places = [2, 3].flatMap((endpoints) =>
  (endpoints === 2 ? plain : ofThree).flatMap((fault) =>
    [0, 1].map((node) => ({ endpoints, fault, node })),
  ),
);

const run = (options: Omit<ScheduleOptions, "calls">, seed = 1) =>
  runSchedule(seed, { endMs: 3 * hourMs, calls, ...options });
/** What is wrong, if anything. */
function flawsOf(verdict: Verdict, most = linesMax): readonly unknown[] {
  const { accepted, waits, lines, notes } = verdict;
  const slowestMs = Math.max(...waits.map(({ waitMs }) => waitMs));
  return [
    ...(isClean(verdict) ? [] : [notes.slice(-3)]),
    ...(accepted >= calls ? [] : [{ accepted }]),
    ...(slowestMs < waitMsMax ? [] : [{ slowestMs }]),
    ...(lines <= most ? [] : [{ lines }]),
  ];
}

describe("one endpoint for good", () => {
  test.each(places)("of $endpoints: $fault, at place $node", async ({ endpoints, fault, node }) => {
    expect(flawsOf(await run({ endpoints, lasting: [{ node, fault }] }))).toEqual([]);
  });

  test("of two that contradicts the other ends nothing, and says so", async () => {
    const verdict = await run({ endpoints: 2, lasting: [{ node: 1, fault: "nonce" }] });
    expect([verdict.lost, verdict.doubled, verdict.falselyEnded]).toEqual([0, 0, 0]);
    expect(verdict.stuck).toBeGreaterThan(0);
    expect(verdict.lines).toBe(1);
  });
});

describe("an endpoint in use that lies about records and blocks", () => {
  /**
   * Without what the driver refuses: reads come from one endpoint, ends of calls do not. Of two
   * that disagree about a record, calls wait.
   */
  const wrongEnds = async (fault: Lasting["fault"], endpoints: number) => {
    const lasting = [{ node: 0, fault, fromMs: 8 * minuteMs }];
    // Of two, every call waits until the end and costs ten times as much.
    const calls = endpoints === 2 ? times(6, 40) : 200;
    const verdict = await runSchedule(1, { calls, endMs: 3 * hourMs, endpoints, lasting });
    const { lost, doubled, falselyEnded, notes } = verdict;
    const stuck = endpoints === 2 ? 0 : verdict.stuck;
    const ends = notes.filter(
      (note) => !note.startsWith("refused ") && (stuck > 0 || !/: null ,/.test(note)),
    );
    return [...ends, ...[lost, doubled, falselyEnded, stuck].filter((count) => count > 0)];
  };

  test.each([2, 3])("ends no call of %i by what it alone says", async (endpoints) => {
    expect(await wrongEnds("records", endpoints)).toEqual([]);
    expect(await wrongEnds("reasons", endpoints)).toEqual([]);
  });

  test("would end calls if its records were believed, or if its blocks were", async () => {
    // What another node takes, no refusal of this one leads to a look at the state.
    const undo = [replace(Endpoints.prototype, { values: ownValues, submit: submitToOne })];
    try {
      expect(await wrongEnds("reasons", 3)).not.toEqual([]);
      undo.push(replace(Endpoints.prototype, { firstOf: async () => null }));
      expect(await wrongEnds("records", 3)).not.toEqual([]);
    } finally {
      for (const one of undo) one();
    }
  });
});

/** Six hours ahead for ten minutes, and right after five minutes of downtime. */
const clockAhead = {
  clock: (sinceMs: number) => (sinceMs < 12 * minuteMs ? 6 * hourMs : 0),
  kill: { atMs: 10 * minuteMs, awayMs: 5 * minuteMs },
  lasting: [],
} as const;

describe("a clock", () => {
  test("that was six hours ahead and is right again does no harm", async () => {
    expect(flawsOf(await run({ endpoints: 1, ...clockAhead }))).toEqual([]);
  });

  test("that was an hour behind and is right again does no harm", async () => {
    const clock = (sinceMs: number) => (sinceMs < 10 * minuteMs ? -hourMs : 0);
    expect(flawsOf(await run({ endpoints: 2, clock, lasting: [] }), 2)).toEqual([]);
  });
});

describe("without a second endpoint", () => {
  /**
   * The calls that came after the ten minutes, far enough apart for the pool to be empty between
   * them.
   */
  const lateWaitMs = ({ waits }: Verdict) =>
    Math.max(...waits.filter(({ atMs }) => atMs > 13 * minuteMs).map(({ waitMs }) => waitMs));

  test("ten minutes are counted once, and not for each call", async () => {
    const verdict = await run({ endpoints: 2, lasting: [{ node: 1, fault: "gone" }] }, 2);
    expect(lateWaitMs(verdict)).toBeWithin(1, 3 * minuteMs);
  });

  test("many blocks that no endpoint has any more are not many waits for a silent one", async () => {
    const kill = { atMs: 12 * minuteMs, awayMs: 40 * minuteMs };
    const lasting = [{ node: 1, fault: "silent", fromMs: 13 * minuteMs }] as const;
    const verdict = await run({ endpoints: 2, keepsBodies: [8, 8, 8], lasting, kill }, 2);
    expect(isClean(verdict)).toBe(true);
    expect(Math.max(...verdict.waits.map(({ waitMs }) => waitMs))).toBeWithin(
      kill.awayMs,
      kill.awayMs + waitMsMax,
    );
  });

  test("and with the count begun again, later calls would wait again", async () => {
    const follow = methodOf<(head: unknown) => Promise<void>>(Submissions.prototype, "follow");
    type Followed = {
      readonly pool: { readonly size: number };
      readonly options: { readonly endpoints: Endpoints };
    };
    const undo = replace(Submissions.prototype, {
      follow(this: Followed, head: never) {
        if (this.pool.size === 0) Reflect.set(this.options.endpoints, "aloneSinceMs", null);
        return follow.call(this, head);
      },
    });
    try {
      expect(
        lateWaitMs(await run({ endpoints: 2, lasting: [{ node: 1, fault: "gone" }] }, 2)),
      ).toBeGreaterThan(5 * minuteMs);
    } finally {
      undo();
    }
  });
});

const liesAboutBodies = { endpoints: 2, lasting: [{ node: 0, fault: "body" }] } as const;

test("a body that is believed does no harm, because the state is asked", async () => {
  const undo = believeBodies();
  try {
    expect(flawsOf(await run(liesAboutBodies))).toEqual([]);
  } finally {
    undo();
  }
});

type Canary = {
  readonly name: string;
  readonly put: () => () => void;
  readonly schedule: Omit<ScheduleOptions, "calls">;
};

const canaries: readonly Canary[] = [
  {
    name: "a second endpoint that stands still is a witness",
    put: () => replace(Endpoints.prototype, { isBehind: () => false }),
    schedule: { endpoints: 2, lasting: [{ node: 1, fault: "stands" }] },
  },
  {
    name: "the endpoint in use may stand still",
    put: () => {
      const choose = methodOf<() => void>(Connections.prototype, "choose");
      return replace(Connections.prototype, {
        choose(this: Connections) {
          if (Reflect.get(this, "current") === null) choose.call(this);
        },
      });
    },
    schedule: { endpoints: 2, lasting: [{ node: 0, fault: "stands" }] },
  },
  {
    name: "bodies are believed, and what they don't show is signed again",
    put: () => {
      const undo = [believeBodies(), signUnseen()];
      return () => {
        for (const one of undo) one();
      };
    },
    schedule: liesAboutBodies,
  },
  {
    name: "the last final block has the time of a clock that was wrong",
    put: () => replaceAnchor((kept) => kept && { ...kept, timeMs: kept.timeMs + 6 * hourMs }),
    schedule: { endpoints: 1, ...clockAhead },
  },
  {
    name: "an outage is a line each time that an endpoint is tried",
    put: () => {
      type Options = {
        readonly options: { readonly log: (level: string, message: string) => void };
      };
      return replace(Connections.prototype, {
        logOnce(this: Options, _: never, message: string) {
          this.options.log("warn", message);
        },
      });
    },
    schedule: { endpoints: 2, lasting: [{ node: 1, fault: "stands" }] },
  },
  {
    name: "one node alone gets the calls",
    put: () => replace(Endpoints.prototype, { submit: submitToOne }),
    schedule: { endpoints: 2, lasting: [{ node: 0, fault: "swallows" }] },
  },
];

/** What a canary's schedule finds: a call that has not ended by then never does. */
const flawsSoon = async (schedule: Canary["schedule"], seed = 1) =>
  flawsOf(await run({ endMs: 75 * minuteMs, ...schedule }, seed));

/** Whether one of a few seeds finds something: in some, no call waits just then. */
async function isFound(schedule: Canary["schedule"]): Promise<boolean> {
  for (let seed = 1; seed <= 6; seed++)
    if ((await flawsSoon(schedule, seed)).length > 0) return true;
  return false;
}

describe("a schedule finds the fault", () => {
  test.each(canaries.map((canary) => [canary.name, canary] as const))(
    "%s",
    async (_, { put, schedule }) => {
      const undo = put();
      try {
        expect(await isFound(schedule)).toBe(true);
      } finally {
        undo();
      }
      expect(await flawsSoon(schedule)).toEqual([]);
    },
  );
});
