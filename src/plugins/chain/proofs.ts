/**
 * The key proofs of self-certifying DIDs on a chain: the calls of every finalized block, from the first block on, each
 * applied to the proof of its DID as the embedded ledger does it (`core/ledger/keep.ts`), and kept beside the outbox.
 *
 * Laws:
 * 1. Proofs and the number of the block up to which blocks were read are one commit. After a crash or an absence, reading
 *    goes on there.
 * 2. No call needs an event, which nodes discard long before the body of a block. The runtime runs a call with a proof
 *    before a block may have it (`admit` in runtime/pallets/did-registry/src/proofs.rs), so in a general extrinsic it was
 *    applied; in the extrinsic of an account it was refused. Of a registration, the account's own call, a block does not
 *    show which, but the state does for ever, as two endpoints have it: a name is registered once, and its expiry stays. Of
 *    several with this expiry, those before the first other change are alternatives, the oldest, until the record decides.
 * 3. A call counts only where it is the next one by the proof, and its signature holds. So blocks may be read twice, and no
 *    proof goes back. Only the signature that a call adds is verified.
 * 4. A proof is served only while it leads to the record of the head: behind a gap it is absent, never wrong.
 * 5. Blocks that a node has discarded are asked of the other endpoints, such as an archive node. Where none has them,
 *    reading goes on behind them, and they are asked for again at each start and each hour.
 * 6. No call stops the reading. A block has calls of strangers, of any length, that the runtime refused.
 *
 * Source: docs/trust.md "Key proofs".
 */
