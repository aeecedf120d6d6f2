/** The key proofs that the chain driver reads from blocks which strangers filled, or whose events are gone. */
import { afterEach, describe, expect, test } from "bun:test";
import { compactAddLength } from "@polkadot/util";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeLedgerCall, type LedgerCall } from "../../src/core/ledger/calls.ts";
import { componentCallsMax, decodeKeyProof, type KeyProof } from "../../src/core/trust/proof.ts";
import { chainPlugin } from "../../src/plugins/chain/chain.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { KeyProofs } from "../../src/plugins/chain/proofs.ts";
import { ChainReader } from "../../src/plugins/chain/reader.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import type { Common } from "../../src/plugins/chain/session.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { keyProofKey } from "../../src/storage/embedded-records.ts";
import { optionsOf } from "../conformance/options.ts";
import { authorizedCall, certifiedOf, type Identity, keyOf, registrationOf } from "../support/identity.ts";
import { blockHash, eventsKey, type FakeNode, openFakeNode } from "./chain-node.ts";

const opened: { readonly close: () => unknown }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

function fakeNode(): FakeNode {
  const node = openFakeNode();
  opened.push(node);
  return node;
}

const operator = new Uint8Array(32).fill(1);

describe("key proofs", () => {
  const genesisHash = Uint8Array.fromHex(blockHash(0).slice(2));

  /** In an extrinsic that an account of this kind of key signed. */
  function carried(call: LedgerCall, scheme = 0, signatureBytes = 64): string {
    const head = Uint8Array.of(0x84, 0, ...operator, scheme, ...new Uint8Array(signatureBytes));
    return encodeHex0x(compactAddLength(Uint8Array.of(...head, 0, 0, 0, 0, ...encodeLedgerCall(call))));
  }

  const registrationBy = (person: Identity) =>
    registrationOf(person, { timestamp: "v3:0:1800000000000", binding: { genesisHash, submitter: operator } });

  /** The proofs after all blocks of a node. */
  async function proofsOf(node: FakeNode): Promise<(person: Identity) => KeyProof | null> {
    const given = { endpoints: [node.endpoint], operator_key_file: "key", outbox: "outbox", block_time_ms: 60_000 };
    const common: Common = {
      settings: optionsOf(chainPlugin, given),
      key: { publicKey: operator, scheme: 1, sign: keyOf("operator").sign },
      host: systemHost(Date.now),
      log: () => {},
      runtimes: new Map(),
      connect: Rpc.open,
    };
    const events = { onSession: () => {}, onHead: () => {} };
    const endpoints = new Endpoints({ ...common, anchor: null, genesis: null }, events);
    opened.push(endpoints);
    endpoints.start();
    await endpoints.tried();
    const table = new MemoryTable(1 << 20);
    const proofs = new KeyProofs({ ...common, table, endpoints, reader: new ChainReader(endpoints) });
    proofs.follow();
    await proofs.close();
    return ({ did }) => {
      const bytes = table.get(keyProofKey(did));
      return bytes === null ? null : decodeKeyProof(bytes);
    };
  }

  test("have a registration by an account of every kind of key, beside an extrinsic that can't be read", async () => {
    const node = fakeNode();
    const people = [64, 64, 65, 65].map((signatureBytes, scheme) => {
      const person = certifiedOf(`kind ${scheme}`, genesisHash);
      return { person, extrinsic: carried(registrationBy(person), scheme, signatureBytes) };
    });
    const odd = Uint8Array.of(0x84, 0, ...operator, 3, ...new Uint8Array(65), ...new Uint8Array(80).fill(0xff));
    node.blocks.set(node.head, [encodeHex0x(compactAddLength(odd)), ...people.map(({ extrinsic }) => extrinsic)]);
    const proofOf = await proofsOf(node);
    expect(people.filter(({ person }) => proofOf(person) === null)).toEqual([]);
  });

  test("of blocks without events are stopped by no call that the chain refused", async () => {
    const node = fakeNode();
    node.head = 12;
    const error = { code: 4003, message: "State already discarded" };
    node.answer = ({ id, params }) =>
      String(params[0]).startsWith(eventsKey) ? { frame: JSON.stringify({ id, error }) } : null;
    const [attacker, other] = [certifiedOf("attacker", genesisHash), certifiedOf("other", genesisHash)];
    const { did, root } = attacker;
    const change = (nonce: bigint) => {
      const service = { id: `${did}#s${nonce}`, type: "T", serviceEndpoint: ["u"], authorization: null, priority: 0 };
      const terms = { nonce, validUntilMs: 1_800_000_000_000n, signerKeyId: "root" };
      return carried(authorizedCall({ action: "AddService", did, service }, terms, root, genesisHash));
    };
    // One component call more than may follow a document, which the chain refused, and again when the others are kept.
    const changes = Array.from({ length: componentCallsMax + 1 }, (_, n) => change(BigInt(n)));
    node.blocks.set(1, [carried(registrationBy(attacker)), ...changes]);
    node.blocks.set(12, [change(BigInt(componentCallsMax)), carried(registrationBy(other))]);
    const proofOf = await proofsOf(node);
    expect(proofOf(attacker)?.calls).toHaveLength(componentCallsMax);
    expect(proofOf(other)).not.toBeNull();
  });
});
