/** Capacity: shares of clients, and other limits while requests are in work. */
import { expect, test } from "bun:test";
import {
  type CapacityLimits,
  changeCapacity,
  createCapacity,
  giveShare,
  hasRoom,
  takeShare,
} from "../../../../src/nodes/http/capacity.ts";

const limits: CapacityLimits = {
  requestsMax: 4,
  reservedRequestsMax: 2,
  readingMax: 4,
  delayedRefusalsMax: 4,
  refusalDelayMs: 1,
  bodyBytesMax: 1_000,
  bodyDeadlineMs: 1_000,
};

test("lower limits refuse new requests until enough of those in work have ended", () => {
  const capacity = createCapacity(limits);
  const { work } = capacity.normal;
  expect([takeShare(work, "a", 1), takeShare(work, "b", 1), takeShare(work, "c", 1)]).toEqual([true, true, true]);
  changeCapacity(capacity, { ...limits, requestsMax: 2 });
  expect([hasRoom(capacity.normal, "d"), takeShare(work, "d", 1), work.total]).toEqual([false, false, 3]);
  giveShare(work, "a", 1);
  giveShare(work, "b", 1);
  expect([hasRoom(capacity.normal, "d"), takeShare(work, "d", 1)]).toEqual([true, true]);
});

test("higher limits give every room more at once, and each client half of it", () => {
  const capacity = createCapacity(limits);
  expect(takeShare(capacity.normal.bodyBytes, "a", 700)).toBe(false);
  changeCapacity(capacity, { ...limits, bodyBytesMax: 2_000 });
  expect(takeShare(capacity.normal.bodyBytes, "a", 700)).toBe(true);
  expect(takeShare(capacity.normal.bodyBytes, "a", 700)).toBe(false);
  expect(capacity.limits.bodyBytesMax).toBe(2_000);
});
