/** What a Directory finalizes is announced, and whoever remembers its answers asks again. */
import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import type { Did } from "../../../src/core/codec/did.ts";
import { createMemo } from "../../../src/nodes/memo.ts";
import { directoryRecipients } from "../../../src/nodes/recipients.ts";
import { createChangeSignal } from "../../../src/nodes/signals.ts";
import { openLocalBus } from "../../../src/plugins/bus/local.ts";
import type { Submission, SubmissionState } from "../../../src/storage/contract.ts";

const did = "did:svc:1111111111111111111111" as Did;

const submission = { txHash: "0x1", did };

class StagedLedger {
  state: SubmissionState = "pending";
  looks = 0;

  async submission() {
    this.looks++;
    return { ...submission, state: this.state } as Submission;
  }
}

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** Lets the time pass in which submissions are looked at once, and the look itself. */
async function look(): Promise<void> {
  jest.advanceTimersByTime(250);
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => void setImmediate(resolve));
}

function stage() {
  const bus = openLocalBus({ log: () => {} });
  const ledger = new StagedLedger();
  const signal = createChangeSignal({ ledger, bus, log: () => {} });
  let asked = 0;
  const source = directoryRecipients("https://directory.net", {
    bus,
    fetch: async () => {
      asked++;
      const body = { did, document: null, deactivated: false, delivery_policy_links: null };
      return Response.json(body);
    },
  });
  return { ledger, signal, source, asked: () => asked };
}

test("a DID is asked for again once its change is finalized, and not before", async () => {
  const { ledger, signal, source, asked } = stage();
  await source.subject(did);
  signal.follow(submission);
  await look();
  await source.subject(did);
  expect([ledger.looks, asked()]).toEqual([1, 1]);
  ledger.state = "finalized";
  await look();
  await source.subject(did);
  expect([ledger.looks, asked()]).toEqual([2, 2]);
  signal.close();
});

test("a failed submission is not announced", async () => {
  const { ledger, signal, source, asked } = stage();
  await source.subject(did);
  ledger.state = "failed";
  signal.follow(submission);
  await look();
  await source.subject(did);
  expect([ledger.looks, asked()]).toEqual([1, 1]);
  signal.close();
});

test("no state is looked at while no process listens, and none after the end", async () => {
  const ledger = new StagedLedger();
  const alone = createChangeSignal({ ledger, bus: openLocalBus({ log: () => {} }), log: () => {} });
  alone.follow(submission);
  await look();
  expect(ledger.looks).toBe(0);
  const { ledger: heard, signal } = stage();
  signal.follow(submission);
  await look();
  signal.close();
  await look();
  await look();
  expect(heard.looks).toBe(1);
});

test("an answer that was on its way when its question was forgotten is not remembered", async () => {
  const gates: PromiseWithResolvers<string>[] = [];
  const memo = createMemo<string>({
    load: () => {
      const gate = Promise.withResolvers<string>();
      gates.push(gate);
      return gate.promise;
    },
    valueMs: 1_000,
    failureMs: 100,
    entriesMax: 3,
    loadsMax: 3,
    now: () => 0,
  });
  const old = memo.get("a");
  await null;
  memo.forget("a");
  const fresh = memo.get("a");
  await null;
  gates[1]?.resolve("new");
  gates[0]?.resolve("old");
  expect([await old, await fresh]).toEqual(["old", "new"]);
  expect(await memo.get("a")).toBe("new");
});
