/**
 * Days that pass at once for nodes and people in this process: wall clocks show another time, and
 * timers have not run, as after a machine was asleep. For a test file of its own, before its nodes
 * start.
 */
import { afterAll, beforeAll } from "bun:test";
import { dayMs } from "../../src/core/codec/time.ts";

export function passingTime() {
  const { now } = Date;
  const { fetch: request } = globalThis;
  let aheadMs = 0;
  beforeAll(() => {
    Date.now = () => now() + aheadMs;
    // The server writes its `Date` by a clock of its own.
    globalThis.fetch = Object.assign(async (...args: Parameters<typeof fetch>) => {
      const answer = await request(...args);
      answer.headers.set("date", new Date(Date.now()).toUTCString());
      return answer;
    }, request);
  });
  afterAll(() => {
    Date.now = now;
    globalThis.fetch = request;
  });
  return {
    passDays: (days: number): void => {
      aheadMs += days * dayMs;
    },
  };
}
