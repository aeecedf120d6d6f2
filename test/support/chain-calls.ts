/**
 * Two calls of Alice in the form of a chain: a registration, and one that carries its own proof.
 */
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { identityOf, registrationOf } from "./identity.ts";

export const alice = identityOf("alice");
export const registration = registrationOf(alice, { timestamp: "1800000000000" });
export const removal: LedgerCall = {
  name: "remove_service",
  did: alice.did,
  id: `${alice.did}#s`,
  signedPayload: new Uint8Array(3),
  signature: new Uint8Array(64),
  signerKeyId: "root",
};
