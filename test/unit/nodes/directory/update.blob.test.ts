/**
 * A document that comes as a blob is held to the ids that a document in JSON gets: absolute ones,
 * of its own DID.
 */
import { expect, test } from "bun:test";
import { encodeHex0x } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { isFault } from "../../../../src/core/fault.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";
import { encodeDidDocument } from "../../../../src/core/ledger/document-codec.ts";
import { parseDocumentMember } from "../../../../src/nodes/directory/update.ts";

const did = "did:svc:1111111111111111111111" as Did;
const other = "did:svc:3333333333333333333333";
const key = (id: string) => ({ id, type: "Multikey", controller: did, publicKeyMultibase: "z6Mk" });
const cache = {
  id: `${did}#cache`,
  type: "SvcCacheService",
  serviceEndpoint: ["https://cache.example"],
  authorization: [`${did}#k1`],
  priority: null,
};
const whole: DidDocument = {
  id: did,
  verificationMethod: [key(`${did}#k1`)],
  authentication: [`${did}#k1`],
  keyAgreement: [key(`${did}#x1`)],
  service: [cache, { ...cache, id: `${did}#inbox`, authorization: null, priority: 7 }],
};

const strangers: readonly (readonly [place: string, patch: Partial<DidDocument>])[] = [
  ["the document", { id: other }],
  ["a method", { verificationMethod: [key("#k1")] }],
  ["authentication", { authentication: [`${other}#k1`] }],
  ["a key agreement", { keyAgreement: [key("x1")] }],
  ["a service", { service: [{ ...cache, id: "" }] }],
  ["the keys of a service", { service: [{ ...cache, authorization: ["#k1"] }] }],
];

const read = (document: DidDocument) =>
  parseDocumentMember({ doc_blob: encodeHex0x(encodeDidDocument(document)) }, did);

test("a blob with absolute ids of the DID is taken as it is", () => {
  expect(read(whole)).toEqual(encodeDidDocument(whole));
  const empty = {
    id: did,
    verificationMethod: [],
    authentication: [],
    keyAgreement: [],
    service: [],
  };
  expect(read(empty)).toEqual(encodeDidDocument(empty));
});

test.each(strangers)("another id of %s is refused", (_place, patch) => {
  const refused = read({ ...whole, ...patch });
  if (!isFault(refused)) throw new Error("accepted");
  expect([refused.code, refused.extra.errors?.[0]?.pointer]).toEqual([
    "invalid_request",
    "/doc_blob",
  ]);
});
