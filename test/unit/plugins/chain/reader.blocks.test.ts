/** What a failed call on the chain is to its caller: the ledger's own fault wherever both know it. */
import { describe, expect, test } from "bun:test";
import { faultOfRefusal, ledgerErrors, refuse } from "../../../../src/core/ledger/refusals.ts";
import { faultOfFailure } from "../../../../src/plugins/chain/reader.ts";
import { registration, removal } from "../../../support/chain-calls.ts";

describe("faults", () => {
  test("are the ledger's for every error that both know", () => {
    for (const error of ledgerErrors) {
      expect(faultOfFailure({ isOurs: true, error }, removal)).toEqual(faultOfRefusal(refuse(error)));
    }
  });

  test("of a whole document are reported as such", () => {
    const failure = { isOurs: true, error: "ServiceAlreadyExists" };
    expect(faultOfFailure(failure, registration).code).toBe("document_invalid");
    expect(faultOfFailure(failure, removal).code).toBe("component_exists");
  });

  test("that nobody knows are refusals of the chain with their name", () => {
    for (const failure of [
      { isOurs: false, error: "InvalidSignature" },
      { isOurs: true, error: "Novel" },
    ] as const) {
      const { code, detail } = faultOfFailure(failure, removal);
      expect([code, detail.includes(failure.error)]).toEqual(["chain_submission_rejected", true]);
    }
  });
});
