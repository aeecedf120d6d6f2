/** The outbox of the chain driver: calls on their way and their ends, over restarts. */
import { describe, expect, test } from "bun:test";
import { ChainOutbox, type PendingEntry } from "../../../../src/plugins/chain/outbox.ts";
import { MemoryTable } from "../../../../src/plugins/memory/table.ts";
import { alice, registration, removal } from "../../../support/chain-calls.ts";

describe("the outbox", () => {
  const pending = (n: number): PendingEntry => ({
    sequence: BigInt(n),
    call: n % 2 === 0 ? registration : removal,
    submission: {
      txHash: `0x${n.toString(16).padStart(64, "0")}`,
      did: alice.did,
      call: n % 2 === 0 ? registration.name : removal.name,
      label: "test",
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: n,
    },
    signed: {
      extrinsic: Uint8Array.of(n),
      fingerprint: `fingerprint ${n}`,
      nonce: n % 2 === 0 ? n : null,
      birth: 7n,
      death: 71n,
    },
  });
  const ended = (n: number) => ({
    ...pending(n),
    submission: { ...pending(n).submission, state: "finalized" as const },
  });
  const open = (table = new MemoryTable(1 << 24)) => ({
    table,
    outbox: new ChainOutbox(table, 3n),
  });

  test("gives back what it was given, in order, until it has ended", async () => {
    const { table, outbox } = open();
    for (const n of [0, 1, 2]) await outbox.keep(pending(n));
    const again = { ...pending(2), signed: pending(3).signed };
    await outbox.replace(again);
    await outbox.finish([ended(1)], null);
    const reopened = open(table).outbox;
    expect(reopened.pending()).toEqual([pending(0), again]);
    expect(reopened.submission(pending(1).submission.txHash)).toEqual(ended(1).submission);
    expect(reopened.submission(pending(9).submission.txHash)).toBeNull();
  });

  test("keeps the last ends, also over a restart", async () => {
    const { table, outbox } = open();
    for (let n = 0; n < 4; n++) {
      await outbox.keep(pending(n));
      await outbox.finish([ended(n)], null);
    }
    const known = (box: ChainOutbox) =>
      [0, 1, 2, 3, 4].filter((n) => box.submission(pending(n).submission.txHash) !== null);
    expect(known(outbox)).toEqual([1, 2, 3]);
    const again = open(table).outbox;
    await again.keep(pending(4));
    await again.finish([ended(4)], null);
    expect(known(again)).toEqual([2, 3, 4]);
  });

  test("remembers the last finalized block, also when only ends are written", async () => {
    const { table, outbox } = open();
    const anchor = (number: bigint) => ({ number, hash: `0x${"ab".repeat(32)}`, timeMs: 5 });
    expect(outbox.fact("anchor")).toBeNull();
    await outbox.keepFact("anchor", anchor(7n));
    expect(open(table).outbox.fact("anchor")).toEqual(anchor(7n));
    await outbox.keep(pending(0));
    await outbox.finish([ended(0)], anchor(9n));
    expect(open(table).outbox.fact("anchor")).toEqual(anchor(9n));
  });

  test("remembers the chain it belongs to", async () => {
    const { table, outbox } = open();
    expect(outbox.fact("genesis")).toBeNull();
    await outbox.keepFact("genesis", "0xab");
    expect(open(table).outbox.fact("genesis")).toBe("0xab");
  });
});
