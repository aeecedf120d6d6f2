/** The rules that only DIDs of the self-certifying form have, and that other DIDs don't. */
import { describe, expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { actions, type Intent } from "../../../../src/core/ledger/actions.ts";
import { encodeDidDocument } from "../../../../src/core/ledger/document-codec.ts";
import {
  authorizedCall,
  certifiedOf,
  documentOf,
  type Identity,
  identityOf,
  type KeyPair,
  keyOf,
  registrationOf,
  setDocumentOf,
} from "../../../support/identity.ts";
import { everyProof, operatorAccount, World } from "../../../support/world.ts";

const startMs = 1_800_000_000_000;
const { genesisHash } = everyProof;
const binding = { genesisHash, submitter: operatorAccount };
const carol = certifiedOf("carol", genesisHash);
const dave = identityOf("dave");

const stamp = (world: World, version: "v2" | "v3", nonce = 0n) =>
  `${version}:${nonce}:${world.nowMs + 60_000}`;
const register = (world: World, who: Identity, version: "v2" | "v3" = "v3") =>
  world.apply(registrationOf(who, { timestamp: stamp(world, version), binding }));

function registered(who: Identity): World {
  const world = new World(startMs);
  expect(register(world, who)).toEqual(["Registered", "DocumentSet"]);
  world.nowMs += 1_000;
  return world;
}

type Signing = {
  readonly signer: KeyPair;
  readonly keyId?: string;
  readonly ledger?: Uint8Array | null;
};
function change(
  world: World,
  intent: Intent,
  { signer, keyId = "root", ledger = genesisHash }: Signing,
) {
  const nonce = world.account(intent.did).counters[actions[intent.action].counter];
  const terms = { nonce, validUntilMs: BigInt(world.nowMs + 60_000), signerKeyId: keyId };
  return world.apply(authorizedCall(intent, terms, signer, ledger));
}

describe("a self-certifying DID", () => {
  test("is registered under the key that it is derived from, and no other", () => {
    const world = new World(startMs);
    expect(register(world, { ...carol, root: keyOf("thief") })).toBe("NameNotDerived");
    const elsewhere = certifiedOf("carol", new Uint8Array(32).fill(9));
    expect(register(world, elsewhere)).toBe("NameNotDerived");
    expect(register(world, carol)).toEqual(["Registered", "DocumentSet"]);
  });

  test("is registered once: a deletion is final, for its first key too", () => {
    const world = registered(carol);
    expect(change(world, { action: "delete_did", did: carol.did }, { signer: carol.root })).toEqual(
      ["DidDeleted"],
    );
    world.nowMs += 1_000;
    expect(register(world, carol)).toBe("NameRetired");
  });

  test("takes no proof of an older version, which would name no ledger", () => {
    const world = new World(startMs);
    expect(register(world, carol, "v2")).toBe("ProofVersionRefused");
    expect(world.apply(registrationOf(carol, { timestamp: String(startMs) }))).toBe(
      "ProofVersionRefused",
    );
    register(world, carol);
    world.nowMs += 1_000;
    const docBlob = encodeDidDocument(documentOf(carol));
    const replace = (timestamp: string) =>
      world.apply(setDocumentOf(carol, { timestamp, docBlob }, genesisHash));
    expect(replace(String(world.nowMs))).toBe("ProofVersionRefused");
    expect(replace(stamp(world, "v2"))).toBe("ProofVersionRefused");
    const plain = change(
      world,
      { action: "add_alias", did: carol.did, alias: "c" },
      { signer: carol.root, ledger: null },
    );
    expect(plain).toBe("InvalidSignature");
    expect(replace(stamp(world, "v3"))).toEqual(["DocumentSet"]);
  });

  const endings = (did: Did): Intent[] => [
    { action: "UpdateRootPubkey", did, newRootPubkey: keyOf("next").publicKey },
    { action: "deactivate_did", did },
    { action: "delete_did", did },
  ];

  test("is rotated, deactivated and deleted by root alone", () => {
    for (const intent of endings(carol.did)) {
      const world = registered(carol);
      const asMethod = { signer: keyOf("carol k1"), keyId: `${carol.did}#k1` };
      expect(change(world, intent, asMethod)).toBe("OnlyRootSigns");
      expect(change(world, { action: "add_alias", did: carol.did, alias: "c" }, asMethod)).toEqual([
        "AliasAdded",
      ]);
      expect(change(world, intent, { signer: carol.root })).toHaveLength(1);
    }
  });

  test("has no such rules on a ledger that doesn't know the form", () => {
    const world = new World(startMs);
    world.proofs = { ...everyProof, selfCertifying: false };
    expect(register(world, { ...carol, root: keyOf("thief") })).toEqual([
      "Registered",
      "DocumentSet",
    ]);
  });
});

test("another DID keeps its rules", () => {
  for (const intent of [
    { action: "UpdateRootPubkey", did: dave.did, newRootPubkey: keyOf("next").publicKey },
    { action: "delete_did", did: dave.did },
  ] as const) {
    const world = new World(startMs);
    expect(register(world, dave, "v2")).toEqual(["Registered", "DocumentSet"]);
    world.nowMs += 1_000;
    const asMethod = { signer: keyOf("dave k1"), keyId: `${dave.did}#k1`, ledger: null };
    expect(change(world, intent, asMethod)).toHaveLength(1);
    world.nowMs += 100_000;
    if (intent.action === "delete_did")
      expect(register(world, dave)).toEqual(["Registered", "DocumentSet"]);
  }
});
