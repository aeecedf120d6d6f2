/** Registration, its status, and the replacement of the full document over HTTP. */
import { afterAll, beforeAll } from "bun:test";
import { replacementScenarios } from "./document.scenarios.ts";
import { registrationAreaScenarios } from "./registration.scenarios.ts";
import { openStage, playScenarios, type Stage } from "./stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

playScenarios([...registrationAreaScenarios, ...replacementScenarios], () => stage);
