/**
 * What the ledger keeps, as values and in SCALE: of one DID its document, its record and
 * its counters; the policies of recipients, tags and personas with their limits; and how
 * large each may be. A codec's fields have the order of the wire, decoding enforces every
 * bound, and the types are the codecs'. `document.ts` has the rules for documents.
 * Source: interface "DID document", docs/ledger.md 1.1, 1.3, 1.9 and 2.7, rules section 1.
 */
import { encodeBase58, parseAgreementKey, parseMultibaseKey, utf8 } from "../codec/bytes.ts";
import {
  boolean,
  type Decoded,
  decodeWith,
  encodeWith,
  enumeration,
  exactByteVector,
  fixedBytes,
  option,
  optionalList,
  structure,
  text,
  u8,
  u32,
  u64,
  u128,
  vector,
} from "../codec/scale.ts";
import { type LedgerRefusal, refuse } from "./refusals.ts";

// ------------------------------------------------------------------------------------------ bounds

/**
 * Bounds of the structures in the embedded ledger and the reference runtime. Decoding keeps
 * to them.
 */
export const scaleBounds = {
  didBytes: 128,
  /** Ids, controllers, references, `signer_key_id`. */
  idBytes: 192,
  verificationMethods: 5,
  keyAgreements: 5,
  authentications: 4,
  services: 4,
  serviceEndpoints: 5,
  serviceEndpointBytes: 128,
  serviceAuthorizations: 8,
  typeBytes: 64,
  keyMultibaseBytes: 128,
  documentBytes: 16_384,
  aliasBytes: 64,
  aliases: 8,
  devices: 10,
  deviceIdBytes: 64,
  policyRefs: 8,
  policyRefBytes: 128,
  assetBytes: 32,
  allowedRelays: 16,
  allowedRelayBytes: 128,
} as const;

export type LedgerBoundName = Exclude<
  keyof typeof scaleBounds,
  "devices" | "deviceIdBytes" | "assetBytes" | "allowedRelays" | "allowedRelayBytes"
>;

/**
 * Of the embedded ledger, or as a chain's metadata name them. Entries and UTF-8 bytes;
 * every bound is inclusive.
 */
export type LedgerBounds = Readonly<Record<LedgerBoundName, number>>;

export const embeddedBounds: LedgerBounds = scaleBounds;

/**
 * Whether the UTF-8 form of a text is longer than `bytesMax`. Encodes the text only when
 * its length does not decide.
 */
export function longerThan(text: string, bytesMax: number): boolean {
  if (text.length > bytesMax) return true;
  return text.length * 3 > bytesMax && utf8(text).length > bytesMax;
}

// --------------------------------------------------------------------------------------- documents

export const did = text(scaleBounds.didBytes);
export const id = text(scaleBounds.idBytes);
export const alias = text(scaleBounds.aliasBytes);
const deviceId = text(scaleBounds.deviceIdBytes);
const policyRef = text(scaleBounds.policyRefBytes);

/** Key agreements have the same layout. */
export const verificationMethodCodec = structure({
  id,
  type: text(scaleBounds.typeBytes),
  controller: id,
  publicKeyMultibase: text(scaleBounds.keyMultibaseBytes),
});
export type VerificationMethod = Decoded<typeof verificationMethodCodec>;

/** The method types that name Ed25519 keys (rules section 1). */
export const keyTypes: readonly string[] = ["Multikey", "Ed25519VerificationKey2020"];

/**
 * The Ed25519 key of a method, which may be inadmissible (`isAdmissibleKey`); `null` when
 * its type names none.
 */
export function parseMethodKey(method: VerificationMethod): Uint8Array | null {
  return keyTypes.includes(method.type) ? parseMultibaseKey(method.publicKeyMultibase) : null;
}

export type KeyAgreement = VerificationMethod;

export const serviceCodec = structure({
  id,
  type: text(scaleBounds.typeBytes),
  serviceEndpoint: vector(text(scaleBounds.serviceEndpointBytes), scaleBounds.serviceEndpoints),
  /** `null` when the member is absent; an empty list authorizes no one. */
  authorization: option(vector(id, scaleBounds.serviceAuthorizations)),
  priority: option(u32),
});
export type Service = Decoded<typeof serviceCodec>;

/** `authentication` and `service` are options of lists on the wire: an empty list is none. */
export const documentCodec = structure({
  id: did,
  verificationMethod: vector(verificationMethodCodec, scaleBounds.verificationMethods),
  authentication: optionalList(vector(id, scaleBounds.authentications)),
  keyAgreement: vector(verificationMethodCodec, scaleBounds.keyAgreements),
  service: optionalList(vector(serviceCodec, scaleBounds.services)),
});
export type DidDocument = Decoded<typeof documentCodec>;

