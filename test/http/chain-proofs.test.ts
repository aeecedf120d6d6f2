/** The key proofs that the chain driver reads from blocks which strangers filled. */
import { describe, expect, test } from "bun:test";
import { compactAddLength } from "@polkadot/util";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeWith, u64 } from "../../src/core/codec/scale.ts";
import { recordCodec } from "../../src/core/ledger/account.ts";
import { encodeLedgerCall, type LedgerCall } from "../../src/core/ledger/calls.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { componentCallsMax, decodeKeyProof, type KeyProof } from "../../src/core/trust/proof.ts";
import { chainPlugin } from "../../src/plugins/chain/chain.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { entryKey } from "../../src/plugins/chain/metadata.ts";
import { KeyProofs } from "../../src/plugins/chain/proofs.ts";
import { ChainReader } from "../../src/plugins/chain/reader.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import type { Common } from "../../src/plugins/chain/session.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  authorizedCall,
  certifiedOf,
  documentOf,
  type Identity,
  keyOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import { World } from "../support/world.ts";
import { blockHash, closedAfterEach, eventsKey, type FakeNode } from "./chain-node.ts";

const { opened, fakeNode } = closedAfterEach();

const [operator, stranger] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
const genesisHash = Uint8Array.fromHex(blockHash(0).slice(2));
const validUntilMs = 1_800_000_000_000n;

/** In an extrinsic that an account signed with this kind of key. */
function signed(call: LedgerCall, account = operator, [scheme, signatureBytes] = [0, 64]): string {
  const head = Uint8Array.of(0x84, 0, ...account, scheme, ...new Uint8Array(signatureBytes));
  return encodeHex0x(compactAddLength(Uint8Array.of(...head, 0, 0, 0, 0, ...encodeLedgerCall(call))));
}

/** In an extrinsic without a signature, which a block has only when it was applied. */
const general = (call: LedgerCall): string =>
  encodeHex0x(compactAddLength(Uint8Array.of(0x45, 0, 0, 0, 0, 0, ...encodeLedgerCall(call))));

const registrationBy = (person: Identity, docBlob = encodeDidDocument(documentOf(person))) =>
  registrationOf(person, { timestamp: "v3:0:1800000000000", docBlob, binding: { genesisHash, submitter: operator } });

/** What calls lead to, in this order. */
function worldOf(...calls: readonly LedgerCall[]): World {
  const world = new World(Number(validUntilMs) - 1_000);
  world.operator = operator;
  world.proofs = { ...world.proofs, genesisHash };
  for (const call of calls) world.apply(call);
  return world;
}

/** The key proofs after all blocks of a node, which has the state of a world and shows no events. */
async function proofsOf(node: FakeNode, world: World): Promise<(person: Identity) => Promise<KeyProof | null>> {
  const values = new Map<string, string>();
  for (const [did, { record, counters }] of world.accounts) {
    if (record === null) continue;
    values.set(encodeHex0x(entryKey("Dids", did)), encodeHex0x(encodeWith(recordCodec, record)));
    values.set(encodeHex0x(entryKey("DocumentNonces", did)), encodeHex0x(encodeWith(u64, counters.document)));
  }
  const error = { code: 4003, message: "State already discarded" };
  node.answer = ({ id, method, params }) => {
    if (method !== "state_queryStorageAt") return null;
    const keys = params[0] as readonly string[];
    if (keys.includes(eventsKey)) return { frame: JSON.stringify({ id, error }) };
    const changes = keys.map((key) => [key, values.get(key) ?? null]);
    if (changes.every(([, value]) => value === null)) return null;
    return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
  };
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
  return async ({ did }) => {
    const bytes = await proofs.of(did);
    return bytes === null ? null : decodeKeyProof(bytes);
  };
}

const named = (label: string) => certifiedOf(label, genesisHash);

describe("key proofs, without the events of a block", () => {
  test("have a registration by an account of every kind of key, beside an extrinsic that can't be read", async () => {
    const node = fakeNode();
    const people = [64, 64, 65, 65].map((signatureBytes, scheme) => {
      const person = named(`kind ${scheme}`);
      const call = registrationBy(person);
      return { person, call, extrinsic: signed(call, operator, [scheme, signatureBytes]) };
    });
    const odd = Uint8Array.of(0x84, 0, ...operator, 3, ...new Uint8Array(65), ...new Uint8Array(80).fill(0xff));
    node.blocks.set(node.head, [encodeHex0x(compactAddLength(odd)), ...people.map(({ extrinsic }) => extrinsic)]);
    const proofOf = await proofsOf(node, worldOf(...people.map(({ call }) => call)));
    for (const { person } of people) expect(await proofOf(person)).not.toBeNull();
  });

  test("have every change, and no call that the chain refused displaces one", async () => {
    const node = fakeNode();
    node.head = 12;
    const [person, other] = [named("victim"), named("other")];
    const { did, root } = person;
    const terms = (nonce: bigint) => ({ nonce, validUntilMs, signerKeyId: "root" });
    const change = (nonce: bigint, key = root) => {
      const action = nonce === 0n ? "AddService" : "UpdateService";
      const service = { id: `${did}#s`, type: `T${nonce}`, serviceEndpoint: ["u"], authorization: null, priority: 0 };
      return authorizedCall({ action, did, service }, terms(nonce), key, genesisHash);
    };
    const rotation = (label: string) => {
      const intent = { did, action: "UpdateRootPubkey", newRootPubkey: keyOf(label).publicKey } as const;
      return authorizedCall(intent, terms(0n), root, genesisHash);
    };
    const deletion = authorizedCall({ did, action: "delete_did" }, terms(0n), keyOf("thief"), genesisHash);
    const stolen = { ...setDocumentOf(person, { timestamp: `v3:0:${validUntilMs}`, docBlob: new Uint8Array(9) }) };
    const changes = Array.from({ length: componentCallsMax }, (_, n) => change(BigInt(n)));
    // What a stranger pays for is refused: his own calls, and what the DID's keys signed and then did not use.
    const refused = [
      deletion,
      stolen,
      rotation("unused"),
      change(0n, keyOf("thief")),
      change(BigInt(componentCallsMax)),
    ].map((call) => signed(call, stranger));
    const [registration, rotated, another] = [registrationBy(person), rotation("next"), registrationBy(other)];
    node.blocks.set(1, [signed(registration), ...refused]);
    node.blocks.set(2, [...changes.map(general), ...refused]);
    node.blocks.set(12, [...refused, general(rotated), ...refused, signed(another)]);
    const proofOf = await proofsOf(node, worldOf(registration, ...changes, rotated, another));
    expect((await proofOf(person))?.calls).toHaveLength(componentCallsMax);
    expect(await proofOf(other)).not.toBeNull();
  });

  test("are those of the registration that the record shows, whichever of them the chain refused", async () => {
    const node = fakeNode();
    const person = named("twice");
    const { did } = person;
    const documents = [emptyDocument(did), documentOf(person)].map(encodeDidDocument);
    const calls = documents.map((docBlob) => registrationBy(person, docBlob));
    node.blocks.set(2, [signed(calls[0] as LedgerCall)]);
    node.blocks.set(4, [signed(calls[1] as LedgerCall)]);
    for (const [n, call] of calls.entries()) {
      const proofOf = await proofsOf(node, worldOf(call));
      expect((await proofOf(person))?.document).toEqual(documents[n] as Uint8Array);
    }
  });
});
