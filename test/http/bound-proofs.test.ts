/**
 * Proofs of version 3 over HTTP: `/limits` and preparations show it, a prepared proof of it is
 * accepted, and a Directory accepts the versions that its configuration and its ledger have.
 */
import { afterEach, expect, test } from "bun:test";
import { decodeHex, encodeBase64, encodeHex0x } from "../../src/core/codec/bytes.ts";
import type { LedgerProofs } from "../../src/core/ledger/account.ts";
import type { ProofVersion } from "../../src/core/ledger/document-codec.ts";
import type { Ledger } from "../../src/storage/contract.ts";
import {
  proofHeadersOf,
  registerBodyOf,
  simpleDocument,
  type TestDirectory,
  testDirectory,
} from "../support/directory.ts";
import { certifiedOf, type Identity, identityOf } from "../support/identity.ts";
import { certified } from "./directory/certified.ts";

const opened: TestDirectory[] = [];
afterEach(async () => {
  for (const directory of opened.splice(0)) await directory.close();
});

async function directoryOf(
  given: Parameters<typeof testDirectory>[0] = {},
): Promise<TestDirectory> {
  const directory = await testDirectory(given);
  opened.push(directory);
  return directory;
}

const taking =
  (taken: Partial<LedgerProofs>) =>
  (ledger: Ledger): Ledger =>
    new Proxy(ledger, {
      get(target, name) {
        if (name === "proofs") return async () => ({ ...(await target.proofs()), ...taken });
        const operation: unknown = Reflect.get(target, name);
        return typeof operation === "function" ? operation.bind(target) : operation;
      },
    });

function signed(identity: Identity, prepared: Record<string, unknown>): Record<string, unknown> {
  const message = decodeHex(String(prepared["payload_to_sign"]).slice(2)) as Uint8Array;
  return {
    ...(prepared["request"] as object),
    signature: encodeBase64(identity.root.sign(message)),
  };
}

const members = (identity: Identity) => ({
  did: identity.did,
  did_document: simpleDocument(identity),
});

test("limits name the ledger, the account and the versions, the best first", async () => {
  const { limits, ledger } = await directoryOf();
  const { genesisHash } = await ledger.proofs();
  expect(await limits()).toMatchObject({
    registration_proofs: ["v3", "v2", "v1"],
    authorization_proofs: ["v3", "plain"],
    genesis_hash: `0x${genesisHash.toHex()}`,
    operator_account: `0x${(await ledger.operator()).toHex()}`,
    self_certifying_dids: true,
  });
});

test("a self-certifying DID is prepared in version 3 without asking, and registers under its own key alone", async () => {
  const directory = await directoryOf();
  const { genesisHash } = await directory.ledger.proofs();
  const [identity, thief] = [certifiedOf("certified", genesisHash), identityOf("thief")];
  const prepared = await directory.ask("POST", "/register-did/prepare", members(identity));
  expect(prepared.body).toMatchObject({ proof_version: "v3" });
  const stolen = { ...identity, root: thief.root };
  const taken = await directory.ask("POST", "/register-did/prepare", members(stolen));
  const refused = await directory.ask("POST", "/register-did", signed(stolen, taken.body));
  expect([refused.status, refused.body["code"]]).toEqual([400, "invalid_did"]);
  const accepted = await directory.ask("POST", "/register-did", signed(identity, prepared.body));
  expect((await directory.settle(accepted)).state).toBe("finalized");
  const plain = await directory.ask("POST", `/dids/${identity.did}/prepare`, {
    did: identity.did,
    action: "deactivate_did",
  });
  expect(plain.body).toMatchObject({ proof_version: "v3" });
});

/** Where nothing else is accepted. */
const strict = { options: { registration_proofs: ["v3"] } } satisfies Parameters<
  typeof testDirectory
>[0];

test("a prepared registration of version 3 registers, and nothing else does with its signature", async () => {
  const taken = { plain: false };
  const directory = await directoryOf({ around: taking(taken) });
  const identity = identityOf("bound");
  const prepared = await directory.ask("POST", "/register-did/prepare", members(identity));
  taken.plain = true;
  expect(prepared.body).toMatchObject({ proof_version: "v3", action: "register" });
  const body = signed(identity, prepared.body);
  expect(String(body["timestamp"])).toStartWith("v3:0:");
  const older = { ...body, timestamp: String(body["timestamp"]).replace("v3", "v2") };
  expect((await directory.ask("POST", "/register-did", older)).body["code"]).toBe(
    "invalid_signature",
  );
  expect((await directory.ask("POST", "/register-did", body)).status).toBe(202);
});

test("a signature for another Directory's ledger is refused", async () => {
  const [here, there] = [await directoryOf(), await directoryOf(strict)];
  const identity = identityOf("elsewhere");
  const prepared = await there.ask("POST", "/register-did/prepare", members(identity));
  expect(prepared.body["proof_version"]).toBe("v3");
  const reply = await here.ask("POST", "/register-did", signed(identity, prepared.body));
  expect([reply.status, reply.body["code"]]).toEqual([403, "invalid_signature"]);
});

