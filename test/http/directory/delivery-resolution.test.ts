/**
 * `GET /delivery-resolution/{target}`: the key to seal to and the limits, for every state of a
 * recipient.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { isFault } from "../../../src/core/fault.ts";
import { resolutionAnswer } from "../../../src/core/schema/directory.ts";
import { compileShape } from "../../../src/core/schema/schema.ts";
import { type Json, type Reply, simpleDocument } from "../../support/directory.ts";
import type { Identity } from "../../support/identity.ts";
import { limitsDefault } from "../../support/settings.ts";
import { certified, freshLabel } from "./certified.ts";
import { agreementOf, openStage, richDocument, type Stage } from "./stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await openStage({ unsigned_updates: "allow" });
});
afterAll(() => stage.close());

const ask = (target: string, query = "") =>
  stage.ask("GET", `/delivery-resolution/${encodeURIComponent(target)}${query}`);

const constraintsOf = (reply: Reply): Json =>
  (reply.body["policy"] as Json)["effective_constraints"] as Json;

async function setPolicy(identity: Identity, path: string, body: Json): Promise<void> {
  const reply = await stage.ask("PUT", path, { did: identity.did, ...body });
  expect(reply.status).toBe(202);
  expect((await stage.settle(reply)).state).toBe("finalized");
}

const policy = (bytes: number) => ({
  policy: { effective_ttl: 100, max_message_bytes: bytes, cache_eligible: true },
});

test("a recipient without policies is sealed to by its key, within the limits of the node", async () => {
  const { did } = stage.standing;
  const reply = await ask(did);
  expect(reply.status).toBe(200);
  const parsed = compileShape(resolutionAnswer)(reply.body);
  expect(isFault(parsed)).toBe(false);
  expect(reply.body).toEqual({
    target: did,
    encryption_profile: "direct",
    recipient_key_id: `${did}#x25519-1`,
    recipient_public_key_multibase: agreementOf(stage.standing, "x25519-1")["publicKeyMultibase"],
    policy: {
      effective_constraints: {
        max_chunk_bytes: limitsDefault.chunk_bytes_max,
        max_unchunked_message_bytes: limitsDefault.unchunked_bytes_max,
        max_http_envelope_bytes: limitsDefault.body_bytes_max,
      },
    },
  });
});

test("policies tighten the sizes, and an admitted tag more", async () => {
  const identity = await stage.fresh();
  const tag = await stage.fresh();
  await setPolicy(identity, `/delivery-policies/recipients/${identity.did}`, policy(3_000_000));
  expect(constraintsOf(await ask(identity.did))).toMatchObject({
    max_message_bytes: 3_000_000,
    max_unchunked_message_bytes: 3_000_000,
    max_chunk_bytes: limitsDefault.chunk_bytes_max,
  });
  await setPolicy(tag, `/delivery-policies/tags/${tag.did}`, policy(1_000));
  await setPolicy(identity, `/dids/${identity.did}/delivery-policy-links`, {
    tag_policies: [tag.did],
  });
  const tagged = await ask(identity.did, `?tag=${encodeURIComponent(tag.did)}`);
  expect(constraintsOf(tagged)).toMatchObject({ max_message_bytes: 1_000, max_chunk_bytes: 1_000 });
  const other = await ask(identity.did, "?tag=other");
  expect([other.status, other.body["code"]]).toEqual([403, "policy_denied"]);
});

test("the first key that is an X25519 key counts", async () => {
  const identity = await stage.fresh((own) => {
    const foreign = { ...agreementOf(own, "p256"), type: "Multikey", publicKeyMultibase: "zNoKey" };
    return { ...richDocument(own), keyAgreement: [foreign, agreementOf(own, "x2")] };
  });
  expect((await ask(identity.did)).body["recipient_key_id"]).toBe(`${identity.did}#x2`);
});

test.each([
  ["an unknown recipient", () => ask(stage.unknown.did), 404, "did_not_found"],
  ["a deactivated one", () => ask(stage.deactivated.did), 422, "did_deactivated"],
  ["no DID of this service", () => ask("did:web:x"), 400, "invalid_did"],
  ["no tag", () => ask(stage.standing.did, "?tag=%0A"), 400, "invalid_request"],
] as const)("%s is refused", async (_, act, status, code) => {
  const reply = await act();
  expect([reply.status, reply.body["code"]]).toEqual([status, code]);
});

test("a recipient without a key agreement is refused", async () => {
  const identity = await stage.fresh((own) => simpleDocument(own));
  const reply = await ask(identity.did);
  expect([reply.status, reply.body["code"]]).toEqual([404, "component_not_found"]);
});

test("a self-certifying recipient comes with its proof for a client that asks, unless it has just this one", async () => {
  const { did } = await certified(stage, freshLabel());
  expect(Object.keys((await ask(did)).body)).not.toContain("key_proof");
  const proof = String((await ask(did, "?proof=")).body["key_proof"]);
  const hex = (await stage.ask("GET", `/dids/${did}/proof`)).body["hex"];
  expect(Uint8Array.fromBase64(proof).toHex()).toBe(String(hex));
  const known = new Bun.CryptoHasher("sha256").update(Uint8Array.fromBase64(proof)).digest("hex");
  expect((await ask(did, `?proof=${known}`)).body["key_proof"]).toBe("");
  expect(Object.keys((await ask(did, `?proof=${"0".repeat(64)}`)).body)).toContain("key_proof");
  expect((await ask(did, "?proof=abc")).body["code"]).toBe("invalid_request");
  expect(Object.keys((await ask(stage.standing.did, "?proof=")).body)).not.toContain("key_proof");
});
