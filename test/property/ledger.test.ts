/**
 * The ledger against a naive twin over random series of calls, and against damaged authorizations.
 */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type Account,
  aliasReserveMs,
  type DidDocument,
  type KeyAgreement,
  type Service,
} from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import { isRefusal } from "../../src/core/ledger/refusals.ts";
import { encodeAuthorization } from "../../src/core/ledger/structures.ts";
import { type Move, type Operation, Twin, type TwinAccount } from "../oracles/ledger.ts";
import { alice, aliceWorld, cache, did, k1, k2, signed, x1 } from "../support/alice.ts";
import {
  authorizedCall,
  documentOf,
  type Identity,
  identityOf,
  keyOf,
  methodOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";
import { World } from "../support/world.ts";

const startMs = 1_800_000_000_000;

// ---------------------------------------------------------------------------------------- the twin

const people = [0, 1, 2].map((who) => identityOf(`twin ${who}`));
const keys = new Map(["k0", "k1", "k2", "k3", "k4", "k5", "k6"].map((name) => [name, keyOf(name)]));
const roots = new Map(people.map((person, who) => [`root${who}`, person.root]));
const keyNamed = (name: string) => keys.get(name) ?? roots.get(name) ?? keyOf(name);

/** Which name a key has in the twin, by its multibase text or its bytes. */
const nameOfKey = new Map([...keys, ...roots].map(([name, key]) => [key.publicKey.toHex(), name]));
const nameOfMultibase = new Map(
  [...keys].map(([name, key]) => [methodOf(people[0]!.did, "x", key).publicKeyMultibase, name]),
);

const digit = (max: number) => fc.integer({ min: 0, max });
/** Most happens to one DID, so that its lists fill up. */
const who = fc.constantFrom(0, 0, 0, 0, 0, 0, 1, 2);
const sometimes = (chance: number) => fc.integer({ min: 1, max: chance }).map((n) => n === 1);

const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      op: fc.constantFrom(
        "addMethod",
        "addMethod",
        "updateMethod",
        "removeMethod",
        "addAuth",
        "addAuth",
        "removeAuth",
      ),
      name: digit(6).map((n) => `m${n}`),
      key: digit(6).map((n) => `k${n}`),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      op: fc.constantFrom(
        "addAgreement",
        "addAgreement",
        "updateAgreement",
        "removeAgreement",
        "addService",
        "addService",
        "addService",
        "addService",
        "updateService",
        "removeService",
      ),
      name: digit(6).map((n) => `c${n}`),
      key: digit(6).map((n) => `k${n}`),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      op: fc.constantFrom(
        "addAlias",
        "addAlias",
        "addAlias",
        "addAlias",
        "addAlias",
        "removeAlias",
      ),
      name: digit(15).map((n) => `a${n}`),
      key: fc.constant(""),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      op: fc.constant("updateAlias"),
      name: digit(15).map((n) => `a${n}`),
      to: digit(15).map((n) => `a${n}`),
      key: fc.constant(""),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constantFrom("rotate", "rotate", "delete", "deactivate"),
      name: fc.constant(""),
      key: fc.constantFrom("root0", "root1", "root2", "k6"),
    }),
  },
) as fc.Arbitrary<Operation>;

const nonceOffset = fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 0, 1, 2);
/** Seconds against the clock; positive is ahead. */
const atOffset = fc.constantFrom(-1_000, 0, 1, 1_000, 60_000);

const move: fc.Arbitrary<Move> = fc.oneof(
  {
    weight: 24,
    arbitrary: fc.record({
      kind: fc.constant("authorized"),
      who,
      what: operation,
      signer: fc.constantFrom("root", "root", "root", "m0", "m1", "m2"),
      nonceOffset,
      expired: sometimes(20),
      forged: sometimes(20),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("register"),
      who,
      alias: fc.option(
        digit(15).map((n) => `a${n}`),
        { nil: null },
      ),
      version: fc.constantFrom(1, 2),
      atOffset,
      forged: sometimes(10),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("setDocument"),
      who,
      version: fc.constantFrom(1, 2),
      methods: digit(6),
      nonceOffset,
      atOffset,
      forged: sometimes(10),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("setAlias"),
      who,
      alias: digit(15).map((n) => `a${n}`),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("setPolicy"), who }) },
) as fc.Arbitrary<Move>;

