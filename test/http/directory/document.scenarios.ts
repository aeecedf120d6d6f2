/**
 * Scenarios of the replacement of the full document, with proofs of version 1 and 2.
 */
import { expect } from "bun:test";
import { renderPublicKey, utf8 } from "../../../src/core/codec/bytes.ts";
import { emptyDocument } from "../../../src/core/ledger/document.ts";
import { encodeDidDocument } from "../../../src/core/ledger/document-codec.ts";
import {
  documentBlobOf,
  type Json,
  type Reply,
  replaceBodyOf,
  simpleDocument,
} from "../../support/directory.ts";
import { type Identity, keyOf } from "../../support/identity.ts";
import { outages } from "./outages.ts";
import type { Refusal } from "./registration.scenarios.ts";
import { richDocument, type Scenario, type Stage } from "./stage.ts";

const replace = "PUT /dids/:did/document/proof";

function sendReplacement(
  stage: Stage,
  identity: Identity,
  members: Json & { timestamp: string },
  spoil: Json = {},
): Promise<Reply> {
  const body = { ...replaceBodyOf(identity, members), ...spoil };
  return stage.ask("PUT", `/dids/${encodeURIComponent(identity.did)}/document/proof`, body);
}

const changed = (identity: Identity): Json => ({ ...simpleDocument(identity), service: [] });
const isoOf = (stage: Stage, aheadMs = 0): string =>
  new Date(stage.nowMs() + aheadMs).toISOString();

/** JSON can't say this: the parser expands and holds ids to the DID. */
function foreignIds({ did }: Identity, other: Identity): Uint8Array {
  const service = {
    id: `${other.did}#s`,
    type: "T",
    serviceEndpoint: ["https://s.example"],
    authorization: null,
    priority: null,
  };
  return encodeDidDocument({ ...emptyDocument(did), service: [service] });
}

const replacementRefusals: readonly (Refusal & { unregistered?: (stage: Stage) => Identity })[] = [
  {
    name: "neither document nor blob",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ document: undefined }),
    pointers: ["/document"],
  },
  {
    name: "both document and blob",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ doc_blob: "0x00" }),
    pointers: ["/document"],
  },
  {
    name: "a blob that is not the text of bytes",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ document: undefined, doc_blob: "?" }),
    pointers: ["/doc_blob"],
  },
  {
    name: "a malformed public key",
    status: 400,
    code: "invalid_request",
    spoil: () => ({ pubkey: "z" }),
    pointers: ["/pubkey"],
  },
  {
    name: "a document of another DID",
    status: 400,
    code: "invalid_request",
    spoil: (stage) => ({ document: { id: stage.unknown.did } }),
    pointers: ["/document/id"],
  },
  {
    name: "a blob of another DID",
    status: 400,
    code: "invalid_request",
    members: (stage) => ({
      timestamp: isoOf(stage),
      document: undefined,
      doc_blob: documentBlobOf({ id: stage.unknown.did }, stage.unknown.did),
    }),
    pointers: ["/doc_blob"],
  },
  {
    name: "a blob with an id of another DID",
    status: 400,
    code: "invalid_request",
    members: (stage, own) => ({
      timestamp: isoOf(stage),
      document: undefined,
      doc_blob: foreignIds(own, stage.unknown),
    }),
    pointers: ["/doc_blob"],
  },
  {
    name: "another DID than the path names",
    status: 400,
    code: "path_body_mismatch",
    spoil: (stage) => ({ did: stage.unknown.did }),
    pointers: ["/did"],
  },
  {
    name: "a stale timestamp",
    status: 400,
    code: "authorization_expired",
    members: (stage) => ({ timestamp: isoOf(stage, -300_001) }),
  },
  {
    name: "a timestamp of the future",
    status: 400,
    code: "authorization_too_far_ahead",
    members: (stage) => ({ timestamp: isoOf(stage, 300_001) }),
  },
  {
    name: "a version 2 proof that ends too late",
    status: 400,
    code: "authorization_too_far_ahead",
    members: (stage) => ({ timestamp: `v2:0:${stage.nowMs() + 3_600_001}` }),
  },
  {
    name: "a blob with trailing bytes",
    status: 422,
    code: "document_invalid",
    members: (stage) => ({
      timestamp: isoOf(stage),
      document: undefined,
      doc_blob: utf8("no document at all"),
    }),
  },
  {
    name: "authentication without its method",
    status: 422,
    code: "document_invalid",
    members: (stage) => ({
      timestamp: isoOf(stage),
      document: { id: stage.standing.did, authentication: ["#a"] },
    }),
  },
  {
    name: "a DID that is not registered",
    status: 404,
    code: "did_not_found",
    unregistered: (stage) => stage.unknown,
  },
  {
    name: "a deactivated DID",
    status: 422,
    code: "did_deactivated",
    unregistered: (stage) => stage.deactivated,
  },
  {
    name: "a stale document nonce",
    status: 409,
    code: "nonce_mismatch",
    members: (stage) => ({ timestamp: `v2:7:${stage.nowMs() + 1_000}` }),
  },
  {
    name: "a signature of a stranger's key",
    status: 403,
    code: "invalid_signature",
    spoil: () => ({ pubkey: renderPublicKey(keyOf("a stranger").publicKey) }),
  },
  {
    name: "a signature over another document",
    status: 403,
    code: "invalid_signature",
    spoil: (stage) => ({ document: { id: stage.standing.did } }),
  },
];

