/**
 * Every scenario of the Directory over HTTP: each area runs on a Directory with its settings.
 * `test/chain` runs the same areas on a chain.
 */
import { afterAll, beforeAll, describe } from "bun:test";
import { directoryAreas } from "./areas.ts";
import { openStage, playScenarios, type Stage } from "./stage.ts";

for (const { name, scenarios, options } of directoryAreas) {
  describe(name, () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await openStage(options);
    });
    afterAll(() => stage.close());
    playScenarios(scenarios, () => stage);
  });
}
