/**
 * What a Directory's proofs are about: the versions that it takes, and the ledger that version 3 binds.
 * Source: rules section 4 ("Registration proof"), docs/ledger.md 1.8.
 */
import { decodeHex, encodeHex } from "../core/codec/bytes.ts";
import { minuteMs } from "../core/codec/time.ts";
import type { ProofBinding } from "../core/ledger/record-proof.ts";
import type { Client } from "./client.ts";
import { localError, orNull } from "./http.ts";

/** How long a signed change may be submitted: the short window that the interface asks for. */
export const authorizationLifeMs = 5 * minuteMs;

/** What is signed for at a Directory; `null` for what it does not take in version 3 (docs/ledger.md 1.8). */
export type Proving = { readonly registration: ProofBinding | null; readonly genesisHash: Uint8Array | null };

/**
 * A Directory whose limits say nothing of version 3 gets what every Directory takes. The ledger that the first one names
 * is pinned: throws `other_ledger` when a later answer names another or none, because a signature for it could be
 * used elsewhere.
 */
export async function provingAt({ directory, learnt }: Client): Promise<Proving> {
  const limits = await orNull(directory.limits(), "not_found");
  const genesisHash = decodeHash(limits?.genesis_hash);
  const submitter = decodeHash(limits?.operator_account);
  const registers = limits?.registration_proofs?.includes("v3") === true;
  const authorizes = limits?.authorization_proofs?.includes("v3") === true;
  const ledger = authorizes && genesisHash !== null ? encodeHex(genesisHash) : null;
  if (learnt.ledger !== null && ledger !== learnt.ledger)
    throw localError(
      "other_ledger",
      `the identity belongs to the ledger ${learnt.ledger}, and this Directory signs for ${ledger ?? "none that it names"}`,
    );
  learnt.ledger = ledger;
  return {
    registration: registers && genesisHash !== null && submitter !== null ? { genesisHash, submitter } : null,
    genesisHash: authorizes ? genesisHash : null,
  };
}

function decodeHash(text = ""): Uint8Array | null {
  return /^0x[0-9a-f]{64}$/.test(text) ? decodeHex(text.slice(2)) : null;
}
