/**
 * Our structures in SCALE: documents, authorization payloads, policies, records and the storage keys of
 * the chain. Field order here is the order on the wire. What is decoded has kept every bound; decoders
 * answer `null` for anything else. Ledger calls are in `calls.ts`.
 * Source: docs/ledger.md 1.1 to 1.6 and 1.9, decisions sections 4 and 10.
 */

import { decodeHex } from "../codec/bytes.ts";
import { blake2b128 } from "../codec/hash.ts";
import {
  boolean,
  type Codec,
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
  variants,
  vector,
} from "../codec/scale.ts";
import type { DeliveryPolicy, DeliveryPolicyLinks, ExpirationBehavior, PersonaPolicy } from "../message/policy.ts";
import type { Account, Counters, Device, DidRecord } from "./account.ts";
import {
  type AliasPayload,
  aliasActions,
  type ControlAction,
  type ControlPayload,
  type DocumentPayload,
  documentActions,
  type RootPubkeyPayload,
} from "./authorization.ts";
import { scaleBounds } from "./bounds.ts";
import type { DidDocument, Service, VerificationMethod } from "./document.ts";

const did = text(scaleBounds.didBytes);
const id = text(scaleBounds.idBytes);
const alias = text(scaleBounds.aliasBytes);
const deviceId = text(scaleBounds.deviceIdBytes);
const policyRef = text(scaleBounds.policyRefBytes);

// ------------------------------------------------------------------------------------------- documents

/** Key agreements have the same layout. */
export const verificationMethodCodec = structure<VerificationMethod>({
  id,
  type: text(scaleBounds.typeBytes),
  controller: id,
  publicKeyMultibase: text(scaleBounds.keyMultibaseBytes),
});

export const serviceCodec = structure<Service>({
  id,
  type: text(scaleBounds.typeBytes),
  serviceEndpoint: vector(text(scaleBounds.serviceEndpointBytes), scaleBounds.serviceEndpoints),
  authorization: option(vector(id, scaleBounds.serviceAuthorizations)),
  priority: option(u32),
});

/** `authentication` and `service` are options of lists on the wire: an empty list is none. */
const documentCodec = structure<DidDocument>({
  id: did,
  verificationMethod: vector(verificationMethodCodec, scaleBounds.verificationMethods),
  authentication: optionalList(vector(id, scaleBounds.authentications)),
  keyAgreement: vector(verificationMethodCodec, scaleBounds.keyAgreements),
  service: optionalList(vector(serviceCodec, scaleBounds.services)),
});

export const encodeDidDocument = (document: DidDocument): Uint8Array => encodeWith(documentCodec, document);

/** `null` also for a blob above the bound of a document. */
export function decodeDidDocument(bytes: Uint8Array): DidDocument | null {
  return bytes.length > scaleBounds.documentBytes ? null : decodeWith(documentCodec, bytes);
}

export const encodeVerificationMethod = (method: VerificationMethod): Uint8Array =>
  encodeWith(verificationMethodCodec, method);
export const decodeVerificationMethod = (bytes: Uint8Array): VerificationMethod | null =>
  decodeWith(verificationMethodCodec, bytes);
export const encodeService = (service: Service): Uint8Array => encodeWith(serviceCodec, service);
export const decodeService = (bytes: Uint8Array): Service | null => decodeWith(serviceCodec, bytes);

// ---------------------------------------------------------------------------------------------- policies

const expirationBehaviors = [
  "DeleteOnExpiry",
  "KeepHeaderPreview",
  "TombstoneReference",
] as const satisfies readonly ExpirationBehavior[];
const expirationBehavior = enumeration<ExpirationBehavior>(expirationBehaviors);

export const deliveryPolicyCodec = structure<DeliveryPolicy>({
  effectiveTtlBlocks: u32,
  maxMessageBytes: u32,
  cacheEligible: boolean,
  replication: option(u8),
  encryptedHeaderPreviewBytes: option(u32),
  releasePricing: option(structure<NonNullable<DeliveryPolicy["releasePricing"]>>({ baseFee: u128, perKibFee: u128 })),
  expirationBehavior: option(expirationBehavior),
});

