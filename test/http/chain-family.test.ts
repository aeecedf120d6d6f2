/**
 * The Directory on an existing chain of the family, as the published facts write its runtime 123:
 * it starts, names the protections that are missing, registers, and refuses what that chain can't
 * take.
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { compactAddLength } from "@polkadot/util";
import { encodeHex0x, utf8 } from "../../src/core/codec/bytes.ts";
import { encodeWith } from "../../src/core/codec/scale.ts";
import { recordCodec } from "../../src/core/ledger/account.ts";
import { actionNames } from "../../src/core/ledger/actions.ts";
import { type OpenLedger, openLedger } from "../../src/plugins/chain/driver.ts";
import { entryKey, prefixOf, readMetadata } from "../../src/plugins/chain/metadata.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  documentBlobOf,
  openMemory,
  registerBodyOf,
  replaceBodyOf,
  type TestDirectory,
  testDirectory,
  updateBodyOf,
  updates,
} from "../support/directory.ts";
import { familyMetadata, familyVersion } from "../support/family-metadata.ts";
import {
  certifiedOf,
  type Identity,
  identityOf,
  keyOf,
  registrationOf,
} from "../support/identity.ts";
import { World } from "../support/world.ts";
import { blockHash, type FakeNode, openFakeNode } from "./chain-node.ts";
import { pathOf, sampleOf } from "./directory/samples.ts";
import { aliasOf, richDocument } from "./directory/stage.ts";

const metadata = readMetadata(familyMetadata(), {
  version: familyVersion,
  genesis: new Uint8Array(32),
});
const standing = identityOf("family");
let node: FakeNode;
let chain: OpenLedger;
let directory: TestDirectory;
const logged: Readonly<Record<string, unknown>>[] = [];

/** The chain's ledger and the other capabilities in memory. */
async function openFamily(environment: StoreEnvironment): Promise<Store> {
  const { publicKey, sign } = keyOf("operator");
  const table = new MemoryTable(1 << 20);
  const times = { block_time_ms: 60_000 };
  const options = {
    endpoints: [node.endpoint],
    operator_key_file: "key",
    outbox: "outbox",
    ...times,
  };
  chain = openLedger(optionsOf(chainPlugin, options), {
    log: (_, message, fields = {}) => logged.push({ message, ...fields }),
    fatal: environment.fatal,
    key: { publicKey, sign, scheme: 0, address: "operator" },
    table,
    host: systemHost(Date.now),
    runtimes: new Map(),
    connect: Rpc.open,
  });
  await chain.endpoints.tried();
  const memory = await openMemory(10)(environment);
  return { ...memory, capabilities: { ...memory.capabilities, ledger: chain.ledger } };
}

/**
 * The record of an identity that the operator's account owns, with the rich document and an alias.
 */
function recordOf(identity: Identity): string {
  const world = new World(1_800_000_000_000);
  world.operator = keyOf("operator").publicKey.slice();
  const docBlob = documentBlobOf(richDocument(identity), identity.did);
  const alias = aliasOf(identity);
  world.apply(registrationOf(identity, { timestamp: "1700000000000", alias, docBlob }));
  return encodeHex0x(encodeWith(recordCodec, world.record(identity.did)));
}

/** One for each route, so that no call waits for another. */
const people = new Map(
  [...actionNames, "alias", "links", "document"].map((name) => [
    name,
    identityOf(`family ${name}`),
  ]),
);
/** Its DID is derived from its key. */
const named = certifiedOf("family", Uint8Array.fromHex(blockHash(0).slice(2)));
const personOf = (name: string) => people.get(name) as Identity;

/** A DID as a byte string. */
const holderOf = ({ did }: Identity): string => encodeHex0x(compactAddLength(utf8(did)));

beforeAll(async () => {
  if (Array.isArray(metadata)) throw new Error(metadata.join("\n"));
  const records = [standing, ...people.values()].flatMap((identity) => [
    [encodeHex0x(entryKey("Dids", identity.did)), recordOf(identity)] as const,
    [encodeHex0x(entryKey("AliasIndex", aliasOf(identity))), holderOf(identity)] as const,
  ]);
  // What is in the record does not matter here.
  const namedPlace = encodeHex0x(entryKey("Dids", named.did));
  const state = Object.fromEntries([...records, [namedPlace, recordOf(standing)]]);
  const now = encodeHex0x(prefixOf("Now"));
  node = openFakeNode();
  node.answer = ({ id, method, params }) => {
    const [keys, block] = params as [readonly string[], string];
    const time = new Uint8Array(8);
    new DataView(time.buffer).setBigUint64(0, BigInt(Date.now()), true);
    const values: Readonly<Record<string, string>> = { ...state, [now]: encodeHex0x(time) };
    const results: Readonly<Record<string, () => unknown>> = {
      state_getMetadata: familyMetadata,
      state_getRuntimeVersion: () => familyVersion,
      state_queryStorageAt: () => [
        { block, changes: keys.map((key) => [key, values[key] ?? null]) },
      ],
    };
    const result = results[method]?.();
    return result === undefined ? null : { frame: JSON.stringify({ jsonrpc: "2.0", id, result }) };
  };
  directory = await testDirectory({ open: openFamily, startMs: Date.now() });
});
afterAll(async () => {
  await directory.close();
  await chain.close();
  node.close();
});