/**
 * The JSON form of answers: all four lists always, `authorization` and `priority` only when
 * set.
 */
export function renderDocument(document: DidDocument): Record<string, unknown> {
  return { ...document, service: document.service.map(renderService) };
}

/** As JSON; what is not set is left out. */
export function renderService(service: Service): Record<string, unknown> {
  const { authorization, priority, ...always } = service;
  return {
    ...always,
    ...(authorization && { authorization }),
    ...(priority !== null && { priority }),
  };
}

/**
 * `change` the identity (`root`, `authentication`), `send` in its name (`authentication`),
 * speak for a `service`.
 */
export type KeyPurpose = "change" | "send" | "service";

/** The method under a key id that may sign for a purpose, whatever its key. */
export function methodFor(
  document: DidDocument,
  keyId: string,
  purpose: KeyPurpose,
): VerificationMethod | null {
  if (purpose !== "service" && !document.authentication.includes(keyId)) return null;
  const method = document.verificationMethod.find(({ id }) => id === keyId);
  return method?.controller === document.id ? method : null;
}

/**
 * The agreement that announces key bundles (`core/message/bundle.ts`): as long as a
 * document has it, the absence of a bundle is a fault and not a choice.
 */
export const bundleAgreement: { readonly type: string; readonly publicKeyMultibase: string } = {
  type: "SvcKeyBundle2026",
  publicKeyMultibase: `z${encodeBase58(utf8("svc:key-bundle:v2"))}`,
};

/** Whether an agreement of the document says that its owner publishes bundles. */
export function announcesBundle({ keyAgreement }: Pick<DidDocument, "keyAgreement">): boolean {
  const { type, publicKeyMultibase } = bundleAgreement;
  return keyAgreement.some(
    (one) => one.type === type && one.publicKeyMultibase === publicKeyMultibase,
  );
}

/** The key that others seal to: the first X25519 key of the document, or `null`. */
export function sealingKeyOf(
  document: DidDocument,
): (KeyAgreement & { readonly publicKey: Uint8Array }) | null {
  for (const agreement of document.keyAgreement) {
    const publicKey = parseAgreementKey(agreement.publicKeyMultibase);
    if (publicKey !== null) return { ...agreement, publicKey };
  }
  return null;
}

// ----------------------------------------------------------------------------- record and counters

/** Which policies a recipient names. */
const linksCodec = structure({
  recipientPolicy: option(policyRef),
  tagPolicies: vector(policyRef, scaleBounds.policyRefs),
  personaPolicies: vector(policyRef, scaleBounds.policyRefs),
});
export type DeliveryPolicyLinks = Decoded<typeof linksCodec>;

/** A 32-byte account id. The operator account of a Directory owns what it registers. */
export type AccountId = Uint8Array;

/** What the proofs of a ledger are bound to, and which versions it accepts (docs/ledger.md 1.8). */
export type LedgerProofs = {
  /** 32 bytes that name the ledger. */
  readonly genesisHash: Uint8Array;
  /**
   * Whether it accepts version 3, which binds the ledger and, in a registration, the
   * account that submits it.
   */
  readonly bound: boolean;
  /** Whether it accepts versions 1 and 2, and payloads that are signed plainly. */
  readonly plain: boolean;
  /**
   * Whether it holds self-certifying DIDs to their rules, and keeps what proves their keys
   * (docs/trust.md).
   */
  readonly selfCertifying: boolean;
};

/** The value of the chain's `Dids` map. */
export const recordCodec = structure({
  owner: option(fixedBytes(32)),
  aliases: optionalList(vector(alias, scaleBounds.aliases)),
  devices: optionalList(
    vector(structure({ deviceId, addedAtMs: u64, tombstoned: boolean }), scaleBounds.devices),
  ),
  document: option(documentCodec),
  version: u64,
  updatedAtMs: u64,
  rootPubkey: option(exactByteVector(32)),
  links: option(linksCodec),
  deactivated: boolean,
});
export type DidRecord = Decoded<typeof recordCodec>;

export type CounterName = "alias" | "document" | "rootPubkey" | "control";
export type Counters = Readonly<Record<CounterName, bigint>>;

/**
 * All the ledger keeps of one DID. The counters outlive a deleted record: an old
 * authorization never works again.
 */
export const accountCodec = structure({
  record: option(recordCodec),
  counters: structure<Counters>({ alias: u64, document: u64, rootPubkey: u64, control: u64 }),
  /** The time of the last accepted full document (docs/ledger.md 2.5). */
  documentTimeMs: u64,
  /**
   * The expiry of the last registration proof that had one. The next must expire later, so
   * that no proof works twice.
   */
  registrationExpiryMs: u64,
  /**
   * How often the DID was deleted; 0 when a ledger can't say. A message admitted for one
   * life does not belong to the next.
   */
  life: u32,
  /**
   * Of a self-certifying DID: the component calls that are accepted before the next whole
   * document (docs/trust.md).
   */
  componentCallsLeft: u8,
});
export type Account = Decoded<typeof accountCodec>;

