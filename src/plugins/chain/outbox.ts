/**
 * The pending calls on disk: a call is here before its submission is answered and until its
 * end is written, so that a restart neither loses it nor submits it twice. Ends are kept
 * for a time and up to a number; the oldest go first.
 *
 *   genesis        the chain that this outbox belongs to
 *   operator       the account whose key signed last
 *   anchor         the last finalized block that two endpoints agreed about, with its time (JSON)
 *   q/<sequence>   a pending call and the extrinsic signed for it (JSON)
 *   s/<tx hash>    submission, as the embedded ledger keeps it
 *   t/<number>     ends in order
 *   ends           how many there were (JSON)
 *   k/<did>        key proof (`proofs.ts`)
 *   proofs, c/, v/ of which blocks the proofs are (`history.ts`)
 */
import { encodeHex0x } from "../../core/codec/bytes.ts";
import { decodeLedgerCall, encodeLedgerCall, type LedgerCall } from "../../core/ledger/calls.ts";
import { StoreError, type Submission } from "../../storage/contract.ts";
import * as records from "../../storage/embedded-records.ts";
import type { CommitSize, OrderedTable, TableChange } from "../../storage/table.ts";
import type { Signed } from "./pool.ts";
import type { Anchor } from "./session.ts";

export type PendingEntry = {
  readonly sequence: bigint;
  readonly call: LedgerCall;
  readonly submission: Submission;
  readonly signed: Signed;
};

type OutboxFacts = { readonly genesis: string; readonly operator: string; readonly anchor: Anchor };
type Ended = Pick<PendingEntry, "sequence" | "submission">;
type Ends = { readonly settled: bigint };
type PlainPending = {
  readonly txHash: string;
  readonly call: string;
  readonly signed: Omit<Signed, "extrinsic"> & { readonly extrinsic: string };
};

const bytesOfHex = (hex: string): Uint8Array => Uint8Array.fromHex(hex.slice(2));

/** These commits may use the reserved disk space: a known end must be written. */
const ofReserve: CommitSize = { kind: "removal", bytes: 64 * 1024 };

export class ChainOutbox {
  private ends: Ends;

  constructor(
    private readonly table: OrderedTable,
    private readonly retainedMax: bigint,
  ) {
    this.ends = this.read<Ends>("ends") ?? { settled: 0n };
  }

  fact<N extends keyof OutboxFacts>(name: N): OutboxFacts[N] | null {
    return this.read(name);
  }

  keepFact<N extends keyof OutboxFacts>(name: N, value: OutboxFacts[N]): Promise<void> {
    return this.table.commit((view) => view.put(name, records.encodeJson(value)), ofReserve);
  }

  private read<T>(key: string): T | null {
    const bytes = this.table.get(key);
    return bytes === null ? null : records.decodeJson<T>(bytes, key);
  }

  /** Everything pending, in the order of acceptance. */
  pending(): PendingEntry[] {
    const found: PendingEntry[] = [];
    for (let after = ""; ; ) {
      const page = this.table.range(records.poolPrefix, { after, limit: 256 });
      const last = page.at(-1);
      if (last === undefined) return found;
      after = last[0];
      for (const [key, bytes] of page) found.push(this.decode(records.sequenceOf(key), bytes));
    }
  }

  submission(txHash: string): Submission | null {
    return records.readSubmission(this.table, txHash);
  }

  /** Resolves when it is on disk. */
  keep(entry: PendingEntry): Promise<void> {
    return this.table.commit((view) => {
      view.put(records.poolKey(entry.sequence), encodePending(entry));
      putSubmission(view, entry.submission);
    });
  }

  /** Replaces the extrinsic of a call. */
  replace(entry: PendingEntry): Promise<void> {
    const put = (view: TableChange) =>
      view.put(records.poolKey(entry.sequence), encodePending(entry));
    return this.table.commit(put, ofReserve);
  }

  /** Writes the ends of pending calls, and with them the block that decided. One call at a time. */
  finish(ended: readonly Ended[], anchor: Anchor | null): Promise<void> {
    return this.table.commit((view) => {
      if (anchor !== null) view.put("anchor", records.encodeJson(anchor));
      let { settled } = this.ends;
      for (const { sequence, submission } of ended) {
        view.remove(records.poolKey(sequence));
        putSubmission(view, submission);
        records.keepSettled(view, settled++, submission.txHash, this.retainedMax);
      }
      this.ends = { settled };
      view.put("ends", records.encodeJson(this.ends));
    }, ofReserve);
  }

  private decode(sequence: bigint, bytes: Uint8Array): PendingEntry {
    const { txHash, call: hex, signed } = records.decodeJson<PlainPending>(bytes, "pending call");
    const [call, submission] = [decodeLedgerCall(bytesOfHex(hex)), this.submission(txHash)];
    if (call === null || submission === null)
      throw new StoreError("corrupt", "the outbox has an unreadable call");
    return {
      sequence,
      call,
      submission,
      signed: { ...signed, extrinsic: bytesOfHex(signed.extrinsic) },
    };
  }
}

function encodePending({ call, submission, signed }: PendingEntry): Uint8Array {
  const plain: PlainPending = {
    txHash: submission.txHash,
    call: encodeHex0x(encodeLedgerCall(call)),
    signed: { ...signed, extrinsic: encodeHex0x(signed.extrinsic) },
  };
  return records.encodeJson(plain);
}

function putSubmission(view: TableChange, submission: Submission): void {
  view.put(records.submissionKey(submission.txHash), records.encodeSubmission(submission));
}
