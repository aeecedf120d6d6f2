/** Reads, paths and payload texts of the Directory over HTTP. */
import { afterAll, beforeAll } from "bun:test";
import { pathScenarios, payloadScenarios, readScenarios } from "./reads.scenarios.ts";
import { openStage, playScenarios, type Stage } from "./stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

playScenarios([...readScenarios, ...pathScenarios, ...payloadScenarios], () => stage);
