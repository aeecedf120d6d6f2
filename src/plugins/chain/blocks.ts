/**
 * What blocks hold of ours: the extrinsics of a block by their fingerprints, what the block's events say became
 * of them, and the unfinalized blocks between the finalized head and the best one, which may be reverted.
 */
import { errorText, type Fault, fault } from "../../core/fault.ts";
import type { LedgerCall } from "../../core/ledger/calls.ts";
import { faultOfRefusal, type LedgerError, ledgerErrors, refuse } from "../../core/ledger/refusals.ts";
import { type Block, type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import type { Endpoints } from "./endpoints.ts";
import { fingerprintsOf, isGeneral } from "./extrinsic.ts";
import { type DispatchFailure, type RuntimeMetadata, storageKeys, u64Of } from "./metadata.ts";
import type { Header } from "./rpc.ts";
import { type Head, type Session, StateGone, singleFlight } from "./session.ts";

export type BlockContents = Header & {
  /** Index of an extrinsic by each of its fingerprints. */
  readonly fingerprints: ReadonlyMap<string, number>;
};

/**
 * `null` when the node no longer has the block's body. `fallback`: the metadata to read general extrinsics with when
 * the node has let go of the state of the block before, which names the runtime that made this one.
 */
async function readContents(session: Session, hash: string, fallback: RuntimeMetadata): Promise<BlockContents | null> {
  const block = await readable(session.block(hash));
  if (block === null) return null;
  const metadata = block.extrinsics.some(isGeneral)
    ? ((await readable(session.metadataAt(block.header.parentHash))) ?? fallback)
    : fallback;
  const fingerprints = new Map<string, number>();
  for (const [index, extrinsic] of block.extrinsics.entries()) {
    for (const fingerprint of fingerprintsOf(extrinsic, metadata.frame)) {
      // When several extrinsics hold one call, the first has the effect.
      if (!fingerprints.has(fingerprint)) fingerprints.set(fingerprint, index);
    }
  }
  return { ...block.header, fingerprints };
}

type Outcomes = {
  readonly block: Block;
  /** As the node gave them. */
  readonly events: Uint8Array;
  readonly byIndex: ReadonlyMap<number, DispatchFailure | null>;
};

/**
 * What became of a block's extrinsics, and the block's time; `null` when the node no longer has the state of the
 * block. A block without any event is a lie: every block has some.
 */
export async function readOutcomes(session: Session, contents: BlockContents): Promise<Outcomes | null> {
  const { hash, number, parentHash } = contents;
  // A block's events are encoded by the runtime that its parent left.
  const metadata = await readable(session.metadataAt(parentHash));
  if (metadata === null) return null;
  const keys = storageKeys(metadata);
  const values = await readable(session.values([keys.events, keys.now], hash));
  if (values === null) return null;
  const [events, now] = values;
  if (!events || !now) throw new StoreError("unavailable", "the node shows a block without events");
  const byIndex = metadata.outcomes(events);
  return { block: { number, hash, timeMs: Number(u64Of(now)) }, events, byIndex };
}

/** `null` when the node refuses to answer, as it does about a state that it has discarded. */
async function readable<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof StateGone) return null;
    throw error;
  }
}

// ------------------------------------------------------------------------------------------ failures of calls

/** Errors by which the ledger refuses a whole document that contradicts itself. */
const documentErrors: readonly LedgerError[] = [
  "InvalidDocument",
  "VerificationMethodAlreadyExists",
  "VerificationMethodNotFound",
  "AuthenticationAlreadyExists",
  "KeyAgreementAlreadyExists",
  "ServiceAlreadyExists",
];

/**
 * From a block's outcome of a call to the program's own codes. The names of errors are the ledger's, so its
 * table decides; an unknown one is `chain_submission_rejected` with the name.
 */
export function faultOfFailure(failure: DispatchFailure, call: LedgerCall): Fault {
  const error = ledgerErrors.find((name) => name === failure.error);
  if (failure.pallet === null || error === undefined) {
    return fault("chain_submission_rejected", `the chain refused the call: ${failure.error}`);
  }
  const whole = "docBlob" in call && documentErrors.includes(error);
  return faultOfRefusal(refuse(error, whole ? { wholeDocument: true } : {}));
}

// ----------------------------------------------------------------------------------------- finalized blocks

