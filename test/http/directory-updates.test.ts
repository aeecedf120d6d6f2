/** Signed updates over HTTP: every row of the endpoint and error tables, from the scenario records. */
import { afterAll, beforeAll } from "bun:test";
import { updateScenarios } from "../support/directory-scenarios-updates.ts";
import { openStage, playScenarios, type Stage } from "../support/directory-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

playScenarios(updateScenarios, () => stage);
