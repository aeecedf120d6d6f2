/** The shape of a DeliveryResult, stated independently of the code that makes it. */
import { expect } from "bun:test";

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
  expect(Object.keys(ndr).sort()).toEqual(["attempts", "final", "message_id", "reason", "recipient"]);
  expect(ndr["reason"]).toBe(result["code"]);
  for (const attempt of ndr["attempts"] as Record<string, unknown>[]) {
    expect(Object.keys(attempt).sort()).toEqual(["channel", "duration_ms", "error", "http_status", "origin"]);
  }
}
