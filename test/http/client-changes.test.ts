/**
 * Changes of an identity over a running node: each component, alias and key, deletion, and what is
 * refused.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { ClientError } from "../../src/client/base/failure.ts";
import { change, changeAsOwner, signIntent } from "../../src/client/identity/change.ts";
import type { Signer } from "../../src/client/keys/crypto.ts";
import type { Identity } from "../../src/client/keys/keys.ts";
import { settleRegistration, waitingDefault } from "../../src/client/net/directory.ts";
import { activeDocument, type Client, connect, lookUp } from "../../src/client/trust/client.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { enrolAt } from "../support/enrolled.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

const waiting = { ...waitingDefault, timeoutMs: 60_000, intervalMs: 20 };
let nodes: TestNodes;
let client: Client;
let alice: Identity;
let bob: Identity;

const enrol = (name: string): Promise<Identity> =>
  enrolAt(client, name, { relayUrl: nodes.url, cacheUrl: nodes.url });

beforeAll(async () => {
  nodes = await startTestNodes();
  client = connect({ directoryUrl: nodes.url, relayUrl: nodes.url });
  [alice, bob] = await Promise.all([enrol("alice"), enrol("bob")]);
});
afterAll(() => nodes.stop());

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(() => "nothing was refused").catch((cause: unknown) => cause);
  return error instanceof ClientError ? error.code : String(error);
}

const root = (identity: Identity): Signer => ({ keyId: "root", seed: identity.rootSeed });

test("every component, alias and key can be changed and is seen in the record", async () => {
  const dave = await enrol("dave");
  const { did } = dave;
  const options = { signer: root(dave), waiting };
  const key = (id: string) => ({
    id: `${did}#${id}`,
    type: "Multikey",
    controller: did,
    publicKeyMultibase: "z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z",
  });
  const service = {
    id: `${did}#inbox`,
    type: "SvcInboxService",
    serviceEndpoint: ["https://inbox.example"],
    authorization: null,
    priority: 3,
  };
  const newSeed = ed25519.utils.randomSecretKey();
  const intents: Intent[] = [
    { action: "AddVerificationMethod", did, verificationMethod: key("k1") },
    {
      action: "UpdateVerificationMethod",
      did,
      verificationMethod: { ...key("k1"), type: "Ed25519VerificationKey2020" },
    },
    { action: "AddAuthentication", did, id: `${did}#k1` },
    { action: "RemoveAuthentication", did, id: `${did}#k1` },
    { action: "RemoveVerificationMethod", did, id: `${did}#k1` },
    { action: "AddKeyAgreement", did, keyAgreement: key("x2") },
    {
      action: "UpdateKeyAgreement",
      did,
      keyAgreement: { ...key("x2"), type: "X25519KeyAgreementKey2020" },
    },
    { action: "RemoveKeyAgreement", did, id: `${did}#x2` },
    { action: "AddService", did, service },
    { action: "UpdateService", did, service: { ...service, priority: null, authorization: [] } },
    { action: "RemoveService", did, id: service.id },
    { action: "add_alias", did, alias: "dave.two" },
    { action: "update_alias", did, oldAlias: "dave.two", newAlias: "dave.three" },
    { action: "remove_alias", did, alias: "dave.three" },
    { action: "UpdateRootPubkey", did, newRootPubkey: ed25519.getPublicKey(newSeed) },
  ];
  let version = 1;
  for (const intent of intents) {
    await change(client, intent, options);
    const { version: shown } = await client.directory.resolve(did);
    expect([intent.action, shown]).toEqual([intent.action, ++version]);
  }
  const renewed = { ...options, signer: { keyId: "root", seed: newSeed } };
  const alias = { extrinsic: "set_alias" as const, did, value: "only" };
  await changeAsOwner(client, alias, renewed);
  expect((await client.directory.resolve(did)).aliases).toEqual(["only"]);
  expect(await lookUp(client, "Only")).toBe(did);
  const deactivate: Intent = { action: "deactivate_did", did };
  await change(client, deactivate, renewed);
  expect((await client.directory.resolve(did)).deactivated).toBe(true);
  expect(await refusal(activeDocument(client, did))).toBe("did_deactivated");
}, 120_000);

test("a deleted DID is gone, and its alias names nobody", async () => {
  const erin = await enrol("erin");
  const intent: Intent = { action: "delete_did", did: erin.did };
  await change(client, intent, { signer: root(erin), waiting });
  expect(await refusal(client.directory.resolve(erin.did))).toBe("did_not_found");
  expect(await refusal(lookUp(client, "erin"))).toBe("alias_not_found");
});

test("another's key and a used counter value are refused with the node's code", async () => {
  const intent: Intent = { action: "add_alias", did: bob.did, alias: "stolen" };
  expect(await refusal(change(client, intent, { signer: root(alice), waiting }))).toBe(
    "invalid_signature",
  );
  const stale = await signIntent(intent, root(bob), { nonce: 99n, nowMs: Date.now() });
  const error = await client.directory.submit(stale).catch((cause: unknown) => cause);
  expect(error instanceof ClientError && [error.code, error.status, error.extra.expected]).toEqual([
    "nonce_mismatch",
    409,
    "0",
  ]);
});

test("a wait ends when its time is over", async () => {
  const gone = connect({ directoryUrl: "http://127.0.0.1:1", relayUrl: nodes.url });
  const never = { did: bob.did, tx_id: `0x${"00".repeat(32)}` };
  const error = await settleRegistration(gone, never, { timeoutMs: 100, intervalMs: 20 }).catch(
    (cause: unknown) => cause,
  );
  expect(error instanceof ClientError && error.kind).toBe("timed_out");
});