test("an update and a document are prepared plainly, or in version 3 for a self-certifying DID", async () => {
  const directory = await directoryOf();
  const identity = identityOf("updates");
  await directory.register(identity);
  const asked = { did: identity.did, action: "add_alias", alias: "bound" };
  const path = `/dids/${identity.did}/prepare`;
  const plain = await directory.ask("POST", path, asked);
  expect(plain.body["proof_version"]).toBe("plain");
  const own = await certified(directory, "updates");
  const ownPath = `/dids/${own.did}`;
  const bound = await directory.ask("POST", `${ownPath}/prepare`, { ...asked, did: own.did });
  expect(bound.body["proof_version"]).toBe("v3");
  expect((bound.body["request"] as Record<string, unknown>)["canonical_payload"]).toBeString();
  const reply = await directory.ask("POST", `${ownPath}/aliases`, signed(own, bound.body));
  expect(reply.status).toBe(202);
  await directory.settle(reply);
  const replaced = await directory.ask("POST", `${ownPath}/prepare`, {
    did: own.did,
    action: "replace_document",
    document: simpleDocument(own),
  });
  expect(replaced.body["proof_version"]).toBe("v3");
  expect(
    (await directory.ask("PUT", `${ownPath}/document/proof`, signed(own, replaced.body))).status,
  ).toBe(202);
});

const sets: readonly (readonly [
  settings: readonly ProofVersion[] | null,
  taken: Partial<LedgerProofs>,
  proofs: readonly ProofVersion[],
])[] = [
  [null, {}, ["v3", "v2", "v1"]],
  [null, { plain: false }, ["v3"]],
  [null, { bound: false }, ["v2", "v1"]],
  [["v2", "v3"], {}, ["v3", "v2"]],
  [["v1", "v2"], { plain: false }, []],
];

test.each(sets)(
  "with settings %p and a ledger that accepts %p, the versions are %p",
  async (configured, taken, proofs) => {
    const directory = await directoryOf({
      options: { registration_proofs: configured === null ? null : [...configured] },
      around: taking(taken),
    });
    expect((await directory.limits())["registration_proofs"]).toEqual(proofs);
    const reply = await directory.ask(
      "POST",
      "/register-did",
      registerBodyOf(identityOf("any"), directory.nowMs()),
    );
    expect(reply.status === 400).toBe(!proofs.includes("v1"));
  },
);

test("on a ledger that accepts only version 3, every preparation has version 3", async () => {
  const directory = await directoryOf({ around: taking({ plain: false }) });
  const prepared = await directory.ask(
    "POST",
    "/register-did/prepare",
    members(identityOf("strict")),
  );
  expect(prepared.body["proof_version"]).toBe("v3");
  const before = await directoryOf({
    options: { registration_proofs: ["v3"] },
    around: taking({ bound: false }),
  });
  const asked = members(identityOf("strict"));
  expect((await before.ask("POST", "/register-did/prepare", asked)).body["code"]).toBe(
    "invalid_request",
  );
});

test("a Directory that demands it registers self-certifying DIDs alone", async () => {
  const directory = await directoryOf({ options: { self_certifying_only: true } });
  const { genesisHash } = await directory.ledger.proofs();
  const random = identityOf("random");
  const refusals = [
    await directory.ask("POST", "/register-did", registerBodyOf(random, directory.nowMs())),
    await directory.ask("POST", "/register-did/prepare", members(random)),
  ];
  expect(refusals.map(({ body }) => body["code"])).toEqual(["invalid_did", "invalid_did"]);
  const certified = certifiedOf("demanded", genesisHash);
  const prepared = await directory.ask("POST", "/register-did/prepare", members(certified));
  expect(
    (await directory.ask("POST", "/register-did", signed(certified, prepared.body))).status,
  ).toBe(202);
});

test("the primary alias replaces all others, and of a self-certifying DID only its keys change it", async () => {
  const directory = await directoryOf();
  const ledger = encodeHex0x((await directory.ledger.proofs()).genesisHash);
  const put = (identity: Identity, alias: string) => {
    const body = JSON.stringify({ did: identity.did, alias });
    const timestamp = new Date(directory.nowMs()).toISOString();
    const headers = proofHeadersOf(identity, { operation: "set_alias", body, timestamp, ledger });
    return directory.ask("PUT", `/dids/${identity.did}/alias`, body, headers);
  };
  const anybody = identityOf("anybody");
  await directory.register(anybody, { alias: "first" });
  expect((await directory.settle(await put(anybody, "Second"))).state).toBe("finalized");
  expect((await directory.ask("GET", `/resolve/${anybody.did}`)).body["aliases"]).toEqual([
    "second",
  ]);
  const proven = await certified(directory, "proven");
  expect((await directory.settle(await put(proven, "third"))).state).toBe("finalized");
  const refused = await put(proven, "fourth");
  expect([refused.status, refused.body["code"]]).toEqual([422, "chain_submission_rejected"]);
});
