/** Aliases, control actions, policies and counters: what each call refuses and what it changes. */

import { describe, expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { isFault } from "../../../../src/core/fault.ts";
import {
  aliasReserveMs,
  type CounterName,
  type DeliveryPolicy,
  embeddedBounds,
  type PersonaPolicy,
} from "../../../../src/core/ledger/account.ts";
import { type ActionOf, counters, type Intent } from "../../../../src/core/ledger/actions.ts";
import {
  aliasesNamed,
  counterOf,
  type LedgerCall,
  type ProofCall,
} from "../../../../src/core/ledger/calls.ts";
import {
  faultOfRefusal,
  isRefusal,
  ledgerErrors,
  refuse,
} from "../../../../src/core/ledger/refusals.ts";
import { applyWithEvents } from "../../../oracles/ledger-events.ts";
import { alice, aliceWorld, bob, cache, did, signed, startMs } from "../../../support/alice.ts";
import {
  certifiedOf,
  type Identity,
  identityOf,
  registrationOf,
} from "../../../support/identity.ts";
import { World } from "../../../support/world.ts";

describe("aliases", () => {
  const add = (alias: string): Intent => ({ action: "add_alias", did, alias });

  test("are added at the end, changed in place and removed", () => {
    const world = aliceWorld();
    for (const alias of ["a.one", "b-two", "c_three"])
      expect(world.apply(signed(world, add(alias)))).toEqual(["AliasAdded"]);
    expect(
      world.apply(
        signed(world, { action: "update_alias", did, oldAlias: "b-two", newAlias: "b2" }),
      ),
    ).toEqual(["AliasUpdated"]);
    expect(world.apply(signed(world, { action: "remove_alias", did, alias: "a.one" }))).toEqual([
      "AliasRemoved",
    ]);
    expect(world.record(did).aliases).toEqual(["b2", "c_three"]);
    expect([...world.aliases.keys()].sort()).toEqual(["b2", "c_three"]);
    expect(world.account(did).counters.alias).toBe(5n);
    expect(world.record(did).version).toBe(6n);
  });

  test("belong to one DID", () => {
    const world = aliceWorld();
    world.aliases.set("taken", bob.did);
    expect(world.apply(signed(world, add("taken")))).toBe("AliasTaken");
    expect(world.apply(signed(world, add("mine")))).toEqual(["AliasAdded"]);
    expect(world.apply(signed(world, add("mine")))).toBe("AliasAlreadyExists");
    const update = (oldAlias: string, newAlias: string) =>
      world.apply(signed(world, { action: "update_alias", did, oldAlias, newAlias }));
    expect(update("mine", "mine")).toBe("AliasAlreadyExists");
    expect(update("mine", "taken")).toBe("AliasTaken");
    expect(update("absent", "taken")).toBe("AliasTaken");
    expect(update("absent", "mine")).toBe("AliasAlreadyExists");
    expect(update("absent", "free")).toBe("AliasNotFound");
    expect(world.apply(signed(world, { action: "remove_alias", did, alias: "taken" }))).toBe(
      "AliasNotFound",
    );
  });

  test("are at most eight", () => {
    const world = aliceWorld();
    for (let i = 0; i < 8; i++)
      expect(world.apply(signed(world, add(`n${i}`)))).toEqual(["AliasAdded"]);
    expect(world.apply(signed(world, add("n8")))).toBe("TooManyAliases");
  });

  test("have their normal form in the payload, and any form in the argument", () => {
    const world = aliceWorld();
    const call = signed(world, add("salesgroup"));
    expect(world.apply({ ...call, alias: " SalesGroup " } as LedgerCall)).toEqual(["AliasAdded"]);
    expect(world.record(did).aliases).toEqual(["salesgroup"]);
    expect(
      world.apply({ name: "set_alias", did, alias: `${" ".repeat(300)}SalesGroup\f` }),
    ).toEqual(["AliasSet"]);
    expect(world.apply(signed(world, add("OtherGroup")))).toBe("InvalidAliasPayload");
  });

  test("are refused for length or for grammar, with different errors", () => {
    const world = aliceWorld();
    const call = signed(world, add("x"));
    for (const [alias, error] of [
      ["", "InvalidAlias"],
      ["a b", "InvalidAlias"],
      ["a@b", "InvalidAlias"],
      ["a".repeat(65), "AliasTooLong"],
      // Bytes count, after ASCII white space is gone from both ends, and before the characters.
      ["é".repeat(32), "InvalidAlias"],
      ["é".repeat(33), "AliasTooLong"],
      ["\u00a0".repeat(33), "AliasTooLong"],
      [`\v${"a".repeat(64)}`, "AliasTooLong"],
      [`${" ".repeat(300)}@`, "InvalidAlias"],
    ]) {
      expect(world.apply({ ...call, alias } as LedgerCall)).toBe(error as "InvalidAlias");
    }
  });

  test("are bounded by the ledger, whose bound may be lower than ours", () => {
    const world = aliceWorld();
    const bounds = { ...embeddedBounds, aliasBytes: 3 };
    const take = (call: LedgerCall) => {
      const outcome = applyWithEvents({
        account: world.account(call.did),
        aliasHolder: () => null,
        aliasReserve: () => null,
        ownerReplaces: "all",
        call,
        nowMs: startMs,
        operator: world.operator,
        proofs: world.proofs,
        bounds,
      });
      return isRefusal(outcome) ? outcome.error : outcome.events.map(({ name }) => name);
    };
    expect(take(signed(world, add("abc")))).toEqual(["AliasAdded"]);
    expect(take(signed(world, add("abcd")))).toBe("AliasTooLong");
    expect(take({ name: "set_alias", did, alias: "abcd" })).toBe("AliasTooLong");
    const registration = (alias: string) =>
      registrationOf(identityOf("short"), { timestamp: String(startMs), alias });
    expect(take(registration("abc"))).toEqual(["Registered", "DocumentSet", "AliasSet"]);
    expect(take(registration("abcd"))).toEqual(["Registered", "DocumentSet", "AliasInvalid"]);
  });

  test("the owner sets a first one and changes none", () => {
    const world = aliceWorld();
    expect(world.apply({ name: "set_alias", did, alias: " Two" })).toEqual(["AliasSet"]);
    expect([...world.aliases]).toEqual([["two", did]]);
    // What is there can be set again.
    expect(world.apply({ name: "set_alias", did, alias: "two" })).toEqual(["AliasSet"]);
    expect(world.apply({ name: "set_alias", did, alias: "one" })).toBe("RootKeyRequired");
    world.apply(signed(world, add("one")));
    expect(world.apply({ name: "set_alias", did, alias: "two" })).toBe("RootKeyRequired");
    expect(world.record(did).aliases).toEqual(["two", "one"]);
    // Without a root key no one else could: it replaces the whole list.
    const { rootPubkey } = world.record(did);
    world.stage(did, { rootPubkey: null });
    expect(world.apply({ name: "set_alias", did, alias: "two" })).toEqual(["AliasSet"]);
    expect([world.record(did).aliases, [...world.reserves.keys()]]).toEqual([["two"], ["one"]]);
    world.stage(did, { rootPubkey, aliases: [] });
    expect(world.account(did).counters.alias).toBe(1n);
    world.aliases.set("three", bob.did);
    expect(world.apply({ name: "set_alias", did, alias: "three" })).toBe("AliasTaken");
    expect(world.apply({ name: "set_alias", did: bob.did, alias: "!" })).toBe("InvalidAlias");
    expect(world.apply({ name: "set_alias", did: bob.did, alias: "x" })).toBe("DidNotFound");
  });

  test("the owner replaces the whole list where the ledger says so: of every DID, or of those that are not self-certifying", () => {
    const world = aliceWorld();
    for (const alias of ["one", "two"]) world.apply(signed(world, add(alias)));
    const { operator, proofs, nowMs } = world;
    const standing = { aliasHolder: () => null, aliasReserve: () => null, bounds: embeddedBounds };
    const outcomeOf = (of: Did, ownerReplaces: "none" | "uncertified" | "all") => {
      const call: LedgerCall = { name: "set_alias", did: of, alias: "three" };
      const account = world.account(did);
      const outcome = applyWithEvents({
        ...standing,
        account,
        call,
        nowMs,
        operator,
        proofs,
        ownerReplaces,
      });
      return isRefusal(outcome) ? outcome.error : outcome.aliases;
    };
    const replaced = { set: ["three"], removed: ["one", "two"] };
    const certified = certifiedOf("certified", proofs.genesisHash).did;
    expect(outcomeOf(did, "all")).toEqual(replaced);
    expect(outcomeOf(certified, "all")).toEqual(replaced);
    expect(outcomeOf(did, "uncertified")).toEqual(replaced);
    expect(outcomeOf(certified, "uncertified")).toBe("RootKeyRequired");
    expect(outcomeOf(did, "none")).toBe("RootKeyRequired");
  });

  test("that were released are for their last holder until the reserve ends", () => {
    const world = aliceWorld();
    world.apply(registrationOf(bob, { timestamp: String(world.nowMs) }));
    const take = (who: Identity, alias: string) =>
      world.apply(
        signed(world, { action: "add_alias", did: who.did, alias }, { signer: who.root }),
      );
    const release = (alias: string) =>
      world.apply(signed(world, { action: "remove_alias", did, alias }));
    for (const alias of ["bank", "shop"]) world.apply(signed(world, add(alias)));
    release("bank");
    world.apply(
      signed(world, { action: "update_alias", did, oldAlias: "shop", newAlias: "store" }),
    );
    for (const alias of ["bank", "shop"]) expect(take(bob, alias)).toBe("AliasTaken");
    expect(world.apply({ name: "set_alias", did: bob.did, alias: "shop" })).toBe("AliasTaken");
    const timestamp = String(world.nowMs);
    const named = registrationOf(identityOf("late"), { timestamp, alias: "bank" });
    expect(world.apply(named)).toEqual(["Registered", "DocumentSet", "AliasConflict"]);
    expect([world.apply(signed(world, add("bank"))), world.reserves.has("bank")]).toEqual([
      ["AliasAdded"],
      false,
    ]);
    release("bank");
    world.nowMs += aliasReserveMs - 1;
    expect(take(bob, "bank")).toBe("AliasTaken");
    world.nowMs += 1;
    expect(take(bob, "bank")).toEqual(["AliasAdded"]);
  });

  test("are nobody's for a time after a deletion, because another key may register the DID", () => {
    const world = aliceWorld();
    world.apply(signed(world, add("bank")));
    world.apply(signed(world, { action: "delete_did", did }));
    world.nowMs += 1_000;
    world.apply(registrationOf(alice, { timestamp: String(world.nowMs) }));
    expect(world.apply(signed(world, add("bank")))).toBe("AliasTaken");
    world.nowMs += aliasReserveMs;
    expect(world.apply(signed(world, add("bank")))).toEqual(["AliasAdded"]);
  });

  test("that can't be given do not fail a registration", () => {
    const world = aliceWorld();
    world.aliases.set("taken", did);
    const at = (alias: string, label: string) =>
      world.apply(registrationOf(identityOf(label), { timestamp: String(world.nowMs), alias }));
    expect(at("taken", "r1")).toEqual(["Registered", "DocumentSet", "AliasConflict"]);
    expect(at("not good", "r2")).toEqual(["Registered", "DocumentSet", "AliasInvalid"]);
    expect(at(" Good ", "r3")).toEqual(["Registered", "DocumentSet", "AliasSet"]);
    expect(world.aliases.get("good")).toBe(identityOf("r3").did);
    expect(world.record(identityOf("r1").did).aliases).toEqual([]);
    const v2 = registrationOf(identityOf("r4"), {
      timestamp: `v2:0:${world.nowMs + 1000}`,
      alias: " Fresh",
    });
    expect(world.apply(v2)).toEqual(["Registered", "DocumentSet", "AliasSet"]);
    expect(world.record(identityOf("r4").did).aliases).toEqual(["fresh"]);
  });
});

describe("control actions", () => {
  const act = (world: World, action: ActionOf<"control">) =>
    world.apply(signed(world, { action, did }));

  test("deactivation refuses everything that follows", () => {
    const world = aliceWorld();
    const later: LedgerCall[] = [
      signed(world, { action: "AddService", did, service: cache }),
      signed(world, { action: "add_alias", did, alias: "x" }),
      signed(world, { action: "UpdateRootPubkey", did, newRootPubkey: bob.root.publicKey }),
      signed(world, { action: "delete_did", did }, { nonce: 1n }),
      signed(world, { action: "deactivate_did", did }, { nonce: 1n }),
      { name: "set_alias", did, alias: "x" },
      {
        name: "set_delivery_policy_links",
        did,
        recipientPolicy: null,
        tagPolicies: [],
        personaPolicies: [],
      },
    ];
    expect(act(world, "deactivate_did")).toEqual(["DidDeactivated"]);
    expect(world.record(did)).toMatchObject({
      deactivated: true,
      version: 2n,
      updatedAtMs: BigInt(world.nowMs),
    });
    for (const call of later) expect(world.apply(call)).toBe("DidDeactivated");
    expect(world.apply({ name: "set_delivery_policy", did, policy: recipientPolicy })).toBe(
      "DidNotFound",
    );
    expect(world.apply(registrationOf(alice, { timestamp: String(world.nowMs) }))).toBe(
      "DidAlreadyExists",
    );
  });

  test("deletion frees DID, aliases and policies, keeps the counters, and ends a life", () => {
    const world = aliceWorld();
    world.apply(signed(world, { action: "add_alias", did, alias: "mine" }));
    world.apply({ name: "set_delivery_policy", did, policy: recipientPolicy });
    world.apply({ name: "set_persona_policy", did, policy: personaPolicy });
    const before = world.account(did);
    const old = signed(world, { action: "delete_did", did });
    expect(world.apply(old)).toEqual(["DidDeleted"]);
    const counters = { ...before.counters, control: 1n };
    expect(world.account(did)).toEqual({ ...before, record: null, counters, life: 1 });
    expect(world.aliases.size + world.policies.size).toBe(0);
    expect(world.apply(old)).toBe("DidNotFound");
    world.nowMs += 1_000;
    expect(world.apply(registrationOf(alice, { timestamp: String(world.nowMs) }))).toBeArray();
    expect([world.record(did).version, world.account(did).life]).toEqual([1n, 1]);
    expect(world.account(did).counters).toEqual({
      alias: 1n,
      document: 0n,
      rootPubkey: 0n,
      control: 1n,
    });
    expect(world.apply(old)).toBe("InvalidControlNonce");
  });

  test("no registration proof works twice", () => {
    for (const timestamp of [String(startMs), `v2:0:${startMs + 600_000}`]) {
      const world = new World(startMs);
      const first = registrationOf(alice, { timestamp });
      expect(world.apply(first)).toBeArray();
      world.nowMs += 1_000;
      expect(act(world, "delete_did")).toEqual(["DidDeleted"]);
      expect(world.apply(first)).toBe("DocumentStale");
      for (const later of [String(world.nowMs), `v2:0:${startMs + 600_001}`]) {
        const again = new World(world.nowMs);
        again.accounts.set(did, world.account(did));
        expect(again.apply(registrationOf(alice, { timestamp: later }))).toBeArray();
      }
    }
  });

  test("links are set by the owner, and no counter moves", () => {
    const world = aliceWorld();
    const links = { recipientPolicy: bob.did, tagPolicies: ["news"], personaPolicies: [] };
    expect(world.apply({ name: "set_delivery_policy_links", did, ...links })).toEqual([
      "DeliveryPolicyLinksSet",
    ]);
    expect(world.record(did)).toMatchObject({ links, version: 2n });
    expect(world.account(did).counters.control).toBe(0n);
    const set = (patch: object) =>
      world.apply({ name: "set_delivery_policy_links", did, ...links, ...patch });
    expect(set({ tagPolicies: Array(9).fill("t") })).toBe("TooManyPolicyRefs");
    expect(set({ personaPolicies: Array(9).fill("t") })).toBe("TooManyPolicyRefs");
    expect(set({ tagPolicies: ["é".repeat(65)] })).toBe("PolicyRefTooLong");
    expect(set({ recipientPolicy: "r".repeat(129) })).toBe("PolicyRefTooLong");
  });

  test("a payload for another DID, or with another action of the chain, is refused", () => {
    const world = aliceWorld();
    const call = signed(world, { action: "deactivate_did", did: bob.did });
    expect(world.apply({ ...call, did })).toBe("InvalidControlPayload");
    expect(world.apply({ ...call, signedPayload: new Uint8Array(3) } as LedgerCall)).toBe(
      "InvalidControlPayload",
    );
    const { signedPayload } = signed(world, { action: "delete_did", did }) as ProofCall;
    const at = 1 + did.length;
    expect(signedPayload[at]).toBe(7);
    // Devices and links, and beyond the last one.
    for (const discriminant of [0, 1, 2, 3, 5, 6, 8])
      expect(
        world.apply({
          ...call,
          did,
          signedPayload: signedPayload.with(at, discriminant),
        } as LedgerCall),
      ).toBe("InvalidControlPayload");
  });
});

const recipientPolicy: DeliveryPolicy = {
  effectiveTtlBlocks: 14_400,
  maxMessageBytes: 1_048_576,
  cacheEligible: true,
  replication: 2,
  encryptedHeaderPreviewBytes: 256,
  releasePricing: { baseFee: 10n, perKibFee: 1n },
  expirationBehavior: "DeleteOnExpiry",
};
const personaPolicy: PersonaPolicy = {
  releasePricing: null,
  expirationBehavior: null,
  allowedRelays: ["relay-1"],
};

describe("policies", () => {
  test("are set under their scope and do not change the record", () => {
    const world = aliceWorld();
    const before = world.account(did);
    expect(world.apply({ name: "set_delivery_policy", did, policy: recipientPolicy })).toEqual([
      "PolicySet",
    ]);
    expect(world.apply({ name: "set_tag_policy", did, policy: recipientPolicy })).toEqual([
      "PolicySet",
    ]);
    expect(world.apply({ name: "set_persona_policy", did, policy: personaPolicy })).toEqual([
      "PolicySet",
    ]);
    expect([...world.policies.keys()]).toEqual([
      `recipient ${did}`,
      `tag ${did}`,
      `persona ${did}`,
    ]);
    expect(world.account(did)).toBe(before);
  });

  const breaches: readonly [string, Partial<DeliveryPolicy>][] = [
    ["InvalidTtl", { effectiveTtlBlocks: 0 }],
    ["InvalidTtl", { effectiveTtlBlocks: 432_001 }],
    ["MaxMessageSizeExceeded", { maxMessageBytes: 0 }],
    ["MaxMessageSizeExceeded", { maxMessageBytes: 16_777_217 }],
    ["InvalidReplication", { replication: 0 }],
    ["InvalidReplication", { replication: 5 }],
    ["HeaderPreviewTooLarge", { encryptedHeaderPreviewBytes: 4_097 }],
    ["ReleaseFeeTooLarge", { releasePricing: { baseFee: 10n ** 15n + 1n, perKibFee: 0n } }],
    ["ReleaseFeeTooLarge", { releasePricing: { baseFee: 0n, perKibFee: 10n ** 15n + 1n } }],
  ];
  for (const [error, patch] of breaches) {
    test(`${JSON.stringify(patch, (_, v) => (typeof v === "bigint" ? `${v}` : v))} is ${error}`, () => {
      const world = aliceWorld();
      const policy = { ...recipientPolicy, ...patch };
      expect(world.apply({ name: "set_delivery_policy", did, policy })).toBe(error as "InvalidTtl");
      expect(world.apply({ name: "set_tag_policy", did, policy })).toBe(error as "InvalidTtl");
    });
  }

  test("a policy at its bounds and one without optional members are accepted", () => {
    const world = aliceWorld();
    const most = {
      ...recipientPolicy,
      effectiveTtlBlocks: 432_000,
      maxMessageBytes: 16_777_216,
      replication: 4,
      encryptedHeaderPreviewBytes: 4_096,
      releasePricing: { baseFee: 10n ** 15n, perKibFee: 10n ** 15n },
    };
    const least = {
      effectiveTtlBlocks: 1,
      maxMessageBytes: 1,
      cacheEligible: false,
      replication: null,
      encryptedHeaderPreviewBytes: null,
      releasePricing: null,
      expirationBehavior: null,
    };
    for (const policy of [most, least])
      expect(world.apply({ name: "set_delivery_policy", did, policy })).toEqual(["PolicySet"]);
  });

  test("a persona policy beyond its bounds is refused", () => {
    const world = aliceWorld();
    const set = (patch: Partial<PersonaPolicy>) =>
      world.apply({ name: "set_persona_policy", did, policy: { ...personaPolicy, ...patch } });
    expect(set({ allowedRelays: Array(17).fill("r") })).toBe("InvalidConstraints");
    expect(set({ allowedRelays: ["r".repeat(129)] })).toBe("InvalidConstraints");
    expect(set({ releasePricing: { asset: "a".repeat(33), amount: 0n } })).toBe(
      "InvalidConstraints",
    );
    expect(set({ releasePricing: { asset: "a".repeat(32), amount: 2n ** 128n - 1n } })).toEqual([
      "PolicySet",
    ]);
  });

  test("need an active record that the operator owns", () => {
    const world = aliceWorld();
    expect(
      world.apply({ name: "set_delivery_policy", did: bob.did, policy: recipientPolicy }),
    ).toBe("DidNotFound");
    world.operator = new Uint8Array(32).fill(1);
    expect(world.apply({ name: "set_delivery_policy", did, policy: recipientPolicy })).toBe(
      "NotPolicyController",
    );
    expect(world.apply({ name: "set_alias", did, alias: "x" })).toBe("NotDidOwner");
    world.stage(did, { owner: null });
    expect(world.apply({ name: "set_persona_policy", did, policy: personaPolicy })).toBe(
      "NotPolicyController",
    );
  });
});

describe("two hundred mutations", () => {
  test("keep version and counters exact", () => {
    const world = aliceWorld();
    const expected: Record<CounterName, bigint> = {
      alias: 0n,
      document: 0n,
      rootPubkey: 0n,
      control: 0n,
    };
    let holdsService = false;
    let holdsAlias = false;
    for (let i = 0; i < 200; i++) {
      const kind = i % 4;
      if (kind === 0) {
        const intent: Intent = holdsService
          ? { action: "RemoveService", did, id: cache.id }
          : { action: "AddService", did, service: cache };
        expect(world.apply(signed(world, intent))).toBeArray();
        holdsService = !holdsService;
        expected.document++;
      } else if (kind === 1) {
        expect(
          world.apply(
            signed(world, {
              action: holdsAlias ? "remove_alias" : "add_alias",
              did,
              alias: "team",
            }),
          ),
        ).toBeArray();
        holdsAlias = !holdsAlias;
        expected.alias++;
      } else if (kind === 2) {
        expect(
          world.apply(
            signed(world, { action: "UpdateRootPubkey", did, newRootPubkey: alice.root.publicKey }),
          ),
        ).toBeArray();
        expected.rootPubkey++;
      } else {
        const links = { recipientPolicy: null, tagPolicies: [], personaPolicies: [] };
        expect(world.apply({ name: "set_delivery_policy_links", did, ...links })).toBeArray();
      }
    }
    expect(world.account(did).counters).toEqual(expected);
    expect(world.record(did).version).toBe(201n);
  });
});

describe("about a call", () => {
  test("counterOf names the value that a call uses up", () => {
    const world = aliceWorld();
    expect(
      counterOf(signed(world, { action: "AddService", did, service: cache }, { nonce: 7n })),
    ).toEqual({
      domain: "document",
      nonce: 7n,
    });
    expect(
      counterOf(signed(world, { action: "add_alias", did, alias: "x" }, { nonce: 8n })),
    ).toEqual({
      domain: "alias",
      nonce: 8n,
    });
    expect(counterOf(signed(world, { action: "delete_did", did }, { nonce: 9n }))).toEqual({
      domain: "control",
      nonce: 9n,
    });
    expect(counterOf(registrationOf(alice, { timestamp: "v2:0:1" }))).toBeNull();
    const setDocument = {
      name: "set_document_with_proof",
      did,
      docBlob: new Uint8Array(0),
      pubkey: new Uint8Array(32),
      signature: new Uint8Array(64),
    } as const;
    expect(counterOf({ ...setDocument, timestamp: "v2:5:1" })).toEqual({
      domain: "document",
      nonce: 5n,
    });
    expect(counterOf({ ...setDocument, timestamp: "1800000000000" })).toBeNull();
    expect(counterOf({ name: "set_alias", did, alias: "x" })).toBeNull();
  });

  test("aliasesNamed answers normal forms", () => {
    const world = aliceWorld();
    expect(aliasesNamed({ name: "set_alias", did, alias: " X " })).toEqual(["x"]);
    expect(
      aliasesNamed(signed(world, { action: "update_alias", did, oldAlias: "a", newAlias: "b" })),
    ).toEqual(["a", "b"]);
    expect(aliasesNamed(registrationOf(alice, { timestamp: "1800000000" }))).toEqual([]);
  });

  test("every refusal has a public code, and nonce errors name the expected value", () => {
    for (const error of ledgerErrors) expect(isFault(faultOfRefusal(refuse(error)))).toBe(true);
    for (const { nonceError } of Object.values(counters)) {
      const fault = faultOfRefusal(refuse(nonceError, { expected: 18446744073709551615n }));
      expect([fault.code, fault.extra.expected]).toEqual([
        "nonce_mismatch",
        "18446744073709551615",
      ]);
    }
    const world = aliceWorld();
    const refusal = world.try(
      signed(world, { action: "AddService", did, service: cache }, { nonce: 1n }),
    );
    expect(isRefusal(refusal) && faultOfRefusal(refusal)).toMatchObject({
      code: "nonce_mismatch",
      extra: { expected: "0" },
    });
  });
});
