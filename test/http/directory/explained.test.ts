/**
 * Refusals that explain themselves: which member differs from a payload, and in development what
 * was verified.
 */
import { afterEach, expect, test } from "bun:test";
import { encodeBase64, encodeHex0x, parsePublicKey } from "../../../src/core/codec/bytes.ts";
import {
  type Json,
  registerBodyOf,
  type TestDirectory,
  testDirectory,
  updateBodyOf,
} from "../../support/directory.ts";
import { identityOf } from "../../support/identity.ts";
import { methodWith, richDocument, serviceOf, termsAt } from "./stage.ts";

let directory: TestDirectory | null = null;
afterEach(async () => {
  await directory?.close();
  directory = null;
});

async function open(showSignedText: boolean): Promise<TestDirectory> {
  directory = await testDirectory({ showSignedText });
  return directory;
}

const forged = encodeBase64(new Uint8Array(64).fill(1));

test("in development a refused signature shows what was verified; otherwise it does not", async () => {
  for (const showSignedText of [true, false]) {
    const stage = await open(showSignedText);
    const identity = identityOf("explained");
    const timestamp = String(stage.nowMs());
    const registration = {
      ...registerBodyOf(identity, stage.nowMs(), { timestamp }),
      signature: forged,
    };
    const refused = await stage.ask("POST", "/register-did", registration);
    const signedText = showSignedText ? `${identity.did}|${timestamp}` : undefined;
    expect([refused.body["code"], refused.body["signed_text"]]).toEqual([
      "invalid_signature",
      signedText,
    ]);
    await stage.register(identity, { did_document: richDocument(identity) });
    const update = updateBodyOf(
      identity,
      "RemoveService",
      { id: `${identity.did}#cache` },
      termsAt(stage),
    );
    const path = `/dids/${identity.did}/document/services/%23cache`;
    const denied = await stage.ask("DELETE", path, { ...update, signature: forged });
    const payload = showSignedText ? update["canonical_payload"] : undefined;
    expect([denied.body["code"], denied.body["signed_text"]]).toEqual([
      "invalid_signature",
      payload,
    ]);
    await stage.close();
    directory = null;
  }
});

test("a refused proof in headers shows the lines that were verified", async () => {
  const stage = await open(true);
  const identity = identityOf("explained");
  await stage.register(identity);
  const timestamp = new Date(stage.nowMs()).toISOString();
  const headers = {
    "X-Key-Id": "root",
    "X-Timestamp": timestamp,
    "X-Nonce": "12345678",
    "X-Signature": forged,
  };
  const reply = await stage.ask(
    "PUT",
    `/dids/${identity.did}/alias`,
    { did: identity.did, alias: "a.b" },
    headers,
  );
  expect([reply.status, reply.body["code"]]).toEqual([401, "proof_invalid"]);
  expect(String(reply.body["signed_text"]).split("\n").slice(0, 3)).toEqual([
    "svc:directory:update-proof:v1",
    "operation=set_alias",
    `did=${identity.did}`,
  ]);
});

const identity = identityOf("explained");
const method = methodWith(identity, "k9");
const service = serviceOf(identity, "inbox");

/** A body is signed and then says something else: the member at fault comes first. */
const differences: readonly [
  pointer: string,
  action: "AddVerificationMethod" | "AddService",
  change: Json,
][] = [
  [
    "/verification_method",
    "AddVerificationMethod",
    { verification_method: { ...method, type: "Other" } },
  ],
  [
    "/verification_method",
    "AddVerificationMethod",
    { verification_method: { ...method, id: "#other" } },
  ],
  [
    "/service",
    "AddService",
    { service: { ...service, serviceEndpoint: ["https://other.example"] } },
  ],
  ["/service", "AddService", { service: { ...service, priority: 1 } }],
  ["/nonce", "AddService", { nonce: "7", valid_until: "1" }],
  ["/valid_until", "AddService", { valid_until: "1", signer_key_id: `${identity.did}#k1` }],
  ["/signer_key_id", "AddService", { signer_key_id: `${identity.did}#k1` }],
];

test.each(differences)(
  "a payload that differs at %s names that member",
  async (pointer, action, change) => {
    const stage = await open(false);
    const members = action === "AddService" ? { service } : { verification_method: method };
    const body = updateBodyOf(identity, action, members, termsAt(stage));
    const list = action === "AddService" ? "services" : "verification-methods";
    const reply = await stage.ask("POST", `/dids/${identity.did}/document/${list}`, {
      ...body,
      ...change,
    });
    expect([reply.status, reply.body["code"]]).toEqual([400, "payload_mismatch"]);
    const errors = reply.body["errors"] as { pointer: string }[];
    expect(errors.map((error) => error.pointer)).toEqual([pointer, "/canonical_payload"]);
  },
);

test("a payload of another action, DID or key names the action, the DID or the key", async () => {
  const stage = await open(false);
  const id = `${identity.did}#cache`;
  const removal = updateBodyOf(identity, "RemoveService", { id }, termsAt(stage));
  const agreement = { ...removal, action: "RemoveKeyAgreement" };
  const path = `/dids/${identity.did}/document`;
  const pointers = async (reply: Promise<{ readonly body: Json }>) =>
    ((await reply).body["errors"] as { pointer: string }[])[0]?.pointer;
  expect(await pointers(stage.ask("DELETE", `${path}/key-agreements/%23cache`, agreement))).toBe(
    "/action",
  );
  const other = identityOf("someone else");
  const moved = { ...updateBodyOf(identity, "deactivate_did", {}, termsAt(stage)), did: other.did };
  expect(await pointers(stage.ask("POST", `/dids/${other.did}/deactivate`, moved))).toBe("/did");
  const key = (label: string) => encodeHex0x(identityOf(label).root.publicKey);
  expect(parsePublicKey(key("one"))).not.toBeNull();
  const rotation = updateBodyOf(
    identity,
    "UpdateRootPubkey",
    { new_root_pubkey: key("one") },
    termsAt(stage),
  );
  const rotated = stage.ask("PUT", `/dids/${identity.did}/root-pubkey`, {
    ...rotation,
    new_root_pubkey: key("two"),
  });
  expect(await pointers(rotated)).toBe("/new_root_pubkey");
});
