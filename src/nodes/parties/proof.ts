/** Key proofs as nodes hand them out: which one a client has, and which one the ledger keeps. */
import { encodeHex } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { type Fault, fault } from "../../core/fault.ts";
import { isSelfCertifying } from "../../core/ledger/names.ts";
import type { LedgerReader } from "../../storage/contract.ts";
import type { Call } from "../http/route.ts";

const hashForm = /^[0-9a-f]{64}$/;

/** The hash of the proof that the client has: `""` for none, `null` when it asks for no proof. */
export function parseKnown({ query }: Pick<Call, "query">, name: string): string | null | Fault {
  const text = query.get(name);
  if (text === null || text === "" || hashForm.test(text)) return text;
  return fault("invalid_request", `${name}: must be the SHA-256 of a proof in hex, or empty`);
}

/** `null` where nothing proves the keys of the DID. */
export function readKeyProof(
  ledger: Pick<LedgerReader, "keyProof">,
  did: Did,
): Promise<Uint8Array | null> {
  return isSelfCertifying(did) ? ledger.keyProof(did) : Promise.resolve(null);
}

/** Whether the client has just this proof. */
export function isKnownProof(bytes: Uint8Array, known: string): boolean {
  return known !== "" && encodeHex(sha256(bytes)) === known;
}
