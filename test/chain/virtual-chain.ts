/**
 * A virtual chain: blocks with true header hashes, forks, lagging finality, runtime upgrades, and a
 * state that the ledger's own rules change. Extrinsics are decoded and verified here by an
 * independent reading of their bytes: sr25519 or Ed25519 over call, extensions, versions, genesis
 * and the hash of the block at which the era begins.
 */
import { Keyring } from "@polkadot/api";
import { cryptoWaitReady, sr25519Verify } from "@polkadot/util-crypto";
import { concatBytes } from "../../src/core/codec/bytes.ts";
import { blake2b256, verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { Did } from "../../src/core/codec/did.ts";
import { type Account, embeddedBounds, emptyAccount } from "../../src/core/ledger/account.ts";
import type { Applied } from "../../src/core/ledger/action-rules.ts";
import { decodeLedgerCall, type LedgerCall } from "../../src/core/ledger/calls.ts";
import { isRefusal, type LedgerRefusal } from "../../src/core/ledger/refusals.ts";
import { applyCall } from "../../src/core/ledger/rules.ts";
import type { OperatorKey } from "../../src/plugins/chain/layouts.ts";
import { parseHeader } from "../../src/plugins/chain/rpc.ts";
import { orderedRoot } from "../../src/plugins/chain/trie.ts";
import { keyOf } from "../support/identity.ts";
import type { Chance, VirtualTime } from "./virtual-time.ts";

export const blockTimeMs = 6_000;
/** By so much the next runtime moves the indices of the pallets, if it does. */
export const movedBy = 100;
/** Of signed and of general extrinsics, in one block. */
const blockExtrinsicsMax = 60;

export type State = {
  readonly nonce: number;
  readonly specVersion: number;
  readonly accounts: ReadonlyMap<Did, Account>;
  readonly aliases: ReadonlyMap<string, Did>;
};

export type VirtualBlock = {
  readonly number: number;
  readonly hash: string;
  readonly header: Readonly<Record<string, unknown>>;
  readonly parent: VirtualBlock | null;
  readonly extrinsics: readonly DecodedExtrinsic[];
  /** By index of the extrinsic. */
  readonly failed: readonly boolean[];
  readonly state: State;
  readonly timeMs: number;
};

export type DecodedExtrinsic = {
  readonly hex: string;
  readonly hash: string;
  readonly call: LedgerCall;
  /** Of the call's bytes: who carries the same call has the same. */
  readonly callHash: string;
  /** By the indices of a runtime that has moved the pallet. */
  readonly isMoved: boolean;
  /** `null` for a general extrinsic. */
  readonly nonce: number | null;
  readonly eraCode: number;
  /** 0 is Ed25519, 1 is sr25519. */
  readonly scheme: number;
  readonly signature: Uint8Array | null;
  readonly explicit: Uint8Array;
  readonly callBytes: Uint8Array;
};

/** Whose account signs, with a key of which kind, and whether a signature is its own. */
type Operator = {
  readonly account: Uint8Array;
  readonly scheme: 0 | 1;
  readonly verify: (message: Uint8Array, signature: Uint8Array) => boolean;
};

await cryptoWaitReady();
const pair = new Keyring({ type: "sr25519" }).addFromUri("//Alice");
/**
 * A key of each kind that an operator may have; the JavaScript of sr25519 takes twenty times as
 * long.
 */
const signers = [
  keyOf("operator"),
  { publicKey: Uint8Array.from(pair.publicKey), sign: (message: Uint8Array) => pair.sign(message) },
] as const;
const verifiers = [verifyEd25519, sr25519Of] as const;

function sr25519Of(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  return sr25519Verify(message, signature, publicKey);
}

/**
 * It remembers what it has signed, so that only other signatures need the arithmetic to be
 * verified.
 */
export function operatorOf(scheme: 0 | 1): {
  readonly key: OperatorKey;
  readonly operator: Operator;
} {
  const { publicKey, sign } = signers[scheme];
  const made = new Map<string, string>();
  const remembered = (message: Uint8Array) => {
    const signature = sign(message);
    made.set(signature.toHex(), message.toHex());
    return signature;
  };
  const verify = (message: Uint8Array, signature: Uint8Array) =>
    made.get(signature.toHex()) === message.toHex() ||
    verifiers[scheme](signature, message, publicKey);
  return {
    key: { publicKey, scheme, sign: remembered },
    operator: { account: publicKey, scheme, verify },
  };
}

const emptyRoot = orderedRoot([], 0);

function rootOf(extrinsics: readonly DecodedExtrinsic[]): string {
  return extrinsics.length === 0
    ? emptyRoot
    : orderedRoot(
        extrinsics.map(({ hex }) => Uint8Array.fromHex(hex.slice(2))),
        0,
      );
}

export type Validity =
  | "valid"
  | "stale"
  | "future"
  | "bad proof"
  | "ancient birth block"
  | "refused";

export class VirtualChain {
  readonly blocks = new Map<string, VirtualBlock>();
  readonly genesis: VirtualBlock;
  best: VirtualBlock;
  finalized: VirtualBlock;
  /** How many blocks finality is behind. */
  lag = 2;
  /** The block whose state has the next runtime. */
  upgradeAt = Number.POSITIVE_INFINITY;
  movesIndices = false;
  /** Blocks of the best chain that were taken back. */
  retracted = 0;
  onBest: (before: VirtualBlock, now: VirtualBlock) => void = () => {};
  private readonly verified = new Map<string, boolean>();
  private readonly applied = new Map<string, Applied | LedgerRefusal>();

  constructor(
    private readonly time: VirtualTime,
    private readonly chance: Chance,
    readonly operator: Operator,
    /** Whether it holds self-certifying DIDs to their rules. */
    readonly selfCertifying = false,
  ) {
    const state = { nonce: 0, specVersion: 1, accounts: new Map(), aliases: new Map() };
    // The genesis is the same in every run, and so is the metadata that is read for it.
    this.genesis = this.seal(null, { extrinsics: [], failed: [], state, salt: "00" });
    this.best = this.genesis;
    this.finalized = this.genesis;
  }

  private seal(
    parent: VirtualBlock | null,
    given: Pick<VirtualBlock, "extrinsics" | "failed" | "state"> & { readonly salt: string },
  ): VirtualBlock {
    const { salt, ...content } = given;
    const zeros = `0x${"00".repeat(32)}`;
    const number = parent === null ? 0 : parent.number + 1;
    const { specVersion } = content.state;
    const isUpgrade = parent !== null && parent.state.specVersion !== specVersion;
    const header = {
      parentHash: parent?.hash ?? zeros,
      number: `0x${number.toString(16)}`,
      stateRoot: zeros,
      extrinsicsRoot: rootOf(content.extrinsics),
      digest: { logs: [`0x066175726104${salt}`, ...(isUpgrade ? ["0x08"] : [])] },
    };
    const { hash } = parseHeader(header);
    const block: VirtualBlock = {
      number,
      hash,
      header,
      parent,
      ...content,
      timeMs: this.time.nowMs,
    };
    this.blocks.set(hash, block);
    return block;
  }

  ancestor(block: VirtualBlock, number: number): VirtualBlock | null {
    let at: VirtualBlock | null = block;
    while (at !== null && at.number > number) at = at.parent;
    return at?.number === number ? at : null;
  }

  /**
   * A block on `parent` of what a pool offers, in its order; the best one when it is the highest.
   */
  produce(parent: VirtualBlock, offered: readonly DecodedExtrinsic[]): VirtualBlock {
    const block = this.build(parent, offered);
    if (block.number > this.best.number) this.moveTo(block);
    return block;
  }

  /** The same, but only those who are cut off with its author learn of it. */
  build(parent: VirtualBlock, offered: readonly DecodedExtrinsic[]): VirtualBlock {
    let state = parent.state;
    const extrinsics: DecodedExtrinsic[] = [];
    const failed: boolean[] = [];
    for (const extrinsic of offered) {
      if (extrinsics.length >= blockExtrinsicsMax) break;
      if (this.validity(extrinsic, parent, state) !== "valid") continue;
      const outcome = this.apply(extrinsic, state);
      extrinsics.push(extrinsic);
      failed.push(isRefusal(outcome));
      if (extrinsic.nonce !== null) state = { ...state, nonce: state.nonce + 1 };
      if (!isRefusal(outcome)) state = written(state, extrinsic.call.did, outcome);
    }
    if (parent.number + 1 === this.upgradeAt)
      state = { ...state, specVersion: state.specVersion + 1 };
    const salt = this.chance.below(256).toString(16).padStart(2, "0");
    return this.seal(parent, { extrinsics, failed, state, salt });
  }

  private moveTo(block: VirtualBlock): void {
    const before = this.best;
    this.best = block;
    if (block.parent !== before) this.retracted++;
    const final = this.ancestor(block, block.number - this.lag);
    if (final !== null && final.number > this.finalized.number) this.finalized = final;
    this.onBest(before, block);
  }

  /** Pure, so that what was computed for one node is known for all. */
  private apply({ call, callHash }: DecodedExtrinsic, state: State): Applied | LedgerRefusal {
    const account = state.accounts.get(call.did) ?? emptyAccount;
    const { record, counters } = account;
    const key = `${callHash} ${record?.version} ${Object.values(counters).join()}`;
    // Alias calls depend on more than their account.
    const known = call.name.includes("alias") ? undefined : this.applied.get(key);
    if (known !== undefined) return known;
    const outcome = applyCall({
      account,
      aliasHolder: (alias) => state.aliases.get(alias) ?? null,
      // This chain is one of the family: it keeps no reserves.
      aliasReserve: () => null,
      ownerReplaces: "all" as const,
      call,
      nowMs: this.time.nowMs,
      operator: this.operator.account,
      proofs: {
        genesisHash: Uint8Array.fromHex(this.genesis.hash.slice(2)),
        bound: true,
        plain: true,
        selfCertifying: this.selfCertifying,
      },
      bounds: embeddedBounds,
    });
    this.applied.set(key, outcome);
    return outcome;
  }

  /** In a block on `parent`, after what `state` already holds. */
  validity(extrinsic: DecodedExtrinsic, parent: VirtualBlock, state = parent.state): Validity {
    const { nonce } = extrinsic;
    if (nonce !== null && nonce < state.nonce) return "stale";
    const proof = this.checkProof(extrinsic, parent);
    if (proof !== "valid") return proof;
    if (nonce !== null) return nonce > state.nonce ? "future" : "valid";
    return isRefusal(this.apply(extrinsic, state)) ? "refused" : "valid";
  }

  private checkProof(extrinsic: DecodedExtrinsic, parent: VirtualBlock): Validity {
    const { eraCode, scheme, signature, explicit, callBytes, hash } = extrinsic;
    if (extrinsic.isMoved !== (this.movesIndices && parent.state.specVersion > 1))
      return "bad proof";
    const period = 2 << (eraCode & 15);
    const phase = eraCode >> 4;
    const now = parent.number + 1;
    const birth = Math.floor((Math.max(now, phase) - phase) / period) * period + phase;
    const born = this.ancestor(parent, birth);
    if (born === null) return "ancient birth block";
    if (signature === null) return "valid";
    const { specVersion } = parent.state;
    const key = `${hash} ${specVersion} ${born.hash}`;
    const known = this.verified.get(key);
    if (known !== undefined) return known ? "valid" : "bad proof";
    const versions = Uint8Array.of(specVersion, 0, 0, 0, 1, 0, 0, 0);
    const genesis = Uint8Array.fromHex(this.genesis.hash.slice(2));
    const implicit = concatBytes(
      versions,
      genesis,
      Uint8Array.fromHex(born.hash.slice(2)),
      Uint8Array.of(0),
    );
    const payload = concatBytes(callBytes, explicit, implicit);
    const isOwn = scheme === this.operator.scheme;
    const isValid =
      isOwn &&
      this.operator.verify(payload.length > 256 ? blake2b256(payload) : payload, signature);
    this.verified.set(key, isValid);
    return isValid ? "valid" : "bad proof";
  }
}

function written(state: State, did: Did, { account, aliases: change }: Applied): State {
  const accounts = new Map(state.accounts).set(did, account);
  if (change.set.length === 0 && change.removed.length === 0) return { ...state, accounts };
  const aliases = new Map(state.aliases);
  for (const alias of change.removed) aliases.delete(alias);
  for (const alias of change.set) aliases.set(alias, did);
  return { ...state, accounts, aliases };
}

const decodedMemo = new Map<string, DecodedExtrinsic | null>();

/**
 * The bytes of an extrinsic of the reference runtime: CheckMortality, CheckNonce,
 * ChargeTransactionPayment and CheckMetadataHash add bytes, in this order. `null` for anything
 * else.
 */
export function decodeExtrinsic(hex: string): DecodedExtrinsic | null {
  const known = decodedMemo.get(hex);
  if (known !== undefined) return known;
  if (decodedMemo.size > 20_000) decodedMemo.clear();
  const decoded = decodeBytes(hex);
  decodedMemo.set(hex, decoded);
  return decoded;
}

function decodeBytes(hex: string): DecodedExtrinsic | null {
  const bytes = Uint8Array.fromHex(hex.slice(2));
  const [length, first] = compactAt(bytes, 0);
  if (length !== bytes.length - first) return null;
  let at = first;
  const isSigned = bytes[at] === 0x84;
  if (!isSigned && (bytes[at] !== 0x45 || bytes[at + 1] !== 0)) return null;
  // A signature follows the version, the kind and the bytes of the account, and the kind of the
  // key.
  const scheme = bytes[at + 34] ?? 0;
  if (isSigned && (bytes[at + 1] !== 0 || scheme > 1)) return null;
  const signature = isSigned ? bytes.subarray(at + 35, at + 99) : null;
  at += isSigned ? 99 : 2;
  const explicitFrom = at;
  const eraCode = (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
  const [nonce, afterNonce] = compactAt(bytes, at + 2);
  const [, afterTip] = compactAt(bytes, afterNonce);
  at = afterTip + 1;
  const callBytes = bytes.subarray(at);
  const isMoved = (callBytes[0] ?? 0) >= movedBy;
  const plain = callBytes.slice();
  if (isMoved) plain[0] = (plain[0] ?? 0) - movedBy;
  const call = decodeLedgerCall(plain);
  if (call === null) return null;
  return {
    hex,
    hash: `0x${blake2b256(bytes).toHex()}`,
    call,
    callHash: blake2b256(plain).toHex(),
    isMoved,
    nonce: isSigned ? nonce : null,
    eraCode,
    scheme,
    signature,
    explicit: bytes.subarray(explicitFrom, at),
    callBytes,
  };
}

/** A compact number of at most four bytes, and where it ends. */
function compactAt(bytes: Uint8Array, at: number): [number, number] {
  const first = bytes[at] ?? 0;
  if ((first & 3) === 0) return [first >> 2, at + 1];
  if ((first & 3) === 1) return [((first | ((bytes[at + 1] ?? 0) << 8)) >> 2) >>> 0, at + 2];
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  return [view.getUint32(at, true) >>> 2, at + 4];
}
