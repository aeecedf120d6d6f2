/**
 * What was handed in and has not come to its end, on disk: a call is here before its submission is
 * answered and until its end is written, so that a restart neither loses nor doubles it. Ends are kept
 * for a time and up to a number, oldest first away.
 *
 *   genesis        the chain that this outbox belongs to
 *   q/<sequence>   a pending call and its extrinsic (JSON)
 *   s/<tx hash>    submission, as the embedded ledger keeps it     t/<number>  ends in order
 */
import { decodeUtf8, encodeHex0x, utf8 } from "../../core/codec/bytes.ts";
import { decodeLedgerCall, encodeLedgerCall, type LedgerCall } from "../../core/ledger/calls.ts";
import { StoreError, type Submission } from "../../storage/contract.ts";
import * as records from "../../storage/embedded-records.ts";
import type { Table, TableChange } from "../../storage/table.ts";

/** An extrinsic on its way. Blocks `birth` up to, not including, `birth + periodBlocks` may hold it. */
export type Wire = {
  readonly extrinsic: Uint8Array;
  /** What it is found by in a block: its hash, or the mark of its call. */
  readonly mark: string;
  /** The operator's nonce, `null` for a call that carries its own proof. */
  readonly nonce: number | null;
  readonly birth: bigint;
  readonly specVersion: number;
};

export type Pending = {
  readonly sequence: bigint;
  readonly call: LedgerCall;
  readonly submission: Submission;
  readonly wire: Wire;
  /** How many times it was signed anew. */
  readonly renewals: number;
};

export type Ended = { readonly sequence: bigint; readonly submission: Submission };

export type Retention = { readonly retainedMs: number; readonly retainedMax: number };

const genesisKey = "genesis";

type PlainPending = {
  readonly txHash: string;
  readonly call: string;
  readonly extrinsic: string;
  readonly mark: string;
  readonly nonce: number | null;
  readonly birth: string;
  readonly specVersion: number;
  readonly renewals: number;
};

export class Outbox {
  private endsFirst = 0n;
  private endsNext = 0n;

  constructor(
    private readonly table: Table,
    /** The same table, whose commits may use the disk's last room: an end that is known must be written. */
    private readonly lastRoom: Table,
    private readonly retention: Retention,
  ) {
    const first = table.range("t/", { limit: 1 })[0];
    if (first === undefined) return;
    this.endsFirst = numberOf(first[0]);
    this.endsNext = this.endsFirst;
    for (let after = ""; ; ) {
      const page = table.range("t/", { after, limit: 4_096 });
      const last = page.at(-1);
      if (last === undefined) break;
      after = last[0];
      this.endsNext = numberOf(after) + 1n;
    }
  }

  genesis(): string | null {
    const bytes = this.table.get(genesisKey);
    return bytes === null ? null : decodeUtf8(bytes);
  }

  keepGenesis(genesis: string): Promise<void> {
    return this.lastRoom.commit((view) => view.put(genesisKey, utf8(genesis)));
  }

  /** Everything pending, in the order in which it was taken. */
  pending(): Pending[] {
    const found: Pending[] = [];
    for (let after = ""; ; ) {
      const page = this.table.range(records.poolPrefix, { after, limit: 256 });
      const last = page.at(-1);
      if (last === undefined) return found;
      after = last[0];
      for (const [key, bytes] of page) found.push(this.decode(records.sequenceOf(key), bytes));
    }
  }

  submission(txHash: string): Submission | null {
    const bytes = this.table.get(records.submissionKey(txHash));
    return bytes === null ? null : records.decodeSubmission(txHash, bytes).submission;
  }

  /** Resolves when it stands. */
  keep(entry: Pending): Promise<void> {
    return this.table.commit((view) => {
      view.put(records.poolKey(entry.sequence), encodePending(entry));
      putSubmission(view, entry.submission);
    });
  }

  /** Puts another extrinsic in the place of the one that is kept. */
  renew(entry: Pending): Promise<void> {
    return this.lastRoom.commit((view) => view.put(records.poolKey(entry.sequence), encodePending(entry)));
  }

  /** Takes them out of what is pending. One call at a time. */
  end(ended: readonly Ended[], nowMs: number): Promise<void> {
    return this.lastRoom.commit((view) => {
      let next = this.endsNext;
      for (const { sequence, submission } of ended) {
        view.remove(records.poolKey(sequence));
        putSubmission(view, submission);
        view.put(records.settledKey(next++), records.encodeSettled({ txHash: submission.txHash, atMs: nowMs }));
      }
      this.endsFirst = this.prune(view, next, { nowMs, steps: 2 * ended.length + 32 });
      this.endsNext = next;
    });
  }

  private prune(view: TableChange, next: bigint, given: { readonly nowMs: number; readonly steps: number }): bigint {
    const { retainedMax, retainedMs } = this.retention;
    let first = this.endsFirst;
    for (let step = 0; step < given.steps && first < next; step++, first++) {
      const bytes = view.get(records.settledKey(first));
      if (bytes === null) continue;
      const { txHash, atMs } = records.decodeSettled(bytes);
      if (next - first <= BigInt(retainedMax) && atMs + retainedMs > given.nowMs) break;
      view.remove(records.settledKey(first));
      view.remove(records.submissionKey(txHash));
    }
    return first;
  }

  private decode(sequence: bigint, bytes: Uint8Array): Pending {
    const unreadable = new StoreError("corrupt", "the outbox holds an unreadable call");
    const plain = parsePending(bytes);
    if (plain === null) throw unreadable;
    const call = decodeLedgerCall(Uint8Array.fromHex(plain.call.slice(2)));
    const submission = this.submission(plain.txHash);
    if (call === null || submission === null) throw unreadable;
    const { mark, nonce, birth, specVersion, renewals } = plain;
    const extrinsic = Uint8Array.fromHex(plain.extrinsic.slice(2));
    const wire = { extrinsic, mark, nonce, birth: BigInt(birth), specVersion };
    return { sequence, call, submission, wire, renewals };
  }
}

function parsePending(bytes: Uint8Array): PlainPending | null {
  try {
    return JSON.parse(decodeUtf8(bytes) ?? "") as PlainPending;
  } catch {
    return null;
  }
}

function encodePending({ call, submission, wire, renewals }: Pending): Uint8Array {
  const plain: PlainPending = {
    txHash: submission.txHash,
    call: encodeHex0x(encodeLedgerCall(call)),
    extrinsic: encodeHex0x(wire.extrinsic),
    mark: wire.mark,
    nonce: wire.nonce,
    birth: wire.birth.toString(),
    specVersion: wire.specVersion,
    renewals,
  };
  return utf8(JSON.stringify(plain));
}

function putSubmission(view: TableChange, submission: Submission): void {
  view.put(records.submissionKey(submission.txHash), records.encodeSubmission({ submission, takenAt: 0n }));
}

function numberOf(key: string): bigint {
  return BigInt(`0x${key.slice(2)}`);
}
