/**
 * What the embedded ledger keeps in its table: keys, the bytes of values, and the reads and writes
 * that follow from a call. Nothing else knows these bytes.
 *
 *   head                       the last block, and how far counting is (JSON)
 *   genesis/seed               what they cover in addition to the key of the log
 *   genesis                    the 32 bytes that name this ledger in proofs
 *   a/<did>                    account (SCALE)
 *   n/<alias>                  DID that holds it
 *   p/<scope>/<key>            policy (SCALE)
 *   q/<sequence>               pending call: 32 bytes of its hash, then the call (SCALE)
 *   c/<did>/<counter>/<value>  a pending call uses this counter value; holds that call's key
 *   r/<did>                    a pending call registers this DID; the same
 *   u/<alias>                  a pending call claims this alias; the same
 *   s/<tx hash>                submission (JSON)
 *   t/<number>                 settled submissions in order
 *
 * Sequences and numbers are 16 hex digits, so that their order is the order of keys.
 */
import { concatBytes, decodeHex, decodeUtf8, encodeHex0x, utf8 } from "../core/codec/bytes.ts";
import { blake2b256 } from "../core/codec/crypto.ts";
import { type Did, isDid } from "../core/codec/did.ts";
import { decodeWith, encodeWith } from "../core/codec/scale.ts";
import { type Fault, type FaultCode, type FaultExtra, fault } from "../core/fault.ts";
import {
  type Account,
  type AccountId,
  type AliasReserve,
  accountCodec,
  aliasReserveCodec,
  type DeliveryPolicy,
  deliveryPolicyCodec,
  emptyAccount,
  type LedgerProofs,
  type PersonaPolicy,
  type PolicyOf,
  type PolicyScope,
  personaPolicyCodec,
} from "../core/ledger/account.ts";
import type { Applied } from "../core/ledger/action-rules.ts";
import {
  aliasesNamed,
  claimsOf,
  decideClash,
  decodeLedgerCall,
  type LedgerCall,
} from "../core/ledger/calls.ts";
import type { ProofBinding } from "../core/ledger/document-codec.ts";
import { keepKeyProof } from "../core/ledger/keep.ts";
import { decodeKeyProof, encodeKeyProof } from "../core/ledger/key-proof.ts";
import { isSelfCertifying } from "../core/ledger/names.ts";
import { genesisOfLog } from "../core/trust/log.ts";
import type { NoteKey } from "../core/trust/note.ts";
import { type Block, StoreError, type Submission } from "./contract.ts";
import type { TableChange, TableView } from "./table.ts";

export const headKey = "head";
const genesisKey = "genesis";
export const genesisSeedKey = "genesis/seed";
export const accountKey = (did: Did) => `a/${did}`;
export const keyProofKey = (did: Did) => `k/${did}`;
export const aliasKey = (alias: string) => `n/${alias}`;
const reserveKey = (alias: string) => `v/${alias}`;
export const policyKey = (scope: PolicyScope, key: string) => `p/${scope}/${key}`;
export const poolPrefix = "q/";
export const poolKey = (sequence: bigint) => `${poolPrefix}${ordered(sequence)}`;
export const submissionKey = (txHash: string) => `s/${txHash}`;

const settledKey = (number: bigint) => `t/${ordered(number)}`;

/** In the order of the numbers. */
export function ordered(value: number | bigint): string {
  return value.toString(16).padStart(16, "0");
}

/** The sequence in a pool key. */
export function sequenceOf(key: string): bigint {
  return BigInt(`0x${key.slice(poolPrefix.length)}`);
}

function corrupt(what: string): StoreError {
  return new StoreError("corrupt", `the ledger has an unreadable ${what}`);
}

export type EmbeddedLimits = {
  readonly pendingCallsMax: number;
  /**
   * A commit with this many calls keeps the event loop for about 10 ms and writes less than
   * 3 MiB.
   */
  readonly blockCallsMax: number;
  /**
   * Counted by time: blocks that follow each other at once, to empty a full pool, use up no
   * life.
   */
  readonly lifetimeBlocks: number;
  /** Settled submissions that are kept. */
  readonly retainedMax: bigint;
};