export const personaPolicyCodec = structure<PersonaPolicy>({
  releasePricing: option(
    structure<NonNullable<PersonaPolicy["releasePricing"]>>({ asset: text(scaleBounds.assetBytes), amount: u128 }),
  ),
  expirationBehavior: option(
    structure<NonNullable<PersonaPolicy["expirationBehavior"]>>({
      mode: expirationBehavior,
      retainUntilMs: option(u64),
    }),
  ),
  allowedRelays: vector(text(scaleBounds.allowedRelayBytes), scaleBounds.allowedRelays),
});

export const linksCodec = structure<DeliveryPolicyLinks>({
  recipientPolicy: option(policyRef),
  tagPolicies: vector(policyRef, scaleBounds.policyRefs),
  personaPolicies: vector(policyRef, scaleBounds.policyRefs),
});

export const encodeDeliveryPolicy = (policy: DeliveryPolicy): Uint8Array => encodeWith(deliveryPolicyCodec, policy);
export const decodeDeliveryPolicy = (bytes: Uint8Array): DeliveryPolicy | null =>
  decodeWith(deliveryPolicyCodec, bytes);
export const encodePersonaPolicy = (policy: PersonaPolicy): Uint8Array => encodeWith(personaPolicyCodec, policy);
export const decodePersonaPolicy = (bytes: Uint8Array): PersonaPolicy | null => decodeWith(personaPolicyCodec, bytes);

// -------------------------------------------------------------------------------- authorization payloads

const documentPayloadCodec = structure<DocumentPayload>({
  did,
  action: enumeration(documentActions),
  verificationMethod: option(verificationMethodCodec),
  keyAgreement: option(verificationMethodCodec),
  service: option(serviceCodec),
  id: option(id),
  nonce: u64,
  validUntilMs: u64,
  signerKeyId: id,
});

const rootPubkeyPayloadCodec = structure<RootPubkeyPayload>({
  did,
  newRootPubkey: exactByteVector(32),
  nonce: u64,
  validUntilMs: u64,
  signerKeyId: id,
});

const aliasPayloadCodec = structure<AliasPayload>({
  did,
  action: enumeration(aliasActions),
  alias: option(alias),
  oldAlias: option(alias),
  newAlias: option(alias),
  nonce: u64,
  validUntilMs: u64,
  signerKeyId: id,
});

type Nothing = Readonly<Record<never, never>>;
const nothing = structure<Nothing>({});

/** The order of the kinds is their discriminant. */
const controlActionCodec = variants<ControlAction>({
  add_device: structure<{ readonly deviceId: string }>({ deviceId }),
  tombstone_device: structure<{ readonly deviceId: string }>({ deviceId }),
  update_device: structure<{ readonly oldDeviceId: string; readonly newDeviceId: string }>({
    oldDeviceId: deviceId,
    newDeviceId: deviceId,
  }),
  remove_device: structure<{ readonly deviceId: string }>({ deviceId }),
  deactivate_did: nothing,
  set_delivery_policy_links: structure<{ readonly links: DeliveryPolicyLinks }>({ links: linksCodec }),
  clear_delivery_policy_links: nothing,
  delete_did: nothing,
});

const controlPayloadCodec = structure<ControlPayload>({
  did,
  action: controlActionCodec,
  nonce: u64,
  validUntilMs: u64,
  signerKeyId: id,
});

export const encodeDocumentPayload = (payload: DocumentPayload): Uint8Array =>
  encodeWith(documentPayloadCodec, payload);
export const decodeDocumentPayload = (bytes: Uint8Array): DocumentPayload | null =>
  decodeWith(documentPayloadCodec, bytes);
export const encodeRootPubkeyPayload = (payload: RootPubkeyPayload): Uint8Array =>
  encodeWith(rootPubkeyPayloadCodec, payload);
export const decodeRootPubkeyPayload = (bytes: Uint8Array): RootPubkeyPayload | null =>
  decodeWith(rootPubkeyPayloadCodec, bytes);
export const encodeAliasPayload = (payload: AliasPayload): Uint8Array => encodeWith(aliasPayloadCodec, payload);
export const decodeAliasPayload = (bytes: Uint8Array): AliasPayload | null => decodeWith(aliasPayloadCodec, bytes);
export const encodeControlPayload = (payload: ControlPayload): Uint8Array => encodeWith(controlPayloadCodec, payload);
export const decodeControlPayload = (bytes: Uint8Array): ControlPayload | null =>
  decodeWith(controlPayloadCodec, bytes);

