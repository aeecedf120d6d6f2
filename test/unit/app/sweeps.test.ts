/**
 * The sweepers: they free what is due in batches until nothing is left, go on when one store fails,
 * and stop on request.
 */
import { expect, test } from "bun:test";
import { startSweeps } from "../../../src/app/sweeps.ts";
import type { OpenStores } from "../../../src/storage/bind.ts";
import {
  type Capabilities,
  type Replay,
  type Store,
  StoreError,
} from "../../../src/storage/contract.ts";
import { RemovalTime } from "../../../src/storage/removal-time.ts";
import { startOwnTime } from "../../support/own-time.ts";
import { pause } from "../../support/wait.ts";

/** A store whose replay claims are due already: `due` counts down. */
function storeWithDue(due: { left: number; batches: number[] }, onBatch = () => {}): Store {
  const replay: Replay = {
    claim: async () => true,
    expire: async (_nowMs, limit) => {
      const freed = Math.min(limit, due.left);
      due.left -= freed;
      due.batches.push(freed);
      onBatch();
      return freed;
    },
  };
  return storeOf({ replay });
}

function storeOf(capabilities: Capabilities): Store {
  return {
    plugin: "test",
    capabilities,
    probe: async () => undefined,
    close: async () => undefined,
  };
}

function openOf(stores: Record<string, Store>): OpenStores {
  return {
    stores: new Map(Object.entries(stores)),
    capability: () => {
      throw new Error("nothing is bound here");
    },
    probe: async () => undefined,
    close: async () => undefined,
  };
}

const removalAt = (now: () => number) =>
  new RemovalTime({ now, uptimeMs: () => performance.now() });

test("what is due is freed in batches until nothing is left, whatever another store does", async () => {
  const due = { left: 1_000, batches: [] as number[] };
  let rounds = 0;
  const roundsOfBatch: number[] = [];
  const broken: Replay = {
    claim: async () => true,
    expire: () => {
      rounds++;
      return Promise.reject(new StoreError("unavailable", "gone"));
    },
  };
  const messages: string[] = [];
  const sweepers = startSweeps(
    openOf({
      broken: storeOf({ replay: broken }),
      main: storeWithDue(due, () => roundsOfBatch.push(rounds)),
    }),
    { removal: removalAt(() => 1), log: (_level, message) => messages.push(message) },
  );
  while (due.left > 0) await Bun.sleep(1);
  await sweepers.stop();
  expect(due.batches.slice(0, 4)).toEqual([256, 256, 256, 232]);
  // A round waits for the second that follows it; its batches don't.
  expect(roundsOfBatch.slice(0, 4)).toEqual([1, 1, 1, 1]);
  expect(messages).toContain("a sweep failed");
});

test("stopping does not wait for the next round, and nothing is swept afterwards", async () => {
  const due = { left: 0, batches: [] as number[] };
  const sweepers = startSweeps(openOf({ main: storeWithDue(due) }), {
    removal: removalAt(() => 1),
    log: () => undefined,
  });
  while (due.batches.length === 0) await Bun.sleep(1);
  const elapsedMs = startOwnTime();
  await sweepers.stop();
  expect(elapsedMs()).toBeLessThan(500);
  const rounds = due.batches.length;
  await pause(20, "another round would come");
  expect(due.batches.length).toBe(rounds);
});