export const embeddedLimits: EmbeddedLimits = {
  pendingCallsMax: 10_000,
  blockCallsMax: 100,
  lifetimeBlocks: 64,
  retainedMax: 200_000n,
};

// -------------------------------------------------------------------------------------------- head

export type EmbeddedHead = {
  readonly last: Block;
  /** Pending calls have the sequences from `poolFirst` up to, not including, `poolNext`. */
  readonly poolFirst: bigint;
  readonly poolNext: bigint;
  /** How many submissions were settled. */
  readonly settled: bigint;
};

const headFormat = 1;

export function encodeHead(head: EmbeddedHead): Uint8Array {
  return encodeJson({ format: headFormat, ...head });
}

/** Throws `corrupt` for other bytes, and for a format of another version of this program. */
export function decodeHead(bytes: Uint8Array): EmbeddedHead {
  const { format, ...head } = decodeJson<EmbeddedHead & { readonly format: number }>(bytes, "head");
  if (format !== headFormat) throw corrupt(`format (${format}; this program writes ${headFormat})`);
  return head;
}

/** How many calls wait for a block. */
export function pendingIn({ poolFirst, poolNext }: EmbeddedHead): number {
  return Number(poolNext - poolFirst);
}

/** A `bigint` is decimal text. */
export function encodeJson(value: unknown): Uint8Array {
  return utf8(
    JSON.stringify(value, (_, one: unknown) => (typeof one === "bigint" ? one.toString() : one)),
  );
}

/** The members of our values that are `bigint`. */
const bigintMembers: ReadonlySet<string> = new Set([
  "number",
  "poolFirst",
  "poolNext",
  "settled",
  "birth",
  "death",
  "gap",
]);

/** For bytes that this program wrote: anything else is damage. */
export function decodeJson<T>(bytes: Uint8Array, what: string): T {
  try {
    const reviver = (name: string, one: unknown) =>
      bigintMembers.has(name) && typeof one === "string" ? BigInt(one) : one;
    return JSON.parse(decodeUtf8(bytes) ?? "", reviver) as T;
  } catch {
    throw corrupt(what);
  }
}

// ------------------------------------------------------------------------------ state of the chain

/**
 * The account in a stored record; the empty one without a record. Throws `corrupt` for
 * other bytes.
 */
export function accountOf(bytes: Uint8Array | null): Account {
  if (bytes === null) return emptyAccount;
  const account = decodeWith(accountCodec, bytes);
  if (account === null) throw corrupt("account");
  return account;
}

function decodeDid(bytes: Uint8Array | null): Did | null {
  if (bytes === null) return null;
  const text = decodeUtf8(bytes);
  if (text === null || !isDid(text)) throw corrupt("alias");
  return text;
}

function encodePolicy(scope: PolicyScope, policy: DeliveryPolicy | PersonaPolicy): Uint8Array {
  return scope === "persona"
    ? encodeWith(personaPolicyCodec, policy as PersonaPolicy)
    : encodeWith(deliveryPolicyCodec, policy as DeliveryPolicy);
}

/** `null` without a record. Throws `corrupt` for other bytes. */
export function policyOf<Scope extends PolicyScope>(
  scope: Scope,
  bytes: Uint8Array | null,
): PolicyOf<Scope> | null {
  if (bytes === null) return null;
  const policy =
    scope === "persona"
      ? decodeWith(personaPolicyCodec, bytes)
      : decodeWith(deliveryPolicyCodec, bytes);
  if (policy === null) throw corrupt("policy");
  return policy as PolicyOf<Scope>;
}

// -------------------------------------------------------------------------------------------- pool

const hashBytes = 32;

export type PendingCall = { readonly txHash: string; readonly call: LedgerCall | null };

export function encodePending(txHash: Uint8Array, call: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(hashBytes + call.length);
  bytes.set(txHash);
  bytes.set(call, hashBytes);
  return bytes;
}

/** `call` is `null` when its bytes can't be read any more. */
export function decodePending(bytes: Uint8Array): PendingCall {
  return {
    txHash: `0x${bytes.subarray(0, hashBytes).toHex()}`,
    call: decodeLedgerCall(bytes.slice(hashBytes)),
  };
}

