/**
 * Our structures in SCALE besides documents: authorization payloads, policies and records. Field order here is the order on
 * the wire. What is decoded has kept every bound; decoding answers `null` for anything else. Ledger calls are in
 * `calls.ts`.
 * Source: docs/ledger.md 1.1 to 1.6 and 1.9, rules sections 4 and 10.
 */
import {
  boolean,
  type Codec,
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
import {
  type Account,
  type Counters,
  type DeliveryPolicyLinks,
  type Device,
  type DidRecord,
  type KeyAgreement,
  type Service,
  scaleBounds,
  type VerificationMethod,
} from "./account.ts";
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
import { alias, did, documentCodec, id, serviceCodec, verificationMethodCodec } from "./document-codec.ts";
import type { IntentOf, Terms } from "./intents.ts";
import { type DeliveryPolicy, type ExpirationBehavior, expirationBehaviors, type PersonaPolicy } from "./policy.ts";

const deviceId = text(scaleBounds.deviceIdBytes);
const policyRef = text(scaleBounds.policyRefBytes);

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
