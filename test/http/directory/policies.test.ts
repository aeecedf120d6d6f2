/** Primary alias, policy links and policies over HTTP, where proofs are required and where they are not. */
import { afterAll, beforeAll, describe } from "bun:test";
import { deniedScenarios, policyScenarios } from "./policies.scenarios.ts";
import { openStage, playScenarios, type Stage } from "./stage.ts";

for (const unsigned_updates of ["allow", "deny"] as const) {
  describe(`unsigned updates: ${unsigned_updates}`, () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await openStage({ unsigned_updates });
    });
    afterAll(() => stage.close());
    playScenarios(unsigned_updates === "allow" ? policyScenarios : deniedScenarios, () => stage);
  });
}
