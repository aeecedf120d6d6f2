/**
 * The submission pool, played as a table: events in, actions out. Each test is one law of the
 * pool's header, or one of the ways in which calls were lost before it had them.
 */
import { describe, expect, test } from "bun:test";
import {
  type Entry,
  newEntry,
  type PoolAction,
  type PoolLimits,
  type Send,
  type Signed,
  SubmissionPool,
  type Verdict,
} from "../../../../src/plugins/chain/pool.ts";

const life = 16;

/** A pool with its runner left out: what it asks for is answered by the test. */
function play(limits: Partial<PoolLimits> = {}) {
  const pool = new SubmissionPool({ resendMs: 1_000, lifetimeBlocks: life, ...limits });
  const entries = new Map<string, Entry>();
  const sends = new Map<string, Send>();
  let serial = 0;
  let nowMs = 0;
  const signedAt = (birth: number, nonce: number | null): Signed => {
    const n = serial++;
    const era = { birth: BigInt(birth), death: BigInt(birth + life) };
    const fingerprint = `call ${nonce}`;
    return { extrinsic: Uint8Array.of(n), fingerprint, nonce, ...era };
  };
  const show = (actions: readonly PoolAction[]): string[] =>
    actions.map((action) => {
      const { id } = action.entry;
      if (action.do === "sign") return `sign ${id} ${action.nonce}`;
      if (action.do === "send") sends.set(id, action);
      if (action.do === "inspect") return `inspect ${id}`;
      return action.do === "end" ? `end ${id} ${action.end.state}` : `send ${id}`;
    });
  return {
    pool,
    /** A call that was signed at a block. */
    add(id: string, birth: number, nonce: number | null = pool.freeNonce(0)): string[] {
      const entry = newEntry({
        id,
        sequence: 0n,
        signed: signedAt(birth, nonce),
        state: "storing",
      });
      pool.add(entry);
      entries.set(id, entry);
      return show(pool.stored(entry));
    },
    entry: (id: string) => entries.get(id) as Entry,
    answer(id: string, verdict: Verdict): string[] {
      return show(pool.answered(sends.get(id) as Send, verdict, nowMs));
    },
    sign(id: string, birth: number): string[] {
      const entry = entries.get(id) as Entry;
      return show(pool.signed(entry, signedAt(birth, entry.nonce)));
    },
    absent: (id: string) => show(pool.absent(entries.get(id) as Entry)),
    unsure: (id: string) => pool.unsure(entries.get(id) as Entry),
    head(number: number, nonce: number, { recent = true, isWitnessed = true } = {}): string[] {
      return show(pool.scanned({ number: BigInt(number), nonce, recent, isWitnessed }));
    },
    /** Every head up to one, without what they ask for. */
    heads(last: number, nonce: number): void {
      for (let number = 2; number <= last; number++)
        pool.scanned({ number: BigInt(number), nonce, recent: true, isWitnessed: true });
    },
    connected: () => show(pool.connected()),
    tick(ms: number): string[] {
      nowMs += ms;
      return show(pool.flush(nowMs));
    },
    end(id: string): string[] {
      return show(pool.ended([entries.get(id) as Entry]));
    },
  };
}

describe("sending", () => {
  test("a stored call is sent once, again when no block has it for a time, and at once over a new connection", () => {
    const pool = play();
    expect(pool.add("a", 1)).toEqual(["send a"]);
    expect(pool.tick(5_000)).toEqual([]);
    pool.answer("a", "taken");
    expect(pool.tick(999)).toEqual([]);
    expect(pool.tick(1)).toEqual(["send a"]);
    expect(pool.connected()).toEqual(["send a"]);
  });

  test("nonces are given in order, and calls are sent by them, those with a proof last", () => {
    const pool = play();
    pool.add("p", 1, null);
    for (const id of ["a", "b", "c"]) pool.add(id, 1);
    expect(["a", "b", "c"].map((id) => pool.entry(id).nonce)).toEqual([0, 1, 2]);
    expect(pool.connected()).toEqual(["send a", "send b", "send c", "send p"]);
  });

  test("a node that says that the nonce is used is not asked for another signature", () => {
    const pool = play();
    pool.head(1, 0);
    pool.add("a", 1);
    pool.answer("a", "taken");
    for (let n = 0; n < 3; n++) {
      expect(pool.tick(1_000)).toEqual(["send a"]);
      expect(pool.answer("a", "nonce-used")).toEqual([]);
    }
  });
});

