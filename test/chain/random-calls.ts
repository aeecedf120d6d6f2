/**
 * Random calls for the differential test: most are valid in the present state, some are damaged in
 * one of many ways. Times are a minute or more from any limit, because a call is checked in two
 * blocks.
 */

import type {
  Account,
  DeliveryPolicy,
  DidDocument,
  LedgerProofs,
} from "../../src/core/ledger/account.ts";
import { actions, type Intent } from "../../src/core/ledger/actions.ts";
import type { LedgerCall } from "../../src/core/ledger/calls.ts";
import { encodeDidDocument } from "../../src/core/ledger/document-codec.ts";
import {
  authorizedCall,
  type Identity,
  keyOf,
  methodOf,
  registrationOf,
  setDocumentOf,
} from "../support/identity.ts";

export type Chance = {
  /** A whole number from 0 up to, not including, `below`. */
  readonly number: (below: number) => number;
  readonly one: <T>(...choices: readonly T[]) => T;
  readonly sometimes: (outOf: number) => boolean;
};

/** The same seed is the same series. */
export function chanceOf(seed: number): Chance {
  let state = seed >>> 0;
  const number = (below: number) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
  return {
    number,
    one: (...choices) => choices[number(choices.length)]!,
    sometimes: (outOf) => number(outOf) === 0,
  };
}

export type Turn = {
  readonly person: Identity;
  readonly account: Account;
  readonly nowMs: number;
  readonly aliases: readonly string[];
  readonly proofs: LedgerProofs;
  readonly operator: Uint8Array;
};

export function randomCall(chance: Chance, turn: Turn): LedgerCall {
  const { account } = turn;
  if (account.record === null)
    return chance.sometimes(5) ? authorized(chance, turn) : registration(chance, turn);
  const kind = chance.number(20);
  if (kind === 0) return registration(chance, turn);
  if (kind <= 2) return replacement(chance, turn);
  return kind <= 6 ? owned(chance, turn) : authorized(chance, turn);
}

function forged<T extends { readonly signature: Uint8Array }>(chance: Chance, call: T): T {
  if (!chance.sometimes(25)) return call;
  return {
    ...call,
    signature: chance.sometimes(4)
      ? call.signature.slice(1)
      : call.signature.map((byte) => byte ^ 1),
  };
}

const minuteMs = 60_000;
const otherGenesis = new Uint8Array(32);

/** Nearly always the ledger's own. */
function genesisOf(chance: Chance, { proofs }: Turn): Uint8Array {
  return chance.sometimes(15) ? otherGenesis : proofs.genesisHash;
}

function stamp(chance: Chance, { account, nowMs, proofs }: Turn, counter: bigint): string {
  if (chance.sometimes(30))
    return chance.one("", "now", "v2:0", "2026-02-31T00:00:00Z", "v2:0:1x", "v4:0:1", "v3:0");
  // Where older versions are refused, one now and then shows it.
  const isOld = chance.sometimes(proofs.plain ? 2 : 12);
  if (isOld && chance.sometimes(2)) {
    if (chance.sometimes(20)) return String(nowMs + 10 * minuteMs);
    const ms = chance.sometimes(6)
      ? Number(account.documentTimeMs)
      : Number(account.documentTimeMs) + 1 + chance.number(1_000);
    const atMs = account.documentTimeMs === 0n ? nowMs : ms;
    return chance.sometimes(3) ? new Date(atMs).toISOString() : String(atMs);
  }
  const expiryMs = chance.sometimes(10)
    ? nowMs + chance.one(-minuteMs, 70 * minuteMs)
    : nowMs + minuteMs * (2 + chance.number(50)) + chance.number(1_000);
  return `${isOld ? "v2" : "v3"}:${chance.sometimes(8) ? counter + 1n : counter}:${expiryMs}`;
}

function registration(chance: Chance, turn: Turn): LedgerCall {
  const alias = chance.sometimes(2)
    ? chance.one(
        ...turn.aliases,
        "Not An Alias",
        ` ${turn.aliases[0]?.toUpperCase()} `,
        "x".repeat(65),
      )
    : undefined;
  const docBlob = blobOf(chance, turn);
  const call = registrationOf(turn.person, {
    timestamp: stamp(chance, turn, 0n),
    docBlob,
    ...(alias !== undefined && { alias }),
    binding: {
      genesisHash: genesisOf(chance, turn),
      submitter: chance.sometimes(5)
        ? chance.one(null, null, turn.person.root.publicKey)
        : turn.operator,
    },
  });
  if (chance.sometimes(30)) return { ...call, pubkey: Uint8Array.fromHex(`01${"00".repeat(31)}`) };
  return forged(chance, call);
}

