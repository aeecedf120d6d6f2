/**
 * Which calls can't be pending together. A call claims what it will use up or take: a counter value, the
 * registration of a DID, an alias. A second call with one of the claims is refused when it is handed in,
 * rather than accepted and failed by the block that applies the first.
 * Source: decisions section 4 ("Idempotence", "Pending updates", "`alias` in a registration").
 */
import { equalBytes } from "../codec/bytes.ts";
import { type Did, normalizeAlias } from "../codec/did.ts";
import { type Fault, fault } from "../fault.ts";
import type { CounterName } from "./account.ts";
import { aliasTaken, counterOf } from "./apply.ts";
import type { LedgerCall } from "./call.ts";

export type Claim =
  | { readonly kind: "counter"; readonly did: Did; readonly domain: CounterName; readonly nonce: bigint }
  | { readonly kind: "registration"; readonly did: Did }
  /** In normal form. */
  | { readonly kind: "alias"; readonly alias: string };

export function claimsOf(call: LedgerCall): Claim[] {
  const { did } = call;
  const claims: Claim[] = [];
  const counter = counterOf(call);
  if (counter !== null) claims.push({ kind: "counter", did, ...counter });
  if (call.name === "register_with_document_proof_signed") claims.push({ kind: "registration", did });
  const alias = aliasTaken(call);
  if (alias !== null) claims.push({ kind: "alias", alias });
  return claims;
}

/**
 * What becomes of a call whose claim a pending call already holds: the same registration again, whatever
 * its time and signature, is the first one (`same`); `null` when the two don't hurt each other. Refuses
 * with `nonce_mismatch`, `registration_pending` or `alias_taken`.
 */
export function decideClash(claim: Claim, standing: LedgerCall, call: LedgerCall): Fault | "same" | null {
  switch (claim.kind) {
    case "counter": {
      const expected = (claim.nonce + 1n).toString();
      return fault("nonce_mismatch", "a pending change already uses this nonce", { expected });
    }
    case "registration":
      if (isSameRegistration(standing, call)) return "same";
      return fault("registration_pending", "another registration of this DID is pending");
    case "alias":
      if (standing.did === call.did) return null;
      return fault("alias_taken", "a pending change already takes this alias");
  }
}

function isSameRegistration(a: LedgerCall, b: LedgerCall): boolean {
  const name = "register_with_document_proof_signed";
  if (a.name !== name || b.name !== name) return false;
  const normal = (alias: string | null) => (alias === null ? null : normalizeAlias(alias));
  return (
    a.did === b.did &&
    normal(a.alias) === normal(b.alias) &&
    equalBytes(a.pubkey, b.pubkey) &&
    equalBytes(a.docBlob, b.docBlob)
  );
}
