/**
 * 10,000 random structures through our SCALE and through the @polkadot codec, both ways; then
 * truncated and mutated bytes, which must be refused or be exactly the encoding of the decoded
 * value.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Did } from "../../src/core/codec/did.ts";
import * as accounts from "../../src/core/ledger/account.ts";
import {
  scaleBounds as bounds,
  type DeliveryPolicy,
  type DeliveryPolicyLinks,
  type DidDocument,
  type DidRecord,
  type ExpirationBehavior,
  type PersonaPolicy,
  type Service,
  type VerificationMethod,
} from "../../src/core/ledger/account.ts";
import { type ActionOf, actionsOf } from "../../src/core/ledger/actions.ts";
import {
  decodeLedgerCall,
  encodeLedgerCall,
  type LedgerCall,
} from "../../src/core/ledger/calls.ts";
import * as documents from "../../src/core/ledger/document-codec.ts";
import * as scale from "../../src/core/ledger/structures.ts";
import { coded, type OracleForm, oracle, oracleEncode, oracleReencode } from "../oracles/scale.ts";

/**
 * Any text whose UTF-8 form is at most `bytesMax` long, often at the edges of the compact length.
 */
const text = (bytesMax: number): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 4, arbitrary: fc.string({ maxLength: Math.min(bytesMax, 40) }) },
    { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: bytesMax >> 2 }) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(0, 63, 64, bytesMax).map((n) => "x".repeat(Math.min(n, bytesMax))),
    },
  );
const id = text(bounds.idBytes);
const ref = text(bounds.policyRefBytes);
const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const blob = fc.uint8Array({ maxLength: 80 });
const u8 = fc.integer({ min: 0, max: 0xff });
const u32 = fc.oneof(fc.integer({ min: 0, max: 0xffff_ffff }), fc.constantFrom(0, 0xffff_ffff));
const u64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n });
const u128 = fc.bigInt({ min: 0n, max: 2n ** 128n - 1n });
const maybe = <T>(inner: fc.Arbitrary<T>) => fc.option(inner, { nil: null });
const list = <T>(inner: fc.Arbitrary<T>, maxLength: number) => fc.array(inner, { maxLength });

const method: fc.Arbitrary<VerificationMethod> = fc.record({
  id,
  type: text(bounds.typeBytes),
  controller: id,
  publicKeyMultibase: text(bounds.keyMultibaseBytes),
});
const service: fc.Arbitrary<Service> = fc.record({
  id,
  type: text(bounds.typeBytes),
  serviceEndpoint: list(text(bounds.serviceEndpointBytes), bounds.serviceEndpoints),
  authorization: maybe(list(id, bounds.serviceAuthorizations)),
  priority: maybe(u32),
});
const document: fc.Arbitrary<DidDocument> = fc.record({
  id: text(bounds.didBytes),
  verificationMethod: list(method, bounds.verificationMethods),
  authentication: list(id, bounds.authentications),
  keyAgreement: list(method, bounds.keyAgreements),
  service: list(service, bounds.services),
});
const links: fc.Arbitrary<DeliveryPolicyLinks> = fc.record({
  recipientPolicy: maybe(ref),
  tagPolicies: list(ref, bounds.policyRefs),
  personaPolicies: list(ref, bounds.policyRefs),
});
const expiration = fc.constantFrom<ExpirationBehavior>(
  "DeleteOnExpiry",
  "KeepHeaderPreview",
  "TombstoneReference",
);
const policy: fc.Arbitrary<DeliveryPolicy> = fc.record({
  effectiveTtlBlocks: u32,
  maxMessageBytes: u32,
  cacheEligible: fc.boolean(),
  replication: maybe(u8),
  encryptedHeaderPreviewBytes: maybe(u32),
  releasePricing: maybe(fc.record({ baseFee: u128, perKibFee: u128 })),
  expirationBehavior: maybe(expiration),
});
const persona: fc.Arbitrary<PersonaPolicy> = fc.record({
  releasePricing: maybe(fc.record({ asset: text(bounds.assetBytes), amount: u128 })),
  expirationBehavior: maybe(fc.record({ mode: expiration, retainUntilMs: maybe(u64) })),
  allowedRelays: list(text(bounds.allowedRelayBytes), bounds.allowedRelays),
});
const actionOf = <C extends accounts.CounterName>(counter: C): fc.Arbitrary<ActionOf<C>> =>
  fc.constantFrom(...actionsOf(counter).filter((action) => action !== undefined));
const sealed = { did: text(bounds.didBytes), nonce: u64, validUntilMs: u64, signerKeyId: id };
const documentPayload = fc.record({
  did: sealed.did,
  action: actionOf("document"),
  verificationMethod: maybe(method),
  keyAgreement: maybe(method),
  service: maybe(service),
  id: maybe(id),
  nonce: u64,
  validUntilMs: u64,
  signerKeyId: id,
});
const alias = text(bounds.aliasBytes);
const device = text(bounds.deviceIdBytes);
const record: fc.Arbitrary<DidRecord> = fc.record({
  owner: maybe(bytes(32)),
  aliases: list(alias, bounds.aliases),
  devices: list(
    fc.record({ deviceId: device, addedAtMs: u64, tombstoned: fc.boolean() }),
    bounds.devices,
  ),
  document: maybe(document),
  version: u64,
  updatedAtMs: u64,
  rootPubkey: maybe(bytes(32)),
  links: maybe(links),
  deactivated: fc.boolean(),
});

