/** Reads, paths and payload texts of the Directory over HTTP. */
import { afterAll, beforeAll } from "bun:test";
import { pathScenarios, payloadScenarios, readScenarios } from "../support/directory-scenarios-reads.ts";
import { openStage, playScenarios, type Stage } from "../support/directory-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

playScenarios([...readScenarios, ...pathScenarios, ...payloadScenarios], () => stage);
