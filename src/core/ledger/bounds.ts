/**
 * How large the structures of a ledger may be, as one table. The embedded ledger and the reference
 * runtime have the values below; on another chain they are read from its metadata.
 * Source: docs/ledger.md 1.1, rules section 1 (ids of 192 bytes).
 */
import { utf8 } from "../codec/bytes.ts";

export type LedgerBoundName =
  | "didBytes"
  | "idBytes"
  | "verificationMethods"
  | "keyAgreements"
  | "authentications"
  | "services"
  | "serviceEndpoints"
  | "serviceEndpointBytes"
  | "serviceAuthorizations"
  | "typeBytes"
  | "keyMultibaseBytes"
  | "documentBytes"
  | "aliasBytes"
  | "aliases"
  | "policyRefs"
  | "policyRefBytes";

/** Counts are of entries, sizes of UTF-8 bytes; every bound is inclusive. */
export type LedgerBounds = Readonly<Record<LedgerBoundName, number>>;

/** Bounds of the structures in the embedded ledger and the reference runtime. Decoding keeps to them. */
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

export const embeddedBounds: LedgerBounds = scaleBounds;

/** Whether the UTF-8 form of a text is longer than `bytesMax`. Encodes only when the count of units does not decide. */
export function longerThan(text: string, bytesMax: number): boolean {
  if (text.length > bytesMax) return true;
  return text.length * 3 > bytesMax && utf8(text).length > bytesMax;
}
