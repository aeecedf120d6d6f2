/** The shape of a DeliveryResult, stated independently of the code that makes it. */
import { expect } from "bun:test";
import { deliver } from "../../src/core/message/delivery.ts";
import type { DeliveryPlan } from "../../src/core/message/plan.ts";

const members = [
  "success",
  "delivery_mode",
  "http_status",
  "code",
  "message",
  "retry_count",
  "cache_attempted",
  "cache_result",
  "ndr",
  "details",
].sort();

const successes: Record<string, [mode: string, status: number]> = {
  delivered: ["direct", 200],
  forwarded: ["forwarded", 202],
  cached: ["cache", 202],
};

/** Fails unless `value` is a DeliveryResult whose members agree with one another. */
export function expectDeliveryResult(value: unknown): void {
  const result = value as Record<string, unknown>;
  expect(Object.keys(result).sort()).toEqual(members);
  expect(typeof result["message"]).toBe("string");
  expect(Number.isSafeInteger(result["retry_count"])).toBe(true);
  expect(result["details"]).toBeObject();
  if (result["success"] === true) {
    expect([result["delivery_mode"], result["http_status"]]).toEqual(
      successes[result["code"] as string] as [string, number],
    );
    expect(result["ndr"]).toBeNull();
    expect(result["cache_result"] !== null).toBe(result["code"] === "cached");
    return;
  }
  expect(result["success"]).toBe(false);
  expect(result["delivery_mode"]).toBe("failed");
  expect(result["http_status"] as number).toBeGreaterThanOrEqual(400);
  expect(result["cache_result"] === null || result["cache_attempted"] === true).toBe(true);
  const ndr = result["ndr"] as Record<string, unknown> | null;
  if (ndr === null) return;
  expect(Object.keys(ndr).sort()).toEqual([
    "attempts",
    "final",
    "message_id",
    "reason",
    "recipient",
  ]);
  expect(ndr["reason"]).toBe(result["code"]);
  for (const attempt of ndr["attempts"] as Record<string, unknown>[]) {
    expect(Object.keys(attempt).sort()).toEqual([
      "channel",
      "duration_ms",
      "error",
      "http_status",
      "origin",
    ]);
  }
}

/** The time that the first attempt of a plan gets. */
export async function firstTimeout(plan: DeliveryPlan, nowMs: number): Promise<number> {
  let first = 0;
  await deliver(plan, {
    now: () => nowMs,
    random: () => 0,
    sleep: async () => {},
    attempt: async ({ timeoutMs }) => {
      first ||= timeoutMs;
      return { httpStatus: 400, error: null, durationMs: 0 };
    },
  });
  return first;
}
