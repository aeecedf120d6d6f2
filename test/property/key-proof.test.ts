/**
 * Key proofs against the ledger: whatever a ledger accepts, the proof that it keeps replays to the
 * ledger's own record, and every signature holds. And no proof says anything else: any changed byte
 * makes another DID, no proof, or a signature that doesn't hold.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { encodeHex } from "../../src/core/codec/bytes.ts";
import { sha256, verifyEd25519 } from "../../src/core/codec/crypto.ts";
import { type Service, scaleBounds } from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { keepKeyProof } from "../../src/core/ledger/keep.ts";
import {
  componentCallsMax,
  decodeKeyProof,
  encodeKeyProof,
  type KeyProof,
  type KeyState,
  keyProofBytesMax,
  replayKeyProof,
  rotationsMax,
} from "../../src/core/ledger/key-proof.ts";
import { isRefusal, type LedgerError } from "../../src/core/ledger/refusals.ts";
import { encodeAuthorization } from "../../src/core/ledger/structures.ts";
import {
  authorizedCall,
  certifiedOf,
  documentOf,
  type KeyPair,
  keyOf,
  methodOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import { everyProof, operatorAccount, World } from "../support/world.ts";

const startMs = 1_800_000_000_000;
const { genesisHash } = everyProof;
const binding = { genesisHash, submitter: operatorAccount };
const carol = certifiedOf("carol", genesisHash);
const { did } = carol;

/** A ledger with one DID that keeps its proof, as the embedded ledger does. */
class Proving {
  readonly world = new World(startMs);
  proof: KeyProof | null = null;
  root: KeyPair = carol.root;

  apply(call: LedgerCall): LedgerError | null {
    this.world.nowMs += 1_000;
    const outcome = this.world.try(call);
    if (isRefusal(outcome)) return outcome.error;
    this.world.apply(call);
    this.proof = keepKeyProof(this.proof, call, binding);
    return null;
  }

  register(alias?: string): LedgerError | null {
    const timestamp = `v3:0:${this.world.nowMs + 60_000}`;
    return this.apply(
      registrationOf(carol, { timestamp, binding, ...(alias === undefined ? {} : { alias }) }),
    );
  }

  change(intent: Intent, signer: KeyPair = this.root, signerKeyId = "root"): LedgerError | null {
    const nonce = this.world.account(did).counters[actions[intent.action].counter];
    const terms = { nonce, validUntilMs: BigInt(this.world.nowMs + 60_000), signerKeyId };
    return this.apply(authorizedCall(intent, terms, signer, genesisHash));
  }

  replace(document = documentOf(carol)): LedgerError | null {
    const timestamp = `v3:${this.world.account(did).counters.document}:${this.world.nowMs + 60_000}`;
    const docBlob = encodeDidDocument(document);
    return this.apply(
      setDocumentOf({ ...carol, root: this.root }, { timestamp, docBlob }, genesisHash),
    );
  }

  rotate(label: string): LedgerError | null {
    const next = keyOf(label);
    const refused = this.change({ action: "UpdateRootPubkey", did, newRootPubkey: next.publicKey });
    if (refused === null) this.root = next;
    return refused;
  }
}

/** The state of a proof's bytes whose signatures all hold, else `null`. */
function proven(bytes: Uint8Array): KeyState | null {
  const proof = decodeKeyProof(bytes);
  const state = proof === null ? null : replayKeyProof(proof);
  const holds = state?.signatures.every((one) =>
    verifyEd25519(one.signature, one.message, one.publicKey),
  );
  return state !== null && holds === true ? state : null;
}

function expectSame({ world, proof, root }: Proving): void {
  if (proof === null) throw new Error("the ledger keeps no proof");
  const { record, counters } = world.account(did);
  const state = proven(encodeKeyProof(proof));
  expect(state?.did).toBe(did);
  expect(state?.document).toEqual(record?.document as KeyState["document"]);
  expect(state?.rootKeys.at(-1)).toEqual(root.publicKey);
  expect(state?.rootKeys.length).toBe(Number(counters.rootPubkey) + 1);
  expect(state?.steps.at(-1)).toEqual({
    nonce: counters.document,
    hash: sha256(encodeDidDocument(state?.document as KeyState["document"])),
  });
}

