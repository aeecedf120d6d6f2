/**
 * Names that prove themselves: a DID that is derived from the ledger and from the first
 * root key. Anyone who knows the key and the ledger's genesis hash can derive the name
 * again, so no Directory can give the name another first key. A name has one ledger: on
 * another one the same key derives another name. Without that, a stolen key that was
 * replaced long ago could register the same name elsewhere.
 * Source: docs/trust.md "Names".
 */
import { sha256 } from "#sha256";
import { concatBytes, encodeBase58, utf8 } from "../codec/bytes.ts";
import type { Did } from "../codec/did.ts";

/** In base58btc, 22 bytes that begin with these are always 30 characters that begin with `wp`. */
const version = Uint8Array.of(0xc9, 0xf4);
const digestBytes = 20;

const domain = utf8("svc:did:v1|");

/** Some texts of the form belong to no key. */
const nameForm = /^did:svc:wp[1-9A-HJ-NP-Za-km-z]{28}$/;

/** Whether a DID has the self-certifying form, whose rules then hold for it. */
export function isSelfCertifying(did: string): boolean {
  return nameForm.test(did);
}

/**
 * Whether a DID begins like a self-certifying one and is none: people who compare
 * beginnings take it for one.
 */
export function looksSelfCertifying(did: string): boolean {
  return did.startsWith("did:svc:wp") && !isSelfCertifying(did);
}

/** The name of an identity by the 32 bytes of its first root key. Cost: about 10 µs. */
export function deriveDid(genesisHash: Uint8Array, rootKey: Uint8Array): Did {
  const digest = sha256(concatBytes(domain, genesisHash, rootKey));
  return `did:svc:${encodeBase58(concatBytes(version, digest.subarray(0, digestBytes)))}` as Did;
}
