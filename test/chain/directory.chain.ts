/**
 * All scenarios of the Directory over HTTP on the chain: what it answers must not depend on which ledger stands
 * behind it. Blocks come when calls wait, at the time of the Directory's clock, which tests move by hand.
 */
import { afterAll, beforeAll, describe } from "bun:test";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { directoryAreas } from "../http/directory/areas.ts";
import { openStage, playScenarios, type Stage } from "../http/directory/stage.ts";
import { openMemory } from "../support/directory.ts";
import { endStand, openStore, startNode } from "./stand.ts";

const slotMs = 6_000;

/** A chain of its own, with the other capabilities in memory. */
async function openOnChain(environment: StoreEnvironment): Promise<Store> {
  const node = await startNode({ manual: true });
  let going = true;
  const build = async () => {
    while (going) {
      const waiting = await node.ask<string[]>("author_pendingExtrinsics");
      if (waiting.length === 0) await Bun.sleep(5);
      else {
        await node.ask("dev_timeTravel", [environment.now() - slotMs]);
        await node.ask("dev_newBlock");
      }
    }
  };
  await node.ask("dev_timeTravel", [environment.now() - 2 * slotMs]);
  await node.ask("dev_newBlock");
  const building = build();
  const chain = await openStore(environment, { endpoints: [node.endpoint], block_time_ms: 6_000, resend_ms: 3_000 });
  const memory = await openMemory(10)(environment);
  return {
    plugin: "chain",
    durability: "volatile",
    capabilities: { ...memory.capabilities, ledger: chain.capabilities.ledger! },
    probe: () => chain.probe(),
    importLedger: null,
    async close() {
      await chain.close();
      await memory.close();
      going = false;
      await building;
      await node.kill();
    },
  };
}

afterAll(endStand);

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
