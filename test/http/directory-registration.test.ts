/** Registration, its status, and the replacement of the full document over HTTP. */
import { afterAll, beforeAll } from "bun:test";
import { replacementScenarios } from "../support/directory-scenarios-document.ts";
import { registrationAreaScenarios } from "../support/directory-scenarios-registration.ts";
import { openStage, playScenarios, type Stage } from "../support/directory-stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage();
});
afterAll(() => stage.close());

playScenarios([...registrationAreaScenarios, ...replacementScenarios], () => stage);