type Move = { readonly what: string; readonly n: number; readonly byMethod: boolean };
const move: fc.Arbitrary<Move> = fc.record({
  what: fc.constantFrom(
    ...[
      "method",
      "unmethod",
      "list",
      "unlist",
      "agree",
      "service",
      "unserve",
      "replace",
      "rotate",
      "alias",
    ],
  ),
  n: fc.nat(3),
  byMethod: fc.boolean(),
});

function play(proving: Proving, { what, n, byMethod }: Move): LedgerError | null {
  const method = methodOf(did, `m${n}`, keyOf(`m${n}`));
  const service: Service = {
    id: `${did}#s${n}`,
    type: "T",
    serviceEndpoint: ["u"],
    authorization: null,
    priority: n,
  };
  const intents: Readonly<Record<string, Intent>> = {
    method: {
      action: n > 1 ? "UpdateVerificationMethod" : "AddVerificationMethod",
      did,
      verificationMethod: method,
    },
    unmethod: { action: "RemoveVerificationMethod", did, id: method.id },
    list: { action: "AddAuthentication", did, id: method.id },
    unlist: { action: "RemoveAuthentication", did, id: n > 1 ? method.id : `${did}#k1` },
    agree: {
      action: n > 1 ? "UpdateKeyAgreement" : "AddKeyAgreement",
      did,
      keyAgreement: { ...method, type: "X" },
    },
    service: { action: n > 1 ? "UpdateService" : "AddService", did, service },
    unserve: { action: "RemoveService", did, id: service.id },
    alias: { action: "add_alias", did, alias: `a${n}` },
  };
  if (what === "replace") return proving.replace();
  if (what === "rotate") return proving.rotate(`root ${n}`);
  const intent = intents[what] as Intent;
  return byMethod ? proving.change(intent, keyOf("carol k1"), `${did}#k1`) : proving.change(intent);
}

test("a proof replays to the record of the ledger after every change", () => {
  fc.assert(
    fc.property(fc.array(move, { maxLength: 40 }), (moves) => {
      const proving = new Proving();
      expect(proving.register("carol")).toBeNull();
      expectSame(proving);
      for (const one of moves) if (play(proving, one) === null) expectSame(proving);
    }),
    { numRuns: 60 },
  );
});

function storied(): Proving {
  const proving = new Proving();
  proving.register();
  proving.rotate("second");
  proving.replace();
  const service: Service = {
    id: `${did}#s`,
    type: "T",
    serviceEndpoint: ["u"],
    authorization: null,
    priority: 1,
  };
  proving.change({ action: "AddService", did, service });
  proving.change({ action: "RemoveService", did, id: service.id }, keyOf("carol k1"), `${did}#k1`);
  return proving;
}

test("a proof with any byte changed proves nothing of the DID", () => {
  const { proof } = storied();
  const bytes = encodeKeyProof(proof as KeyProof);
  expect(proven(bytes)?.did).toBe(did);
  for (let at = 0; at < bytes.length; at++) {
    const changed = bytes.slice();
    changed[at] = (changed[at] as number) ^ (1 << (at % 8));
    const state = proven(changed);
    // The hash and signature of a registration whose document was replaced are still verified.
    expect([at, state?.did === did]).toEqual([at, false]);
  }
});

test("a proof that leaves out or repeats a call proves nothing", () => {
  const { proof } = storied();
  if (proof === null) throw new Error("no proof");
  const { calls, rotations } = proof;
  const lies: KeyProof[] = [
    { ...proof, calls: calls.slice(1) },
    { ...proof, calls: [...calls, ...calls.slice(-1)] },
    { ...proof, calls: calls.toReversed() },
    { ...proof, rotations: [] },
    { ...proof, rotations: [...rotations, ...rotations] },
    { ...proof, base: null },
    { ...proof, base: proof.base && { ...proof.base, root: 0 } },
    { ...proof, base: proof.base && { ...proof.base, root: 7 } },
    { ...proof, base: proof.base && { ...proof.base, nonce: proof.base.nonce + 1n } },
  ];
  for (const lie of lies) expect(proven(encodeKeyProof(lie))).toBeNull();
  // The last calls may be missing: that is a state from before.
  expect(proven(encodeKeyProof({ ...proof, calls: calls.slice(0, 1) }))?.steps.length).toBe(2);
});

