/**
 * What the lane knows of one call that has not come to its end: what stands in the outbox, and how far it
 * has come with the node of the present connection.
 */

import { aliasesNamed, claimsOf, type LedgerCall } from "../../core/ledger/calls.ts";
import type { Block, Submission } from "../../storage/contract.ts";
import { claimKey } from "../../storage/embedded-records.ts";
import type { Pending } from "./outbox.ts";
import type { Session } from "./session.ts";

export type Entry = {
  pending: Pending;
  readonly claims: readonly string[];
  /** Settles when it stands in the outbox. */
  readonly durable: Promise<void>;
  /** Whether it stands in the outbox; before that it is not sent. */
  stands: boolean;
  /** When the node of the present connection last answered about it, or `null`. */
  sentAtMs: number | null;
  /** The connection over which an answer is awaited. */
  awaiting: Session | null;
  /** Whether a node has taken the present extrinsic, or may have without our learning of it. */
  mayBeOut: boolean;
  inBlock: Block | null;
};

/** What a call comes to. */
export type End = Pick<Submission, "state" | "reason" | "block">;

export function fresh(pending: Pending, durable: Promise<void>): Entry {
  return {
    pending,
    claims: claimsOf(pending.call).map(claimKey),
    durable,
    stands: true,
    sentAtMs: null,
    awaiting: null,
    mayBeOut: false,
    inBlock: null,
  };
}

export function stateOf({ pending, inBlock }: Entry): Submission {
  return inBlock === null ? pending.submission : { ...pending.submission, state: "in_block", block: inBlock };
}

/** Whether the operator signs the call; every other call carries a proof of its own. */
export function isOwned(call: LedgerCall): boolean {
  return !("signedPayload" in call) && call.name !== "set_document_with_proof";
}

/** The DID and the aliases that a call is about. No alias looks like a DID. */
export const subjectsOf = (call: LedgerCall): string[] => [call.did, ...aliasesNamed(call)];
