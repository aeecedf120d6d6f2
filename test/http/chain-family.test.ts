/**
 * The Directory on an existing chain of the family, as the published facts write its runtime 123: it starts, names the
 * protections that are missing, registers, and refuses what that chain can't take.
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeWith } from "../../src/core/codec/scale.ts";
import { recordCodec } from "../../src/core/ledger/account.ts";
import { type OpenLedger, openLedger } from "../../src/plugins/chain/driver.ts";
import { entryKey, prefixOf, readMetadata } from "../../src/plugins/chain/metadata.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  openMemory,
  registerBodyOf,
  type TestDirectory,
  testDirectory,
} from "../support/directory.ts";
import { familyMetadata, familyVersion } from "../support/family-metadata.ts";
import { identityOf, keyOf, registrationOf } from "../support/identity.ts";
import { World } from "../support/world.ts";
import { type FakeNode, openFakeNode } from "./chain-node.ts";

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

/** A record that the operator's account owns. */
function recordOf(): string {
  const world = new World(1_800_000_000_000);
  world.operator = keyOf("operator").publicKey.slice();
  world.apply(registrationOf(standing, { timestamp: "1700000000000" }));
  return encodeHex0x(encodeWith(recordCodec, world.record(standing.did)));
}

beforeAll(async () => {
  if (Array.isArray(metadata)) throw new Error(metadata.join("\n"));
  const place = encodeHex0x(entryKey("Dids", standing.did));
  const record = recordOf();
  const now = encodeHex0x(prefixOf("Now"));
  node = openFakeNode();
  node.answer = ({ id, method, params }) => {
    const [keys, block] = params as [readonly string[], string];
    const time = new Uint8Array(8);
    new DataView(time.buffer).setBigUint64(0, BigInt(Date.now()), true);
    const values: Readonly<Record<string, string>> = { [place]: record, [now]: encodeHex0x(time) };
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
