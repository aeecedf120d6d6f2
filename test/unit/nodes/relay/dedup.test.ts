/**
 * One delivery for one message: what a repeat gets after a success, after a failure, and while the
 * first is under way.
 */
import { expect, test } from "bun:test";
import type { Did, Uuid } from "../../../../src/core/codec/did.ts";
import { type Fault, fault, isFault } from "../../../../src/core/fault.ts";
import type { DeliveryResult } from "../../../../src/core/message/delivery.ts";
import { type Dedup, deliverOnce } from "../../../../src/nodes/relay/dedup.ts";
import type { DeliveredResult } from "../../../../src/nodes/relay/delivery.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import { optionsOf } from "../../../conformance/options.ts";

const nowMs = Date.parse("2026-05-01T12:00:00Z");
const bob = "did:svc:3vQB7B6MrGQZaxCuFg4oh1" as Did;
const id = "6b9f3a3e-54d1-4c9e-9a50-3f5e1a2b7c8d" as Uuid;

const answer = (success: boolean, more: Partial<DeliveryResult> = {}): DeliveryResult =>
  ({
    success,
    code: success ? "cached" : "cache_unavailable",
    cache_result: null,
    details: { attempts: 1 },
    ...more,
  }) as DeliveryResult;
const repeated = (result: DeliveryResult): DeliveryResult => ({
  ...result,
  details: { ...result.details, deduped: true },
});

type Outcome = DeliveredResult | Fault;

/** Each `send` delivers the same envelope, and `made` counts the deliveries. */
async function relay() {
  const environment = { now: () => nowMs, log: () => undefined, fatal: () => undefined };
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  const dedup: Dedup = { receipts, log: () => undefined, inFlight: new Map() };
  const made = { count: 0 };
  const send = (outcome: () => Outcome | Promise<Outcome>, bytes = "one", author = "from:a") =>
    deliverOnce(dedup, {
      envelope: { to: bob, messageId: id, bytes: new TextEncoder().encode(bytes) },
      author,
      hops: 0,
      nowMs,
      untilMs: () => nowMs + 60_000,
      deliver: async () => {
        made.count += 1;
        return outcome();
      },
    });
  return { send, made };
}

const kept = (result: DeliveryResult) => () => ({ result, isKept: true });
const recorded = (result: DeliveryResult) => () => ({ result, isKept: false });

test("after a success a repeat gets the recorded result, and nothing is delivered again", async () => {
  const { send, made } = await relay();
  const first = answer(true);
  expect(await send(recorded(first))).toEqual(first);
  expect(await send(recorded(answer(false)))).toEqual(repeated(first));
  expect(made.count).toBe(1);
});

test("after a failure a repeat tries again", async () => {
  const { send, made } = await relay();
  expect(await send(recorded(answer(false)))).toMatchObject({ success: false });
  expect(await send(recorded(answer(true)))).toEqual(answer(true));
  expect(made.count).toBe(2);
});

test("what the own Cache has known already is shown as a repeat, and what it has not is not", async () => {
  const { send } = await relay();
  const known = answer(true, { cache_result: { deduped: true } });
  expect(await send(kept(known))).toEqual(repeated(known));
  const fresh = answer(true, { cache_result: { deduped: false } });
  expect(await send(kept(fresh))).toEqual(fresh);
});

test("one that comes while the first is under way waits for it; another message is a conflict", async () => {
  const { send, made } = await relay();
  const delivering = Promise.withResolvers<DeliveredResult>();
  const first = send(() => delivering.promise);
  const second = send(recorded(answer(false)));
  const other = await send(recorded(answer(true)), "two", "from:b");
  expect(isFault(other) && other.code).toBe("duplicate_conflict");
  delivering.resolve({ result: answer(true), isKept: false });
  expect([await first, await second]).toEqual([answer(true), repeated(answer(true))]);
  expect(made.count).toBe(1);
});

test("a refusal is not remembered: the id belongs to what another node delivered", async () => {
  const { send, made } = await relay();
  const refusal = fault("duplicate_conflict", "another node has delivered it");
  const refused = send(() => refusal);
  expect(await refused).toBe(refusal);
  expect(await send(recorded(answer(true)))).toEqual(answer(true));
  expect(made.count).toBe(2);
});
