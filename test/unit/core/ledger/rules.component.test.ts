/** Changing the components of a document, and who may sign for it. */
import { describe, expect, test } from "bun:test";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";
import type { Intent } from "../../../../src/core/ledger/actions.ts";
import { alice, aliceWorld, bob, cache, did, k1, k2, signed, x1 } from "../../../support/alice.ts";
import { documentOf, keyOf, methodOf } from "../../../support/identity.ts";

describe("component operations", () => {
  const many = <T>(count: number, make: (i: number) => T) =>
    Array.from({ length: count }, (_, i) => make(i));
  const fullMethods = many(5, (i) => methodOf(did, `m${i}`, keyOf(`m${i}`)));
  const cases: {
    readonly name: string;
    readonly staged?: Partial<DidDocument>;
    readonly intent: Intent;
    readonly outcome: string;
  }[] = [
    {
      name: "a new method",
      intent: { action: "AddVerificationMethod", did, verificationMethod: k2 },
      outcome: "VerificationMethodAdded",
    },
    {
      name: "a method twice",
      intent: { action: "AddVerificationMethod", did, verificationMethod: k1 },
      outcome: "VerificationMethodAlreadyExists",
    },
    {
      name: "a sixth method",
      staged: { verificationMethod: fullMethods, authentication: [] },
      intent: { action: "AddVerificationMethod", did, verificationMethod: k2 },
      outcome: "InvalidDocument",
    },
    {
      name: "a method of another controller",
      intent: {
        action: "AddVerificationMethod",
        did,
        verificationMethod: { ...k2, controller: bob.did },
      },
      outcome: "InvalidDocument",
    },
    {
      name: "a method without type",
      intent: { action: "AddVerificationMethod", did, verificationMethod: { ...k2, type: "" } },
      outcome: "InvalidDocument",
    },
    {
      name: "a method whose key is of small order",
      intent: {
        action: "AddVerificationMethod",
        did,
        verificationMethod: { ...k2, publicKeyMultibase: "z11111111111111111111111111111111" },
      },
      outcome: "InvalidDocument",
    },
    {
      name: "a method of a type that we can't check",
      intent: {
        action: "AddVerificationMethod",
        did,
        verificationMethod: { ...k2, type: "JsonWebKey2020", publicKeyMultibase: "opaque" },
      },
      outcome: "VerificationMethodAdded",
    },
    {
      name: "another key for a method",
      intent: { action: "UpdateVerificationMethod", did, verificationMethod: { ...k2, id: k1.id } },
      outcome: "VerificationMethodUpdated",
    },
    {
      name: "an update of no method",
      intent: { action: "UpdateVerificationMethod", did, verificationMethod: k2 },
      outcome: "VerificationMethodNotFound",
    },
    {
      name: "the removal of a method in use",
      intent: { action: "RemoveVerificationMethod", did, id: k1.id },
      outcome: "VerificationMethodInUse",
    },
    {
      name: "the removal of a method",
      staged: { authentication: [] },
      intent: { action: "RemoveVerificationMethod", did, id: k1.id },
      outcome: "VerificationMethodRemoved",
    },
    {
      name: "the removal of no method",
      intent: { action: "RemoveVerificationMethod", did, id: k2.id },
      outcome: "VerificationMethodNotFound",
    },
    {
      name: "a method for authentication",
      staged: { verificationMethod: [k1, k2] },
      intent: { action: "AddAuthentication", did, id: k2.id },
      outcome: "AuthenticationAdded",
    },
    {
      name: "no method for authentication",
      intent: { action: "AddAuthentication", did, id: k2.id },
      outcome: "VerificationMethodNotFound",
    },
    {
      name: "authentication twice",
      intent: { action: "AddAuthentication", did, id: k1.id },
      outcome: "AuthenticationAlreadyExists",
    },
    {
      name: "a fifth authentication",
      staged: {
        verificationMethod: fullMethods,
        authentication: fullMethods.slice(0, 4).map((m) => m.id),
      },
      intent: { action: "AddAuthentication", did, id: fullMethods[4]!.id },
      outcome: "InvalidDocument",
    },
    {
      name: "no authentication to remove",
      intent: { action: "RemoveAuthentication", did, id: k2.id },
      outcome: "AuthenticationNotFound",
    },
    {
      name: "the last authentication",
      intent: { action: "RemoveAuthentication", did, id: k1.id },
      outcome: "AuthenticationRemoved",
    },
    {
      name: "a key agreement",
      intent: { action: "AddKeyAgreement", did, keyAgreement: x1 },
      outcome: "KeyAgreementAdded",
    },
    {
      name: "a key agreement twice",
      staged: { keyAgreement: [x1] },
      intent: { action: "AddKeyAgreement", did, keyAgreement: x1 },
      outcome: "KeyAgreementAlreadyExists",
    },
    {
      name: "a sixth key agreement",
      staged: { keyAgreement: many(5, (i) => ({ ...x1, id: `${did}#y${i}` })) },
      intent: { action: "AddKeyAgreement", did, keyAgreement: x1 },
      outcome: "InvalidDocument",
    },
    {
      name: "an update of a key agreement",
      staged: { keyAgreement: [x1] },
      intent: {
        action: "UpdateKeyAgreement",
        did,
        keyAgreement: { ...x1, publicKeyMultibase: "zNew" },
      },
      outcome: "KeyAgreementUpdated",
    },
    {
      name: "an update of no key agreement",
      intent: { action: "UpdateKeyAgreement", did, keyAgreement: x1 },
      outcome: "KeyAgreementNotFound",
    },
    {
      name: "the removal of a key agreement",
      staged: { keyAgreement: [x1] },
      intent: { action: "RemoveKeyAgreement", did, id: x1.id },
      outcome: "KeyAgreementRemoved",
    },
    {
      name: "the removal of no key agreement",
      intent: { action: "RemoveKeyAgreement", did, id: x1.id },
      outcome: "KeyAgreementNotFound",
    },
    {
      name: "a service",
      intent: { action: "AddService", did, service: cache },
      outcome: "ServiceAdded",
    },
    {
      name: "a service twice",
      staged: { service: [cache] },
      intent: { action: "AddService", did, service: cache },
      outcome: "ServiceAlreadyExists",
    },
    {
      name: "a fifth service",
      staged: { service: many(4, (i) => ({ ...cache, id: `${did}#s${i}` })) },
      intent: { action: "AddService", did, service: cache },
      outcome: "ServiceTooLong",
    },
    {
      name: "a service without endpoint",
      intent: { action: "AddService", did, service: { ...cache, serviceEndpoint: [] } },
      outcome: "InvalidDocument",
    },
    {
      name: "a service that authorizes an empty id",
      intent: { action: "AddService", did, service: { ...cache, authorization: [""] } },
      outcome: "InvalidDocument",
    },
    {
      name: "a service that authorizes nobody",
      intent: { action: "AddService", did, service: { ...cache, authorization: [] } },
      outcome: "ServiceAdded",
    },
    {
      name: "an update of a service",
      staged: { service: [cache] },
      intent: { action: "UpdateService", did, service: { ...cache, priority: 3 } },
      outcome: "ServiceUpdated",
    },
    {
      name: "an update of no service",
      intent: { action: "UpdateService", did, service: cache },
      outcome: "ServiceNotFound",
    },
    {
      name: "the removal of a service",
      staged: { service: [cache] },
      intent: { action: "RemoveService", did, id: cache.id },
      outcome: "ServiceRemoved",
    },
    {
      name: "the removal of no service",
      intent: { action: "RemoveService", did, id: cache.id },
      outcome: "ServiceNotFound",
    },
  ];

  for (const { name, staged, intent, outcome } of cases) {
    test(`${intent.action}: ${name} is ${outcome}`, () => {
      const world = aliceWorld();
      world.stage(did, { document: { ...documentOf(alice), ...staged } });
      const before = world.account(did);
      const got = world.apply(signed(world, intent));
      expect(Array.isArray(got) ? got[0]! : got).toBe(outcome);
      const after = world.account(did);
      if (!Array.isArray(got)) return expect(after).toBe(before);
      expect(after.record?.version).toBe(before.record!.version + 1n);
      expect(after.counters).toEqual({
        ...before.counters,
        document: before.counters.document + 1n,
      });
    });
  }

  test("an update keeps its place in the list", () => {
    const world = aliceWorld();
    world.apply(signed(world, { action: "AddVerificationMethod", did, verificationMethod: k2 }));
    const changed = { ...k1, publicKeyMultibase: k2.publicKeyMultibase };
    world.apply(
      signed(world, { action: "UpdateVerificationMethod", did, verificationMethod: changed }),
    );
    expect(world.record(did).document?.verificationMethod).toEqual([changed, k2]);
  });

  test("only additions create a document where there is none", () => {
    const adds: Intent[] = [
      { action: "AddVerificationMethod", did, verificationMethod: k2 },
      { action: "AddKeyAgreement", did, keyAgreement: x1 },
      { action: "AddService", did, service: cache },
    ];
    for (const intent of adds) {
      const world = aliceWorld();
      world.stage(did, { document: null });
      expect(world.apply(signed(world, intent))).toBeArray();
      expect(world.record(did).document?.id).toBe(did);
    }
    const world = aliceWorld();
    world.stage(did, { document: null });
    expect(world.apply(signed(world, { action: "AddAuthentication", did, id: k1.id }))).toBe(
      "InvalidDocument",
    );
    expect(world.apply(signed(world, { action: "RemoveService", did, id: cache.id }))).toBe(
      "InvalidDocument",
    );
  });
});

