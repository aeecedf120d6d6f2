/** The embedded ledger under failing tables, at its bounds, and as a clock. */
import { describe, expect, test } from "bun:test";
import { StoreError } from "../../../src/storage/contract.ts";
import { poolKey } from "../../../src/storage/embedded-records.ts";
import {
  addAlias,
  alice,
  bob,
  never,
  register,
  registration,
  settled,
  signed,
  stage,
  startMs,
  taken,
  until,
} from "../../support/embedded-stage.ts";
import { identityOf } from "../../support/identity.ts";
import { pause } from "../../support/wait.ts";
import { operatorAccount } from "../../support/world.ts";

describe("a table that fails", () => {
  test("refuses the submission and stores nothing", async () => {
    const made = stage(never);
    const ledger = await made.open({ pendingCallsMax: 1 });
    made.table.failure = new StoreError("unavailable", "no disk");
    expect(await ledger.submit(registration(alice), "register").catch((error) => error.code)).toBe(
      "unavailable",
    );
    made.table.failure = null;
    taken(await ledger.submit(registration(alice), "register"));
    await ledger.close();
  });

  test("delays the block, is logged once for an outage, and loses nothing", async () => {
    const made = stage(2);
    const ledger = await made.open();
    const submission = taken(await ledger.submit(registration(alice), "register"));
    made.table.failure = new StoreError("unavailable", "no disk");
    await until(async () => (made.logged.length >= 1 ? true : null));
    await pause(30, "more than ten block times, each of them an attempt");
    expect(made.logged).toEqual([expect.stringMatching(/^error no block/)]);
    expect((await ledger.submission(submission.txHash))?.state).toBe("pending");
    // The head stands for the time before the outage.
    const { asOfMs } = await ledger.head();
    made.nowMs += 5;
    expect((await ledger.head()).asOfMs).toBe(asOfMs);
    made.table.failure = null;
    expect((await settled(ledger, submission)).state).toBe("finalized");
    await until(async () => (made.logged.length >= 2 ? true : null));
    expect(made.logged[1]).toStartWith("info blocks are made again");
    await ledger.close();
  });

  test("after the change gives the place in the pool back", async () => {
    const made = stage(never);
    const ledger = await made.open({ pendingCallsMax: 1 });
    made.table.failureBehind = new StoreError("unavailable", "no sync");
    for (let i = 0; i < 3; i++) {
      expect(
        await ledger.submit(registration(alice), "register").catch((error) => error.code),
      ).toBe("unavailable");
    }
    made.table.failureBehind = null;
    taken(await ledger.submit(registration(alice), "register"));
    await ledger.close();
  });

  test("while a block reads, delays the block and fails no call", async () => {
    const made = stage(2);
    const ledger = await made.open();
    const submission = taken(await ledger.submit(registration(alice), "register"));
    made.table.accountFailure = new StoreError("unavailable", "no disk");
    await until(async () => (made.logged.length >= 1 ? true : null));
    expect((await ledger.submission(submission.txHash))?.state).toBe("pending");
    made.table.accountFailure = null;
    expect((await settled(ledger, submission)).state).toBe("finalized");
    await ledger.close();
  });

  test("for longer than the lifetime of a call, drops the call and releases its claims", async () => {
    const made = stage(2);
    const ledger = await made.open();
    await register(ledger, alice);
    const late = taken(await ledger.submit(addAlias(alice, "x"), "add_alias"));
    made.table.failure = new StoreError("unavailable", "no disk");
    await until(async () => (made.logged.length >= 1 ? true : null));
    made.nowMs += 67 * made.blockTimeMs;
    made.table.failure = null;
    const dropped = await settled(ledger, late);
    expect([dropped.state, dropped.reason?.code, dropped.block]).toEqual([
      "dropped",
      "chain_submission_rejected",
      null,
    ]);
    expect((await ledger.account(alice.did)).counters.alias).toBe(0n);
    expect(
      (await settled(ledger, await ledger.submit(addAlias(alice, "x"), "add_alias"))).state,
    ).toBe("finalized");
    await ledger.close();
  });

  test.each([
    ["exactly the lifetime of a call, includes the call", 10, "finalized"],
    ["a block more than that, drops it", 11, "dropped"],
  ] as const)("for %s", async (_, blocks, state) => {
    const made = stage(2);
    const ledger = await made.open({ lifetimeBlocks: 10 });
    await register(ledger, alice);
    const late = taken(await ledger.submit(addAlias(alice, "x"), "add_alias"));
    made.table.failure = new StoreError("unavailable", "no disk");
    await until(async () => (made.logged.length >= 1 ? true : null));
    made.nowMs += blocks * made.blockTimeMs;
    made.table.failure = null;
    expect((await settled(ledger, late)).state).toBe(state);
    await ledger.close();
  });

  test("whose head is unreadable is not opened", async () => {
    const made = stage();
    await (await made.open()).close();
    for (const bytes of ["{", '{"format":2}']) {
      await made.table.commit((view) => view.put("head", new TextEncoder().encode(bytes)));
      expect(await made.open().catch((error) => error.code)).toBe("corrupt");
    }
  });
});

