/**
 * What a DID key signs to authorize a change: the payload structures, the action vocabulary, and the
 * texts and bytes that registration and full-document proofs cover.
 * Source: interface "Signed DID-document updates", chain-facts 1.4, 1.5 and 1.8, decisions section 4.
 */
import type { KeyAgreement, Service, VerificationMethod } from "./document.ts";
import type { DeliveryPolicyLinks } from "./policy.ts";

/** Discriminants of `DocumentAction`: the index in this list is the byte on the wire. */
export const documentActions = [
  "AddVerificationMethod",
  "UpdateVerificationMethod",
  "RemoveVerificationMethod",
  "AddAuthentication",
  "RemoveAuthentication",
  "AddKeyAgreement",
  "UpdateKeyAgreement",
  "RemoveKeyAgreement",
  "AddService",
  "UpdateService",
  "RemoveService",
] as const;
export type DocumentAction = (typeof documentActions)[number];

/** Discriminants of `AliasAction`, by index; the names are those of the JSON member `action`. */
export const aliasActions = ["add_alias", "update_alias", "remove_alias"] as const;
export type AliasAction = (typeof aliasActions)[number];

/** The nine positions of the interface, in order. */
export type DocumentPayload = {
  readonly did: string;
  readonly action: DocumentAction;
  readonly verificationMethod: VerificationMethod | null;
  readonly keyAgreement: KeyAgreement | null;
  readonly service: Service | null;
  readonly id: string | null;
  readonly nonce: bigint;
  readonly validUntilMs: bigint;
  readonly signerKeyId: string;
};

/** Rotation signs a structure of its own, because the nine positions would not bind the new key. */
export type RootPubkeyPayload = {
  readonly did: string;
  readonly newRootPubkey: Uint8Array;
  readonly nonce: bigint;
  readonly validUntilMs: bigint;
  readonly signerKeyId: string;
};

export type AliasPayload = {
  readonly did: string;
  readonly action: AliasAction;
  readonly alias: string | null;
  readonly oldAlias: string | null;
  readonly newAlias: string | null;
  readonly nonce: bigint;
  readonly validUntilMs: bigint;
  readonly signerKeyId: string;
};

/** Discriminants of `ControlAction`: 0 to 7 in this order. */
export type ControlAction =
  | { readonly kind: "add_device"; readonly deviceId: string }
  | { readonly kind: "tombstone_device"; readonly deviceId: string }
  | { readonly kind: "update_device"; readonly oldDeviceId: string; readonly newDeviceId: string }
  | { readonly kind: "remove_device"; readonly deviceId: string }
  | { readonly kind: "deactivate_did" }
  | { readonly kind: "set_delivery_policy_links"; readonly links: DeliveryPolicyLinks }
  | { readonly kind: "clear_delivery_policy_links" }
  | { readonly kind: "delete_did" };

export type ControlPayload = {
  readonly did: string;
  readonly action: ControlAction;
  readonly nonce: bigint;
  readonly validUntilMs: bigint;
  readonly signerKeyId: string;
};
