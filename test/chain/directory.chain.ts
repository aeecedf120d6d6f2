/**
 * All scenarios of the Directory over HTTP on the chain: what it answers must not depend on which
 * ledger stands behind it. Blocks come when calls wait, at the time of the Directory's clock, which
 * tests move by hand.
 */
import { afterAll, beforeAll, describe } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import type { Ledger, Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { directoryAreas } from "../http/directory/areas.ts";
import { openStage, playScenarios, type Stage } from "../http/directory/stage.ts";
import { openMemory } from "../support/directory.ts";
import { endStand, type Node, openStore, startNode } from "./stand.ts";

const slotMs = 6_000;

/** One for all areas: each begins again at the first block. */
let node: Node;
beforeAll(async () => {
  node = await startNode({ manual: true });
});
afterAll(endStand);

/** The other capabilities are in memory. */
async function openOnChain(environment: StoreEnvironment): Promise<Store> {
  let going = true;
  const buildAt = async (ms: number) => {
    await node.ask("dev_timeTravel", [ms]);
    await node.ask("dev_newBlock");
  };
  // Asked all the time, the node would do little else: only a call that has not ended can wait for
  // a block.
  const pending = new Set<string>();
  const build = async () => {
    while (going) {
      for (const hash of pending) {
        const found = await ledger.submission(hash);
        if (found?.state !== "pending") pending.delete(hash);
      }
      const waiting =
        pending.size === 0 ? [] : await node.ask<string[]>("author_pendingExtrinsics");
      if (waiting.length === 0) await Bun.sleep(5);
      else await buildAt(environment.now() - slotMs);
    }
  };
  await node.ask("dev_setHead", [1]);
  await buildAt(environment.now() - 2 * slotMs);
  const chain = await openStore(environment, { endpoints: [node.endpoint], resend_ms: 3_000 });
  const ledger = chain.capabilities.ledger as Ledger;
  const building = build();
  const memory = await openMemory(10)(environment);
  return {
    plugin: "chain",
    capabilities: {
      ...memory.capabilities,
      ledger: {
        ...ledger,
        async submit(...given: Parameters<Ledger["submit"]>) {
          const outcome = await ledger.submit(...given);
          if (!isFault(outcome)) pending.add(outcome.txHash);
          return outcome;
        },
      },
    },
    probe: () => chain.probe(),
    async close() {
      going = false;
      await building;
      await chain.close();
      await memory.close();
      // What no one waited for must not enter a block of the next area.
      const left = await node.ask<string[]>("author_pendingExtrinsics");
      if (left.length > 0) await node.ask("dev_newBlock");
    },
  };
}

for (const { name, scenarios, options } of directoryAreas) {
  describe(`the Directory on a chain: ${name}`, () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await openStage(options, { open: openOnChain, sharesCasts: true });
    });
    afterAll(() => stage.close());
    playScenarios(scenarios, () => stage);
  });
}