describe("a chain of the family", () => {
  test("is used, with its indices, prefixes, bounds and missing protections", () => {
    if (Array.isArray(metadata)) throw new Error(metadata.join("\n"));
    const { callIndices } = metadata.frame;
    expect([...(callIndices.get("register_with_document_proof_signed") ?? [])]).toEqual([8, 7]);
    expect([...(callIndices.get("apply_control_with_proof") ?? [])]).toEqual([8, 29]);
    // Computed from the names by the facts, and checked there against a known one.
    expect(prefixOf("Dids").toHex()).toBe(
      "72b29c5d16546b7d2c5310d5fbada68b13f72fd4db0687b2a6a53903e54be0cf",
    );
    expect(prefixOf("TagPolicies").toHex()).toEndWith("01e2057ca6c23a0d36d2555ad80cb999");
    expect(metadata.bounds).toMatchObject({
      didBytes: 128,
      idBytes: 64,
      authentications: 4,
      documentBytes: 16_384,
    });
    expect(metadata.blockTimeMs).toBe(6_000);
    const [lacks] = logged.filter(({ message }) => String(message).includes("lacks protections"));
    expect(lacks?.["lacks"]).toBe(metadata.lacks.join("; "));
    expect(metadata.lacks).toHaveLength(14);
  });

  test.each(updates.map((update) => [update.action, update] as const))(
    "takes a signed %s",
    async (action, update) => {
      const identity = personOf(action);
      const nowMs = directory.nowMs();
      const members = sampleOf(update).members(identity);
      const timed = action.endsWith("_alias")
        ? { ...members, timestamp: new Date(nowMs).toISOString() }
        : members;
      const terms = { nonce: "0", validUntilMs: nowMs + 600_000 };
      const reply = await directory.ask(
        update.method,
        pathOf(update, identity),
        updateBodyOf(identity, action, timed, terms),
      );
      expect([reply.status, reply.body["code"]]).toEqual([202, undefined]);
    },
  );

  test("takes a whole document, an alias and links to policies", async () => {
    const [document, alias, links] = [personOf("document"), personOf("alias"), personOf("links")];
    const timestamp = new Date(directory.nowMs()).toISOString();
    const given = { timestamp, document: richDocument(document) };
    const replaced = replaceBodyOf(document, given);
    const ref = { recipient_policy: links.did, tag_policies: [], persona_policies: [] };
    const rows = [
      [`${document.did}/document/proof`, replaced],
      [`${alias.did}/alias`, { did: alias.did, alias: "family.name" }],
      [`${links.did}/delivery-policy-links`, { did: links.did, delivery_policy_links: ref }],
    ] as const;
    for (const [path, body] of rows) {
      const reply = await directory.ask("PUT", `/dids/${path}`, body);
      expect([path, reply.status, reply.body["code"]]).toEqual([path, 202, undefined]);
    }
  });

  test("lets no device in by a member's word alone", async () => {
    const { did } = personOf("document");
    const reply = await directory.ask("POST", `/dids/${did}/device-invitations`, { did });
    expect([reply.status, reply.body["code"]]).toEqual([401, "proof_missing"]);
  });

  test("proves no keys: a name that a key derives is registered as any, and has no proof", async () => {
    const { genesisHash, selfCertifying } = await chain.ledger.proofs();
    expect(selfCertifying).toBe(false);
    const body = registerBodyOf(certifiedOf("new name", genesisHash), directory.nowMs());
    expect((await directory.ask("POST", "/register-did", body)).status).toBe(202);
    const proof = await directory.ask("GET", `/dids/${named.did}/proof`);
    expect([proof.status, proof.body["code"]]).toEqual([404, "not_found"]);
  });

  test("has every writing route in this table", () => {
    const asked = new Set([
      "POST /register-did",
      "PUT /dids/:did/document/proof",
      "POST /dids/:did/device-invitations",
      "PUT /dids/:did/alias",
      "PUT /dids/:did/delivery-policy-links",
      "PUT /delivery-policies/personas/:personaDid",
      "PUT /delivery-policies/recipients/:did",
      "PUT /delivery-policies/tags/:tag",
      ...updates.map(({ method, path }) => `${method} ${path}`),
    ]);
    const writes = directory.routes.filter(
      ({ method, path }) => method !== "GET" && !path.endsWith("/prepare"),
    );
    expect(writes.map(({ method, path }) => `${method} ${path}`).sort()).toEqual([...asked].sort());
  });

  test("takes registrations", async () => {
    const reply = await directory.ask(
      "POST",
      "/register-did",
      registerBodyOf(identityOf("new"), directory.nowMs()),
    );
    expect(reply.status).toBe(202);
  });

  test("has no persona policies of ours: reading finds none, and setting one is refused", async () => {
    const path = `/delivery-policies/personas/${standing.did}`;
    expect((await directory.ask("GET", path)).status).toBe(404);
    const policy = { release_pricing: { asset: "SVC", amount: "5" }, allowed_relays: ["relay-1"] };
    const reply = await directory.ask("PUT", path, { did: standing.did, policy });
    expect([reply.status, reply.body["code"]]).toEqual([422, "chain_submission_rejected"]);
    expect(reply.body["detail"]).toBe("this chain takes no set_persona_policy");
  });

  test("takes no other policies either: its calls for them fail always, and are refused before they cost a fee", async () => {
    const policy = { effective_ttl: 14_400, max_message_bytes: 1_048_576, cache_eligible: true };
    for (const [path, name] of [
      [`recipients/${standing.did}`, "set_delivery_policy"],
      [`tags/${standing.did}`, "set_tag_policy"],
    ] as const) {
      const reply = await directory.ask("PUT", `/delivery-policies/${path}`, {
        did: standing.did,
        policy,
      });
      expect([reply.status, reply.body["code"]]).toEqual([422, "chain_submission_rejected"]);
      expect(reply.body["detail"]).toBe(`this chain takes no ${name}`);
    }
  });
});
