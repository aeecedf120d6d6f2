/**
 * Our structures in SCALE: documents, authorization payloads, policies and records. Field order here is the order on
 * the wire. What is decoded has kept every bound; decoding answers `null` for anything else. Ledger calls are in
 * `calls.ts`.
 * Source: docs/ledger.md 1.1 to 1.6 and 1.9, rules sections 4 and 10.
 */

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
  trailing,
  u8,
  u32,
  u64,
  u128,
  variants,
  vector,
} from "../codec/scale.ts";
import type { Account, Counters, Device, DidRecord } from "./account.ts";
import {
  type ActionName,
  type AliasAction,
  actionRows,
  actionsOf,
  type ControlName,
  type DocumentAction,
  type ItemName,
  type Items,
} from "./actions.ts";
import { scaleBounds } from "./bounds.ts";
import type { DidDocument, KeyAgreement, Service, VerificationMethod } from "./document.ts";
import type { IntentOf, Terms } from "./intents.ts";
import {
  type DeliveryPolicy,
  type DeliveryPolicyLinks,
  type ExpirationBehavior,
  expirationBehaviors,
  type PersonaPolicy,
} from "./policy.ts";

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

// ---------------------------------------------------------------------------------------------- policies

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

const linksCodec = structure<DeliveryPolicyLinks>({
  recipientPolicy: option(policyRef),
  tagPolicies: vector(policyRef, scaleBounds.policyRefs),
  personaPolicies: vector(policyRef, scaleBounds.policyRefs),
});

// -------------------------------------------------------------------------------- authorization payloads

/** What every payload ends with. */
const terms = { nonce: u64, validUntilMs: u64, signerKeyId: id };

/** Each item as a payload holds it: bounded. */
const itemCodecs: { readonly [I in ItemName]: Codec<Items[I]> } = {
  verificationMethod: verificationMethodCodec,
  keyAgreement: verificationMethodCodec,
  service: serviceCodec,
  id,
  alias,
  oldAlias: alias,
  newAlias: alias,
  newRootPubkey: exactByteVector(32),
  deviceId,
  oldDeviceId: deviceId,
  newDeviceId: deviceId,
  links: linksCodec,
};

/** The nine positions of the interface, in order. */
export type DocumentPayload = Terms & {
  readonly did: string;
  readonly action: DocumentAction;
  readonly verificationMethod: VerificationMethod | null;
  readonly keyAgreement: KeyAgreement | null;
  readonly service: Service | null;
  readonly id: string | null;
};

export const documentPayloadCodec = structure<DocumentPayload>({
  did,
  action: enumeration(actionsOf<DocumentAction>("document")),
  verificationMethod: option(itemCodecs.verificationMethod),
  keyAgreement: option(itemCodecs.keyAgreement),
  service: option(itemCodecs.service),
  id: option(itemCodecs.id),
  ...terms,
});

/** Rotation signs a structure of its own, because the nine positions would not bind the new key. */
export type RootPubkeyPayload = Terms & { readonly did: string; readonly newRootPubkey: Uint8Array };

export const rootPubkeyPayloadCodec = structure<RootPubkeyPayload>({
  did,
  newRootPubkey: itemCodecs.newRootPubkey,
  ...terms,
});

export type AliasPayload = Terms & {
  readonly did: string;
  readonly action: AliasAction;
  readonly alias: string | null;
  readonly oldAlias: string | null;
  readonly newAlias: string | null;
};

export const aliasPayloadCodec = structure<AliasPayload>({
  did,
  action: enumeration(actionsOf<AliasAction>("alias")),
  alias: option(itemCodecs.alias),
  oldAlias: option(itemCodecs.oldAlias),
  newAlias: option(itemCodecs.newAlias),
  ...terms,
});

/** An action and its items in one value. */
export type ControlAction = {
  [A in ControlName]: { readonly kind: A } & Omit<IntentOf<A>, "action" | "did">;
}[ControlName];

const controlActionCodec = variants<ControlAction>(
  Object.fromEntries(actionsOf<ControlName>("control").map((kind) => [kind, itemsCodec(kind)])) as Parameters<
    typeof variants<ControlAction>
  >[0],
);

/** The items of an action one after the other. */
function itemsCodec(action: ActionName): Codec<object> {
  return structure(Object.fromEntries(actionRows[action].items.map((item) => [item, itemCodecs[item]])));
}

export type ControlPayload = Terms & { readonly did: string; readonly action: ControlAction };

export const controlPayloadCodec = structure<ControlPayload>({ did, action: controlActionCodec, ...terms });

/** What a version 2 registration proof covers behind its prefix. */
type RegistrationTail = {
  readonly did: string;
  readonly alias: string | null;
  readonly rootPubkey: Uint8Array;
  readonly documentHash: Uint8Array;
  readonly nonce: bigint;
  readonly expiryMs: bigint;
};

export const registrationTailCodec = structure<RegistrationTail>({
  did,
  alias: option(alias),
  rootPubkey: exactByteVector(32),
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

/** What version 3 of a registration proof covers behind the tail of version 2. */
export const registrationBindingCodec = structure<{
  readonly genesisHash: Uint8Array;
  readonly submitter: Uint8Array | null;
}>({ genesisHash: fixedBytes(32), submitter: option(fixedBytes(32)) });

/** What a full-document proof of version 2 covers behind its prefix; version 3 adds the genesis hash. */
type SetDocumentTail = {
  readonly did: string;
  readonly documentHash: Uint8Array;
  readonly nonce: bigint;
  readonly expiryMs: bigint;
};

export const setDocumentTailCodec = structure<SetDocumentTail>({
  did,
  documentHash: fixedBytes(32),
  nonce: u64,
  expiryMs: u64,
});

// ----------------------------------------------------------------------------------------------- records

/** The value of the chain's `Dids` map. */
export const recordCodec = structure<DidRecord>({
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
export const accountCodec: Codec<Account> = structure<Account>({
  record: option(recordCodec),
  counters: structure<Counters>({ alias: u64, document: u64, rootPubkey: u64, control: u64 }),
  documentTimeMs: u64,
  registrationExpiryMs: u64,
  life: trailing(u32, 0),
});
