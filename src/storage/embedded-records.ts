/**
 * Keys and values of the embedded ledger in its table: the one place that knows their bytes.
 *
 *   head                      the last block, and where counting stands (JSON)
 *   counts                    in a table that several processes share: pending calls, and the next sequence (JSON)
 *   genesis                   the 32 bytes that name this ledger in proofs; older programs pass over it
 *   a/<did>                   account (SCALE)          n/<alias>         DID that holds it
 *   p/<scope>/<key>           policy (SCALE)
 *   q/<sequence>              pending call: 32 bytes of its hash, then the call (SCALE)
 *   c/<did>/<counter>/<value> a pending call uses this counter value
 *   r/<did>                   a pending call registers this DID
 *   u/<alias>                 a pending call takes this alias
 *                             (the three hold the key of the pending call)
 *   s/<tx hash>               submission (JSON)        t/<number>        settled submissions in order
 *
 * Sequences and numbers are 16 hex digits, so that their order is the order of keys.
 */
import { decodeUtf8, utf8 } from "../core/codec/bytes.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { decodeWith, encodeWith } from "../core/codec/scale.ts";
import { type FaultCode, type FaultExtra, fault } from "../core/fault.ts";
import { type Account, emptyAccount } from "../core/ledger/account.ts";
import { type Claim, decodeLedgerCall, type LedgerCall } from "../core/ledger/calls.ts";
import type { DeliveryPolicy, PersonaPolicy, PolicyScope } from "../core/ledger/policy.ts";
import { accountCodec, deliveryPolicyCodec, personaPolicyCodec } from "../core/ledger/structures.ts";
import { type Block, StoreError, type Submission, type SubmissionState } from "./contract.ts";

export const headKey = "head";
export const genesisKey = "genesis";
export const accountKey = (did: Did) => `a/${did}`;
export const aliasKey = (alias: string) => `n/${alias}`;
export const policyKey = (scope: PolicyScope, key: string) => `p/${scope}/${key}`;
export const poolPrefix = "q/";
export const poolKey = (sequence: bigint) => `${poolPrefix}${ordered(sequence)}`;
export const submissionKey = (txHash: string) => `s/${txHash}`;

/** Of what a pending call claims. */
export function claimKey(claim: Claim): string {
  switch (claim.kind) {
    case "counter":
      return `c/${claim.did}/${claim.domain}/${claim.nonce}`;
    case "registration":
      return `r/${claim.did}`;
    case "alias":
      return `u/${claim.alias}`;
  }
}

export const settledKey = (number: bigint) => `t/${ordered(number)}`;

function ordered(value: bigint): string {
  return value.toString(16).padStart(16, "0");
}

/** The sequence in a pool key. */
export function sequenceOf(key: string): bigint {
  return BigInt(`0x${key.slice(poolPrefix.length)}`);
}

function corrupt(what: string): StoreError {
  return new StoreError("corrupt", `the embedded ledger holds an unreadable ${what}`);
}

// -------------------------------------------------------------------------------------------------- head

/** From `number` at `timeMs` on, one block number passes every `blockTimeMs`. */
export type Clock = { readonly number: bigint; readonly timeMs: number; readonly blockTimeMs: number };

export type Head = {
  /** The last block that holds calls, or the first block. */
  readonly last: Block;
  readonly clock: Clock;
  /** The sequence of the next call, at least; pending calls may be further. */
  readonly nextSequence: bigint;
  /** Settled submissions that are kept have the numbers from `settledFirst` up to, not including, `settledNext`. */
  readonly settledFirst: bigint;
  readonly settledNext: bigint;
};

const headFormat = 1;

export function encodeHead(head: Head): Uint8Array {
  const { last, clock, nextSequence, settledFirst, settledNext } = head;
  return encodeJson({
    format: headFormat,
    last: plainBlock(last),
    clock: { ...clock, number: clock.number.toString() },
    nextSequence: nextSequence.toString(),
    settledFirst: settledFirst.toString(),
    settledNext: settledNext.toString(),
  });
}

type PlainHead = {
  readonly format: number;
  readonly last: PlainBlock;
  readonly clock: { readonly number: string; readonly timeMs: number; readonly blockTimeMs: number };
  readonly nextSequence: string;
  readonly settledFirst: string;
  readonly settledNext: string;
};

export function decodeHead(bytes: Uint8Array): Head {
  const head = decodeJson<PlainHead>(bytes, "head");
  if (head.format !== headFormat) throw corrupt(`format (${head.format}; this program writes ${headFormat})`);
  return {
    last: blockOf(head.last),
    clock: { ...head.clock, number: BigInt(head.clock.number) },
    nextSequence: BigInt(head.nextSequence),
    settledFirst: BigInt(head.settledFirst),
    settledNext: BigInt(head.settledNext),
  };
}

export const countsKey = "counts";

