/**
 * All lists of the Directory's scenarios with the settings that each runs under. The coverage test
 * counts over these areas and the chain tests run them, so a scenario that is in none is noticed.
 */
import type { DirectorySettings } from "../../../src/nodes/directory/parts.ts";
import { deviceScenarios } from "./devices.scenarios.ts";
import { replacementScenarios } from "./document.scenarios.ts";
import { deniedScenarios, policyScenarios } from "./policies.scenarios.ts";
import { prepareScenarios, versionScenarios } from "./prepare.scenarios.ts";
import { pathScenarios, payloadScenarios, readScenarios } from "./reads.scenarios.ts";
import { paceScenarios, registrationAreaScenarios } from "./registration.scenarios.ts";
import type { Scenario } from "./stage.ts";
import { updateScenarios } from "./updates.scenarios.ts";

export type Area = {
  readonly name: string;
  readonly scenarios: readonly Scenario[];
  readonly options: Partial<DirectorySettings>;
};

export const directoryAreas: readonly Area[] = [
  {
    name: "reads, paths and payload texts",
    scenarios: [...readScenarios, ...pathScenarios, ...payloadScenarios],
    options: {},
  },
  {
    name: "registration and documents",
    scenarios: [...registrationAreaScenarios, ...replacementScenarios],
    options: {},
  },
  { name: "invitations of own devices", scenarios: deviceScenarios, options: {} },
  { name: "signed updates", scenarios: updateScenarios, options: {} },
  {
    name: "policies where proofs are not wanted",
    scenarios: policyScenarios,
    options: { unsigned_updates: "allow" },
  },
  {
    name: "policies where proofs are wanted",
    scenarios: deniedScenarios,
    options: { unsigned_updates: "deny" },
  },
  { name: "preparation", scenarios: prepareScenarios, options: { unsigned_updates: "deny" } },
  {
    name: "the pace of registrations",
    scenarios: paceScenarios,
    options: { registration_burst: 3, registration_rate: 1 },
  },
  {
    name: "version 1 proofs alone",
    scenarios: versionScenarios.v1,
    options: { registration_proofs: ["v1"] },
  },
  {
    name: "version 2 proofs alone",
    scenarios: versionScenarios.v2,
    options: { registration_proofs: ["v2"] },
  },
];
