/**
 * Scenarios of the reads: nonces, resolved records, aliases, submissions, and of paths in all their
 * encodings.
 */
import { expect } from "bun:test";
import { encodeBase64, renderPublicKey } from "../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../src/core/codec/crypto.ts";
import type { ActionName } from "../../../src/core/ledger/actions.ts";
import { decodeKeyProof, replayKeyProof } from "../../../src/core/ledger/key-proof.ts";
import type { Json } from "../../support/directory.ts";
import { freshLabel, rotated } from "./certified.ts";
import { outages } from "./outages.ts";
import { aliasOf, noRoute, richDocument, type Scenario, type Stage, sendUpdate } from "./stage.ts";

const unreadable = (route: string, act: Scenario["act"]): Scenario =>
  outages(route, act)[0] as Scenario;

const nonces = "GET /dids/:did/nonces";
const keyProof = "GET /dids/:did/proof";
const resolve = "GET /resolve/:did";
const alias = "GET /aliases/:alias";
const submission = "GET /submissions/:txHash";

const about = (stage: Stage): string => encodeURIComponent(stage.standing.did);

export const readScenarios: readonly Scenario[] = [
  {
    name: "answers the four counters as text",
    route: nonces,
    status: 200,
    act: (stage) => stage.ask("GET", `/dids/${about(stage)}/nonces`),
    check: ({ body }, { standing }) =>
      expect(body).toEqual({
        did: standing.did,
        document_nonce: "0",
        alias_nonce: "0",
        root_pubkey_nonce: "0",
        control_nonce: "0",
      }),
  },
  {
    name: "answers 404 for a DID that is not registered",
    route: nonces,
    status: 404,
    code: "did_not_found",
    act: (stage) => stage.ask("GET", `/dids/${stage.unknown.did}/nonces`),
  },
  {
    name: "refuses a malformed DID",
    route: nonces,
    status: 400,
    code: "invalid_did",
    act: (stage) => stage.ask("GET", "/dids/did%3Asvc%3A111/nonces"),
  },
  unreadable(nonces, (stage) => stage.ask("GET", `/dids/${about(stage)}/nonces`)),
  {
    name: "answers what proves the keys of a self-certifying DID, after a rotation too",
    route: keyProof,
    status: 200,
    act: async (stage) =>
      stage.ask("GET", `/dids/${(await rotated(stage, freshLabel())).did}/proof`),
    check: async ({ body, headers }, stage) => {
      expect(headers.get("content-type")).toBe("application/octet-stream");
      const bytes = Uint8Array.fromHex(String(body["hex"]));
      const proof = decodeKeyProof(bytes);
      const state = proof === null ? null : replayKeyProof(proof);
      expect(
        state?.signatures.map((one) => verifyEd25519(one.signature, one.message, one.publicKey)),
      ).toEqual([true, true]);
      const { body: record } = await stage.ask("GET", `/resolve/${state?.did}`);
      expect(record["root_pubkey"]).toBe(renderPublicKey(state?.rootKeys.at(-1) as Uint8Array));
      const known = new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
      const again = await stage.ask("GET", `/dids/${state?.did}/proof?known=${known}`);
      expect([again.status, again.body]).toEqual([200, { hex: "" }]);
    },
  },
  {
    name: "has no proof of a random DID",
    route: keyProof,
    status: 404,
    code: "not_found",
    act: (stage) => stage.ask("GET", `/dids/${about(stage)}/proof`),
  },
  {
    name: "has no proof of a DID that is not registered",
    route: keyProof,
    status: 404,
    code: "did_not_found",
    act: (stage) => stage.ask("GET", `/dids/${stage.unknown.did}/proof`),
  },
  {
    name: "has no proof of a deactivated DID",
    route: keyProof,
    status: 422,
    code: "did_deactivated",
    act: (stage) => stage.ask("GET", `/dids/${stage.deactivated.did}/proof`),
  },
  {
    name: "refuses a malformed DID",
    route: keyProof,
    status: 400,
    code: "invalid_did",
    act: (stage) => stage.ask("GET", "/dids/did%3Asvc%3A111/proof"),
  },
  {
    name: "refuses a hash that is none",
    route: keyProof,
    status: 400,
    code: "invalid_request",
    act: (stage) => stage.ask("GET", `/dids/${about(stage)}/proof?known=0x11`),
  },
  unreadable(keyProof, (stage) => stage.ask("GET", `/dids/${about(stage)}/proof`)),
  {
    name: "answers the record",
    route: resolve,
    status: 200,
    act: (stage) => stage.ask("GET", `/resolve/${about(stage)}`),
    check: ({ body }, { standing }) => {
      expect(body).toEqual({
        did: standing.did,
        document: richDocument(standing),
        aliases: [aliasOf(standing)],
        root_pubkey: renderPublicKey(standing.root.publicKey),
        version: 1,
        deactivated: false,
        updated_at: "2026-07-16T12:00:00.000Z",
        delivery_policy_links: null,
      });
    },
  },
  {
    name: "reports that a DID is deactivated",
    route: resolve,
    status: 200,
    act: (stage) => stage.ask("GET", `/resolve/${stage.deactivated.did}`),
    check: ({ body }) => expect(body).toMatchObject({ deactivated: true, version: 2 }),
  },
  {
    name: "answers 404 for a DID that is not registered",
    route: resolve,
    status: 404,
    code: "did_not_found",
    act: (stage) => stage.ask("GET", `/resolve/${stage.unknown.did}`),
  },
  {
    name: "refuses a malformed DID",
    route: resolve,
    status: 400,
    code: "invalid_did",
    act: (stage) => stage.ask("GET", "/resolve/x"),
  },
  {
    name: "refuses a home that is none",
    route: resolve,
    status: 400,
    code: "invalid_request",
    act: (stage) => stage.ask("GET", `/resolve/${about(stage)}?home=nodot`),
  },
  unreadable(resolve, (stage) => stage.ask("GET", `/resolve/${about(stage)}`)),
  {
    name: "answers the holder, whatever the case of the question",
    route: alias,
    status: 200,
    act: (stage) => stage.ask("GET", `/aliases/${aliasOf(stage.standing).toUpperCase()}`),
    check: ({ body }, { standing }) =>
      expect(body).toEqual({ alias: aliasOf(standing), did: standing.did }),
  },
  {
    name: "answers 404 for a free alias",
    route: alias,
    status: 404,
    code: "alias_not_found",
    act: (stage) => stage.ask("GET", "/aliases/nobody"),
  },
  {
    name: "refuses a malformed alias",
    route: alias,
    status: 400,
    code: "invalid_request",
    act: (stage) => stage.ask("GET", "/aliases/a%40b"),
  },
  unreadable(alias, (stage) => stage.ask("GET", `/aliases/${aliasOf(stage.standing)}`)),
  {
    name: "reports why a submission failed later",
    route: submission,
    status: 200,
    act: async (stage) => {
      const identity = await stage.fresh();
      const alias = `late-${identity.did.slice(8, 20).toLowerCase()}`;
      const send = (action: ActionName, path: string, members: Json) =>
        sendUpdate(stage, {
          identity,
          action,
          method: "POST",
          path: `/dids/${identity.did}/${path}`,
          members,
        });
      const lost = await stage.beforeBlock(async () => {
        const won = await send("deactivate_did", "deactivate", {});
        const late = await send("add_alias", "aliases", {
          alias,
          timestamp: String(stage.nowMs()),
        });
        expect([won.status, late.status]).toEqual([202, 202]);
        return late;
      });
      await stage.settle(lost);
      return stage.ask("GET", `/submissions/${lost.body["tx_hash"]}`);
    },
    check: ({ body }) => {
      expect(body).toMatchObject({
        action: "add_alias",
        state: "failed",
        reason: { code: "did_deactivated" },
      });
      const names = [
        "action",
        "block_hash",
        "block_number",
        "did",
        "reason",
        "state",
        "submitted_at",
        "tx_hash",
      ];
      expect(Object.keys(body).sort()).toEqual(names);
    },
  },
  {
    name: "answers pending before a block has it",
    route: submission,
    status: 200,
    act: async (stage) => {
      const { did } = await stage.fresh();
      return stage.beforeBlock(async () => {
        const reply = await stage.ask("PUT", `/dids/${did}/delivery-policy-links`, { did });
        const digits = String(reply.body["tx_hash"]).slice(2).toUpperCase();
        return stage.ask("GET", `/submissions/0x${digits}`);
      });
    },
    check: ({ body }) =>
      expect(body).toMatchObject({
        extrinsic: "set_delivery_policy_links",
        state: "pending",
        reason: null,
        block_hash: null,
        block_number: null,
      }),
  },
  {
    name: "answers 404 for a transaction it does not know",
    route: submission,
    status: 404,
    code: "not_found",
    act: (stage) => stage.ask("GET", `/submissions/0x${"0".repeat(64)}`),
  },
  {
    name: "refuses a malformed transaction hash",
    route: submission,
    status: 400,
    code: "invalid_request",
    act: (stage) => stage.ask("GET", "/submissions/0x12"),
  },
  unreadable(submission, (stage) => stage.ask("GET", `/submissions/0x${"0".repeat(64)}`)),
];