function replacement(chance: Chance, turn: Turn): LedgerCall {
  const timestamp = stamp(chance, turn, turn.account.counters.document);
  const given = { timestamp, docBlob: blobOf(chance, turn) };
  return forged(chance, setDocumentOf(turn.person, given, genesisOf(chance, turn)));
}

const key = (n: number) => keyOf(`random ${n}`);

function blobOf(chance: Chance, { person }: Turn): Uint8Array {
  const { did } = person;
  const methods = Array.from({ length: chance.number(5) }, (_, n) =>
    methodOf(did, `m${n}`, key(n)),
  );
  const services = Array.from({ length: chance.number(4) }, (_, n) =>
    serviceOf(chance, did, `s${n}`),
  );
  const whole: DidDocument = {
    id: did,
    verificationMethod: methods,
    authentication: methods.slice(0, chance.number(4)).map(({ id }) => id),
    keyAgreement: Array.from({ length: chance.number(4) }, (_, n) => ({
      ...methodOf(did, `x${n}`, key(n)),
      type: "X",
    })),
    service: services,
  };
  const blob = encodeDidDocument(chance.sometimes(6) ? spoiled(chance, whole) : whole);
  return chance.sometimes(30) ? Uint8Array.from([...blob, 0]) : blob;
}

function spoiled(chance: Chance, document: DidDocument): DidDocument {
  const { did } = { did: document.id as Identity["did"] };
  const method = methodOf(did, "m0", key(0));
  return chance.one<DidDocument>(
    { ...document, id: `${document.id}1` },
    { ...document, verificationMethod: [method, method] },
    { ...document, verificationMethod: [{ ...method, controller: "did:svc:nobody" }] },
    {
      ...document,
      verificationMethod: [{ ...method, publicKeyMultibase: "" }],
      authentication: [],
    },
    {
      ...document,
      verificationMethod: [{ ...method, publicKeyMultibase: "zNoKey" }],
      authentication: [],
    },
    { ...document, verificationMethod: [{ ...method, type: "" }], authentication: [] },
    { ...document, authentication: [`${did}#nothing`] },
    { ...document, verificationMethod: [method], authentication: [method.id, method.id] },
    { ...document, keyAgreement: [method, method] },
    { ...document, keyAgreement: [{ ...method, controller: "x" }] },
    { ...document, service: [serviceOf(chance, did, "s"), serviceOf(chance, did, "s")] },
    { ...document, service: [{ ...serviceOf(chance, did, "s"), serviceEndpoint: [] }] },
    { ...document, service: [{ ...serviceOf(chance, did, "s"), type: "" }] },
    { ...document, service: [{ ...serviceOf(chance, did, "s"), authorization: [""] }] },
  );
}

function serviceOf(chance: Chance, did: string, fragment: string) {
  return {
    id: `${did}#${fragment}`,
    type: chance.one("SvcCacheService", "SvcRelayService"),
    serviceEndpoint: ["https://one.example", "https://two.example"].slice(0, 1 + chance.number(2)),
    authorization: chance.one(null, [], [`${did}#m0`]),
    priority: chance.one(null, 0, 4_294_967_295),
  };
}

function owned(chance: Chance, { person: { did }, aliases }: Turn): LedgerCall {
  const whole: DeliveryPolicy = {
    effectiveTtlBlocks: chance.one(1, 14_400, 432_000),
    maxMessageBytes: chance.one(1, 1_048_576, 16_777_216),
    cacheEligible: chance.sometimes(2),
    replication: chance.one(null, 1, 4),
    encryptedHeaderPreviewBytes: chance.one(null, 0, 4_096),
    releasePricing: chance.one(null, { baseFee: 0n, perKibFee: 10n ** 15n }),
    expirationBehavior: chance.one(null, "DeleteOnExpiry" as const, "TombstoneReference" as const),
  };
  const beyond = chance.one<Partial<DeliveryPolicy>>(
    { effectiveTtlBlocks: chance.one(0, 432_001) },
    { maxMessageBytes: chance.one(0, 16_777_217) },
    { replication: chance.one(0, 5) },
    { encryptedHeaderPreviewBytes: 4_097 },
    { releasePricing: { baseFee: 10n ** 15n + 1n, perKibFee: 0n } },
    { releasePricing: { baseFee: 0n, perKibFee: 10n ** 15n + 1n } },
    { replication: 5, releasePricing: { baseFee: 0n, perKibFee: 10n ** 15n + 1n } },
  );
  const policy = chance.sometimes(2) ? { ...whole, ...beyond } : whole;
  const persona = {
    releasePricing: chance.one(
      null,
      { asset: "unit", amount: 2n ** 100n },
      { asset: "", amount: 0n },
    ),
    expirationBehavior: chance.one(null, { mode: "KeepHeaderPreview" as const, retainUntilMs: 7n }),
    allowedRelays: chance.one([], ["relay-1"], [""], ["a", "a"]),
  };
  return chance.one<() => LedgerCall>(
    () => ({ name: "set_alias", did, alias: chance.one(...aliases, "no alias", "") }),
    () => ({
      name: "set_delivery_policy_links",
      did,
      recipientPolicy: chance.one(null, did, "x".repeat(129)),
      tagPolicies: chance.one(
        [],
        ["t"],
        Array.from({ length: 9 }, (_, n) => `t${n}`),
      ),
      personaPolicies: [],
    }),
    () => ({ name: "set_delivery_policy", did, policy }),
    () => ({ name: "set_tag_policy", did, policy }),
    () => ({ name: "set_persona_policy", did, policy: persona }),
  )();
}

