/**
 * The identity of every example: that of the worked vectors. Its key is known to all (seed of 32 bytes 07), so the
 * examples of the documentation really verify, at 12:00 on 16 July 2026 with all counters at 0.
 * Source: docs/ledger.md 5.
 */
import type { Did } from "../codec/did.ts";
import type { DidDocument, Service, VerificationMethod } from "./document-form.ts";

export const exampleDid = "did:svc:1111111111111111111111" as Did;
export const exampleSeed = new Uint8Array(32).fill(7);
export const exampleKey = "z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z";
/** Another key: for the examples that replace one. */
export const exampleNewKey = "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";
export const exampleTime = "2026-07-16T12:00:00Z";
export const exampleValidUntil = "1784203500000";

export const exampleMethod: VerificationMethod = {
  id: `${exampleDid}#k1`,
  type: "Multikey",
  controller: exampleDid,
  publicKeyMultibase: exampleKey,
};
export const exampleSecondMethod: VerificationMethod = { ...exampleMethod, id: `${exampleDid}#k2` };

export const exampleAgreement: VerificationMethod = {
  id: `${exampleDid}#x25519-1`,
  type: "X25519KeyAgreementKey2020",
  controller: exampleDid,
  publicKeyMultibase: "z6LSgtvMnb35HnMsEx48tQXVmXHLUAutTBadN6Zr6bwfmtkz",
};

export const exampleService: Service = {
  id: `${exampleDid}#cache`,
  type: "SvcCacheService",
  serviceEndpoint: ["https://cache.example"],
  authorization: [`${exampleDid}#k1`],
  priority: null,
};

/** The document of worked vector 9. */
export const exampleDocument: DidDocument = {
  id: exampleDid,
  verificationMethod: [exampleMethod],
  authentication: [exampleMethod.id],
  keyAgreement: [],
  service: [exampleService],
};

/** What stands on the ledger when the examples of updates are sent. */
export const exampleStanding = {
  document: {
    ...exampleDocument,
    verificationMethod: [exampleMethod, exampleSecondMethod],
    keyAgreement: [exampleAgreement],
  },
  alias: "team.one",
};