const did = fc
  .stringMatching(/^[1-9A-HJ-NP-Za-km-z]{16,96}$/)
  .map((address) => `did:svc:${address}` as Did);
const proof = { signedPayload: blob, signature: bytes(64), signerKeyId: id };
const documentProof = {
  did,
  timestamp: id,
  pubkey: bytes(32),
  signature: bytes(64),
  docBlob: blob,
};
const named = <N extends LedgerCall["name"]>(...names: N[]) => fc.constantFrom(...names);
const call: fc.Arbitrary<LedgerCall> = fc.oneof(
  fc.record({
    name: named("register_with_document_proof_signed"),
    alias: maybe(alias),
    ...documentProof,
  }),
  fc.record({ name: named("set_document_with_proof"), ...documentProof }),
  fc.record({
    name: named("add_verification_method", "update_verification_method"),
    did,
    verificationMethod: method,
    ...proof,
  }) as fc.Arbitrary<LedgerCall>,
  fc.record({
    name: named("remove_verification_method", "add_authentication", "remove_authentication"),
    did,
    id,
    ...proof,
  }) as fc.Arbitrary<LedgerCall>,
  fc.record({
    name: named("add_key_agreement", "update_key_agreement"),
    did,
    keyAgreement: method,
    ...proof,
  }) as fc.Arbitrary<LedgerCall>,
  fc.record({ name: named("remove_key_agreement"), did, id, ...proof }),
  fc.record({
    name: named("add_service", "update_service"),
    did,
    service,
    ...proof,
  }) as fc.Arbitrary<LedgerCall>,
  fc.record({ name: named("remove_service"), did, id, ...proof }),
  fc.record({
    name: named("add_alias", "remove_alias"),
    did,
    alias,
    ...proof,
  }) as fc.Arbitrary<LedgerCall>,
  fc.record({ name: named("update_alias"), did, oldAlias: alias, newAlias: alias, ...proof }),
  fc.record({ name: named("update_root_pubkey"), did, newRootPubkey: bytes(32), ...proof }),
  fc
    .record({
      did,
      action: actionOf("control"),
      nonce: u64,
      validUntilMs: u64,
      signature: bytes(64),
      signerKeyId: id,
    })
    .map(({ signature, ...payload }) => ({
      name: "apply_control_with_proof" as const,
      did: payload.did,
      signedPayload: coded(scale.payloadCodecs.control).encode(payload),
      signature,
      signerKeyId: payload.signerKeyId,
    })),
  fc.record({ name: named("set_alias"), did, alias }),
  fc
    .record({ name: named("set_delivery_policy_links"), did, links })
    .map(({ name, did: of, links: value }) => ({ name, did: of, ...value })),
  fc.record({ name: named("set_delivery_policy", "set_tag_policy"), did, policy }),
  fc.record({ name: named("set_persona_policy"), did, policy: persona }),
);

type Case<T> = {
  readonly name: string;
  readonly runs: number;
  readonly values: fc.Arbitrary<T>;
  readonly encode: (value: T) => Uint8Array;
  readonly decode: (bytes: Uint8Array) => T | null;
  readonly oracleForm: (value: T) => OracleForm;
};

const cases = [
  row({
    name: "verification methods",
    runs: 500,
    values: method,
    ...coded(accounts.verificationMethodCodec),
    oracleForm: oracle.method,
  }),
  row({
    name: "services",
    runs: 1_000,
    values: service,
    ...coded(accounts.serviceCodec),
    oracleForm: oracle.service,
  }),
  row({
    name: "documents",
    runs: 1_000,
    values: document,
    encode: documents.encodeDidDocument,
    decode: documents.decodeDidDocument,
    oracleForm: oracle.document,
  }),
  row({
    name: "document payloads",
    runs: 1_500,
    values: documentPayload,
    ...coded(scale.payloadCodecs.document),
    oracleForm: oracle.documentPayload,
  }),
  row({
    name: "root key payloads",
    runs: 500,
    values: fc.record({
      did: sealed.did,
      newRootPubkey: bytes(32),
      nonce: u64,
      validUntilMs: u64,
      signerKeyId: id,
    }),
    ...coded(scale.payloadCodecs.rootPubkey),
    oracleForm: oracle.rootPubkeyPayload,
  }),
  row({
    name: "alias payloads",
    runs: 1_000,
    values: fc.record({
      did: sealed.did,
      action: actionOf("alias"),
      alias: maybe(alias),
      oldAlias: maybe(alias),
      newAlias: maybe(alias),
      nonce: u64,
      validUntilMs: u64,
      signerKeyId: id,
    }),
    ...coded(scale.payloadCodecs.alias),
    oracleForm: oracle.aliasPayload,
  }),
  row({
    name: "control payloads",
    runs: 1_000,
    values: fc.record({
      did: sealed.did,
      action: actionOf("control"),
      nonce: u64,
      validUntilMs: u64,
      signerKeyId: id,
    }),
    ...coded(scale.payloadCodecs.control),
    oracleForm: oracle.controlPayload,
  }),
  row({
    name: "delivery policies",
    runs: 1_000,
    values: policy,
    ...coded(accounts.deliveryPolicyCodec),
    oracleForm: oracle.deliveryPolicy,
  }),
  row({
    name: "persona policies",
    runs: 500,
    values: persona,
    ...coded(accounts.personaPolicyCodec),
    oracleForm: oracle.personaPolicy,
  }),
  row({
    name: "records",
    runs: 500,
    values: record,
    ...coded(accounts.recordCodec),
    oracleForm: oracle.record,
  }),
  row({
    name: "ledger calls",
    runs: 1_500,
    values: call,
    encode: encodeLedgerCall,
    decode: decodeLedgerCall,
    oracleForm: oracle.call,
  }),
];