/** How long an alias that was released is for its last holder alone. */
export const aliasReserveMs = 30 * 86_400_000;

/** For whom an alias is reserved that was released: this life of the DID, until this time. */
export const aliasReserveCodec = structure({ did, life: u32, untilMs: u64 });
export type AliasReserve = Decoded<typeof aliasReserveCodec>;

/**
 * After a deletion the alias belongs to no one until then, because another key may register
 * the DID.
 */
export function isReservedFrom(
  taker: { readonly did: string; readonly life: number },
  reserve: AliasReserve | null,
  nowMs: number,
): boolean {
  if (reserve === null || reserve.untilMs <= BigInt(nowMs)) return false;
  return reserve.did !== taker.did || reserve.life !== taker.life;
}

export const emptyAccount: Account = {
  record: null,
  counters: { alias: 0n, document: 0n, rootPubkey: 0n, control: 0n },
  documentTimeMs: 0n,
  registrationExpiryMs: 0n,
  life: 0,
  componentCallsLeft: 0,
};

// ---------------------------------------------------------------------------------------- policies

/** What becomes of an entry that expires; the order is that of the ledger's enumeration. */
export const expirationBehaviors = [
  "DeleteOnExpiry",
  "KeepHeaderPreview",
  "TombstoneReference",
] as const;
export type ExpirationBehavior = (typeof expirationBehaviors)[number];
const expirationBehavior = enumeration<ExpirationBehavior>(expirationBehaviors);

/** Whom a policy is about. */
export type PolicyScope = "recipient" | "tag" | "persona";

/** The record of a recipient or a tag. `null` members were not set. */
export const deliveryPolicyCodec = structure({
  effectiveTtlBlocks: u32,
  maxMessageBytes: u32,
  cacheEligible: boolean,
  replication: option(u8),
  encryptedHeaderPreviewBytes: option(u32),
  releasePricing: option(structure({ baseFee: u128, perKibFee: u128 })),
  expirationBehavior: option(expirationBehavior),
});
export type DeliveryPolicy = Decoded<typeof deliveryPolicyCodec>;

/** The record of a persona. Only `allowedRelays` acts on delivery. */
export const personaPolicyCodec = structure({
  releasePricing: option(structure({ asset: text(scaleBounds.assetBytes), amount: u128 })),
  expirationBehavior: option(structure({ mode: expirationBehavior, retainUntilMs: option(u64) })),
  allowedRelays: vector(text(scaleBounds.allowedRelayBytes), scaleBounds.allowedRelays),
});
export type PersonaPolicy = Decoded<typeof personaPolicyCodec>;

export type PolicyOf<Scope extends PolicyScope> = Scope extends "persona"
  ? PersonaPolicy
  : DeliveryPolicy;

/** All inclusive. Fees are in the smallest currency unit, the life in blocks (30 days of 6 s). */
export const policyLimits = {
  effectiveTtlBlocksMax: 432_000,
  maxMessageBytesMax: 16_777_216,
  replicationMax: 4,
  headerPreviewBytesMax: 4_096,
  releaseFeeMax: 10n ** 15n,
} as const;

/** The rules of a recipient's or tag's policy. */
export function checkDeliveryPolicy(policy: DeliveryPolicy): LedgerRefusal | null {
  const limits = policyLimits;
  if (!within(policy.effectiveTtlBlocks, 1, limits.effectiveTtlBlocksMax))
    return refuse("InvalidTtl");
  if (!within(policy.maxMessageBytes, 1, limits.maxMessageBytesMax))
    return refuse("MaxMessageSizeExceeded");
  if (!within(policy.replication ?? 1, 1, limits.replicationMax))
    return refuse("InvalidReplication");
  if (!within(policy.encryptedHeaderPreviewBytes ?? 0, 0, limits.headerPreviewBytesMax)) {
    return refuse("HeaderPreviewTooLarge");
  }
  const pricing = policy.releasePricing ?? { baseFee: 0n, perKibFee: 0n };
  const fees = [pricing.baseFee, pricing.perKibFee];
  return fees.every((fee) => fee >= 0n && fee <= limits.releaseFeeMax)
    ? null
    : refuse("ReleaseFeeTooLarge");
}

function within(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}

/** A persona's policy must encode within its bounds. */
export function checkPersonaPolicy(policy: PersonaPolicy): LedgerRefusal | null {
  const isWithin = decodeWith(personaPolicyCodec, encodeWith(personaPolicyCodec, policy)) !== null;
  return isWithin ? null : refuse("InvalidConstraints");
}