/**
 * The intent of an operation; agreements and services carry their key's name where a text may
 * stand.
 */
function intentOf(person: Identity, what: Operation): Intent {
  const id = `${person.did}#${what.name}`;
  const own = { did: person.did };
  const agreement: KeyAgreement = {
    id,
    type: "X",
    controller: person.did,
    publicKeyMultibase: what.key,
  };
  const service: Service = {
    id,
    type: "T",
    serviceEndpoint: [what.key],
    authorization: null,
    priority: null,
  };
  const method = () => methodOf(person.did, what.name, keyNamed(what.key));
  switch (what.op) {
    case "addMethod":
      return { ...own, action: "AddVerificationMethod", verificationMethod: method() };
    case "updateMethod":
      return { ...own, action: "UpdateVerificationMethod", verificationMethod: method() };
    case "removeMethod":
      return { ...own, action: "RemoveVerificationMethod", id };
    case "addAuth":
      return { ...own, action: "AddAuthentication", id };
    case "removeAuth":
      return { ...own, action: "RemoveAuthentication", id };
    case "addAgreement":
      return { ...own, action: "AddKeyAgreement", keyAgreement: agreement };
    case "updateAgreement":
      return { ...own, action: "UpdateKeyAgreement", keyAgreement: agreement };
    case "removeAgreement":
      return { ...own, action: "RemoveKeyAgreement", id };
    case "addService":
      return { ...own, action: "AddService", service };
    case "updateService":
      return { ...own, action: "UpdateService", service };
    case "removeService":
      return { ...own, action: "RemoveService", id };
    case "addAlias":
      return { ...own, action: "add_alias", alias: what.name };
    case "removeAlias":
      return { ...own, action: "remove_alias", alias: what.name };
    case "updateAlias":
      return { ...own, action: "update_alias", oldAlias: what.name, newAlias: what.to };
    case "rotate":
      return { ...own, action: "UpdateRootPubkey", newRootPubkey: keyNamed(what.key).publicKey };
    case "deactivate":
      return { ...own, action: "deactivate_did" };
    case "delete":
      return { ...own, action: "delete_did" };
  }
}

function documentWith(person: Identity, methods: number): DidDocument {
  const all = Array.from({ length: methods }, (_, i) =>
    methodOf(person.did, `m${i}`, keyNamed(`k${i}`)),
  );
  return {
    ...documentOf(person),
    verificationMethod: all,
    authentication: all.slice(0, 2).map(({ id }) => id),
  };
}

function callOf(move: Move, world: World): LedgerCall {
  const person = people[move.who]!;
  const forge = <T extends { readonly signature: Uint8Array }>(call: T, forged: boolean): T =>
    forged ? { ...call, signature: call.signature.map((byte) => byte ^ 0xff) } : call;
  const stamp = (version: 1 | 2, offset: number, nonce: bigint) =>
    version === 1 ? String(world.nowMs + offset) : `v2:${nonce}:${world.nowMs + offset}`;
  if (move.kind === "setAlias") return { name: "set_alias", did: person.did, alias: move.alias };
  if (move.kind === "setPolicy") {
    const policy = { releasePricing: null, expirationBehavior: null, allowedRelays: [] };
    return { name: "set_persona_policy", did: person.did, policy };
  }
  if (move.kind === "register") {
    const timestamp = stamp(move.version, move.atOffset, 0n);
    const docBlob = encodeDidDocument(documentWith(person, 1));
    const alias = move.alias === null ? {} : { alias: move.alias };
    return forge(registrationOf(person, { timestamp, docBlob, ...alias }), move.forged);
  }
  const { counters } = world.account(person.did);
  if (move.kind === "setDocument") {
    const nonce = counters.document + BigInt(move.nonceOffset);
    const docBlob = encodeDidDocument(documentWith(person, move.methods));
    return forge(
      setDocumentOf(person, { timestamp: stamp(move.version, move.atOffset, nonce), docBlob }),
      move.forged,
    );
  }
  const intent = intentOf(person, move.what);
  const terms = {
    nonce: counters[actions[intent.action].counter] + BigInt(move.nonceOffset),
    validUntilMs: BigInt(world.nowMs + (move.expired ? 0 : 1)),
    signerKeyId: move.signer === "root" ? "root" : `${person.did}#${move.signer}`,
  };
  const signer = move.signer === "root" ? person.root : keyNamed(`k${move.signer.slice(1)}`);
  const call = authorizedCall(intent, terms, signer) as Extract<
    LedgerCall,
    { signature: Uint8Array }
  >;
  return forge(call, move.forged);
}