// ------------------------------------------------------------------------------------------- paths

const remove = "DELETE /dids/:did/document/services/:serviceId";

/** The service `#cache` of a fresh identity is removed under a path as given. */
function removal(
  name: string,
  pathOf: (did: string) => string,
  refused?: Pick<Scenario, "status" | "code">,
): Scenario {
  return {
    name,
    route: remove,
    status: 202,
    ...refused,
    act: async (stage) => {
      const identity = await stage.fresh();
      const path = `/dids/${pathOf(identity.did)}`;
      const members = { id: `${identity.did}#cache` };
      return sendUpdate(stage, {
        identity,
        action: "RemoveService",
        method: "DELETE",
        path,
        members,
      });
    },
  };
}

const invalid = { status: 400, code: "invalid_request" } as const;

export const pathScenarios: readonly Scenario[] = [
  removal(
    "takes upper-case escapes",
    (did) =>
      `${did.replaceAll(":", "%3A")}/document/services/${did.replaceAll(":", "%3A")}%23cache`,
  ),
  removal(
    "takes lower-case escapes",
    (did) =>
      `${did.replaceAll(":", "%3a")}/document/services/${did.replaceAll(":", "%3a")}%23cache`,
  ),
  removal("takes a DID without escapes", (did) => `${did}/document/services/${did}%23cache`),
  removal("takes a relative id", (did) => `${did}/document/services/%23cache`),
  removal(
    "takes any character escaped",
    (did) => `%64${did.slice(1)}/document/services/%23%63ache`,
  ),
  removal("refuses an id without a fragment", (did) => `${did}/document/services/${did}`, invalid),
  removal(
    "refuses an id of another DID",
    (did) => `${did}/document/services/did:svc:1111111111111111%23cache`,
    invalid,
  ),
  removal(
    "refuses an encoded slash in an id",
    (did) => `${did}/document/services/%23cache%2F`,
    invalid,
  ),
  removal("refuses NUL in an id", (did) => `${did}/document/services/%23cache%00`, invalid),
  {
    ...removal(
      "reaches no route with a dot segment as an id",
      (did) => `${did}/document/services/%2e%2e`,
    ),
    route: noRoute,
    status: 404,
    code: "not_found",
  },
  removal(
    "refuses an escape that is not UTF-8",
    (did) => `${did}/document/services/%23cache%ff`,
    invalid,
  ),
  removal(
    "refuses an escape of an escape",
    (did) => `${did}/document/services/%2523cache`,
    invalid,
  ),
  removal("refuses an encoded slash in a DID", (did) => `${did}%2F/document/services/%23cache`, {
    status: 400,
    code: "invalid_did",
  }),
  removal("refuses NUL in a DID", (did) => `${did}%00/document/services/%23cache`, invalid),
  removal(
    "refuses a DID that decodes to another than the body's",
    (did) => `${did.slice(0, -1)}%31/document/services/%23cache`,
    { status: 400, code: "path_body_mismatch" },
  ),
];

