/**
 * The pending calls on disk: a call is here before its submission is answered and until its end is written, so that a
 * restart neither loses it nor submits it twice. Ends are kept for a time and up to a number; the oldest go first.
 *
 *   genesis        the chain that this outbox belongs to
 *   operator       the account whose key signed last
 *   anchor         the last finalized block that was shown, with its time (JSON)
 *   q/<sequence>   a pending call and the extrinsics signed for it (JSON)
 *   s/<tx hash>    submission, as the embedded ledger keeps it     t/<number>  ends in order
 */
import { decodeUtf8, encodeHex0x, utf8 } from "../../core/codec/bytes.ts";
import { decodeLedgerCall, encodeLedgerCall, type LedgerCall } from "../../core/ledger/calls.ts";
import { StoreError, type Submission } from "../../storage/contract.ts";
import * as records from "../../storage/embedded-records.ts";
import type { Table, TableChange } from "../../storage/table.ts";
import type { Signed } from "./pool.ts";
import type { Anchor } from "./session.ts";

export type Pending = {
  readonly sequence: bigint;
  readonly call: LedgerCall;
  readonly submission: Submission;
  /** Those that may still enter, oldest first; at least one. */
  readonly signed: readonly Signed[];
};

type Ended = { readonly sequence: bigint; readonly submission: Submission };

type Retention = { readonly retainedMs: number; readonly retainedMax: number };

const genesisKey = "genesis";
const operatorName = "operator";
const anchorKey = "anchor";

type PlainSigned = {
  readonly extrinsic: string;
  readonly fingerprint: string;
  readonly nonce: number | null;
  readonly birth: string;
  readonly death: string;
  readonly specVersion: number;
};

type PlainPending = {
  readonly txHash: string;
  readonly call: string;
  readonly signed: readonly PlainSigned[];
};

type PlainAnchor = { readonly number: string; readonly hash: string; readonly timeMs: number };

export class Outbox {
  private endsFirst = 0n;
  private endsNext = 0n;

  constructor(
    private readonly table: Table,
    /** The same table, with commits that may use the reserved disk space: a known end must be written. */
    private readonly reserveTable: Table,
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
    return this.reserveTable.commit((view) => view.put(genesisKey, utf8(genesis)));
  }

  operator(): string | null {
    const bytes = this.table.get(operatorName);
    return bytes === null ? null : decodeUtf8(bytes);
  }

  keepOperator(address: string): Promise<void> {
    return this.reserveTable.commit((view) => view.put(operatorName, utf8(address)));
  }

  anchor(): Anchor | null {
    const bytes = this.table.get(anchorKey);
    if (bytes === null) return null;
    const plain = parseJson<PlainAnchor>(bytes);
    if (plain === null) throw new StoreError("corrupt", "the outbox has an unreadable block");
    return { ...plain, number: BigInt(plain.number) };
  }

  keepAnchor(anchor: Anchor): Promise<void> {
    return this.reserveTable.commit((view) => putAnchor(view, anchor));
  }

  /** Everything pending, in the order of acceptance. */
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

  /** Resolves when it is on disk. */
  keep(entry: Pending): Promise<void> {
    return this.table.commit((view) => {
      view.put(records.poolKey(entry.sequence), encodePending(entry));
      putSubmission(view, entry.submission);
    });
  }

  /** Replaces the list of extrinsics of a call. */
  replace(entry: Pending): Promise<void> {
    return this.reserveTable.commit((view) => view.put(records.poolKey(entry.sequence), encodePending(entry)));
  }

  /** Writes the ends of pending calls, and with them the block that decided. One call at a time. */
  finish(ended: readonly Ended[], given: { readonly nowMs: number; readonly anchor: Anchor | null }): Promise<void> {
    const { nowMs, anchor } = given;
    return this.reserveTable.commit((view) => {
      if (anchor !== null) putAnchor(view, anchor);
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
    const unreadable = new StoreError("corrupt", "the outbox has an unreadable call");
    const plain = parseJson<PlainPending>(bytes);
    if (plain === null) throw unreadable;
    const call = decodeLedgerCall(Uint8Array.fromHex(plain.call.slice(2)));
    const submission = this.submission(plain.txHash);
    if (call === null || submission === null) throw unreadable;
    return { sequence, call, submission, signed: plain.signed.map(decodeSigned) };
  }
}

/** Parses what this program wrote; `null` means that the file is damaged. */
function parseJson<T>(bytes: Uint8Array): T | null {
  try {
    return JSON.parse(decodeUtf8(bytes) ?? "") as T;
  } catch {
    return null;
  }
}

function encodePending({ call, submission, signed }: Pending): Uint8Array {
  const plain: PlainPending = {
    txHash: submission.txHash,
    call: encodeHex0x(encodeLedgerCall(call)),
    signed: signed.map(({ out: _, extrinsic, birth, death, ...one }) => ({
      ...one,
      extrinsic: encodeHex0x(extrinsic),
      birth: birth.toString(),
      death: death.toString(),
    })),
  };
  return utf8(JSON.stringify(plain));
}

/** After a restart, every extrinsic may be with a node. */
function decodeSigned({ extrinsic, birth, death, ...one }: PlainSigned): Signed {
  return {
    ...one,
    extrinsic: Uint8Array.fromHex(extrinsic.slice(2)),
    birth: BigInt(birth),
    death: BigInt(death),
    out: true,
  };
}

function putAnchor(view: TableChange, anchor: Anchor): void {
  const plain: PlainAnchor = { ...anchor, number: anchor.number.toString() };
  view.put(anchorKey, utf8(JSON.stringify(plain)));
}

function putSubmission(view: TableChange, submission: Submission): void {
  view.put(records.submissionKey(submission.txHash), records.encodeSubmission({ submission, takenAt: 0n }));
}

function numberOf(key: string): bigint {
  return BigInt(`0x${key.slice(2)}`);
}