/** An account in the words of the twin. */
function projected(account: Account): TwinAccount {
  const { record, counters, documentTimeMs, registrationExpiryMs, life } = account;
  const fragment = (id: string) => id.slice(id.indexOf("#") + 1);
  return {
    nonces: {
      document: Number(counters.document),
      alias: Number(counters.alias),
      rootPubkey: Number(counters.rootPubkey),
      control: Number(counters.control),
    },
    documentTime: Math.max(0, Number(documentTimeMs) - startMs),
    registrationExpiry: Math.max(0, Number(registrationExpiryMs) - startMs),
    life,
    record: record && {
      root: nameOfKey.get(record.rootPubkey!.toHex())!,
      aliases: [...record.aliases],
      methods: record.document!.verificationMethod.map((method) => ({
        name: fragment(method.id),
        key: nameOfMultibase.get(method.publicKeyMultibase)!,
      })),
      auth: record.document!.authentication.map(fragment),
      agreements: record.document!.keyAgreement.map((one) => ({
        name: fragment(one.id),
        key: one.publicKeyMultibase,
      })),
      services: record.document!.service.map((one) => ({
        name: fragment(one.id),
        key: one.serviceEndpoint[0]!,
      })),
      version: Number(record.version),
      updated: Number(record.updatedAtMs) - startMs,
      deactivated: record.deactivated,
    },
  };
}

const opening: Move[] = [0, 1, 2].map((who) => ({
  kind: "register",
  who,
  alias: null,
  version: 1,
  atOffset: 1,
  forged: false,
}));

describe("a random series of calls", () => {
  test("has the results of the naive twin, refusal by refusal", () => {
    const afterMs = fc.oneof(
      { weight: 30, arbitrary: fc.constantFrom(0, 1, 1_000) },
      { weight: 1, arbitrary: fc.constant(aliasReserveMs) },
    );
    const steps = fc.array(fc.record({ move, afterMs }), {
      minLength: 1,
      maxLength: 120,
      size: "max",
    });
    let taken = 0;
    const refusals = new Set<string>();
    fc.assert(
      fc.property(steps, (series) => {
        const world = new World(startMs);
        const twin = new Twin(people.length);
        for (const { move, afterMs } of [
          ...opening.map((move) => ({ move, afterMs: 1 })),
          ...series,
        ]) {
          world.nowMs += afterMs;
          twin.now += afterMs;
          const call = callOf(move, world);
          const outcome = world.apply(call);
          expect<string[] | string>(outcome).toEqual(twin.play(move));
          if (typeof outcome === "string") refusals.add(outcome);
          else taken++;
        }
        expect(people.map(({ did }) => projected(world.account(did)))).toEqual(twin.accounts);
        const holders = Object.entries(twin.aliases).map(([alias, who]) => [
          alias,
          people[who]!.did,
        ]);
        expect([...world.aliases].sort()).toEqual(
          holders.sort() as [string, (typeof people)[0]["did"]][],
        );
        expect([...world.policies.keys()].sort()).toEqual(
          twin.policies.map((who) => `persona ${people[who]!.did}`).sort(),
        );
      }),
      { numRuns: 620, seed: 20_260_716 },
    );
    // The series reach every rule of which the twin knows.
    expect(taken).toBeGreaterThan(10_000);
    expect(refusals.size).toBe(30);
  }, 240_000);
});

// ------------------------------------------------------------------------------------------ damage

const examples: Intent[] = [
  { action: "AddVerificationMethod", did, verificationMethod: k2 },
  { action: "UpdateVerificationMethod", did, verificationMethod: { ...k2, id: k1.id } },
  { action: "RemoveAuthentication", did, id: k1.id },
  { action: "AddKeyAgreement", did, keyAgreement: x1 },
  { action: "AddService", did, service: { ...cache, priority: 7 } },
  { action: "add_alias", did, alias: "team.one" },
  { action: "UpdateRootPubkey", did, newRootPubkey: keyOf("next").publicKey },
  { action: "deactivate_did", did },
];