async function expectReplaced(reply: Reply, stage: Stage): Promise<void> {
  expect(Object.keys(reply.body).sort()).toEqual([
    "action",
    "did",
    "extrinsic",
    "message",
    "status",
    "tx_hash",
  ]);
  expect(reply.body).toMatchObject({
    action: "replace_document",
    extrinsic: "set_document_with_proof",
  });
  expect(await stage.settle(reply)).toMatchObject({ state: "finalized" });
  const { body } = await stage.ask("GET", `/resolve/${reply.body["did"]}`);
  expect((body["document"] as Json)["service"]).toEqual([]);
  expect(body["version"]).toBe(2);
}

export const replacementScenarios: readonly Scenario[] = [
  {
    name: "is accepted with a version 1 proof and leaves the document nonce alone",
    route: replace,
    status: 202,
    act: async (stage) => {
      const own = await stage.fresh();
      return sendReplacement(stage, own, { timestamp: isoOf(stage), document: changed(own) });
    },
    check: async (reply, stage) => {
      await expectReplaced(reply, stage);
      expect(
        (await stage.ask("GET", `/dids/${reply.body["did"]}/nonces`)).body["document_nonce"],
      ).toBe("0");
    },
  },
  {
    name: "is accepted with a version 2 proof and a blob, and uses up the document nonce",
    route: replace,
    status: 202,
    act: async (stage) => {
      const own = await stage.fresh();
      const blob = documentBlobOf(changed(own), own.did);
      return sendReplacement(stage, own, {
        timestamp: `v2:0:${stage.nowMs() + 60_000}`,
        doc_blob: blob,
      });
    },
    check: async (reply, stage) => {
      await expectReplaced(reply, stage);
      expect(
        (await stage.ask("GET", `/dids/${reply.body["did"]}/nonces`)).body["document_nonce"],
      ).toBe("1");
    },
  },
  {
    name: "refuses an older version 1 document",
    route: replace,
    status: 409,
    code: "document_stale",
    act: async (stage) => {
      const own = await stage.fresh();
      const body = { timestamp: isoOf(stage), document: changed(own) };
      await stage.settle(await sendReplacement(stage, own, body));
      return sendReplacement(stage, own, { ...body, document: richDocument(own) });
    },
  },
  ...replacementRefusals.map(
    ({ name, status: answered, code, members, spoil, pointers, unregistered }): Scenario => ({
      name: `refuses ${name}`,
      route: replace,
      status: answered,
      code,
      ...(pointers === undefined ? {} : { pointers }),
      act: (stage) => {
        const own = unregistered?.(stage) ?? stage.standing;
        const given = { timestamp: isoOf(stage), document: changed(own), ...members?.(stage, own) };
        return sendReplacement(stage, own, given, spoil?.(stage, own));
      },
    }),
  ),
  {
    name: "refuses a path without a DID of this service",
    route: replace,
    status: 400,
    code: "invalid_did",
    act: (stage) =>
      stage.ask(
        "PUT",
        "/dids/did%3Asvc%3A0/document/proof",
        replaceBodyOf(stage.standing, {
          timestamp: isoOf(stage),
          document: changed(stage.standing),
        }),
      ),
  },
  ...outages(replace, async (stage) => {
    const own = stage.standing;
    return sendReplacement(stage, own, {
      timestamp: isoOf(stage, 1_000),
      document: richDocument(own),
    });
  }),
];
