/**
 * The key proofs of self-certifying DIDs on a chain: the calls of every finalized block, from the
 * first block on, each applied to the proof of its DID as the embedded ledger does it
 * (`core/ledger/keep.ts`), and kept next to the outbox.
 *
 * Laws:
 * 1. Proofs and the number of the block up to which blocks were read are one commit. After a crash
 *    or an absence, reading goes on there.
 * 2. No call needs an event, which nodes discard long before the body of a block. The runtime runs
 *    a call with a proof before a block may have it (`admit` in
 *    runtime/pallets/did-registry/src/proofs.rs), so in a general extrinsic it was applied; in the
 *    extrinsic of an account it was refused. Of a registration, the account's own call, a block
 *    does not show which, but the state does for ever, as two endpoints have it: a name is
 *    registered once, and its expiry stays. Of several with this expiry, those before the first
 *    other change are alternatives, the oldest, until the record decides.
 * 3. A call counts only where it is the next one by the proof, and its signature holds. So blocks
 *    may be read twice, and no proof goes back. Only the signature that a call adds is verified.
 * 4. A proof is served only while it leads to the record of the head: behind a gap
 *    it is absent, never wrong.
 * 5. Blocks that a node has discarded are asked of the other endpoints, such as an archive node.
 *    Where none has them, reading goes on behind them, and they are asked for again at each start
 *    and each hour. So are blocks whose runtime no endpoint has (`history.ts`).
 * 6. No call stops the reading. A block has calls of strangers, of any length, that the runtime
 *    refused. Nor does a DID about which two endpoints disagree: it is put aside, and read from its
 *    block on when they agree.
 * 7. Blocks that were read by their numbers lead to the head that was confirmed. Where they don't,
 *    reading goes on from a place that is kept each 256 blocks.
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
import { keyProofKey } from "../../storage/embedded-records.ts";
import type { OrderedTable } from "../../storage/table.ts";
import type { OpenSession } from "./connections.ts";
import type { Endpoints } from "./endpoints.ts";
import { type BlockPlace, History } from "./history.ts";
import { decodeUnsigned, entryKey } from "./metadata.ts";
import { type ChainReader, extrinsicsIn, hasCalls } from "./reader.ts";
import type { SignedBlock } from "./rpc.ts";
import { type ChainHead, type Common, Disputed, Unusable } from "./session.ts";

type KeyProofsOptions = Common & {
  readonly table: OrderedTable;
  readonly endpoints: Endpoints;
  readonly reader: ChainReader;
};

const registrationName = "register_with_document_proof_signed";
/** DIDs that may be put aside at a time. */
const asideMax = 64;
/** Blocks that are asked for at a time. */
const batchMax = 8;
/** Further behind than this, an answer does not wait. */
const waitBlocksMax = 16n;
const readsMax = 8;
/**
 * Registrations of one DID, each signed by its key, among which the record decides; of
 * more, the oldest.
 */
const alternativesMax = 8;
const keptCodec = vector(byteVector(keyProofBytesMax), alternativesMax);
/** How often a gap is tried again. */
const retryMs = 3_600_000;

export class KeyProofs {
  private readonly history: History;
  /** When a gap was tried last. */
  private triedMs = Number.NEGATIVE_INFINITY;
  private moved = Promise.withResolvers<void>();
  private work: Promise<void> = Promise.resolve();
  private queued = false;

  constructor(private readonly options: KeyProofsOptions) {
    this.history = new History(options);
  }

  private get place(): BlockPlace {
    return this.history.place;
  }