type Signed = Extract<LedgerCall, { readonly signedPayload: Uint8Array }>;

describe("a damaged authorization", () => {
  for (const intent of examples) {
    for (const signerKeyId of ["root", k1.id]) {
      const signer = signerKeyId === "root" ? alice.root : keyOf("alice k1");

      test(`${intent.action} by ${signerKeyId === "root" ? "root" : "#k1"}: any flipped bit of the payload refuses it`, () => {
        const world = aliceWorld();
        const call = signed(world, intent, { signer, signerKeyId }) as Signed;
        expect(isRefusal(world.try(call))).toBe(false);
        const { signedPayload } = call;
        for (let at = 0; at < signedPayload.length; at++) {
          for (let bit = 0; bit < 8; bit++) {
            const damaged = signedPayload.slice();
            damaged[at]! ^= 1 << bit;
            expect(isRefusal(world.try({ ...call, signedPayload: damaged }))).toBe(true);
          }
        }
      });

      // A control call says what it wants only in its payload, so another action signed is another
      // wish.
      if (actions[intent.action].counter === "control") continue;
      test(`${intent.action} by ${signerKeyId === "root" ? "root" : "#k1"}: signed again, only another valid_until can pass`, () => {
        const world = aliceWorld();
        const call = signed(world, intent, { signer, signerKeyId }) as Signed;
        const { signedPayload } = call;
        const validUntilAt =
          signedPayload.length - signerKeyId.length - (signerKeyId.length < 64 ? 1 : 2) - 8;
        for (let at = 0; at < signedPayload.length; at++) {
          if (at >= validUntilAt && at < validUntilAt + 8) continue;
          const damaged = signedPayload.slice();
          damaged[at]! ^= 1 << (at % 8);
          const again = { ...call, signedPayload: damaged, signature: signer.sign(damaged) };
          expect(isRefusal(world.try(again))).toBe(true);
        }
      });
    }
  }

  test("truncated, lengthened and random payloads refuse, and never throw", () => {
    const world = aliceWorld();
    const calls = examples.map((intent) => signed(world, intent) as Signed);
    fc.assert(
      fc.property(
        fc.nat(calls.length - 1),
        fc.oneof(
          fc
            .nat(400)
            .map((length) => (payload: Uint8Array) => payload.slice(0, length % payload.length)),
          fc
            .uint8Array({ minLength: 1, maxLength: 8 })
            .map((more) => (payload: Uint8Array) => new Uint8Array([...payload, ...more])),
          fc.uint8Array({ maxLength: 300 }).map((bytes) => () => bytes),
        ),
        (index, damage) => {
          const call = calls[index]!;
          const signedPayload = damage(call.signedPayload);
          const signature = alice.root.sign(signedPayload);
          expect(isRefusal(world.try({ ...call, signedPayload, signature }))).toBe(true);
        },
      ),
      { numRuns: 1_000 },
    );
  });

  test("a signature or signer other than the true one refuses", () => {
    const world = aliceWorld();
    for (const intent of examples) {
      const call = signed(world, intent) as Signed;
      for (let at = 0; at < 64; at++) {
        const signature = call.signature.slice();
        signature[at]! ^= 1;
        expect(isRefusal(world.try({ ...call, signature }))).toBe(true);
      }
      expect(isRefusal(world.try({ ...call, signature: call.signature.slice(0, 63) }))).toBe(true);
      expect(isRefusal(world.try({ ...call, signerKeyId: k1.id }))).toBe(true);
    }
  });

  test("the payload of one DID authorizes nothing for another", () => {
    const world = aliceWorld();
    const other = { ...identityOf("other"), root: alice.root };
    expect(world.apply(registrationOf(other, { timestamp: String(startMs) }))).toBeArray();
    for (const intent of examples) {
      const payload = encodeAuthorization(intent, {
        nonce: 0n,
        validUntilMs: BigInt(world.nowMs + 1),
        signerKeyId: "root",
      });
      const call = signed(world, intent) as Signed;
      const moved = {
        ...call,
        did: other.did,
        signedPayload: payload,
        signature: alice.root.sign(payload),
      };
      expect(isRefusal(world.try(moved))).toBe(true);
    }
  });
});
