/**
 * The two payloads that key proofs contain, component calls and rotations, and what every authorization signs. Apart from
 * the other structures and from the table of actions, because every page that verifies a proof loads this.
 * Source: docs/ledger.md 1.4, 1.5 and 1.8.
 */
import { concatBytes, utf8 } from "../codec/bytes.ts";
import { enumeration, exactByteVector, option, structure, u64 } from "../codec/scale.ts";
import type { CounterName, KeyAgreement, Service, VerificationMethod } from "./account.ts";
import { did, id, serviceCodec, verificationMethodCodec } from "./document-codec.ts";

/** The component calls, in the order of their discriminants. A name says what it does to which list of a document. */
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

/** What every payload ends with: which counter value, until when (strictly before), signed by whom. */
export type Terms = { readonly nonce: bigint; readonly validUntilMs: bigint; readonly signerKeyId: string };
export const termsCodecs = { nonce: u64, validUntilMs: u64, signerKeyId: id };

export const rootPubkeyCodec = exactByteVector(32);

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
  action: enumeration(documentActions),
  verificationMethod: option(verificationMethodCodec),
  keyAgreement: option(verificationMethodCodec),
  service: option(serviceCodec),
  id: option(id),
  ...termsCodecs,
});

/** Rotation signs a structure of its own, because the nine positions would not bind the new key. */
export type RootPubkeyPayload = Terms & { readonly did: string; readonly newRootPubkey: Uint8Array };

export const rootPubkeyPayloadCodec = structure<RootPubkeyPayload>({
  did,
  newRootPubkey: rootPubkeyCodec,
  ...termsCodecs,
});

const authorizationDomains = {
  document: "document",
  rootPubkey: "root_pubkey",
  alias: "alias",
  control: "control",
} as const satisfies Record<CounterName, string>;

/** The bytes that version 3 signs for a payload: which structure it is, and which ledger it is for. */
export function authorizationMessage(counter: CounterName, genesisHash: Uint8Array, payload: Uint8Array): Uint8Array {
  return concatBytes(utf8(`svc:authorization:v3:${authorizationDomains[counter]}|`), genesisHash, payload);
}