// ------------------------------------------------------------------------------------- submissions

type StoredSubmission = Omit<Submission, "txHash" | "reason"> & {
  readonly reason: {
    readonly code: FaultCode;
    readonly detail: string;
    readonly extra: FaultExtra;
  } | null;
};

/** As JSON, without the hash, which is its key. */
export function encodeSubmission({ txHash: _, reason, ...submission }: Submission): Uint8Array {
  const kept =
    reason === null ? null : { code: reason.code, detail: reason.detail, extra: reason.extra };
  const stored: StoredSubmission = { ...submission, reason: kept };
  return encodeJson(stored);
}

function decodeSubmission(txHash: string, bytes: Uint8Array): Submission {
  const { reason, ...submission } = decodeJson<StoredSubmission>(bytes, "submission");
  return {
    ...submission,
    txHash,
    reason: reason === null ? null : fault(reason.code, reason.detail, reason.extra),
  };
}

// -------------------------------------------------------------------------------- reads and writes

/** Throws `corrupt` when it is missing: each ledger has one from its beginning. */
export function readHead(view: TableView): EmbeddedHead {
  const bytes = view.get(headKey);
  if (bytes === null) throw new StoreError("corrupt", "the head of the embedded ledger is missing");
  return decodeHead(bytes);
}

/** The DID that an alias belongs to; `null` for none. */
export function readHolder(view: TableView, alias: string): Did | null {
  return decodeDid(view.get(aliasKey(alias)));
}

/** For which DID an alias is reserved, and until when; `null` for none. */
export function readReserve(view: TableView, alias: string): AliasReserve | null {
  const bytes = view.get(reserveKey(alias));
  if (bytes === null) return null;
  const reserve = decodeWith(aliasReserveCodec, bytes);
  if (reserve === null) throw corrupt("alias");
  return reserve;
}

/** What the rules read of the table. */
export const readStanding = (view: TableView, call: LedgerCall) => ({
  account: accountOf(view.get(accountKey(call.did))),
  aliasHolder: (alias: string) => readHolder(view, alias),
  aliasReserve: (alias: string) => readReserve(view, alias),
  ownerReplaces: "uncertified" as const,
});

/** `null` for a submission that is not stored. */
export function readSubmission(view: TableView, txHash: string): Submission | null {
  const bytes = view.get(submissionKey(txHash));
  return bytes === null ? null : decodeSubmission(txHash, bytes);
}

/** All that accepting or applying a call reads. */
export function keysOfCall(call: LedgerCall): string[] {
  const named = aliasesNamed(call).flatMap((alias) => [aliasKey(alias), reserveKey(alias)]);
  return [accountKey(call.did), keyProofKey(call.did), ...named, ...claimsOf(call)];
}

/** Writes the claims of a pending call. `holder`: its pool key. */
export function writeClaims(view: TableChange, call: LedgerCall, holder: string): void {
  for (const claim of claimsOf(call)) view.put(claim, utf8(holder));
}

/**
 * Releases the claims of a call. A claim that a later call of the same DID holds by now
 * stays. `holder`: the pool key.
 */
export function releaseClaims(view: TableChange, call: LedgerCall, holder: string): void {
  for (const key of claimsOf(call)) {
    const standing = view.get(key);
    if (standing !== null && decodeUtf8(standing) === holder) view.remove(key);
  }
}

/**
 * The pending call that excludes this one: its submission when it is the same call, else
 * why it does.
 */
export function findCollision(view: TableView, call: LedgerCall): Submission | Fault | null {
  for (const claim of claimsOf(call)) {
    const pointer = view.get(claim);
    const pending = pointer === null ? null : view.get(decodeUtf8(pointer) ?? "");
    const standing = pending === null ? null : decodePending(pending);
    if (standing === null || standing.call === null) continue;
    const clash = decideClash(claim, standing.call, call);
    if (clash === "same") return readSubmission(view, standing.txHash);
    if (clash !== null) return clash;
  }
  return null;
}

