/**
 * The order of checks: a call with two defects is refused for the earlier one. Every pair of
 * defects of every kind of call is tried. Source: docs/ledger.md 2.4, rules section 4 ("Signing
 * order of checks").
 */
import { describe, expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import type { Intent } from "../../../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../../../src/core/ledger/calls.ts";
import { emptyDocument } from "../../../../src/core/ledger/document.ts";
import { encodeDidDocument } from "../../../../src/core/ledger/document-codec.ts";
import type { LedgerError } from "../../../../src/core/ledger/refusals.ts";
import { alice, aliceWorld, bob, cache, did, signed, startMs } from "../../../support/alice.ts";
import {
  authorizedCall,
  documentOf,
  identityOf,
  registrationOf,
  setDocumentOf,
} from "../../../support/identity.ts";
import { World } from "../../../support/world.ts";

/** Defects in the order in which they must be noticed, each with what it is then called. */
type Kind = {
  readonly name: string;
  readonly defects: readonly (readonly [defect: string, error: LedgerError])[];
  readonly build: (defects: ReadonlySet<string>) => { world: World; call: LedgerCall };
};

function authorizedKind(
  name: string,
  errors: readonly LedgerError[],
  subject: {
    readonly intent: Intent;
    readonly other: Intent;
    readonly breakRule: (world: World) => void;
  },
): Kind {
  const names = ["payload", "expired", "unknown", "deactivated", "nonce", "signature", "rule"];
  return {
    name,
    defects: errors.map((error, i) => [names[i] as string, error]),
    build: (defects) => {
      const world = aliceWorld();
      if (defects.has("rule")) subject.breakRule(world);
      const validUntilMs = BigInt(defects.has("expired") ? world.nowMs : world.nowMs + 1);
      const terms = { nonce: defects.has("nonce") ? 1n : 0n, validUntilMs, signerKeyId: "root" };
      const intent = subject.intent;
      let call = authorizedCall(intent, terms, alice.root) as Extract<
        LedgerCall,
        { signedPayload: Uint8Array }
      >;
      if (defects.has("payload")) {
        const other = authorizedCall(subject.other, terms, alice.root) as typeof call;
        call = { ...call, signedPayload: other.signedPayload, signature: other.signature };
        if (call.name === "apply_control_with_proof")
          call = { ...call, signedPayload: call.signedPayload.slice(1) };
      }
      if (defects.has("signature")) call = { ...call, signature: flipped(call.signature) };
      if (defects.has("deactivated")) world.stage(did, { deactivated: true });
      if (defects.has("unknown")) world.accounts.delete(did);
      return { world, call };
    },
  };
}

function flipped(bytes: Uint8Array): Uint8Array {
  const copy = bytes.slice();
  copy[0]! ^= 1;
  return copy;
}

const badBlob = encodeDidDocument({ ...documentOf(alice), authentication: ["nothing"] });
const goodBlob = encodeDidDocument(emptyDocument(did));

const kinds: Kind[] = [
  authorizedKind(
    "component",
    [
      "InvalidDocumentPayload",
      "DocumentAuthorizationExpired",
      "DidNotFound",
      "DidDeactivated",
      "InvalidDocumentNonce",
      "InvalidSignature",
      "ServiceAlreadyExists",
    ],
    {
      intent: { action: "AddService", did, service: cache },
      other: { action: "UpdateService", did, service: cache },
      breakRule: (world) =>
        world.stage(did, { document: { ...documentOf(alice), service: [cache] } }),
    },
  ),
  authorizedKind(
    "alias",
    [
      "InvalidAliasPayload",
      "AliasAuthorizationExpired",
      "DidNotFound",
      "DidDeactivated",
      "InvalidAliasNonce",
      "InvalidSignature",
      "AliasTaken",
    ],
    {
      intent: { action: "add_alias", did, alias: "team" },
      other: { action: "add_alias", did, alias: "team2" },
      breakRule: (world) => world.aliases.set("team", bob.did),
    },
  ),
  authorizedKind(
    "control",
    [
      "InvalidControlPayload",
      "ControlAuthorizationExpired",
      "DidNotFound",
      "DidDeactivated",
      "InvalidControlNonce",
      "InvalidSignature",
    ],
    {
      intent: { action: "deactivate_did", did },
      other: { action: "delete_did", did },
      breakRule: () => {},
    },
  ),
  authorizedKind(
    "root key",
    [
      "InvalidRootPubkeyPayload",
      "RootPubkeyAuthorizationExpired",
      "DidNotFound",
      "DidDeactivated",
      "InvalidRootPubkeyNonce",
      "InvalidSignature",
      "InvalidRootPubkey",
    ],
    {
      intent: { action: "UpdateRootPubkey", did, newRootPubkey: new Uint8Array(32) },
      other: { action: "UpdateRootPubkey", did, newRootPubkey: bob.root.publicKey },
      breakRule: () => {},
    },
  ),
  {
    name: "registration",
    defects: [
      ["sizes", "InvalidSignature"],
      ["did", "InvalidDidFormat"],
      ["timestamp", "InvalidProofTimestamp"],
      ["expired", "RegistrationExpired"],
      ["exists", "DidAlreadyExists"],
      ["stale", "DocumentStale"],
      ["key", "InvalidRootPubkey"],
      ["signature", "InvalidSignature"],
      ["document", "VerificationMethodNotFound"],
    ],
    build: (defects) => {
      const world = defects.has("exists") ? aliceWorld() : new World(startMs);
      const expiryMs = defects.has("expired") ? world.nowMs : world.nowMs + 1_000;
      if (defects.has("stale")) {
        world.accounts.set(did, { ...world.account(did), registrationExpiryMs: BigInt(expiryMs) });
      }
      const timestamp = defects.has("timestamp") ? "yesterday" : `v2:0:${expiryMs}`;
      let call = registrationOf(alice, {
        timestamp,
        docBlob: defects.has("document") ? badBlob : goodBlob,
      });
      if (defects.has("did")) call = { ...call, did: "did:svc:0" as Did };
      if (defects.has("key")) call = { ...call, pubkey: new Uint8Array(32) };
      if (defects.has("signature")) call = { ...call, signature: flipped(call.signature) };
      if (defects.has("sizes")) call = { ...call, signature: call.signature.slice(1) };
      return { world, call };
    },
  },
  {
    name: "document, version 1",
    defects: [
      ["sizes", "InvalidSignature"],
      ["timestamp", "InvalidProofTimestamp"],
      ["document", "VerificationMethodNotFound"],
      ["unknown", "DidNotFound"],
      ["deactivated", "DidDeactivated"],
      ["stale", "DocumentStale"],
      ["signature", "InvalidSignature"],
    ],
    build: (defects) =>
      buildDocument(defects, defects.has("stale") ? String(startMs) : String(startMs + 1)),
  },
  {
    name: "document, version 2",
    defects: [
      ["sizes", "InvalidSignature"],
      ["timestamp", "InvalidProofTimestamp"],
      ["document", "VerificationMethodNotFound"],
      ["expired", "DocumentAuthorizationExpired"],
      ["unknown", "DidNotFound"],
      ["deactivated", "DidDeactivated"],
      ["nonce", "InvalidDocumentNonce"],
      ["signature", "InvalidSignature"],
    ],
    build: (defects) => {
      const nonce = defects.has("nonce") ? 1 : 0;
      return buildDocument(
        defects,
        `v2:${nonce}:${defects.has("expired") ? startMs : startMs + 60_000}`,
      );
    },
  },
];

function buildDocument(
  defects: ReadonlySet<string>,
  timestamp: string,
): { world: World; call: LedgerCall } {
  const world = aliceWorld();
  const docBlob = defects.has("document") ? badBlob : goodBlob;
  let call = setDocumentOf(alice, {
    timestamp: defects.has("timestamp") ? "v4:0:1" : timestamp,
    docBlob,
  });
  if (defects.has("signature")) call = { ...call, signature: flipped(call.signature) };
  if (defects.has("sizes")) call = { ...call, pubkey: call.pubkey.slice(1) };
  if (defects.has("deactivated")) world.stage(did, { deactivated: true });
  if (defects.has("unknown")) world.accounts.delete(did);
  return { world, call };
}

describe("of two errors, the earlier check reports", () => {
  for (const { name, defects, build } of kinds) {
    const inherent = name === "root key";
    test(name, () => {
      for (const [i, [first, error]] of defects.entries()) {
        for (const [second] of defects.slice(i)) {
          const { world, call } = build(new Set([first, second]));
          expect([first, second, world.apply(call)]).toEqual([first, second, error]);
        }
      }
    });
    // The call of this kind breaks its rule in any case; what it does without defects is shown
    // elsewhere.
    if (!inherent) {
      test(`${name}: without an error it is accepted`, () => {
        const { world, call } = build(new Set());
        expect(world.apply(call)).toBeArray();
      });
    }
  }
});

describe("owner calls", () => {
  const cases: readonly (readonly [string, (world: World) => void, LedgerError])[] = [
    ["exists", (world) => world.accounts.delete(did), "DidNotFound"],
    ["active", (world) => world.stage(did, { deactivated: true, owner: null }), "DidDeactivated"],
    ["owner", (world) => world.stage(did, { owner: bob.root.publicKey }), "NotDidOwner"],
  ];
  for (const [name, stage, error] of cases) {
    test(`${name} before the rules`, () => {
      const world = aliceWorld();
      world.aliases.set("taken", bob.did);
      stage(world);
      expect(world.apply({ name: "set_alias", did, alias: "taken" })).toBe(error);
      const links = { recipientPolicy: null, tagPolicies: Array(9).fill("t"), personaPolicies: [] };
      expect(world.apply({ name: "set_delivery_policy_links", did, ...links })).toBe(error);
    });
  }
});

describe("proofs of whole documents", () => {
  const blobOf = (fragment: string) =>
    encodeDidDocument({ ...documentOf(alice), service: [{ ...cache, id: `${did}#${fragment}` }] });

  test("version 1 must be later than the last document, and moves no counter", () => {
    const world = aliceWorld();
    const set = (timestamp: string) =>
      world.apply(setDocumentOf(alice, { timestamp, docBlob: blobOf(`t${timestamp.slice(-4)}`) }));
    expect(set(String(startMs))).toBe("DocumentStale");
    expect(set(String(startMs + 5))).toEqual(["DocumentSet"]);
    expect(set(String(startMs + 5))).toBe("DocumentStale");
    expect(set(String(startMs + 4))).toBe("DocumentStale");
    expect(set(String(startMs + 6))).toEqual(["DocumentSet"]);
    expect(world.account(did)).toMatchObject({
      documentTimeMs: BigInt(startMs + 6),
      counters: { document: 0n },
    });
    expect(world.record(did).version).toBe(3n);
  });

  test("version 2 uses up the document nonce, and later version 1 proofs must be later than it was applied", () => {
    const world = aliceWorld();
    const expiry = startMs + 60_000;
    expect(
      world.apply(setDocumentOf(alice, { timestamp: `v2:0:${expiry}`, docBlob: blobOf("a") })),
    ).toEqual(["DocumentSet"]);
    expect(world.account(did)).toMatchObject({
      documentTimeMs: BigInt(world.nowMs),
      counters: { document: 1n },
    });
    expect(
      world.apply(setDocumentOf(alice, { timestamp: `v2:0:${expiry}`, docBlob: blobOf("b") })),
    ).toBe("InvalidDocumentNonce");
    expect(
      world.apply(setDocumentOf(alice, { timestamp: String(world.nowMs), docBlob: blobOf("c") })),
    ).toBe("DocumentStale");
    expect(world.apply(signed(world, { action: "RemoveService", did, id: `${did}#a` }))).toEqual([
      "ServiceRemoved",
    ]);
  });

  test("the document time never moves back", () => {
    const world = aliceWorld();
    const ahead = String(world.nowMs + 240_000);
    const first = setDocumentOf(alice, { timestamp: ahead, docBlob: blobOf("a") });
    expect(world.apply(first)).toEqual(["DocumentSet"]);
    const second = setDocumentOf(alice, {
      timestamp: `v2:0:${startMs + 60_000}`,
      docBlob: blobOf("b"),
    });
    expect(world.apply(second)).toEqual(["DocumentSet"]);
    expect(world.apply(first)).toBe("DocumentStale");
  });

  test("version 2 expires within an hour", () => {
    const world = aliceWorld();
    const hourMs = 3_600_000;
    const document = (expiry: number) =>
      world.apply(setDocumentOf(alice, { timestamp: `v2:0:${expiry}`, docBlob: blobOf("a") }));
    const registration = (expiry: number) =>
      world.apply(registrationOf(bob, { timestamp: `v2:0:${expiry}` }));
    for (const apply of [document, registration]) {
      expect(apply(world.nowMs + hourMs + 1)).toBe("ProofTooFarAhead");
      expect(apply(world.nowMs + hourMs)).toBeArray();
    }
  });

  test("a registration has nonce 0", () => {
    const world = new World(startMs);
    expect(world.apply(registrationOf(alice, { timestamp: `v2:1:${startMs + 1}` }))).toBe(
      "InvalidProofTimestamp",
    );
  });

  test("version 2 covers document and alias, version 1 does not", () => {
    const v2 = `v2:0:${startMs + 1_000}`;
    const swapped = (timestamp: string) => ({
      ...registrationOf(alice, { timestamp }),
      docBlob: goodBlob,
    });
    expect(new World(startMs).apply(swapped(v2))).toBe("InvalidSignature");
    expect(new World(startMs).apply(swapped(String(startMs)))).toEqual([
      "Registered",
      "DocumentSet",
    ]);
    const call = registrationOf(alice, { timestamp: v2, alias: "mine" });
    expect(new World(startMs).apply({ ...call, alias: "other" })).toBe("InvalidSignature");
    expect(new World(startMs).apply({ ...call, alias: "not good" })).toBe("InvalidSignature");
  });

  test("bytes after a document, and a document of another DID, are refused", () => {
    const trailing = new Uint8Array([...goodBlob, 0]);
    const foreign = encodeDidDocument(emptyDocument(bob.did));
    for (const docBlob of [trailing, foreign, new Uint8Array(0), new Uint8Array(16_385)]) {
      expect(
        new World(startMs).apply(registrationOf(alice, { timestamp: String(startMs), docBlob })),
      ).toBe("InvalidDocument");
      const world = aliceWorld();
      expect(world.apply(setDocumentOf(alice, { timestamp: String(startMs + 1), docBlob }))).toBe(
        "InvalidDocument",
      );
    }
  });

  test("only the stored root key replaces a document", () => {
    const world = aliceWorld();
    const other = { ...alice, root: identityOf("mallory").root };
    expect(
      world.apply(setDocumentOf(other, { timestamp: String(startMs + 1), docBlob: goodBlob })),
    ).toBe("InvalidSignature");
  });
});
