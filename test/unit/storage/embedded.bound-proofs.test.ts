/**
 * Proofs of version 3: good on one ledger, and in a registration for one account; and a ledger that
 * takes nothing else. Source: docs/ledger.md 1.8.
 */
import { describe, expect, test } from "bun:test";
import type { CounterName } from "../../../src/core/ledger/account.ts";
import type { Intent } from "../../../src/core/ledger/actions.ts";
import { emptyDocument } from "../../../src/core/ledger/document.ts";
import {
  authorizationMessage,
  documentMessage,
  encodeDidDocument,
  registrationMessage,
} from "../../../src/core/ledger/document-codec.ts";
import { MemoryTable } from "../../../src/plugins/memory/table.ts";
import { openEmbeddedLedger } from "../../../src/storage/embedded.ts";
import {
  authorizedCall,
  identityOf,
  registrationOf,
  setDocumentOf,
} from "../../support/identity.ts";
import { everyProof, operatorAccount, World } from "../../support/world.ts";

const startMs = 1_800_000_000_000;
const alice = identityOf("alice");
const { did } = alice;
const genesisHash = everyProof.genesisHash;
const other = new Uint8Array(32).fill(0x99);
const binding = { genesisHash, submitter: operatorAccount };

const worldThat = (plain: boolean) => {
  const world = new World(startMs);
  world.proofs = { ...everyProof, plain };
  return world;
};
const timestamp = (nonce = 0) => `v3:${nonce}:${startMs + 60_000}`;
const registered = (world: World) => {
  expect(world.apply(registrationOf(alice, { timestamp: timestamp(), binding }))).toEqual([
    "Registered",
    "DocumentSet",
  ]);
  return world;
};

describe("a registration of version 3", () => {
  test("is valid only for the account that submits it and for its ledger", () => {
    const world = worldThat(true);
    for (const wrong of [
      { genesisHash: other, submitter: operatorAccount },
      { genesisHash, submitter: other },
      { genesisHash, submitter: null },
    ]) {
      expect(world.apply(registrationOf(alice, { timestamp: timestamp(), binding: wrong }))).toBe(
        "InvalidSignature",
      );
    }
    // What somebody else submits whose account is another one.
    world.operator = other as typeof operatorAccount;
    expect(world.apply(registrationOf(alice, { timestamp: timestamp(), binding }))).toBe(
      "InvalidSignature",
    );
    world.operator = operatorAccount;
    registered(world);
  });

  test("expires, and does not work again after a deletion", () => {
    const world = registered(worldThat(false));
    const intent: Intent = { did, action: "delete_did" };
    const terms = { nonce: 0n, validUntilMs: BigInt(startMs + 60_000), signerKeyId: "root" };
    expect(world.apply(authorizedCall(intent, terms, alice.root, genesisHash))).toEqual([
      "DidDeleted",
    ]);
    expect(world.apply(registrationOf(alice, { timestamp: timestamp(), binding }))).toBe(
      "DocumentStale",
    );
    expect(world.account(did).life).toBe(1);
    const late = registrationOf(alice, { timestamp: `v3:0:${startMs}`, binding });
    expect(world.apply(late)).toBe("RegistrationExpired");
  });

  test("has no message without a binding", () => {
    const proof = {
      did,
      alias: null,
      timestamp: timestamp(),
      pubkey: alice.root.publicKey,
      docBlob: new Uint8Array(),
    };
    expect(registrationMessage(proof)).toBeNull();
    expect(documentMessage({ did, timestamp: timestamp(), docBlob: new Uint8Array() })).toBeNull();
  });
});

test("a document of version 3 is valid only for its ledger, and uses up the document nonce", () => {
  const world = registered(worldThat(true));
  const given = { timestamp: timestamp(), docBlob: encodeDidDocument(emptyDocument(did)) };
  expect(world.apply(setDocumentOf(alice, given, other))).toBe("InvalidSignature");
  expect(world.apply(setDocumentOf(alice, given, genesisHash))).toEqual(["DocumentSet"]);
  expect(world.account(did).counters.document).toBe(1n);
  expect(world.apply(setDocumentOf(alice, given, genesisHash))).toBe("InvalidDocumentNonce");
});