describe("a call is signed again", () => {
  test("for its own nonce or proof when a node refuses its bytes, an eighth of a life later, and found by either", () => {
    for (const [nonce, verdict] of [
      [0, "banned"],
      [0, "invalid"],
      [null, "banned"],
    ] as const) {
      const pool = play();
      pool.head(2, 0);
      pool.add("a", 2, nonce);
      const { fingerprint } = pool.entry("a").signed;
      for (const number of [2, 3]) {
        pool.head(number, 0);
        expect(pool.answer("a", verdict)).toEqual([]);
        expect(pool.tick(1_000)).toEqual(["send a"]);
      }
      pool.head(4, 0);
      expect(pool.answer("a", verdict)).toEqual([`sign a ${nonce}`]);
      expect(pool.pool.holder(fingerprint)).toBe(pool.entry("a"));
      expect(pool.sign("a", 4)).toEqual(["send a"]);
      expect(pool.pool.holder(fingerprint)).toBe(pool.entry("a"));
      expect(pool.answer("a", "taken")).toEqual([]);
    }
  });

  test("for another nonce only when a finalized block has used its own", () => {
    const pool = play();
    pool.add("a", 1);
    expect(pool.answer("a", "nonce-used")).toEqual([]);
    expect(pool.head(2, 0)).toEqual([]);
    expect(pool.head(3, 1)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["sign a 1"]);
    expect(pool.sign("a", 3)).toEqual(["send a"]);
  });

  test("when its life is over before a node has taken it", () => {
    const pool = play();
    pool.add("a", 1);
    pool.head(1, 0);
    pool.answer("a", "full");
    expect(pool.head(life, 0)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["sign a 0"]);
  });

  test("when its life is over before its turn came", () => {
    const pool = play();
    pool.add("a", 1);
    pool.add("b", 1);
    for (const id of ["a", "b"]) pool.answer(id, "taken");
    pool.heads(life - 1, 0);
    expect(pool.head(life, 0)).toEqual(["inspect a", "inspect b"]);
    expect(pool.absent("a")).toEqual(["end a dropped"]);
    expect(pool.absent("b")).toEqual(["sign b 1"]);
  });

  test("when its life is over and the node that had it lost it, and has no place for it", () => {
    const pool = play();
    pool.add("a", 1);
    pool.answer("a", "taken");
    pool.head(2, 0);
    pool.tick(1_000);
    pool.answer("a", "full");
    expect(pool.head(16, 0)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["sign a 0"]);
  });

  test("only when its extrinsic can't enter", () => {
    const pool = play();
    pool.add("p", 0, null);
    expect(pool.head(1, 0)).toEqual([]);
    expect(pool.answer("p", "invalid")).toEqual(["inspect p"]);
    expect(pool.absent("p")).toEqual([]);
  });
});

describe("a hole", () => {
  test("is left alone while later calls can enter, and filled when their life is over", () => {
    const pool = play();
    for (const id of ["a", "b"]) pool.add(id, 1);
    for (const id of ["a", "b"]) pool.answer(id, "taken");
    pool.end("a");
    expect(pool.head(2, 0)).toEqual([]);
    expect(pool.head(life, 0)).toEqual(["inspect b"]);
    expect(pool.absent("b")).toEqual(["sign b 0"]);
  });

  test("goes to the next new call", () => {
    const pool = play();
    for (const id of ["a", "b"]) pool.add(id, 1);
    pool.end("a");
    expect(pool.pool.freeNonce(0)).toBe(0);
  });
});

describe("an end", () => {
  test("comes only by what can't enter any more, and after a chance", () => {
    const pool = play();
    pool.add("a", 1);
    pool.answer("a", "taken");
    pool.heads(life - 2, 0);
    expect(pool.head(life - 1, 0)).toEqual([]);
    expect(pool.head(life, 0, { recent: false })).toEqual([]);
    expect(pool.head(life, 0)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["end a dropped"]);
  });

  test("does not come by an only endpoint that had the call: it is signed again, until another one has the same", () => {
    const pool = play();
    pool.add("a", 1);
    for (let birth = 1; birth <= 2 * life; birth += life) {
      pool.answer("a", "taken");
      const over = birth + life - 1;
      for (let number = birth + 1; number < over; number++)
        expect(pool.head(number, 0, { isWitnessed: false })).toEqual([]);
      expect(pool.head(over, 0, { isWitnessed: false })).toEqual(["inspect a"]);
      expect(pool.absent("a")).toEqual(["sign a 0"]);
      expect(pool.sign("a", birth + life)).toEqual(["send a"]);
    }
  });

  test("waits while an only endpoint shows nothing: its state is looked at again, and it is not sent", () => {
    const pool = play();
    pool.add("a", 1);
    pool.answer("a", "taken");
    expect(pool.head(life, 1, { isWitnessed: false })).toEqual(["inspect a"]);
    pool.unsure("a");
    expect(pool.tick(60_000)).toEqual([]);
    for (let number = life + 1; number < life + life / 4; number++)
      expect(pool.head(number, 1)).toEqual([]);
    expect(pool.head(life + life / 4, 1)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["sign a 1"]);
  });

  test("does not come when the node that had the call stood still for its life: it is signed again", () => {
    const pool = play();
    pool.add("a", 1);
    pool.answer("a", "taken");
    pool.head(2, 0);
    expect(pool.head(life, 0)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["sign a 0"]);
  });

  test("comes as well when the life is so short that the next block is a quarter of it", () => {
    const pool = play({ lifetimeBlocks: 4 });
    pool.add("a", 1);
    pool.answer("a", "taken");
    pool.heads(life - 1, 0);
    expect(pool.head(life, 0)).toEqual(["inspect a"]);
    expect(pool.absent("a")).toEqual(["end a dropped"]);
  });

  test("is left to the state when the nonce is used and no block shows the call", () => {
    const pool = play();
    pool.add("a", 1);
    pool.answer("a", "taken");
    expect(pool.head(3, 1)).toEqual(["inspect a"]);
    expect(pool.head(4, 1)).toEqual([]);
    expect(pool.absent("a")).toEqual(["sign a 1"]);
  });

  test("of a proof that a node calls invalid is left to the state", () => {
    const pool = play();
    pool.add("p", 1, null);
    expect(pool.answer("p", "invalid")).toEqual(["inspect p"]);
  });

  test("of a proof whose life is over is left to the state, because its bytes are valid again", () => {
    const pool = play();
    pool.add("p", 1, null);
    pool.answer("p", "taken");
    pool.head(2, 0);
    expect(pool.head(life, 0)).toEqual(["inspect p"]);
    expect(pool.absent("p")).toEqual(["sign p null"]);
    expect(pool.pool.holder("call null")).toBe(pool.entry("p"));
    expect(pool.sign("p", life)).toEqual(["send p"]);
  });
});
