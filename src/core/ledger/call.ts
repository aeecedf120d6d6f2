/**
 * The calls of the ledger by their runtime names, as values.
 * Source: chain-facts 1.7.
 */
import type { Did } from "../codec/did.ts";
import type { DeliveryPolicy, DeliveryPolicyLinks, PersonaPolicy } from "../message/policy.ts";
import type { KeyAgreement, Service, VerificationMethod } from "./document.ts";

/** What every call signed by a DID key carries: the SCALE payload, its signature, who signed. */
export type SignedPayload = {
  readonly signedPayload: Uint8Array;
  readonly signature: Uint8Array;
  readonly signerKeyId: string;
};

type Proof = SignedPayload & { readonly did: Did };

/** Calls by their runtime names; members are the runtime's arguments in its order. */
export type LedgerCall =
  | {
      readonly name: "register_with_document_proof_signed";
      readonly did: Did;
      readonly alias: string | null;
      readonly timestamp: string;
      readonly pubkey: Uint8Array;
      readonly signature: Uint8Array;
      readonly docBlob: Uint8Array;
    }
  | {
      readonly name: "set_document_with_proof";
      readonly did: Did;
      readonly docBlob: Uint8Array;
      readonly timestamp: string;
      readonly pubkey: Uint8Array;
      readonly signature: Uint8Array;
    }
  | (Proof & {
      readonly name: "add_verification_method" | "update_verification_method";
      readonly method: VerificationMethod;
    })
  | (Proof & { readonly name: "remove_verification_method"; readonly methodId: string })
  | (Proof & { readonly name: "add_authentication" | "remove_authentication"; readonly methodId: string })
  | (Proof & { readonly name: "add_key_agreement" | "update_key_agreement"; readonly keyAgreement: KeyAgreement })
  | (Proof & { readonly name: "remove_key_agreement"; readonly keyAgreementId: string })
  | (Proof & { readonly name: "add_service" | "update_service"; readonly service: Service })
  | (Proof & { readonly name: "remove_service"; readonly serviceId: string })
  | (Proof & { readonly name: "add_alias" | "remove_alias"; readonly alias: string })
  | (Proof & { readonly name: "update_alias"; readonly oldAlias: string; readonly newAlias: string })
  | (Proof & { readonly name: "update_root_pubkey"; readonly newRootPubkey: Uint8Array })
  /** The DID stands inside the payload on the wire; it is repeated here so that every call names its DID. */
  | (Proof & { readonly name: "apply_control_with_proof" })
  | { readonly name: "set_alias"; readonly did: Did; readonly alias: string }
  | ({ readonly name: "set_delivery_policy_links"; readonly did: Did } & DeliveryPolicyLinks)
  | { readonly name: "set_delivery_policy"; readonly did: Did; readonly policy: DeliveryPolicy }
  /** Keyed by a DID-shaped tag: only a tag that is a registered DID can have a policy. */
  | { readonly name: "set_tag_policy"; readonly did: Did; readonly policy: DeliveryPolicy }
  | { readonly name: "set_persona_policy"; readonly did: Did; readonly policy: PersonaPolicy };

export type LedgerCallName = LedgerCall["name"];