export type Counts = { readonly nextSequence: bigint; readonly pending: number };

export function encodeCounts({ nextSequence, pending }: Counts): Uint8Array {
  return encodeJson({ nextSequence: nextSequence.toString(), pending });
}

export function decodeCounts(bytes: Uint8Array | null): Counts {
  if (bytes === null) return { nextSequence: 0n, pending: 0 };
  const { nextSequence, pending } = decodeJson<{ nextSequence: string; pending: number }>(bytes, "count of calls");
  return { nextSequence: BigInt(nextSequence), pending };
}

type PlainBlock = { readonly number: string; readonly hash: string; readonly timeMs: number };

function plainBlock(block: Block): PlainBlock {
  return { ...block, number: block.number.toString() };
}

function blockOf(plain: PlainBlock): Block {
  return { ...plain, number: BigInt(plain.number) };
}

function encodeJson(value: unknown): Uint8Array {
  return utf8(JSON.stringify(value));
}

/** What we wrote ourselves; only damage can make it something else. */
function decodeJson<T>(bytes: Uint8Array, what: string): T {
  const text = decodeUtf8(bytes);
  try {
    return JSON.parse(text ?? "") as T;
  } catch {
    throw corrupt(what);
  }
}

// -------------------------------------------------------------------------------------- state of the chain

export function accountOf(bytes: Uint8Array | null): Account {
  if (bytes === null) return emptyAccount;
  const account = decodeWith(accountCodec, bytes);
  if (account === null) throw corrupt("account");
  return account;
}

export function didOf(bytes: Uint8Array | null): Did | null {
  if (bytes === null) return null;
  const text = decodeUtf8(bytes);
  if (text === null || !isDid(text)) throw corrupt("alias");
  return text;
}

export function encodePolicy(scope: PolicyScope, policy: DeliveryPolicy | PersonaPolicy): Uint8Array {
  return scope === "persona"
    ? encodeWith(personaPolicyCodec, policy as PersonaPolicy)
    : encodeWith(deliveryPolicyCodec, policy as DeliveryPolicy);
}

export function policyOf(scope: PolicyScope, bytes: Uint8Array | null): DeliveryPolicy | PersonaPolicy | null {
  if (bytes === null) return null;
  const policy = scope === "persona" ? decodeWith(personaPolicyCodec, bytes) : decodeWith(deliveryPolicyCodec, bytes);
  if (policy === null) throw corrupt("policy");
  return policy;
}

// -------------------------------------------------------------------------------------------------- pool

const hashBytes = 32;

export type Pending = { readonly txHash: string; readonly call: LedgerCall | null };

export function encodePending(txHash: Uint8Array, call: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(hashBytes + call.length);
  bytes.set(txHash);
  bytes.set(call, hashBytes);
  return bytes;
}

/** `call` is `null` when its bytes can't be read any more. */
export function decodePending(bytes: Uint8Array): Pending {
  return {
    txHash: `0x${bytes.subarray(0, hashBytes).toHex()}`,
    call: decodeLedgerCall(bytes.slice(hashBytes)),
  };
}

// ------------------------------------------------------------------------------------------- submissions

/** A submission and the block number that the clock showed when it was taken. */
export type Kept = { readonly submission: Submission; readonly takenAt: bigint };

type PlainSubmission = {
  readonly did: Did;
  readonly call: LedgerCall["name"];
  readonly label: string;
  readonly state: SubmissionState;
  readonly reason: { readonly code: FaultCode; readonly detail: string; readonly extra: FaultExtra } | null;
  readonly block: PlainBlock | null;
  readonly submittedAtMs: number;
  readonly takenAt: string;
};

export function encodeSubmission({ submission, takenAt }: Kept): Uint8Array {
  const { did, call, label, state, reason, block, submittedAtMs } = submission;
  const plain: PlainSubmission = {
    did,
    call,
    label,
    state,
    reason: reason === null ? null : { code: reason.code, detail: reason.detail, extra: reason.extra },
    block: block === null ? null : plainBlock(block),
    submittedAtMs,
    takenAt: takenAt.toString(),
  };
  return encodeJson(plain);
}

export function decodeSubmission(txHash: string, bytes: Uint8Array): Kept {
  const { reason, block, takenAt, ...plain } = decodeJson<PlainSubmission>(bytes, "submission");
  return {
    takenAt: BigInt(takenAt),
    submission: {
      txHash,
      ...plain,
      reason: reason === null ? null : fault(reason.code, reason.detail, reason.extra),
      block: block === null ? null : blockOf(block),
    },
  };
}

export type Settled = { readonly txHash: string; readonly atMs: number };

export function encodeSettled(settled: Settled): Uint8Array {
  return encodeJson(settled);
}

export function decodeSettled(bytes: Uint8Array): Settled {
  return decodeJson<Settled>(bytes, "settled submission");
}
