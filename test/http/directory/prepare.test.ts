/** Preparation over HTTP, signing included, with every version of the registration proof. */
import { afterAll, beforeAll, describe } from "bun:test";
import { prepareScenarios, versionScenarios } from "./prepare.scenarios.ts";
import { openStage, playScenarios, type Stage } from "./stage.ts";

describe("every version of the registration proof", () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage({ unsigned_updates: "deny" });
  });
  afterAll(() => stage.close());
  playScenarios(prepareScenarios, () => stage);
});

for (const version of ["v1", "v2"] as const) {
  describe(`only version ${version}`, () => {
    let stage: Stage;
    beforeAll(async () => {
      stage = await openStage({ registration_proofs: [version] });
    });
    afterAll(() => stage.close());
    playScenarios(versionScenarios[version], () => stage);
  });
}
