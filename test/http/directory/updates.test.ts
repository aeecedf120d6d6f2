/** Signed updates over HTTP: every row of the endpoint and error tables, from the scenario records. */
import { afterAll, beforeAll } from "bun:test";
import { openStage, playScenarios, type Stage } from "./stage.ts";
import { updateScenarios } from "./updates.scenarios.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

playScenarios(updateScenarios, () => stage);
