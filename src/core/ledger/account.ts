/**
 * What the ledger keeps of one DID: its record, its counters and the two times that stop old proofs.
 * Source: chain-facts 1.3 and 1.9, rules section 10 ("Document time").
 */

import type { DidDocument } from "./document-form.ts";
import type { DeliveryPolicyLinks } from "./policy.ts";

/** A 32-byte account id. The operator account of a Directory owns what it registers. */
export type AccountId = Uint8Array;

/** What the proofs of a ledger are about, and which it takes (docs/ledger.md 1.8). */
export type LedgerProofs = {
  /** 32 bytes that name the ledger. */
  readonly genesisHash: Uint8Array;
  /** Takes version 3, which binds the ledger, and in a registration the account that submits it. */
  readonly bound: boolean;
  /** Takes versions 1 and 2, and payloads that are signed plainly. */
  readonly plain: boolean;
};

export type Device = { readonly deviceId: string; readonly addedAtMs: bigint; readonly tombstoned: boolean };

export type DidRecord = {
  readonly owner: AccountId | null;
  readonly aliases: readonly string[];
  readonly devices: readonly Device[];
  readonly document: DidDocument | null;
  readonly version: bigint;
  readonly updatedAtMs: bigint;
  readonly rootPubkey: Uint8Array | null;
  readonly links: DeliveryPolicyLinks | null;
  readonly deactivated: boolean;
};

export type CounterName = "alias" | "document" | "rootPubkey" | "control";
export type Counters = Readonly<Record<CounterName, bigint>>;

/**
 * All the ledger keeps of one DID. `record` is `null` when the DID does not exist; the counters outlive
 * a deleted record, so that an old authorization is dead for ever.
 */
export type Account = {
  readonly record: DidRecord | null;
  readonly counters: Counters;
  /** The time of the last accepted full document (rules section 10, "Document time"). */
  readonly documentTimeMs: bigint;
  /** The expiry of the last registration proof that had one: the next must expire later, so that none works twice. */
  readonly registrationExpiryMs: bigint;
  /** How often the DID was deleted; 0 as well where a ledger can't say. What was admitted for one life is not for the next. */
  readonly life: number;
};

export const emptyAccount: Account = {
  record: null,
  counters: { alias: 0n, document: 0n, rootPubkey: 0n, control: 0n },
  documentTimeMs: 0n,
  registrationExpiryMs: 0n,
  life: 0,
};
