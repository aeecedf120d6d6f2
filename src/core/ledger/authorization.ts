/**
 * What a DID key signs to authorize a change. `operations` is the one place that says what an action is:
 * its runtime call, its counter, its discriminant and which items its payload carries. `intent.ts` makes
 * payloads and calls of it; what registrations and full documents sign is in `proof-message.ts`.
 * Source: interface "Signed DID-document updates", docs/ledger.md 1.4, 1.5 and 1.8, decisions section 4.
 */

import type { DeliveryPolicyLinks } from "../message/policy.ts";
import type { CounterName } from "./account.ts";
import type { LedgerCallName } from "./call.ts";
import type { KeyAgreement, Service, VerificationMethod } from "./document.ts";
import type { LedgerError } from "./refusal.ts";

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

// --------------------------------------------------------------------------------------------- operations

/** What an action is about. The items of the table below name members of this. */
export type Items = {
  readonly verificationMethod: VerificationMethod;
  readonly keyAgreement: KeyAgreement;
  readonly service: Service;
  /** Absolute id of a method, key agreement or service. */
  readonly id: string;
  /** Aliases in normal form. */
  readonly alias: string;
  readonly oldAlias: string;
  readonly newAlias: string;
  readonly newRootPubkey: Uint8Array;
  readonly control: ControlAction;
};

type Operation = {
  readonly call: LedgerCallName;
  /** The counter whose value the authorization uses up; it also decides the payload structure. */
  readonly counter: CounterName;
  /** `null`: the structure has no action byte. */
  readonly discriminant: number | null;
  /** The items that are *some*; every other item of the structure is none. */
  readonly items: readonly (keyof Items)[];
};

const document = (discriminant: number, call: LedgerCallName, item: keyof Items): Operation => ({
  call,
  counter: "document",
  discriminant,
  items: [item],
});

const alias = (discriminant: number, call: LedgerCallName, ...items: (keyof Items)[]): Operation => ({
  call,
  counter: "alias",
  discriminant,
  items,
});

const control = (discriminant: number): Operation => ({
  call: "apply_control_with_proof",
  counter: "control",
  discriminant,
  items: ["control"],
});

export type ActionName = DocumentAction | AliasAction | "UpdateRootPubkey" | ControlAction["kind"];

/** Every action that a DID key can authorize, by its name in the JSON member `action`. */
export const operations: { readonly [A in ActionName]: Operation } = {
  AddVerificationMethod: document(0, "add_verification_method", "verificationMethod"),
  UpdateVerificationMethod: document(1, "update_verification_method", "verificationMethod"),
  RemoveVerificationMethod: document(2, "remove_verification_method", "id"),
  AddAuthentication: document(3, "add_authentication", "id"),
  RemoveAuthentication: document(4, "remove_authentication", "id"),
  AddKeyAgreement: document(5, "add_key_agreement", "keyAgreement"),
  UpdateKeyAgreement: document(6, "update_key_agreement", "keyAgreement"),
  RemoveKeyAgreement: document(7, "remove_key_agreement", "id"),
  AddService: document(8, "add_service", "service"),
  UpdateService: document(9, "update_service", "service"),
  RemoveService: document(10, "remove_service", "id"),
  add_alias: alias(0, "add_alias", "alias"),
  update_alias: alias(1, "update_alias", "oldAlias", "newAlias"),
  remove_alias: alias(2, "remove_alias", "alias"),
  UpdateRootPubkey: {
    call: "update_root_pubkey",
    counter: "rootPubkey",
    discriminant: null,
    items: ["newRootPubkey"],
  },
  add_device: control(0),
  tombstone_device: control(1),
  update_device: control(2),
  remove_device: control(3),
  deactivate_did: control(4),
  set_delivery_policy_links: control(5),
  clear_delivery_policy_links: control(6),
  delete_did: control(7),
};

export type NonceDomain = "document_nonce" | "alias_nonce" | "root_pubkey_nonce" | "control_nonce";

type Counter = {
  /** The member of `GET /dids/{did}/nonces` that shows the counter. */
  readonly nonceDomain: NonceDomain;
  readonly payloadError: LedgerError;
  readonly nonceError: LedgerError;
  readonly expiredError: LedgerError;
};

/** The four counters, each with its payload structure, and what the ledger calls their breaches. */
export const counters: { readonly [C in CounterName]: Counter } = {
  document: {
    nonceDomain: "document_nonce",
    payloadError: "InvalidDocumentPayload",
    nonceError: "InvalidDocumentNonce",
    expiredError: "DocumentAuthorizationExpired",
  },
  alias: {
    nonceDomain: "alias_nonce",
    payloadError: "InvalidAliasPayload",
    nonceError: "InvalidAliasNonce",
    expiredError: "AliasAuthorizationExpired",
  },
  rootPubkey: {
    nonceDomain: "root_pubkey_nonce",
    payloadError: "InvalidRootPubkeyPayload",
    nonceError: "InvalidRootPubkeyNonce",
    expiredError: "RootPubkeyAuthorizationExpired",
  },
  control: {
    nonceDomain: "control_nonce",
    payloadError: "InvalidControlPayload",
    nonceError: "InvalidControlNonce",
    expiredError: "ControlAuthorizationExpired",
  },
};