import { isDeepStrictEqual } from "node:util";
import { equalBytes, publicKeyBytes, signatureBytes } from "../../core/codec/bytes.ts";
import { verifyEd25519 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { byteVector, decodeWith, encodeWith, vector } from "../../core/codec/scale.ts";
import { errorStack } from "../../core/fault.ts";
import type { Account } from "../../core/ledger/account.ts";
import { counterOf, decodeLedgerCall, type LedgerCall } from "../../core/ledger/calls.ts";
import { encodeDidDocument } from "../../core/ledger/document-codec.ts";
import { keepKeyProof } from "../../core/ledger/keep.ts";
import {
  decodeKeyProof,
  encodeKeyProof,
  type KeyProof,
  keyProofBytesMax,
  replayKeyProof,
  type SignedMessage,
  signatureAdded,
} from "../../core/ledger/key-proof.ts";
import { deriveDid, isSelfCertifying } from "../../core/ledger/names.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";
import { decodeJson, encodeJson, keyProofKey } from "../../storage/embedded-records.ts";
import type { Table } from "../../storage/table.ts";
import type { Endpoints, OpenSession } from "./endpoints.ts";
import { entryKey, numberOf } from "./metadata.ts";
import { type ChainReader, extrinsicsIn } from "./reader.ts";
import type { SignedBlock } from "./rpc.ts";
import { type ChainHead, type Common, Unusable } from "./session.ts";

type KeyProofsOptions = Common & {
  readonly table: Table;
  readonly endpoints: Endpoints;
  readonly reader: ChainReader;
};

/** Up to which block blocks were read, and the first one since the beginning that no endpoint had. */
type Place = { readonly number: bigint; readonly hash: string; readonly gap: bigint | null };

const placeKey = "proofs";
const registrationName = "register_with_document_proof_signed";
const beginning: Place = { number: 0n, hash: "", gap: null };
/** Blocks that are asked for at a time. */
const batchMax = 8;
/** Further behind than this, an answer does not wait. */
const waitBlocksMax = 16n;
const readsMax = 8;
/** Registrations of one DID, each signed by its key, among which the record decides; of more, the oldest. */
const alternativesMax = 8;
const keptCodec = vector(byteVector(keyProofBytesMax), alternativesMax);
/** How often a gap is tried again. */
const retryMs = 3_600_000;

export class KeyProofs {
  private place: Place;
  /** When a gap was tried last. */
  private triedMs = Number.NEGATIVE_INFINITY;
  private moved = Promise.withResolvers<void>();
  private work: Promise<void> = Promise.resolve();
  private queued = false;

  constructor(private readonly options: KeyProofsOptions) {
    const bytes = options.table.get(placeKey);
    this.place = bytes === null ? beginning : decodeJson<Place>(bytes, "number of a block");
  }

  /** `null` where nothing proves the keys of the DID. */
  async of(did: Did): Promise<Uint8Array | null> {
    let before: Account | null = null;
    for (let reads = 0; reads < readsMax; reads++) {
      const { head, account } = await this.options.reader.facts(did, []);
      if (!isSelfCertifying(did) || !head.proofs.selfCertifying) return null;
      const proof = readKept(this.options.table, did).find((one) => leadsTo(one, account));
      if (proof !== undefined) return encodeKeyProof(proof);
      // A later block may have changed the proof, and the record. The head is always later where a second endpoint lags.
      if (this.place.number === head.number || isDeepStrictEqual(account, before)) return null;
      await this.reached(head.number);
      before = account;
    }
    throw new StoreError("unavailable", "the chain moves faster than it can be read");
  }

  private async reached(number: bigint): Promise<void> {
    while (this.place.number < number) {
      const isFar = this.place.number + waitBlocksMax < number;
      const { settings, host } = this.options;
      if (
        isFar ||
        (await withDeadline(this.moved.promise, settings.request_timeout_ms, host.after)) === late
      ) {
        const text = `the key proofs of block ${number} are still read from the chain: ${this.place.number} was the last`;
        throw new StoreError("unavailable", text);
      }
    }
  }

  // ------------------------------------------------------------------------------------------------- following

  /** What fails for lack of an answer goes on with the next head. */
  follow(): void {
    if (this.queued) return;
    this.queued = true;
    this.work = this.work.then(async () => {
      this.queued = false;
      try {
        const { endpoints } = this.options;
        const session = endpoints.session();
        if (!session.head.proofs.selfCertifying) return;
        const head = await endpoints.confirm(session, session.head);
        if (head !== null) await this.readTo(session, head);
      } catch (error) {
        if (error instanceof Unusable || (error instanceof StoreError && error.code !== "corrupt"))
          return;
        this.options.log("error", "reading key proofs failed", { error: errorStack(error) });
      }
    });
  }

  private async readTo(session: OpenSession, head: ChainHead): Promise<void> {
    await this.retryGap();
    while (this.place.number < head.number) {
      const blocks = await this.nextBlocks(head.number);
      if (blocks.length > 0) await this.apply(blocks, { session, head });
      else await this.skip(head.number);
    }
  }

  private async retryGap(): Promise<void> {
    const { gap } = this.place;
    const nowMs = this.options.host.elapsedMs();
    if (gap === null || nowMs - this.triedMs < retryMs) return;
    this.triedMs = nowMs;
    if (await this.hasBlock(gap)) this.place = { number: gap - 1n, hash: "", gap: null };
  }

  private async hasBlock(number: bigint): Promise<boolean> {
    return (await this.options.endpoints.blockAt(number)) !== null;
  }

  /** The blocks that follow the place, as far as an endpoint has them. */
  private async nextBlocks(last: bigint): Promise<SignedBlock[]> {
    const first = this.place.number + 1n;
    const count = Math.min(batchMax, Number(last - first) + 1);
    const { endpoints } = this.options;
    const found = await Promise.all(
      Array.from({ length: count }, (_, n) => endpoints.blockAt(first + BigInt(n))),
    );
    const end = found.indexOf(null);
    return (end < 0 ? found : found.slice(0, end)) as SignedBlock[];
  }

  /** To the first block that an endpoint has: nodes keep the newer ones. */
  private async skip(head: bigint): Promise<void> {
    const { number, gap } = this.place;
    let [missing, there] = [number + 1n, head];
    if (!(await this.hasBlock(there)))
      throw new StoreError("unavailable", "the node does not show its head");
    while (there - missing > 1n) {
      const middle = (missing + there) / 2n;
      if (await this.hasBlock(middle)) there = middle;
      else missing = middle;
    }
    const text = "no endpoint has blocks that may prove keys: name an archive node";
    this.options.log("warn", text, { from: String(number + 1n), to: String(missing) });
    await this.commit(new Map(), { number: missing, hash: "", gap: gap ?? number + 1n });
  }

  private async apply(
    blocks: readonly SignedBlock[],
    { session, head }: { readonly session: OpenSession; readonly head: ChainHead },
  ): Promise<void> {
    const changed = new Map<Did, readonly KeyProof[]>();
    const { genesisHash } = head.proofs;
    let { hash } = this.place;
    for (const block of blocks) {
      if (hash !== "" && block.header.parentHash !== hash) {
        this.place = beginning;
        throw new StoreError("unavailable", "the node's blocks do not follow each other");
      }
      const calls = await this.callsIn(session, block);
      const expiries = await this.expiriesOf(calls, head);
      for (const one of calls) {
        const { did } = one.call;
        const before = changed.get(did) ?? readKept(this.options.table, did);
        const after = this.guarded(() =>
          proofsAfter(before, one, { genesisHash, expiryMs: expiries.get(did) ?? 0n }),
        );
        if (after !== null) changed.set(did, after);
        // Other work goes on: a block has as many calls as strangers like.
        await new Promise<void>((next) => void setImmediate(next));
      }
      hash = block.header.hash;
    }
    await this.commit(changed, {
      ...this.place,
      number: (blocks.at(-1) as SignedBlock).header.number,
      hash,
    });
  }

  private async callsIn(session: OpenSession, block: SignedBlock): Promise<BlockCall[]> {
    const carried = await extrinsicsIn(session, block, session.head.metadata);
    return carried.flatMap(({ call: bytes, submitter, frame }) => {
      const call = this.guarded(() => decodeLedgerCall(bytes, frame.callIndices));
      if (call === null || !isSelfCertifying(call.did) || !hasLengths(call)) return [];
      // Law 2: another call of an account was refused.
      return (call.name === registrationName) === (submitter !== null) ? [{ call, submitter }] : [];
    });
  }

  /** By the state of the head, when the registration expires that the chain took; 0 for none, and for a deleted DID. */
  private async expiriesOf(
    calls: readonly BlockCall[],
    { hash, proofs }: ChainHead,
  ): Promise<Map<Did, bigint>> {
    const isCandidate = ({ call }: BlockCall) =>
      call.name === registrationName && deriveDid(proofs.genesisHash, call.pubkey) === call.did;
    const dids = [...new Set(calls.filter(isCandidate).map(({ call }) => call.did))];
    if (dids.length === 0) return new Map();
    const keys = dids.flatMap((did) => [
      entryKey("RegistrationExpiries", did),
      entryKey("Lives", did),
    ]);
    const values = (await this.options.endpoints.values(keys, hash)).map(numberOf);
    return new Map(
      dids.map((did, n) => [did, values[2 * n + 1] === 0n ? (values[2 * n] as bigint) : 0n]),
    );
  }

  /** Law 6: an error here is a mistake of this program, and the call counts for nothing. */
  private guarded<T>(work: () => T): T | null {
    try {
      return work();
    } catch (error) {
      this.options.log("error", "a call in a block can't be read", { error: errorStack(error) });
      return null;
    }
  }

  private async commit(
    changed: ReadonlyMap<Did, readonly KeyProof[]>,
    place: Place,
  ): Promise<void> {
    await this.options.table.commit((view) => {
      for (const [did, proofs] of changed) {
        if (proofs.length === 0) view.remove(keyProofKey(did));
        else view.put(keyProofKey(did), encodeWith(keptCodec, proofs.map(encodeKeyProof)));
      }
      view.put(placeKey, encodeJson(place));
    });
    this.place = place;
    this.moved.resolve();
    this.moved = Promise.withResolvers();
  }

  /** Once the endpoints are closed. */
  close(): Promise<void> {
    return this.work;
  }
}

/** The alternatives that are kept for a DID. */
function readKept(table: Table, did: Did): KeyProof[] {
  const bytes = table.get(keyProofKey(did));
  if (bytes === null) return [];
  const kept = decodeWith(keptCodec, bytes)?.map(decodeKeyProof);
  if (!kept?.every((proof) => proof !== null))
    throw new StoreError("corrupt", "the outbox has an unreadable key proof");
  return kept;
}

/** A call about a self-certifying DID, and the account that signed its extrinsic. */
type BlockCall = { readonly call: LedgerCall; readonly submitter: Uint8Array | null };

/** The runtime checks these only when it runs a call. */
function hasLengths(call: LedgerCall): boolean {
  return (
    (!("signature" in call) || call.signature.length === signatureBytes) &&
    (!("pubkey" in call) || call.pubkey.length === publicKeyBytes) &&
    (!("newRootPubkey" in call) || call.newRootPubkey.length === publicKeyBytes)
  );
}

/** Laws 2 and 3. */
function proofsAfter(
  before: readonly KeyProof[],
  { call, submitter }: BlockCall,
  { genesisHash, expiryMs }: { readonly genesisHash: Uint8Array; readonly expiryMs: bigint },
): readonly KeyProof[] {
  const binding = { genesisHash, submitter };
  if (call.name === registrationName) {
    if (expiryMs === 0n || before.length === alternativesMax || before.some(isAdvanced))
      return before;
    if (before.some(({ registration }) => equalBytes(registration.signature, call.signature)))
      return before;
    const first = keepKeyProof(null, call, binding);
    const isTaken = first !== null && first.registration.expiryMs === expiryMs;
    return isTaken && isBounded(first) && holds(signatureAdded(first, "registration"))
      ? [...before, first]
      : before;
  }
  return before.flatMap((proof) => {
    if (!isNext(call, proof)) return [proof];
    const changed = keepKeyProof(proof, call, binding);
    if (changed === null || changed === proof) return changed ?? [];
    const what = call.name === "update_root_pubkey" ? "rootKey" : "document";
    return isBounded(changed) && holds(signatureAdded(changed, what)) ? [changed] : [proof];
  });
}

/** Later registrations were refused: the DID had a record, or its name is retired. */
const isAdvanced = ({ rotations, base, calls }: KeyProof): boolean =>
  rotations.length > 0 || base !== null || calls.length > 0;

const isBounded = (proof: KeyProof): boolean => decodeKeyProof(encodeKeyProof(proof)) !== null;

const holds = (signed: SignedMessage | null): boolean =>
  signed !== null && verifyEd25519(signed.signature, signed.message, signed.publicKey);

/** A whole document follows every earlier one, also behind a gap. Counters of aliases and of control are in no proof. */
function isNext(call: LedgerCall, proof: KeyProof): boolean {
  const counter = counterOf(call);
  const next = nextNonces(proof);
  if (call.name === "set_document_with_proof")
    return counter !== null && counter.nonce >= next.document;
  if (counter?.domain === "rootPubkey") return counter.nonce === next.rootPubkey;
  return counter?.domain !== "document" || counter.nonce === next.document;
}

const nextNonces = ({
  base,
  rotations,
  calls,
}: KeyProof): { readonly rootPubkey: bigint; readonly document: bigint } => ({
  rootPubkey: BigInt(rotations.length),
  document: (base === null ? 0n : base.nonce + 1n) + BigInt(calls.length),
});

/** Law 4. */
function leadsTo(proof: KeyProof, { record, counters }: Account): boolean {
  const state = replayKeyProof(proof);
  if (state === null || record === null || record.document === null || record.rootPubkey === null)
    return false;
  return (
    equalBytes(state.rootKeys.at(-1) as Uint8Array, record.rootPubkey) &&
    nextNonces(proof).document === counters.document &&
    equalBytes(encodeDidDocument(state.document), encodeDidDocument(record.document))
  );
}
