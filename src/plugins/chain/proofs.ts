/**
 * The key proofs of self-certifying DIDs on a chain: the calls of every finalized block, from the first block on, each
 * applied to the proof of its DID as the embedded ledger does it (`core/trust/keep.ts`), and kept beside the outbox.
 *
 * Laws:
 * 1. Proofs and the number of the block up to which blocks were read are one commit. After a crash or an absence, reading
 *    goes on there.
 * 2. A call counts only where it is the next one by the proof. So blocks may be read twice, and no proof goes back.
 * 3. A proof is served only while it leads to the record of the head: behind a gap it is absent, never wrong.
 * 4. Blocks that a node has discarded are asked of the other endpoints, such as an archive node. Where none has them,
 *    reading goes on behind them, and they are asked for again at each start and each hour.
 *
 * Source: docs/trust.md "Key proofs".
 */
import { equalBytes } from "../../core/codec/bytes.ts";
import { verifyEd25519 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { errorStack } from "../../core/fault.ts";
import type { Account } from "../../core/ledger/account.ts";
import { counterOf, decodeLedgerCall, type LedgerCall } from "../../core/ledger/calls.ts";
import { encodeDidDocument, type ProofBinding } from "../../core/ledger/document-codec.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { keepKeyProof } from "../../core/trust/keep.ts";
import { isSelfCertifying } from "../../core/trust/names.ts";
import { decodeKeyProof, encodeKeyProof, type KeyProof, replayKeyProof } from "../../core/trust/proof.ts";
import { StoreError } from "../../storage/contract.ts";
import { decodeJson, encodeJson, keyProofKey } from "../../storage/embedded-records.ts";
import type { Table } from "../../storage/table.ts";
import type { Endpoints, OpenSession } from "./endpoints.ts";
import { type ChainReader, extrinsicsIn, readOutcomes } from "./reader.ts";
import type { SignedBlock } from "./rpc.ts";
import { type Common, Unusable } from "./session.ts";

type KeyProofsOptions = Common & { readonly table: Table; readonly endpoints: Endpoints; readonly reader: ChainReader };

/** Up to which block blocks were read, and the first one since the beginning that no endpoint had. */
type Place = { readonly number: bigint; readonly hash: string; readonly gap: bigint | null };

const placeKey = "proofs";
const beginning: Place = { number: 0n, hash: "", gap: null };
/** Blocks that are asked for at a time. */
const batchMax = 8;
/** Further behind than this, an answer does not wait. */
const waitBlocksMax = 16n;
const readsMax = 8;
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
    for (let reads = 0; reads < readsMax; reads++) {
      const { head, account } = await this.options.reader.facts(did, []);
      if (!isSelfCertifying(did) || !head.proofs.selfCertifying) return null;
      const proof = this.read(did);
      if (proof !== null && leadsTo(proof, account)) return encodeKeyProof(proof);
      // A later block may have changed the proof, and the record.
      if (this.place.number === head.number) return null;
      await this.reached(head.number);
    }
    throw new StoreError("unavailable", "the chain moves faster than it can be read");
  }

  private read(did: Did): KeyProof | null {
    const bytes = this.options.table.get(keyProofKey(did));
    return bytes === null ? null : (decodeKeyProof(bytes) ?? unreadable());
  }

  private async reached(number: bigint): Promise<void> {
    while (this.place.number < number) {
      const isFar = this.place.number + waitBlocksMax < number;
      const { settings, host } = this.options;
      if (isFar || (await withDeadline(this.moved.promise, settings.request_timeout_ms, host.after)) === late) {
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
        const session = this.options.endpoints.session();
        if (session.head.proofs.selfCertifying) await this.readTo(session);
      } catch (error) {
        if (error instanceof Unusable || (error instanceof StoreError && error.code !== "corrupt")) return;
        this.options.log("error", "reading key proofs failed", { error: errorStack(error) });
      }
    });
  }

  private async readTo(session: OpenSession): Promise<void> {
    await this.retryGap();
    while (this.place.number < session.head.number) {
      const blocks = await this.nextBlocks(session.head.number);
      if (blocks.length > 0) await this.apply(session, blocks);
      else await this.skip(session.head.number);
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
    const found = await Promise.all(Array.from({ length: count }, (_, n) => endpoints.blockAt(first + BigInt(n))));
    const end = found.indexOf(null);
    return (end < 0 ? found : found.slice(0, end)) as SignedBlock[];
  }

  /** To the first block that an endpoint has: nodes keep the newer ones. */
  private async skip(head: bigint): Promise<void> {
    const { number, gap } = this.place;
    let [missing, there] = [number + 1n, head];
    if (!(await this.hasBlock(there))) throw new StoreError("unavailable", "the node does not show its head");
    while (there - missing > 1n) {
      const middle = (missing + there) / 2n;
      if (await this.hasBlock(middle)) there = middle;
      else missing = middle;
    }
    const text = "no endpoint has blocks that may prove keys: name an archive node";
    this.options.log("warn", text, { from: String(number + 1n), to: String(missing) });
    await this.commit(new Map(), { number: missing, hash: "", gap: gap ?? number + 1n });
  }

  private async apply(session: OpenSession, blocks: readonly SignedBlock[]): Promise<void> {
    const changed = new Map<Did, KeyProof | null>();
    let { hash } = this.place;
    for (const block of blocks) {
      if (hash !== "" && block.header.parentHash !== hash) {
        this.place = beginning;
        throw new StoreError("unavailable", "the node's blocks do not follow each other");
      }
      for (const { call, isShown, submitter } of await callsIn(session, block)) {
        const before = changed.has(call.did) ? (changed.get(call.did) ?? null) : this.read(call.did);
        const binding = { genesisHash: session.head.proofs.genesisHash, submitter };
        const after = proofAfter(before, call, { binding, isShown });
        if (after !== before) changed.set(call.did, after);
      }
      hash = block.header.hash;
    }
    await this.commit(changed, { ...this.place, number: (blocks.at(-1) as SignedBlock).header.number, hash });
  }

  private async commit(changed: ReadonlyMap<Did, KeyProof | null>, place: Place): Promise<void> {
    await this.options.table.commit((view) => {
      for (const [did, proof] of changed) {
        if (proof === null) view.remove(keyProofKey(did));
        else view.put(keyProofKey(did), encodeKeyProof(proof));
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

function unreadable(): never {
  throw new StoreError("corrupt", "the outbox has an unreadable key proof");
}

/** `isShown`: the block's events say that it was applied. Without them, as in an old block, it may have failed. */
type BlockCall = { readonly call: LedgerCall; readonly submitter: Uint8Array | null; readonly isShown: boolean };

/** The calls about self-certifying DIDs that did not fail. */
async function callsIn(session: OpenSession, block: SignedBlock): Promise<BlockCall[]> {
  const carried = await extrinsicsIn(session, block, session.head.metadata);
  const found = carried.flatMap(({ call: bytes, submitter, index, frame }) => {
    const call = decodeLedgerCall(bytes, frame.callIndices);
    return call === null || !isSelfCertifying(call.did) ? [] : [{ call, submitter, index }];
  });
  const outcomes = found.length === 0 ? null : await readOutcomes(session, block.header);
  return found
    .filter(({ index }) => outcomes === null || outcomes.byIndex.get(index) === null)
    .map(({ call, submitter }) => ({ call, submitter, isShown: outcomes !== null }));
}

/**
 * Law 2. A registration follows no proof, or only one of a registration that failed. No call counts that would make the
 * proof unreadable: in a block without events, one that the chain refused may be beyond its bounds.
 */
function proofAfter(
  before: KeyProof | null,
  call: LedgerCall,
  { binding, isShown }: { readonly binding: ProofBinding; readonly isShown: boolean },
): KeyProof | null {
  const after = keepKeyProof(before, call, binding);
  if (after === null || after === before) return after;
  if (decodeKeyProof(encodeKeyProof(after)) === null) return before;
  if (call.name === "register_with_document_proof_signed") {
    const isFirst = before === null || (isShown && isUnchanged(before));
    const state = isFirst ? replayKeyProof(after) : null;
    const holds = state?.signatures.every((one) => verifyEd25519(one.signature, one.message, one.publicKey));
    return state?.did === call.did && holds ? after : before;
  }
  const counter = counterOf(call);
  const next = before === null ? null : nextNonces(before);
  if (counter === null || next === null) return before;
  return counter.nonce === (counter.domain === "rootPubkey" ? next.rootPubkey : next.document) ? after : before;
}

const isUnchanged = ({ base, rotations, calls }: KeyProof): boolean =>
  base === null && rotations.length + calls.length === 0;

const nextNonces = ({
  base,
  rotations,
  calls,
}: KeyProof): { readonly rootPubkey: bigint; readonly document: bigint } => ({
  rootPubkey: BigInt(rotations.length),
  document: (base === null ? 0n : base.nonce + 1n) + BigInt(calls.length),
});

/** Law 3. */
function leadsTo(proof: KeyProof, { record, counters }: Account): boolean {
  const state = replayKeyProof(proof);
  if (state === null || record === null || record.document === null || record.rootPubkey === null) return false;
  return (
    equalBytes(state.rootKeys.at(-1) as Uint8Array, record.rootPubkey) &&
    nextNonces(proof).document === counters.document &&
    equalBytes(encodeDidDocument(state.document), encodeDidDocument(record.document))
  );
}