// ---------------------------------------------------------------------------------------- payloads

/** A signed update is the same in each of its text forms, and an integer for its end. */
export const payloadScenarios: readonly Scenario[] = (
  [
    ["Base64", (bytes: Uint8Array) => encodeBase64(bytes)],
    ["URL-safe Base64", (bytes: Uint8Array) => bytes.toBase64({ alphabet: "base64url" })],
    [
      "URL-safe Base64 without padding",
      (bytes: Uint8Array) => bytes.toBase64({ alphabet: "base64url", omitPadding: true }),
    ],
    ["upper-case hex", (bytes: Uint8Array) => `0x${bytes.toHex().toUpperCase()}`],
  ] as const
).map(([name, encode]) => ({
  name: `takes the payload as ${name}`,
  route: "POST /dids/:did/document/authentication",
  status: 202,
  act: async (stage) => {
    const identity = await stage.fresh();
    return sendUpdate(stage, {
      identity,
      action: "AddAuthentication",
      method: "POST",
      path: `/dids/${identity.did}/document/authentication`,
      members: { id: "#k2" },
      spoil: (body) => ({
        ...body,
        valid_until: Number(body["valid_until"]),
        signer_key_id: undefined,
        canonical_payload: encode(Uint8Array.fromHex(String(body["canonical_payload"]).slice(2))),
      }),
    });
  },
}));