/** What a call has changed: the account, and the index of aliases with their reserves. */
export function writeApplied(view: TableChange, did: Did, applied: Applied): void {
  view.put(accountKey(did), encodeWith(accountCodec, applied.account));
  for (const alias of applied.aliases.removed) {
    view.remove(aliasKey(alias));
    view.put(reserveKey(alias), encodeWith(aliasReserveCodec, applied.reserve));
  }
  for (const alias of applied.aliases.set) {
    view.put(aliasKey(alias), utf8(did));
    view.remove(reserveKey(alias));
  }
  for (const { scope, key, policy } of applied.policies) {
    if (policy === null) view.remove(policyKey(scope, key));
    else view.put(policyKey(scope, key), encodePolicy(scope, policy));
  }
}

/**
 * After an applied call: in the commit of the change that it proves, and that overrules
 * what was proved before.
 */
export function writeKeyProof(view: TableChange, call: LedgerCall, binding: ProofBinding): void {
  if (!isSelfCertifying(call.did)) return;
  const key = keyProofKey(call.did);
  const bytes = view.get(key);
  const before = bytes === null ? null : decodeKeyProof(bytes);
  if (bytes !== null && before === null) throw corrupt("key proof");
  const proof = keepKeyProof(before, call, binding);
  if (proof === before) return;
  if (proof === null) view.remove(key);
  else view.put(key, encodeKeyProof(proof));
}

/** A block's hash covers the block before it, its number and time, and its calls in order. */
export function blockHash(
  before: Block,
  block: { readonly number: bigint; readonly timeMs: number },
  calls: readonly { readonly txHash: string }[],
): string {
  const start = utf8(`${before.hash}|${block.number}|${block.timeMs}|`);
  const hashes = calls.map(({ txHash }) => decodeHex(txHash) ?? new Uint8Array(0));
  return encodeHex0x(blake2b256(concatBytes(start, ...hashes)));
}

/**
 * Every version of proofs is accepted: a client of the interface alone signs the oldest.
 * `null` in a ledger without a name.
 */
export function readProofs(view: TableView): LedgerProofs | null {
  const genesisHash = view.get(genesisKey);
  return genesisHash === null
    ? null
    : { genesisHash, bound: true, plain: true, selfCertifying: true };
}

/**
 * The name that version 3 of the proofs binds follows from the first block, whose hash
 * covers time and operator, and covers the name and key of the ledger's log.
 */
export function nameLedger(view: TableChange, logKey: NoteKey | null): void {
  if (view.get(genesisKey) !== null) return;
  const seed = blake2b256(utf8(`svc:embedded-ledger:genesis|${readHead(view).last.hash}`));
  view.put(genesisKey, logKey === null ? seed : genesisOfLog(logKey, seed));
  if (logKey !== null) view.put(genesisSeedKey, seed);
}

type HeadOptions = { readonly operator: AccountId; readonly now: () => number };

/** Writes the first head. */
export function prepareHead(view: TableChange, { operator, now }: HeadOptions): void {
  if (view.get(headKey) !== null) return;
  const nowMs = now();
  const hash = encodeHex0x(
    blake2b256(concatBytes(utf8(`svc:embedded-ledger:v1|${nowMs}|`), operator)),
  );
  const last: Block = { number: 0n, hash, timeMs: nowMs };
  view.put(headKey, encodeHead({ last, poolFirst: 0n, poolNext: 0n, settled: 0n }));
}

/** Names the settled submission of a number, and forgets the one that it displaces. */
export function keepSettled(
  view: TableChange,
  number: bigint,
  txHash: string,
  retainedMax: bigint,
): void {
  view.put(settledKey(number), utf8(txHash));
  const displaced = displacedKey(number, retainedMax);
  const before = displaced === null ? null : view.get(displaced);
  if (displaced === null || before === null) return;
  view.remove(displaced);
  view.remove(submissionKey(decodeUtf8(before) ?? ""));
}

/** What `keepSettled` reads. */
export function displacedKey(number: bigint, retainedMax: bigint): string | null {
  return number < retainedMax ? null : settledKey(number - retainedMax);
}