/** Looks through finalized blocks once, in order. */
export class FinalizedScan {
  /** Every finalized block up to this one was looked through for what is pending. */
  head: Head | null = null;
  /** The last block that no node could show any more: what lies before it may have been missed. */
  missed = -1n;
  private number: bigint | null = null;
  private hash = "";

  constructor(private readonly log: StoreEnvironment["log"]) {}

  /** Nothing is pending that could lie in a block up to `head`. */
  skipTo(head: Head): void {
    this.head = head;
    this.number = head.number;
    this.hash = head.hash;
  }

  /** Whether a head comes late: the chain still holds the later one that was looked through. */
  async isPast(session: Session, head: Head): Promise<boolean> {
    if (this.head === null || head.number >= this.head.number) return false;
    return (await session.hashAt(this.head.number)) === this.head.hash;
  }

  /** From `oldest` on, without those that were looked through. What fails is gone on with the next time. */
  async upTo(
    session: Session,
    head: Head,
    given: { readonly oldest: bigint; readonly onBlock: (contents: BlockContents) => Promise<void> },
  ): Promise<void> {
    const { oldest, onBlock } = given;
    // A head that is not beyond what was looked through is another branch, or comes again.
    const goesOn = this.number !== null && this.number <= head.number && this.number + 1n >= oldest;
    if (!goesOn) this.hash = "";
    for (let number = goesOn ? (this.number as bigint) + 1n : oldest; number <= head.number; number++) {
      const hash = number === head.number ? head.hash : await session.hashAt(number);
      const contents = await readContents(session, hash, head.metadata);
      if (contents === null) this.miss(number);
      else {
        if (contents.number !== number || (this.hash !== "" && contents.parentHash !== this.hash))
          throw new StoreError("unavailable", "the node's blocks do not follow each other");
        await onBlock(contents);
      }
      this.number = number;
      this.hash = contents === null ? "" : hash;
    }
    this.skipTo(head);
  }

  private miss(number: bigint): void {
    const isFirst = this.missed !== number - 1n;
    this.missed = number;
    const text = "the node no longer has blocks that pending calls may lie in; the state decides";
    if (isFirst) this.log("warn", text, { from: String(number) });
  }
}

// ---------------------------------------------------------------------------------------- unfinalized blocks

const unfinalizedMax = 256;

type UnfinalizedOptions = {
  readonly endpoints: Endpoints;
  readonly log: StoreEnvironment["log"];
  /** Whether anything is waited for at all. */
  readonly isWanted: () => boolean;
  /** Called after each look: where every fingerprint lies that lies in one of those blocks. */
  readonly onBlocks: (blocks: ReadonlyMap<string, Block>) => void;
};

/** Of best heads that come faster than they can be looked through, the newest counts. */
export class UnfinalizedBlocks {
  /** The blocks of the last look. */
  private known = new Map<string, BlockContents>();
  private best = "";
  private closing = false;
  private readonly follow = singleFlight(() => this.lookAtBest());

  constructor(private readonly options: UnfinalizedOptions) {}

  onBest(hash: string): void {
    this.best = hash;
    if (!this.closing) this.follow();
  }

  private async lookAtBest(): Promise<void> {
    if (this.closing || !this.options.isWanted()) return;
    try {
      const blocks = await this.look(this.best);
      if (!this.closing) this.options.onBlocks(blocks);
    } catch (error) {
      if (error instanceof StoreError) return;
      this.options.log("warn", "a best block can't be read", { error: errorText(error) });
    }
  }

  /** From the best head back to the finalized one. */
  private async look(hash: string): Promise<Map<string, Block>> {
    const session = this.options.endpoints.session();
    const { head } = session;
    const seen = new Map<string, BlockContents>();
    const found = new Map<string, Block>();
    for (let at = hash, steps = 0; at !== head.hash && steps < unfinalizedMax; steps++) {
      const contents = this.known.get(at) ?? (await readContents(session, at, head.metadata));
      if (contents === null || contents.number <= head.number) break;
      seen.set(at, contents);
      // The time of a block that may go again is not asked for: the finalized one's stands in.
      const block: Block = { number: contents.number, hash: at, timeMs: head.timeMs };
      for (const fingerprint of contents.fingerprints.keys()) found.set(fingerprint, block);
      at = contents.parentHash;
    }
    this.known = seen;
    return found;
  }

  close(): void {
    this.closing = true;
  }
}