function authorized(chance: Chance, turn: Turn): LedgerCall {
  const { person, account, nowMs } = turn;
  const intent = randomIntent(chance, turn);
  const counter = account.counters[actions[intent.action].counter];
  const signer = chance.one("root", "root", "root", "root", "m0", "m1", "m4");
  const terms = {
    nonce: chance.sometimes(12) ? counter + BigInt(chance.one(1, 2)) : counter,
    validUntilMs: BigInt(nowMs + (chance.sometimes(15) ? -minuteMs : 10 * minuteMs)),
    signerKeyId: signer === "root" ? "root" : `${person.did}#${signer}`,
  };
  // After a rotation the first root key signs for no one.
  const signing = signer === "root" ? person.root : key(Number(signer.slice(1)));
  const isPlain = chance.sometimes(turn.proofs.plain ? 2 : 12);
  const call = authorizedCall(intent, terms, signing, isPlain ? null : genesisOf(chance, turn));
  if (!("signedPayload" in call)) return call;
  if (chance.sometimes(25)) return { ...call, signerKeyId: `${person.did}#m9` };
  if (chance.sometimes(30))
    return { ...call, signedPayload: Uint8Array.from([...call.signedPayload, 0]) };
  if (chance.sometimes(25) && call.name === "remove_authentication")
    return { ...call, id: `${call.id}x` };
  return forged(chance, call);
}

function randomIntent(chance: Chance, { person, aliases }: Turn): Intent {
  const { did } = person;
  const n = chance.number(7);
  const method = {
    ...methodOf(did, `m${n}`, key(n)),
    ...(chance.sometimes(25) && { controller: "did:svc:nobody" }),
    ...(chance.sometimes(25) && { publicKeyMultibase: "zNoKey" }),
  };
  const agreement = { ...methodOf(did, `x${n}`, key(n)), type: chance.sometimes(25) ? "" : "X" };
  const service = serviceOf(chance, did, `s${n}`);
  const id = (mark: string) => `${did}#${mark}${chance.number(6)}`;
  const common: (() => Intent)[] = [
    () => ({ did, action: "AddVerificationMethod", verificationMethod: method }),
    () => ({ did, action: "UpdateVerificationMethod", verificationMethod: method }),
    () => ({ did, action: "RemoveVerificationMethod", id: id("m") }),
    () => ({ did, action: "AddAuthentication", id: id("m") }),
    () => ({ did, action: "RemoveAuthentication", id: id("m") }),
    () => ({ did, action: "AddKeyAgreement", keyAgreement: agreement }),
    () => ({ did, action: "UpdateKeyAgreement", keyAgreement: agreement }),
    () => ({ did, action: "RemoveKeyAgreement", id: id("x") }),
    () => ({ did, action: "AddService", service }),
    () => ({ did, action: "UpdateService", service }),
    () => ({ did, action: "RemoveService", id: id("s") }),
    () => ({ did, action: "add_alias", alias: chance.one(...aliases) }),
    () => ({ did, action: "add_alias", alias: chance.one(...aliases) }),
    () => ({
      did,
      action: "update_alias",
      oldAlias: chance.one(...aliases),
      newAlias: chance.one(...aliases),
    }),
    () => ({ did, action: "remove_alias", alias: chance.one(...aliases) }),
  ];
  const rare: (() => Intent)[] = [
    () => ({
      did,
      action: "UpdateRootPubkey",
      newRootPubkey: chance.sometimes(2)
        ? person.root.publicKey
        : chance.one(key(0).publicKey, Uint8Array.fromHex(`01${"00".repeat(31)}`)),
    }),
    () => ({ did, action: "deactivate_did" }),
    () => ({ did, action: "delete_did" }),
    () => ({ did, action: "delete_did" }),
  ];
  return chance.one(...(chance.sometimes(12) ? rare : common))();
}