/** Hides the type of the value, so that one loop can run every row. */
function row<T>(c: Case<T>): { name: string; runs: number; agree: () => void; refuse: () => void } {
  return { name: c.name, runs: c.runs, agree: () => agree(c), refuse: () => refuse(c) };
}

function agree<T>(c: Case<T>): void {
  fc.assert(
    fc.property(c.values, (value) => {
      const ours = c.encode(value);
      const oracleForm = c.oracleForm(value);
      const theirs = oracleEncode(oracleForm);
      expect(ours.toHex()).toBe(theirs.toHex());
      expect(oracleReencode(oracleForm[0], ours).toHex()).toBe(ours.toHex());
      expect(c.decode(theirs)).toEqual(value);
    }),
    { numRuns: c.runs },
  );
}

function refuse<T>(c: Case<T>): void {
  const mutation = fc.record({ at: fc.nat(), xor: fc.integer({ min: 1, max: 255 }) });
  fc.assert(
    fc.property(
      c.values,
      fc.array(mutation, { minLength: 8, maxLength: 8 }),
      (value, mutations) => {
        const whole = c.encode(value);
        for (let length = 0; length < whole.length; length++) {
          if (c.decode(whole.subarray(0, length)) !== null)
            throw new Error(`accepted when cut to ${length} bytes`);
        }
        expect(c.decode(Uint8Array.of(...whole, 0))).toBeNull();
        for (const { at, xor } of mutations) {
          const changed = whole.slice();
          changed[at % whole.length] = (changed[at % whole.length] as number) ^ xor;
          const decoded = c.decode(changed);
          if (decoded !== null)
            expect(withoutEmptyLists(c, decoded, changed)).toBe(changed.toHex());
        }
      },
    ),
    { numRuns: Math.ceil(c.runs / 10) },
  );
}

/**
 * The hex that a decoded value stands for. `authentication` and `service` of a document may come as
 * an empty list that is some; it reads as the same document as none, and nothing else may differ.
 */
function withoutEmptyLists<T>(c: Case<T>, decoded: T, source: Uint8Array): string {
  const again = c.encode(decoded);
  if (again.length === source.length) return again.toHex();
  expect(source.length - again.length).toBeLessThanOrEqual(4);
  expect(c.decode(again)).toEqual(decoded);
  expect(["documents", "records"]).toContain(c.name);
  return source.toHex();
}

test("the rows add up to 10,000 structures", () => {
  expect(cases.reduce((sum, c) => sum + c.runs, 0)).toBe(10_000);
});

for (const c of cases) {
  test(`${c.name} encode and decode as the @polkadot codec has it`, c.agree);
  test(
    `${c.name} that were cut, lengthened or changed are refused or stand for themselves`,
    c.refuse,
  );
}

test("a value that can't be encoded, or a long one, leaves nothing behind for the next", () => {
  const small = {
    nonce: 1n,
    validUntilMs: 2n,
    signerKeyId: "root",
    did: "did:svc:1111111111111111" as Did,
  };
  const rootPayload = (newRootPubkey: Uint8Array, nonce = small.nonce) =>
    coded(scale.payloadCodecs.rootPubkey).encode({ ...small, nonce, newRootPubkey });
  const expected = oracleEncode(
    oracle.rootPubkeyPayload({ ...small, newRootPubkey: new Uint8Array(32) }),
  );
  expect(() => rootPayload(new Uint8Array(32), -1n)).toThrow(RangeError);
  expect(rootPayload(new Uint8Array(32))).toEqual(expected);
  const long = new Uint8Array(100_000).fill(7);
  expect(rootPayload(long).subarray(-100_000 - 21, -21)).toEqual(long);
  expect(rootPayload(new Uint8Array(32))).toEqual(expected);
});
