/** What a failed call on the chain is to its caller: the ledger's own fault wherever both know it. */
import { describe, expect, test } from "bun:test";
import type { LedgerCall } from "../../../../src/core/ledger/calls.ts";
import { faultOfRefusal, ledgerErrors, refuse } from "../../../../src/core/ledger/refusals.ts";
import { faultOfFailure } from "../../../../src/plugins/chain/blocks.ts";
import { identityOf, registrationOf } from "../../../support/identity.ts";

const alice = identityOf("alice");
const registration = registrationOf(alice, { timestamp: "1800000000000" });
const removal: LedgerCall = {
  name: "remove_service",
  did: alice.did,
  id: `${alice.did}#s`,
  signedPayload: new Uint8Array(3),
  signature: new Uint8Array(64),
  signerKeyId: "root",
};

describe("faults", () => {
  test("are the ledger's for every error that both know", () => {
    for (const error of ledgerErrors) {
      expect(faultOfFailure({ pallet: "did_registry", error }, removal)).toEqual(faultOfRefusal(refuse(error)));
    }
  });

  test("of a whole document are told as such", () => {
    const failure = { pallet: "did_registry", error: "ServiceAlreadyExists" } as const;
    expect(faultOfFailure(failure, registration).code).toBe("document_invalid");
    expect(faultOfFailure(failure, removal).code).toBe("component_exists");
  });

  test("that nobody knows are refusals of the chain with their name", () => {
    for (const failure of [
      { pallet: null, error: "InvalidSignature" },
      { pallet: "did_registry", error: "Novel" },
    ] as const) {
      const { code, detail } = faultOfFailure(failure, removal);
      expect([code, detail.includes(failure.error)]).toEqual(["chain_submission_rejected", true]);
    }
  });
});