  /** `null` where nothing proves the keys of the DID. */
  async of(did: Did): Promise<Uint8Array | null> {
    let before: Account | null = null;
    for (let reads = 0; reads < readsMax; reads++) {
      const { head, account } = await this.options.reader.facts(did, []);
      if (!isSelfCertifying(did) || !head.proofs.selfCertifying) return null;
      const proof = readKept(this.options.table, did).find((one) => leadsTo(one, account));
      if (proof !== undefined) return encodeKeyProof(proof);
      // A later block may have changed the proof, and the record. The head is always later
      // where a second endpoint lags.
      if (this.place.number === head.number || isDeepStrictEqual(account, before)) {
        if (this.place.aside[did] === undefined) return null;
        const text = "two endpoints of the chain disagree about this DID's registration";
        throw new StoreError("unavailable", text);
      }
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

  // ------------------------------------------------------------------------------------- following

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
    await this.retryAside(head);
    while (this.place.number < head.number) {
      const blocks = await this.nextBlocks(head);
      if (blocks.length > 0) await this.apply(blocks, { session, head });
      else await this.skip(head);
    }
  }

  private async retryGap(): Promise<void> {
    const { gap } = this.place;
    const nowMs = this.options.host.elapsedMs();
    if (gap === null || nowMs - this.triedMs < retryMs) return;
    this.triedMs = nowMs;
    const block = await this.options.endpoints.blockAt(gap);
    if (block !== null && (await this.history.isReadable(block))) this.history.restart(gap);
  }

  /**
   * Those about whom the endpoints agree again are read from their blocks on: reading twice
   * changes nothing (law 3).
   */
  private async retryAside({ hash }: ChainHead): Promise<void> {
    const settled: Did[] = [];
    for (const did of Object.keys(this.place.aside) as Did[])
      if ((await this.registrations([did], hash).catch(disputed)) !== null) settled.push(did);
    this.history.reread(settled);
  }

  private async hasBlock(number: bigint): Promise<boolean> {
    return (await this.options.endpoints.blockAt(number)) !== null;
  }

  /**
   * The blocks that follow the place, as far as an endpoint has them; the last one is the
   * head, or no endpoint has another.
   */
  private async nextBlocks(head: ChainHead): Promise<SignedBlock[]> {
    const first = this.place.number + 1n;
    const count = Math.min(batchMax, Number(head.number - first) + 1);
    const { endpoints } = this.options;
    const found = await Promise.all(
      Array.from({ length: count }, (_, n) => {
        const number = first + BigInt(n);
        return number === head.number ? endpoints.block(head.hash) : endpoints.blockAt(number);
      }),
    );
    const end = found.indexOf(null);
    return (end < 0 ? found : found.slice(0, end)) as SignedBlock[];
  }

  /** To the first block that an endpoint has: nodes keep the newer ones. */
  private async skip(head: ChainHead): Promise<void> {
    const { number } = this.place;
    let [missing, there] = [number + 1n, head.number];
    if ((await this.options.endpoints.block(head.hash)) === null)
      throw new StoreError("unavailable", "the node does not show its head");
    while (there - missing > 1n) {
      const middle = (missing + there) / 2n;
      if (await this.hasBlock(middle)) there = middle;
      else missing = middle;
    }
    const text = "no endpoint has blocks that may prove keys: name an archive node";
    this.options.log("warn", text, { from: String(number + 1n), to: String(missing) });
    this.history.begin();
    this.history.miss(number + 1n);
    await this.commit(new Map(), { number: missing, hash: "" });
  }

  private async apply(
    blocks: readonly SignedBlock[],
    { session, head }: { readonly session: OpenSession; readonly head: ChainHead },
  ): Promise<void> {
    this.history.begin();
    const last = (blocks.at(-1) as SignedBlock).header;
    if (!(await this.isOnChain(blocks, head))) await this.leave(session);
    const changed = new Map<Did, readonly KeyProof[]>();
    const { genesisHash } = head.proofs;
    for (const block of blocks) {
      const calls = await this.callsIn(block, head);
      const expiries = await this.expiriesOf(calls, { head, number: block.header.number });
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
      this.history.passed(block.header);
    }
    if (last.number === head.number) this.history.reached(head);
    await this.commit(changed, { number: last.number, hash: last.hash });
  }

  /**
   * Law 7: each follows the one before, and the last one is the same as that of the other
   * endpoints.
   */
  private async isOnChain(blocks: readonly SignedBlock[], head: ChainHead): Promise<boolean> {
    let { hash } = this.place;
    for (const { header } of blocks) {
      if (hash !== "" && header.parentHash !== hash) return false;
      hash = header.hash;
    }
    const last = (blocks.at(-1) as SignedBlock).header;
    if (last.number === head.number) return last.hash === head.hash;
    return this.options.endpoints.isAgreed(last.number, last.hash);
  }

  /**
   * Either the node in use shows another chain than it did, or what was read before is on
   * another chain.
   */
  private async leave(session: OpenSession): Promise<never> {
    const [same, other] = await this.options.endpoints.votes(this.place);
    const text = "its blocks do not lead to its head";
    if (this.place.hash === "" || same > other) session.end(new Unusable(text));
    else this.history.stepBack();
    throw new StoreError("unavailable", "the node's blocks do not follow each other");
  }

  private async callsIn(block: SignedBlock, head: ChainHead): Promise<BlockCall[]> {
    if (!hasCalls(block)) return [];
    const carried = extrinsicsIn(block, await this.history.runtimeOf(block.header, head));
    return carried.flatMap(({ call: bytes, submitter, frame }) => {
      const call = this.guarded(() => decodeLedgerCall(bytes, frame.callIndices));
      if (call === null || !isSelfCertifying(call.did) || !hasLengths(call)) return [];
      // Law 2: another call of an account was refused.
      return (call.name === registrationName) === (submitter !== null) ? [{ call, submitter }] : [];
    });
  }

  /**
   * By the state of the head, when the registration expires that the chain took; 0 for
   * none, and for a deleted DID.
   */
  private async expiriesOf(
    calls: readonly BlockCall[],
    { head, number }: { readonly head: ChainHead; readonly number: bigint },
  ): Promise<Map<Did, bigint>> {
    const { genesisHash } = head.proofs;
    const isCandidate = ({ call }: BlockCall) =>
      call.name === registrationName && deriveDid(genesisHash, call.pubkey) === call.did;
    const dids = [...new Set(calls.filter(isCandidate).map(({ call }) => call.did))];
    const all = await this.registrations(dids, head.hash).catch(disputed);
    if (all !== null) return all;
    // Only those about which the endpoints disagree wait.
    const found = new Map<Did, bigint>();
    for (const did of dids) {
      const one = await this.registrations([did], head.hash).catch(disputed);
      if (one === null && Object.keys(this.place.aside).length >= asideMax)
        throw new StoreError("unavailable", "two endpoints disagree about many DIDs");
      if (one === null) this.history.putAside(did, number);
      else found.set(did, one.get(did) ?? 0n);
    }
    return found;
  }

  private async registrations(dids: readonly Did[], hash: string): Promise<Map<Did, bigint>> {
    if (dids.length === 0) return new Map();
    const keys = dids.flatMap((did) => [
      entryKey("RegistrationExpiries", did),
      entryKey("Lives", did),
    ]);
    const [first] = dids;
    const who = dids.length === 1 ? `${first}` : `${first} or one of ${dids.length - 1} others`;
    const about = `the registration of ${who}; its key proof waits`;
    const found = await this.options.endpoints.values(keys, { hash, about });
    const values = found.map(decodeUnsigned);
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
    to: Pick<BlockPlace, "number" | "hash">,
  ): Promise<void> {
    const runtimes = await this.history.newRuntimes();
    await this.options.table.commit((view) => {
      for (const [did, proofs] of changed) {
        if (proofs.length === 0) view.remove(keyProofKey(did));
        else view.put(keyProofKey(did), encodeWith(keptCodec, proofs.map(encodeKeyProof)));
      }
      this.history.write(view, to, runtimes);
    });
    this.history.moved(to);
    this.moved.resolve();
    this.moved = Promise.withResolvers();
  }

  /** Once the endpoints are closed. */
  close(): Promise<void> {
    return this.work;
  }
}

function disputed(error: unknown): null {
  if (error instanceof Disputed) return null;
  throw error;
}

/** The alternatives that are kept for a DID. */
function readKept(table: OrderedTable, did: Did): KeyProof[] {
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

/**
 * A whole document follows every earlier one, also behind a gap. Counters of aliases and of
 * control are in no proof.
 */
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