describe("an authorization of version 3", () => {
  const intent: Intent = { did, action: "add_alias", alias: "team" };
  const terms = { nonce: 0n, validUntilMs: BigInt(startMs + 60_000), signerKeyId: "root" };

  test("is valid only for its ledger and its kind of payload", () => {
    const world = registered(worldThat(false));
    const call = authorizedCall(intent, terms, alice.root, genesisHash);
    if (!("signedPayload" in call)) throw new Error("the call carries a payload");
    const domains: readonly CounterName[] = ["document", "rootPubkey", "control"];
    const messages = [
      call.signedPayload,
      authorizationMessage("alias", other, call.signedPayload),
      ...domains.map((domain) => authorizationMessage(domain, genesisHash, call.signedPayload)),
    ];
    for (const message of messages) {
      expect(world.apply({ ...call, signature: alice.root.sign(message) })).toBe(
        "InvalidSignature",
      );
    }
    expect(world.apply(call)).toEqual(["AliasAdded"]);
  });

  test("is accepted beside a plain one where the ledger accepts both", () => {
    const world = registered(worldThat(true));
    expect(world.apply(authorizedCall(intent, terms, alice.root))).toEqual(["AliasAdded"]);
    const next = { did, action: "remove_alias", alias: "team" } as const;
    expect(
      world.apply(authorizedCall(next, { ...terms, nonce: 1n }, alice.root, genesisHash)),
    ).toEqual(["AliasRemoved"]);
  });
});

describe("older versions", () => {
  test("are refused by a ledger that accepts only version 3", () => {
    const world = worldThat(false);
    for (const old of [String(startMs), `v2:0:${startMs + 60_000}`]) {
      expect(world.apply(registrationOf(alice, { timestamp: old }))).toBe("ProofVersionRefused");
    }
    registered(world);
    const docBlob = encodeDidDocument(emptyDocument(did));
    expect(
      world.apply(setDocumentOf(alice, { timestamp: `v2:0:${startMs + 60_000}`, docBlob })),
    ).toBe("ProofVersionRefused");
  });

  test("are the only ones that an older ledger accepts", () => {
    const world = worldThat(true);
    world.proofs = { ...everyProof, bound: false };
    expect(world.apply(registrationOf(alice, { timestamp: timestamp(), binding }))).toBe(
      "ProofVersionRefused",
    );
    expect(world.apply(registrationOf(alice, { timestamp: String(startMs) }))).toEqual([
      "Registered",
      "DocumentSet",
    ]);
  });

  test("of version 1 are dated at most five minutes ahead", () => {
    const at = (aheadMs: number) => registrationOf(alice, { timestamp: String(startMs + aheadMs) });
    expect(worldThat(true).apply(at(300_001))).toBe("ProofTooFarAhead");
    expect(worldThat(true).apply(at(300_000))).toEqual(["Registered", "DocumentSet"]);
  });
});

test("an embedded ledger keeps its name, and no two have the same", async () => {
  const table = new MemoryTable(1 << 20);
  const options = {
    blockTimeMs: 1_000,
    now: () => startMs,
    log: () => {},
    operator: operatorAccount,
  };
  const nameOf = async (given: Parameters<typeof openEmbeddedLedger>[0]) => {
    const ledger = await openEmbeddedLedger(given);
    const { genesisHash: name, bound, plain } = await ledger.proofs();
    await ledger.close();
    expect([name.length, bound, plain]).toEqual([32, true, true]);
    return name.toHex();
  };
  const first = await nameOf({ ...options, table });
  expect(await nameOf({ ...options, table, now: () => startMs + 5_000 })).toBe(first);
  const another = new MemoryTable(1 << 20);
  expect(await nameOf({ ...options, table: another, operator: other })).not.toBe(first);
});