describe("signers", () => {
  const intent: Intent = { action: "AddService", did, service: cache };
  const k1Key = keyOf("alice k1");

  test("a method in authentication signs like the root key", () => {
    const world = aliceWorld();
    expect(world.apply(signed(world, intent, { signer: k1Key, signerKeyId: k1.id }))).toEqual([
      "ServiceAdded",
    ]);
  });

  const refused: {
    readonly name: string;
    readonly staged: Partial<DidDocument>;
    readonly signerKeyId?: string;
  }[] = [
    { name: "a method outside authentication", staged: { authentication: [] } },
    {
      name: "a method of another controller",
      staged: { verificationMethod: [{ ...k1, controller: bob.did }] },
    },
    {
      name: "a method of another type",
      staged: { verificationMethod: [{ ...k1, type: "JsonWebKey2020" }] },
    },
    { name: "a method that is gone", staged: { verificationMethod: [] } },
    { name: "the root key under another name", staged: {}, signerKeyId: `${did}#root` },
  ];
  for (const { name, staged, signerKeyId } of refused) {
    test(`${name} does not sign`, () => {
      const world = aliceWorld();
      world.stage(did, { document: { ...documentOf(alice), ...staged } });
      const call = signed(world, intent, { signer: k1Key, signerKeyId: signerKeyId ?? k1.id });
      expect(world.apply(call)).toBe("InvalidSignature");
    });
  }

  test("rotation ends the old root key and does not change the methods", () => {
    const world = aliceWorld();
    const next = keyOf("alice next");
    expect(
      world.apply(
        signed(world, { action: "UpdateRootPubkey", did, newRootPubkey: next.publicKey }),
      ),
    ).toEqual(["RootPubkeyUpdated"]);
    expect(world.account(did).counters).toEqual({
      alias: 0n,
      document: 0n,
      rootPubkey: 1n,
      control: 0n,
    });
    expect(world.apply(signed(world, intent))).toBe("InvalidSignature");
    expect(world.apply(signed(world, intent, { signer: next }))).toEqual(["ServiceAdded"]);
    expect(
      world.apply(
        signed(
          world,
          { action: "RemoveService", did, id: cache.id },
          { signer: k1Key, signerKeyId: k1.id },
        ),
      ),
    ).toEqual(["ServiceRemoved"]);
  });

  test("a new root key must be admissible and of 32 bytes", () => {
    const world = aliceWorld();
    const rotate = (newRootPubkey: Uint8Array) =>
      signed(world, { action: "UpdateRootPubkey", did, newRootPubkey });
    expect(world.apply(rotate(new Uint8Array(32)))).toBe("InvalidRootPubkey");
    expect(world.apply(rotate(new Uint8Array(31)))).toBe("InvalidRootPubkey");
  });
});