/** What a version 2 registration proof covers behind its prefix. */
export type RegistrationTail = {
  readonly did: string;
  readonly alias: string | null;
  readonly rootPubkey: Uint8Array;
  readonly documentHash: Uint8Array;
  readonly nonce: bigint;
  readonly expiryMs: bigint;
};

const registrationTailCodec = structure<RegistrationTail>({
  did,
  alias: option(alias),
  rootPubkey: exactByteVector(32),
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

/** What a version 2 full-document proof covers behind its prefix. */
export type SetDocumentTail = {
  readonly did: string;
  readonly documentHash: Uint8Array;
  readonly nonce: bigint;
  readonly expiryMs: bigint;
};

const setDocumentTailCodec = structure<SetDocumentTail>({
  did,
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

export const encodeRegistrationTail = (tail: RegistrationTail): Uint8Array => encodeWith(registrationTailCodec, tail);
export const encodeSetDocumentTail = (tail: SetDocumentTail): Uint8Array => encodeWith(setDocumentTailCodec, tail);

// ----------------------------------------------------------------------------------------------- records

/** The value of the chain's `Dids` map. */
const recordCodec = structure<DidRecord>({
  owner: option(fixedBytes(32)),
  aliases: optionalList(vector(alias, scaleBounds.aliases)),
  devices: optionalList(
    vector(structure<Device>({ deviceId, addedAtMs: u64, tombstoned: boolean }), scaleBounds.devices),
  ),
  document: option(documentCodec),
  version: u64,
  updatedAtMs: u64,
  rootPubkey: option(exactByteVector(32)),
  links: option(linksCodec),
  deactivated: boolean,
});

/** Of our own making: how the embedded ledger keeps an account. */
const accountCodec: Codec<Account> = structure<Account>({
  record: option(recordCodec),
  counters: structure<Counters>({ alias: u64, document: u64, rootPubkey: u64, control: u64 }),
  documentTimeMs: u64,
  registrationExpiryMs: u64,
});

export const encodeDidRecord = (record: DidRecord): Uint8Array => encodeWith(recordCodec, record);
export const decodeDidRecord = (bytes: Uint8Array): DidRecord | null => decodeWith(recordCodec, bytes);
export const encodeAccount = (account: Account): Uint8Array => encodeWith(accountCodec, account);
export const decodeAccount = (bytes: Uint8Array): Account | null => decodeWith(accountCodec, bytes);

// ------------------------------------------------------------------------------------------ storage keys

/** twox128 of the pallet's and the map's name. */
const storagePrefixes = {
  DidRegistry: {
    pallet: "72b29c5d16546b7d2c5310d5fbada68b",
    maps: {
      Dids: "13f72fd4db0687b2a6a53903e54be0cf",
      AliasIndex: "cb8dc7da6f784cfd3a1f34c76b4b1ff0",
      AliasNonces: "3a9ccc6a717159f935e181fd4ab3e8bc",
      DocumentNonces: "56b98e04127c7311ccbc659f497627b8",
      RootPubkeyNonces: "922fa86b8e86da4715cc008129697c7f",
      ControlNonces: "98685a9dcdde2a85e7ab3480f59b5570",
    },
  },
  DeliveryPolicy: {
    pallet: "6519a53f0c3c422cdb2a81f164e116a4",
    maps: {
      RecipientPolicies: "7dc42b50459a4ff30fa442e5cabd8c8c",
      TagPolicies: "01e2057ca6c23a0d36d2555ad80cb999",
      PersonaPolicies: "cf254e06e0ec82aa1d255d031418cb9b",
      PolicyNonces: "9f1fde021f4d20d02e96485aff44aac4",
    },
  },
} as const;

export type StoragePallet = keyof typeof storagePrefixes;
export type StorageMap<P extends StoragePallet> = keyof (typeof storagePrefixes)[P]["maps"] & string;

/** The `Blake2_128Concat` key of one entry: prefixes, hash of the encoded key, the encoded key. */
export function storageMapKey<P extends StoragePallet>(pallet: P, map: StorageMap<P>, keyText: string): Uint8Array {
  const key = encodeWith(did, keyText);
  const maps: Readonly<Record<string, string>> = storagePrefixes[pallet].maps;
  const prefix = decodeHex(`${storagePrefixes[pallet].pallet}${maps[map]}`) as Uint8Array;
  const out = new Uint8Array(prefix.length + 16 + key.length);
  out.set(prefix);
  out.set(blake2b128(key), prefix.length);
  out.set(key, prefix.length + 16);
  return out;
}
