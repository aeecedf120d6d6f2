/** The key proofs that the chain driver reads from blocks which strangers filled. */
import { describe, expect, spyOn, test } from "bun:test";
import { compactAddLength } from "@polkadot/util";
import { encodeHex0x } from "../../src/core/codec/bytes.ts";
import { encodeWith, u32, u64 } from "../../src/core/codec/scale.ts";
import { recordCodec } from "../../src/core/ledger/account.ts";
import { encodeLedgerCall, type LedgerCall } from "../../src/core/ledger/calls.ts";
import { emptyDocument } from "../../src/core/ledger/document.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import {
  componentCallsMax,
  decodeKeyProof,
  type KeyProof,
  rotationsMax,
} from "../../src/core/ledger/key-proof.ts";
import { Endpoints } from "../../src/plugins/chain/endpoints.ts";
import { entryKey } from "../../src/plugins/chain/metadata.ts";
import { KeyProofs } from "../../src/plugins/chain/proofs.ts";
import { ChainReader } from "../../src/plugins/chain/reader.ts";
import { Rpc, systemHost } from "../../src/plugins/chain/rpc.ts";
import type { Common } from "../../src/plugins/chain/session.ts";
import { chainPlugin } from "../../src/plugins/load.ts";
import { MemoryTable } from "../../src/plugins/memory/table.ts";
import { keyProofKey } from "../../src/storage/embedded-records.ts";
import { optionsOf } from "../conformance/options.ts";
import {
  authorizedCall,
  certifiedOf,
  documentOf,
  type Identity,
  type KeyPair,
  keyOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import { World } from "../support/world.ts";
import { blockHash, closedAfterEach, type FakeNode, nowKey } from "./chain-node.ts";

const { opened, fakeNode } = closedAfterEach();

const [operator, stranger] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
const genesisHash = Uint8Array.fromHex(blockHash(0).slice(2));
const validUntilMs = 1_800_000_000_000n;
const beganMs = BigInt(Date.now());

/** In an extrinsic that an account signed with this kind of key. */
function signed(call: LedgerCall, account = operator, [scheme, signatureBytes] = [0, 64]): string {
  const head = Uint8Array.of(0x84, 0, ...account, scheme, ...new Uint8Array(signatureBytes));
  return encodeHex0x(
    compactAddLength(Uint8Array.of(...head, 0, 0, 0, 0, ...encodeLedgerCall(call))),
  );
}

/** In an extrinsic without a signature, which a block has only when it was applied. */
const general = (call: LedgerCall): string =>
  encodeHex0x(compactAddLength(Uint8Array.of(0x45, 0, 0, 0, 0, 0, ...encodeLedgerCall(call))));

const registrationBy = (
  person: Identity,
  docBlob = encodeDidDocument(documentOf(person)),
  { submitter = operator, expiryMs = validUntilMs } = {},
) =>
  registrationOf(person, {
    timestamp: `v3:0:${expiryMs}`,
    docBlob,
    binding: { genesisHash, submitter },
  });

function rotationBy(
  { did }: Identity,
  [from, to]: readonly [KeyPair, KeyPair],
  nonce = 0n,
): LedgerCall {
  const intent = { did, action: "UpdateRootPubkey", newRootPubkey: to.publicKey } as const;
  return authorizedCall(intent, { nonce, validUntilMs, signerKeyId: "root" }, from, genesisHash);
}

/** What calls lead to, in this order. */
function worldOf(...calls: readonly LedgerCall[]): World {
  const world = new World(Number(validUntilMs) - 1_000);
  world.operator = operator;
  world.proofs = { ...world.proofs, genesisHash };
  for (const call of calls) world.apply(call);
  return world;
}

/** A node with the state of a world. */
function showState(node: FakeNode, world: World): void {
  const values = new Map<string, string>([[nowKey, encodeHex0x(encodeWith(u64, beganMs))]]);
  for (const [did, { record, counters, registrationExpiryMs, life }] of world.accounts) {
    values.set(encodeHex0x(entryKey("Lives", did)), encodeHex0x(encodeWith(u32, life)));
    if (record === null) continue;
    values.set(encodeHex0x(entryKey("Dids", did)), encodeHex0x(encodeWith(recordCodec, record)));
    values.set(
      encodeHex0x(entryKey("DocumentNonces", did)),
      encodeHex0x(encodeWith(u64, counters.document)),
    );
    values.set(
      encodeHex0x(entryKey("RegistrationExpiries", did)),
      encodeHex0x(encodeWith(u64, registrationExpiryMs)),
    );
  }
  node.answer = ({ id, method, params }) => {
    if (method !== "state_queryStorageAt") return null;
    const keys = params[0] as readonly string[];
    const changes = keys.map((key) => [key, values.get(key) ?? null]);
    return { frame: JSON.stringify({ id, result: [{ block: params[1], changes }] }) };
  };
}

async function endpointsTo(
  addresses: readonly string[],
  changes: Readonly<Record<string, unknown>> = {},
) {
  const given = {
    endpoints: addresses,
    operator_key_file: "key",
    outbox: "outbox",
    block_time_ms: 60_000,
    request_timeout_ms: 1_000,
    ...changes,
  };
  const common: Common = {
    settings: optionsOf(chainPlugin, given),
    key: { publicKey: operator, scheme: 1, sign: keyOf("operator").sign },
    host: systemHost(Date.now),
    log: () => {},
    runtimes: new Map(),
    connect: Rpc.open,
  };
  const all = Promise.withResolvers<void>();
  let heads = 0;
  const events = {
    onSession: () => {},
    onHead: () => void (++heads === addresses.length && all.resolve()),
  };
  const endpoints = new Endpoints({ ...common, anchor: null, genesis: null }, events);
  opened.push(endpoints);
  endpoints.start();
  await all.promise;
  return { endpoints, common };
}

/** The key proofs after all blocks of a node with the state of a world, or of several nodes. */
async function proofsOf(
  nodes: FakeNode | readonly FakeNode[],
  world: World,
  table = new MemoryTable(1 << 20),
): Promise<(person: Identity) => Promise<KeyProof | null>> {
  if (!Array.isArray(nodes)) showState(nodes as FakeNode, world);
  const { endpoints, common } = await endpointsTo([nodes].flat().map(({ endpoint }) => endpoint));
  const proofs = new KeyProofs({ ...common, table, endpoints, reader: new ChainReader(endpoints) });
  proofs.follow();
  await proofs.close();
  return async ({ did }) => {
    const bytes = await proofs.of(did);
    return bytes === null ? null : decodeKeyProof(bytes);
  };
}

const named = (label: string) => certifiedOf(label, genesisHash);

describe("key proofs", () => {
  test("have a registration by an account of every kind of key, beside an extrinsic that can't be read", async () => {
    const node = fakeNode();
    const people = [64, 64, 65, 65].map((signatureBytes, scheme) => {
      const person = named(`kind ${scheme}`);
      const call = registrationBy(person);
      return { person, call, extrinsic: signed(call, operator, [scheme, signatureBytes]) };
    });
    const odd = Uint8Array.of(
      0x84,
      0,
      ...operator,
      3,
      ...new Uint8Array(65),
      ...new Uint8Array(80).fill(0xff),
    );
    node.blocks.set(node.head, [
      encodeHex0x(compactAddLength(odd)),
      ...people.map(({ extrinsic }) => extrinsic),
    ]);
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
      const service = {
        id: `${did}#s`,
        type: `T${nonce}`,
        serviceEndpoint: ["u"],
        authorization: null,
        priority: 0,
      };
      return authorizedCall({ action, did, service }, terms(nonce), key, genesisHash);
    };
    const rotation = (label: string) => {
      const intent = {
        did,
        action: "UpdateRootPubkey",
        newRootPubkey: keyOf(label).publicKey,
      } as const;
      return authorizedCall(intent, terms(0n), root, genesisHash);
    };
    const deletion = authorizedCall(
      { did, action: "delete_did" },
      terms(0n),
      keyOf("thief"),
      genesisHash,
    );
    const stolen = {
      ...setDocumentOf(person, { timestamp: `v3:0:${validUntilMs}`, docBlob: new Uint8Array(9) }),
    };
    const changes = Array.from({ length: componentCallsMax }, (_, n) => change(BigInt(n)));
    // What a stranger pays for is refused: his own calls, and what the DID's keys signed and then
    // did not use.
    const refused = [
      deletion,
      stolen,
      rotation("unused"),
      change(0n, keyOf("thief")),
      change(BigInt(componentCallsMax)),
    ].map((call) => signed(call, stranger));
    const [registration, rotated, another] = [
      registrationBy(person),
      rotation("next"),
      registrationBy(other),
    ];
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

  const lengths = [
    { pubkey: new Uint8Array(31) },
    { pubkey: new Uint8Array(33) },
    { signature: new Uint8Array(63) },
    { signature: new Uint8Array(0) },
    { alias: "a".repeat(5_000) },
    { docBlob: new Uint8Array(60_000) },
    { docBlob: new Uint8Array(0) },
    { timestamp: "9".repeat(5_000) },
    { timestamp: "v3:0:99999999999999999999999" },
  ];
  for (const change of lengths) {
    const [[member, value]] = Object.entries(change) as [[string, Uint8Array | string]];
    test(`are read past a call that has ${value.length} bytes of ${member}`, async () => {
      const node = fakeNode();
      const [person, bad] = [named("good"), named("bad")];
      const malformed = { ...registrationBy(bad), ...change } as LedgerCall;
      const whole = setDocumentOf(person, {
        timestamp: `v3:${validUntilMs}`,
        docBlob: new Uint8Array(9),
      });
      const documents = "alias" in change ? [] : [general({ ...whole, ...change } as LedgerCall)];
      const registration = registrationBy(person);
      node.blocks.set(2, [signed(registration), signed(malformed, stranger), ...documents]);
      const world = worldOf(registration);
      // As if the chain had taken it, so that nothing but its form keeps it out.
      world.accounts.set(bad.did, world.account(person.did));
      const proofOf = await proofsOf(node, world);
      expect(await proofOf(person)).not.toBeNull();
      expect(await proofOf(bad)).toBeNull();
    });
  }

  test("are read past rotations and changes to keys and signatures of other lengths", async () => {
    const node = fakeNode();
    const person = named("good");
    const [registration, rotation] = [
      registrationBy(person),
      rotationBy(person, [person.root, keyOf("next")]),
    ];
    const odd = [
      { newRootPubkey: new Uint8Array(31) },
      { signature: new Uint8Array(63) },
      { signedPayload: new Uint8Array(5) },
      { signedPayload: new Uint8Array(5_000) },
    ].map((change) => general({ ...rotation, ...change } as LedgerCall));
    node.blocks.set(2, [signed(registration), ...odd]);
    const proofOf = await proofsOf(node, worldOf(registration));
    expect((await proofOf(person))?.rotations).toHaveLength(0);
  });

  for (const [thief, rotatedIn, forgedIn] of [
    ["before the key is rotated out", 8, 5],
    ["after the key is rotated out", 2, 5],
  ] as const) {
    test(`survive eight registrations by a thief of the first key ${thief}`, async () => {
      const node = fakeNode();
      node.head = 12;
      const person = named("victim");
      const [registration, rotated] = [
        registrationBy(person),
        rotationBy(person, [person.root, keyOf("next")]),
      ];
      // The chain refuses each one (DidAlreadyExists): with the expiry of the true one, and with
      // others.
      const forged = Array.from({ length: 8 }, (_, n) => {
        const docBlob = encodeDidDocument(
          n % 2 === 0 ? documentOf(person) : emptyDocument(person.did),
        );
        return [validUntilMs, validUntilMs + 1n].map((expiryMs) => {
          const submitter = new Uint8Array(32).fill(10 + n);
          return signed(registrationBy(person, docBlob, { submitter, expiryMs }), submitter);
        });
      });
      node.blocks.set(1, [signed(registration)]);
      node.blocks.set(rotatedIn, [general(rotated)]);
      node.blocks.set(forgedIn, forged.flat());
      const proofOf = await proofsOf(node, worldOf(registration, rotated));
      expect((await proofOf(person))?.registration.submitter).toEqual(operator);
    });
  }

  test("survive any number of registrations that the chain refused before", async () => {
    const node = fakeNode();
    const person = named("patient");
    const refused = Array.from({ length: 12 }, (_, n) =>
      signed(registrationBy(person, undefined, { expiryMs: validUntilMs - 100n + BigInt(n) })),
    );
    const registration = registrationBy(person);
    node.blocks.set(2, [...refused, signed(registration), ...refused]);
    const proofOf = await proofsOf(node, worldOf(registration));
    expect((await proofOf(person))?.registration.expiryMs).toBe(validUntilMs);
  });

  test("are kept of no DID that the chain refused to register, or has deleted", async () => {
    const node = fakeNode();
    const [invented, deleted] = [named("invented"), named("deleted")];
    const registration = registrationBy(deleted);
    const terms = { nonce: 0n, validUntilMs, signerKeyId: "root" };
    const deletion = authorizedCall(
      { did: deleted.did, action: "delete_did" },
      terms,
      deleted.root,
      genesisHash,
    );
    node.blocks.set(2, [signed(registrationBy(invented)), signed(registration)]);
    node.blocks.set(4, [
      general(deletion),
      signed(registrationBy(deleted, undefined, { submitter: stranger }), stranger),
    ]);
    const table = new MemoryTable(1 << 20);
    await proofsOf(node, worldOf(registration, deletion), table);
    for (const { did } of [invented, deleted]) expect(table.get(keyProofKey(did))).toBeNull();
  });

  test("are not read by what one of two endpoints alone says about a registration", async () => {
    const [liar, honest] = [fakeNode(), fakeNode()];
    const person = named("denied");
    const registration = registrationBy(person);
    const table = new MemoryTable(1 << 20);
    for (const node of [liar, honest]) node.blocks.set(2, [signed(registration)]);
    showState(honest, worldOf(registration));
    showState(liar, worldOf());
    const denied = await proofsOf([liar, honest], worldOf(), table);
    expect(await denied(person).catch(String)).toContain("disagree about this DID");
    showState(liar, worldOf(registration));
    expect(await (await proofsOf([liar, honest], worldOf(), table))(person)).not.toBeNull();
  });

  test("of others are read while two endpoints disagree about one registration", async () => {
    const [liar, honest] = [fakeNode(), fakeNode()];
    const [denied, other] = [named("denied"), named("undisputed")];
    const calls = [registrationBy(denied), registrationBy(other)] as const;
    for (const node of [liar, honest])
      node.blocks.set(
        2,
        calls.map((call) => signed(call)),
      );
    showState(honest, worldOf(...calls));
    showState(liar, worldOf(calls[1]));
    const proofOf = await proofsOf([liar, honest], worldOf(calls[1]));
    expect(await proofOf(other)).not.toBeNull();
    expect(await proofOf(denied).catch(String)).toContain("disagree about this DID");
  });

  test("are soon known to be missing when the second endpoint is always a block behind", async () => {
    const node = fakeNode();
    const { endpoints, common } = await endpointsTo([node.endpoint], { block_time_ms: 20 });
    const reader = new ChainReader(endpoints);
    const reads = spyOn(reader, "facts");
    spyOn(endpoints, "confirm").mockImplementation(async (session, { number }) =>
      session.headAt(await session.hashAt(number - 1n)),
    );
    const proofs = new KeyProofs({ ...common, table: new MemoryTable(1 << 20), endpoints, reader });
    const asked = proofs.of(named("nowhere").did);
    let isOver = false;
    const over = () => {
      isOver = true;
    };
    asked.then(over, over);
    for (; !isOver && node.head < 60; node.head++) {
      proofs.follow();
      await Bun.sleep(25);
    }
    expect(await asked).toBeNull();
    expect(reads.mock.calls.length).toBeLessThan(4);
    await proofs.close();
  });

  test("let other work go on between the calls of one block", async () => {
    const node = fakeNode();
    node.head = 3;
    const person = named("busy");
    const registrations = Array.from({ length: 8 }, (_, n) => {
      const submitter = n === 0 ? operator : new Uint8Array(32).fill(10 + n);
      return { call: registrationBy(person, undefined, { submitter }), submitter };
    });
    const keys = [
      person.root,
      ...Array.from({ length: rotationsMax }, (_, n) => keyOf(`key ${n}`)),
    ];
    const rotations = Array.from({ length: rotationsMax }, (_, n) =>
      rotationBy(person, [keys[n] as KeyPair, keys[n + 1] as KeyPair], BigInt(n)),
    );
    node.blocks.set(
      1,
      registrations.map(({ call, submitter }) => signed(call, submitter)),
    );
    node.blocks.set(3, rotations.map(general));
    const world = worldOf((registrations[0] as { readonly call: LedgerCall }).call, ...rotations);
    let turns = 0;
    let isOver = false;
    const turn = (): void => {
      turns++;
      if (!isOver) setImmediate(turn);
    };
    turn();
    const proofOf = await proofsOf(node, world);
    isOver = true;
    expect((await proofOf(person))?.rotations).toHaveLength(rotationsMax);
    expect(turns).toBeGreaterThan(rotationsMax);
  });
});