describe("bounds", () => {
  test("a full pool is an operating failure, and room comes back with the next block", async () => {
    const made = stage(5);
    const ledger = await made.open({ pendingCallsMax: 2 });
    const outcomes = await Promise.allSettled(
      [alice, bob, identityOf("carol")].map((identity) =>
        ledger.submit(registration(identity), "register"),
      ),
    );
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
    const rejected = outcomes[2] as PromiseRejectedResult;
    expect((rejected.reason as StoreError).code).toBe("full");
    await settled(ledger, (outcomes[1] as PromiseFulfilledResult<unknown>).value);
    taken(await ledger.submit(registration(identityOf("carol")), "register"));
    await ledger.close();
  });

  test("a pool that fills more blocks than a lifetime is emptied at once, and no call is dropped", async () => {
    // One block a block time would take 8 seconds, more than `settled` waits.
    const made = stage(100);
    const ledger = await made.open({ blockCallsMax: 1 });
    const people = Array.from({ length: 80 }, (_, i) => identityOf(`crowd ${i}`));
    const outcomes = await Promise.all(
      people.map((identity) => ledger.submit(registration(identity), "register")),
    );
    const ends = await Promise.all(outcomes.map((outcome) => settled(ledger, outcome)));
    expect(ends.map(({ state }) => state)).toEqual(Array(80).fill("finalized"));
    expect(new Set(ends.map(({ block }) => block!.number)).size).toBe(80);
    await ledger.close();
  });

  test("one unreadable call fails and does not stop the others", async () => {
    const made = stage(never);
    const first = await made.open();
    const [broken, sound] = [
      taken(await first.submit(registration(alice), "register")),
      taken(await first.submit(registration(bob), "register")),
    ];
    await first.close();
    const hash = Uint8Array.fromHex(broken.txHash.slice(2));
    await made.table.commit((view) => view.put(poolKey(0n), new Uint8Array([...hash, 1, 2, 3])));
    made.blockTimeMs = 2;
    const ledger = await made.open();
    expect((await settled(ledger, sound)).state).toBe("finalized");
    const failed = await settled(ledger, broken);
    expect([failed.state, failed.reason?.code]).toEqual(["failed", "internal_error"]);
    expect(made.logged.filter((line) => line.startsWith("error"))).toEqual([
      "error a call could not be applied",
    ]);
    await ledger.close();
  });

  test("keys that no record can have are absent", async () => {
    const ledger = await stage().open();
    expect(await ledger.policy("tag", "x".repeat(2_000))).toBeNull();
    expect(await ledger.aliasHolder("Not Normal")).toBeNull();
    expect(await ledger.submission("0x12")).toBeNull();
    expect(await ledger.submission(`0x${"0".repeat(64)}`)).toBeNull();
    expect(await ledger.operator()).toEqual(operatorAccount);
    await ledger.close();
  });
});

describe("block numbers", () => {
  test("stay while no call comes, without a write, and the head stands for the present", async () => {
    const made = stage(1_000);
    const ledger = await made.open();
    const [commits, { finalized }] = [made.table.commits, await ledger.head()];
    for (let i = 0; i < 12; i++, made.nowMs += 500) {
      expect(await ledger.head()).toEqual({ finalized, blockTimeMs: 1_000, asOfMs: made.nowMs });
    }
    expect(made.table.commits).toBe(commits);
    await ledger.close();
  });

  test("grow by one with each block, and times never go back", async () => {
    const made = stage(3);
    const ledger = await made.open();
    let last = (await ledger.head()).finalized;
    for (const [i, step] of [0, 1, 2, 3, 100, 0, -50, -1_000, 5, 1_200].entries()) {
      made.nowMs += step;
      const shown = (await ledger.head()).finalized;
      expect(shown).toEqual(last);
      const identity = identityOf(`number ${i}`);
      const { block } = await settled(
        ledger,
        await ledger.submit(registration(identity, startMs + 100), "register"),
      );
      expect(block!.number).toBe(shown.number + 1n);
      expect(block!.timeMs).toBeGreaterThanOrEqual(shown.timeMs);
      last = (await ledger.head()).finalized;
      expect(last).toEqual(block!);
    }
    await ledger.close();
  });

  test("continue after the clock was hours ahead, and calls accepted now do not expire", async () => {
    const made = stage(3);
    const ledger = await made.open();
    const hourMs = 3_600_000;
    made.nowMs += hourMs;
    await settled(ledger, await ledger.submit(registration(alice, made.nowMs), "register"));
    made.nowMs -= hourMs;
    const change = signed(
      alice,
      { action: "add_alias", did: alice.did, alias: "anna" },
      0n,
      made.nowMs + 60_000,
    );
    const { block, state } = await settled(ledger, await ledger.submit(change, "add_alias"));
    expect(state).toBe("finalized");
    expect(block!.timeMs).toBeGreaterThanOrEqual(startMs + hourMs);
    await ledger.close();
  });

  test("are not shown while their block is still being written", async () => {
    const made = stage(2);
    const ledger = await made.open();
    const submission = taken(await ledger.submit(registration(alice), "register"));
    const gate = Promise.withResolvers<void>();
    made.table.gateBehind = gate.promise;
    await until(async () => (made.table.gateBehind === null ? true : null));
    made.nowMs += 100 * made.blockTimeMs;
    const shown = (await ledger.head()).finalized;
    gate.resolve();
    const { block } = await settled(ledger, submission);
    expect(block!.number).toBeGreaterThan(shown.number);
    expect((await ledger.head()).finalized).toEqual(block!);
    await ledger.close();
  });

  test("do not go back when the block time changes", async () => {
    const made = stage(10);
    const first = await made.open();
    const { block } = await settled(first, await first.submit(registration(alice), "register"));
    await first.close();
    made.blockTimeMs = 6_000;
    const again = await made.open();
    expect(await again.head()).toMatchObject({ finalized: block!, blockTimeMs: 6_000 });
    await again.close();
  });
});