describe("a proof stays small", () => {
  test("because the ninth component call needs a whole document first", () => {
    const proving = new Proving();
    proving.register();
    const change = (n: number) =>
      play(proving, { what: n % 2 === 0 ? "method" : "unmethod", n: 0, byMethod: false });
    for (let n = 0; n < componentCallsMax; n++) expect(change(n)).toBeNull();
    expect(change(0)).toBe("DocumentNeeded");
    expect(proving.change({ action: "add_alias", did, alias: "a" })).toBeNull();
    expect(proving.replace()).toBeNull();
    expect(change(0)).toBeNull();
    expectSame(proving);
  });

  test("and after a rotation only a whole document is accepted", () => {
    const proving = new Proving();
    proving.register();
    proving.rotate("second");
    expect(play(proving, { what: "method", n: 0, byMethod: false })).toBe("DocumentNeeded");
    expectSame(proving);
    expect(proving.replace()).toBeNull();
    expect(play(proving, { what: "method", n: 0, byMethod: true })).toBeNull();
  });

  test("and a DID has a bounded number of root keys", () => {
    const proving = new Proving();
    proving.register();
    for (let n = 0; n < rotationsMax; n++) expect(proving.rotate(`root ${n % 2}`)).toBeNull();
    expect(proving.rotate("one more")).toBe("TooManyRootKeys");
    expectSame(proving);
  });

  test("with the SDK's documents and five rotations it has less than 4 KB", () => {
    const proving = new Proving();
    proving.register();
    for (let n = 0; n < 5; n++) proving.rotate(`root ${n}`);
    const url = "https://waypost.example.org";
    const service = (fragment: string, type: string): Service => {
      return {
        id: `${did}#${fragment}`,
        type,
        serviceEndpoint: [url],
        authorization: [`${did}#k1`],
        priority: null,
      };
    };
    const document = documentOf(carol);
    const keyAgreement = [
      { ...methodOf(did, "x25519-1", keyOf("x")), type: "X25519KeyAgreementKey2020" },
    ];
    proving.replace({
      ...document,
      keyAgreement,
      service: [service("relay", "SvcRelayService"), service("cache", "SvcCacheService")],
    });
    for (let n = 0; n < componentCallsMax; n++)
      proving.change({ action: "UpdateKeyAgreement", did, keyAgreement: keyAgreement[0]! });
    expectSame(proving);
    expect(encodeKeyProof(proving.proof as KeyProof).length).toBeLessThan(4_096);
  });

  test("and the largest one has at most 64 KB", () => {
    const bytes = (length: number) => new Uint8Array(length).fill(0x61);
    const ids = (count: number, length: number) =>
      Array.from({ length: count }, () => "a".repeat(length));
    const service: Service = {
      id: "a".repeat(scaleBounds.idBytes),
      type: "a".repeat(scaleBounds.typeBytes),
      serviceEndpoint: ids(scaleBounds.serviceEndpoints, scaleBounds.serviceEndpointBytes),
      authorization: ids(scaleBounds.serviceAuthorizations, scaleBounds.idBytes),
      priority: 1,
    };
    const terms = { nonce: 1n, validUntilMs: 1n, signerKeyId: "a".repeat(scaleBounds.idBytes) };
    const payload = encodeAuthorization({ action: "UpdateService", did, service }, terms);
    const call = { payload, signature: bytes(64) };
    const rotation = { newRootPubkey: bytes(32), validUntilMs: 1n, signature: bytes(64) };
    const registered = {
      alias: "a".repeat(64),
      expiryMs: 1n,
      submitter: bytes(32),
      documentHash: bytes(32),
    };
    const largest: KeyProof = {
      version: "v1",
      genesisHash: bytes(32),
      rootKey: bytes(32),
      registration: { ...registered, signature: bytes(64) },
      rotations: Array.from({ length: rotationsMax }, () => rotation),
      base: { root: rotationsMax, nonce: 1n, expiryMs: 1n, signature: bytes(64) },
      document: bytes(scaleBounds.documentBytes),
      calls: Array.from({ length: componentCallsMax }, () => call),
    };
    const encoded = encodeKeyProof(largest);
    expect(encoded.length).toBeLessThanOrEqual(keyProofBytesMax);
    expect(decodeKeyProof(encoded)).toEqual(largest);
  });
});

test("a deletion leaves nothing to prove", () => {
  const proving = new Proving();
  proving.register();
  expect(proving.change({ action: "delete_did", did })).toBeNull();
  expect(proving.proof).toBeNull();
});

test("bytes that are no proof are refused", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 2_000 }), (bytes) => {
      expect([encodeHex(bytes), proven(bytes)]).toEqual([encodeHex(bytes), null]);
    }),
  );
});
