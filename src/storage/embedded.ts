/**
 * The embedded ledger: `core/ledger/rules.ts` with blocks on a timer, over the table of a
 * driver. An accepted call stays in the table until a block includes it or its lifetime
 * ends, so a crash loses none. A block is one commit of the table. While no call is
 * pending, nothing is written: every block has calls.
 * Source: rules section 4 ("Idempotence", "Status", "Embedded ledger").
 */
import { concatBytes, encodeHex0x, utf8 } from "../core/codec/bytes.ts";
import { blake2b256 } from "../core/codec/crypto.ts";
import { type Did, didBytesMax, normalizeAlias } from "../core/codec/did.ts";
import { errorStack, type Fault, fault, isFault } from "../core/fault.ts";
import {
  type Account,
  type AccountId,
  embeddedBounds,
  emptyAccount,
  type LedgerProofs,
  longerThan,
  type PolicyOf,
  type PolicyScope,
} from "../core/ledger/account.ts";
import type { Applied } from "../core/ledger/action-rules.ts";
import { decodeLedgerCall, encodeLedgerCall, type LedgerCall } from "../core/ledger/calls.ts";
import { faultOfRefusal, isRefusal } from "../core/ledger/refusals.ts";
import { applyCall } from "../core/ledger/rules.ts";
import type { NoteKey } from "../core/trust/note.ts";
import {
  type Block,
  type Ledger,
  type LedgerHead,
  StoreError,
  type Submission,
} from "./contract.ts";
import {
  appendTouched,
  fetchBlock,
  fillLog,
  logHeadKey,
  nothingTouched,
  prepareLog,
  type Touched,
  touch,
} from "./embedded-log.ts";
import * as records from "./embedded-records.ts";
import {
  type OrderedTable,
  rememberDecoded,
  type SharedTable,
  type TableChange,
  type TableView,
} from "./table.ts";

export type EmbeddedOptions = {
  /**
   * Processes that share a table make its blocks together: the first one at the end of a
   * block time does.
   */
  readonly table: OrderedTable | SharedTable;
  readonly blockTimeMs: number;
  readonly now: () => number;
  readonly log: (
    level: "info" | "warn" | "error",
    message: string,
    fields?: Record<string, unknown>,
  ) => void;
  readonly operator: AccountId;
  readonly logKey?: NoteKey | "elsewhere";
  readonly limits?: Partial<records.EmbeddedLimits>;
  /** Throws `full` when the ledger must not grow by the call. */
  readonly checkRoom?: (call: LedgerCall) => void;
};

export type EmbeddedLedger = Ledger & {
  /** Finishes the running block and submissions, and accepts no more. Idempotent. */
  close(): Promise<void>;
};

/** Opens what the table holds, or begins a new ledger with its first block. */
export async function openEmbeddedLedger(options: EmbeddedOptions): Promise<EmbeddedLedger> {
  const limits = { ...records.embeddedLimits, ...options.limits };
  const { logKey = null } = options;
  const isLogged = await options.table.commit((view) => {
    const isFilled = prepareLog(view);
    records.prepareHead(view, options);
    if (logKey !== "elsewhere") records.nameLedger(view, logKey);
    return isFilled;
  });
  if (!isLogged) await fillLog(options.table);
  const ledger = new Chain(options, limits);
  ledger.arm();
  return ledger;
}

type NewCall = { readonly call: LedgerCall; readonly bytes: Uint8Array; readonly label: string };

/** Of each kind of record. */
const decodedLimits = { entriesMax: 4_096, bytesMax: 8 * 1024 ** 2 };

class Chain implements EmbeddedLedger {
  private readonly table: OrderedTable | SharedTable;
  /** Whether other processes write the table, too. */
  private readonly isShared: boolean;
  private readonly openedAtMs: number;
  private timer: ReturnType<typeof setTimeout> | null = null;
  private failures = 0;
  /** When the first of these failures was. */
  private failedAtMs = 0;
  private closing = false;
  /** Of the table: those that have ended, and those under way. */
  private changes = 0;
  private changing = 0;
  private readonly underWay = new Set<Promise<unknown>>();
  private knownProofs: LedgerProofs | null = null;
  /**
   * Every envelope reads its recipient, a policy and the head: decoding them is most of
   * what such a read costs.
   */
  private readonly accounts = rememberDecoded(records.accountOf, decodedLimits);
  private readonly policies = {
    recipient: rememberDecoded((bytes) => records.policyOf("recipient", bytes), decodedLimits),
    tag: rememberDecoded((bytes) => records.policyOf("tag", bytes), decodedLimits),
    persona: rememberDecoded((bytes) => records.policyOf("persona", bytes), decodedLimits),
  };
  private readonly heads = rememberDecoded(records.decodeHead, decodedLimits);

  constructor(
    private readonly options: EmbeddedOptions,
    private readonly limits: records.EmbeddedLimits,
  ) {
    this.table = options.table;
    this.isShared = !("get" in options.table);
    this.openedAtMs = options.now();
  }

  // --------------------------------------------------------------------------------------- reading

  async head(): Promise<LedgerHead> {
    this.checkOpen();
    const { last } = await this.read((view) => this.headIn(view));
    const asOfMs = this.failures === 0 ? this.options.now() : this.failedAtMs;
    return { finalized: last, blockTimeMs: this.options.blockTimeMs, asOfMs };
  }

  private headIn(view: TableView): records.EmbeddedHead {
    const bytes = view.get(records.headKey);
    return bytes === null ? records.readHead(view) : this.heads(records.headKey, bytes);
  }

  async bounds() {
    this.checkOpen();
    return embeddedBounds;
  }

  async account(did: Did): Promise<Account> {
    this.checkOpen();
    const key = records.accountKey(did);
    return this.read((view) => {
      const bytes = view.get(key);
      return bytes === null ? emptyAccount : this.accounts(key, bytes);
    });
  }

  async keyProof(did: Did): Promise<Uint8Array | null> {
    this.checkOpen();
    return this.read((view) => view.get(records.keyProofKey(did))?.slice() ?? null);
  }

  aliasHolder = (alias: string) => this.ofAlias(alias, records.readHolder);
  aliasReserve = (alias: string) => this.ofAlias(alias, records.readReserve);
  private async ofAlias<T>(
    alias: string,
    look: (view: TableView, alias: string) => T | null,
  ): Promise<T | null> {
    this.checkOpen();
    return normalizeAlias(alias) === alias ? this.read((view) => look(view, alias)) : null;
  }

  async policy<Scope extends PolicyScope>(
    scope: Scope,
    key: string,
  ): Promise<PolicyOf<Scope> | null> {
    this.checkOpen();
    if (longerThan(key, didBytesMax) || !key.isWellFormed()) return null;
    const name = records.policyKey(scope, key);
    return this.read((view) => {
      const bytes = view.get(name);
      return bytes === null ? null : (this.policies[scope](name, bytes) as PolicyOf<Scope>);
    });
  }

  async submission(txHash: string): Promise<Submission | null> {
    this.checkOpen();
    const hash = txHash.toLowerCase();
    if (!/^0x[0-9a-f]{64}$/.test(hash)) return null;
    return this.read((view) => records.readSubmission(view, hash));
  }

  operator = async (): Promise<AccountId> => this.options.operator;
  proofs = async (): Promise<LedgerProofs> => this.read((view) => this.proofsIn(view));
  /** A process without a Directory may have opened the ledger before it had a name. */
  private proofsIn(view: TableView): LedgerProofs {
    this.knownProofs ??= records.readProofs(view);
    if (this.knownProofs !== null) return this.knownProofs;
    throw new StoreError("unavailable", "no Directory has begun this ledger yet");
  }

  /**
   * Synchronous where no other process writes the table, because every envelope makes such
   * reads: one that waits costs four objects more and a turn of the queue.
   */
  private read<T>(work: (view: TableView) => T): T | Promise<T> {
    return "get" in this.table ? work(this.table) : this.table.read(work);
  }

  stamp(): number | null {
    const isKnown = !this.isShared && !this.closing && this.changing === 0;
    return isKnown ? this.changes : null;
  }

  private async change<T>(work: (view: TableChange) => T): Promise<T> {
    this.changing++;
    try {
      return await this.table.commit(work);
    } finally {
      this.changing--;
      this.changes++;
    }
  }

  private checkOpen(): void {
    if (this.closing) throw new StoreError("closed", "the ledger is closed");
  }

  // ---------------------------------------------------------------------------------------- taking

  async submit(call: LedgerCall, label: string): Promise<Submission | Fault> {
    this.checkOpen();
    const refused = await this.read((view) => {
      view.prefetch(records.keysOfCall(call));
      return this.dryRun(view, call);
    });
    if (refused !== null) return refused;
    this.options.checkRoom?.(call);
    const bytes = encodeLedgerCall(call);
    if (decodeLedgerCall(bytes) === null)
      return fault("chain_submission_rejected", "the call exceeds a bound");
    return this.track(this.accept({ call, bytes, label }));
  }

  /** A refused call costs no write. */
  private dryRun(view: TableView, call: LedgerCall): Fault | null {
    const outcome = this.outcomeOf(view, call, this.options.now());
    return isFault(outcome) ? outcome : null;
  }

  private outcomeOf(view: TableView, call: LedgerCall, nowMs: number): Applied | Fault {
    const [{ operator }, proofs, bounds] = [this.options, this.proofsIn(view), embeddedBounds];
    const outcome = applyCall({
      ...records.readStanding(view, call),
      call,
      nowMs,
      operator,
      proofs,
      bounds,
    });
    return isRefusal(outcome) ? faultOfRefusal(outcome) : outcome;
  }

  private async accept(added: NewCall): Promise<Submission | Fault> {
    const { call } = added;
    const accepted = await this.change((view) => {
      view.prefetch([records.headKey, ...records.keysOfCall(call)]);
      // Again, because a block may have come in between.
      return (
        this.dryRun(view, call) ??
        records.findCollision(view, call) ??
        this.enqueue(view, added, this.countCall(view))
      );
    });
    this.arm();
    return accepted;
  }

  /** The sequence of one more pending call. */
  private countCall(view: TableChange): bigint {
    const head = records.readHead(view);
    if (records.pendingIn(head) >= this.limits.pendingCallsMax) {
      throw new StoreError(
        "full",
        `the ledger already has ${this.limits.pendingCallsMax} pending calls`,
      );
    }
    view.put(records.headKey, records.encodeHead({ ...head, poolNext: head.poolNext + 1n }));
    return head.poolNext;
  }

  private enqueue(
    view: TableChange,
    { call, bytes, label }: NewCall,
    sequence: bigint,
  ): Submission {
    const place = utf8(records.poolKey(sequence));
    const hash = blake2b256(concatBytes(bytes, place));
    const submission: Submission = {
      txHash: encodeHex0x(hash),
      did: call.did,
      call: call.name,
      label,
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: this.options.now(),
    };
    view.put(records.poolKey(sequence), records.encodePending(hash, bytes));
    view.put(records.submissionKey(submission.txHash), records.encodeSubmission(submission));
    records.writeClaims(view, call, records.poolKey(sequence));
    return submission;
  }

  // ---------------------------------------------------------------------------------------- blocks

  /**
   * Sets the timer to the end of the current block time when calls may be pending and it is
   * not set.
   */
  arm(): void {
    if (this.timer !== null || this.closing || this.isIdle()) return;
    const { blockTimeMs, now } = this.options;
    const leftMs = blockTimeMs - (now() % blockTimeMs);
    this.timer = setTimeout(() => void this.track(this.produceDue()), Math.max(1, leftMs));
  }

  /** In a table of several processes others' calls may come at any time. */
  private isIdle(): boolean {
    return (
      "get" in this.table && this.failures === 0 && records.pendingIn(this.headIn(this.table)) === 0
    );
  }

  /** Makes a block, and more while the pool holds more than a block does. */
  private async produceDue(): Promise<void> {
    try {
      let more = await this.isBlockDue();
      while (more) {
        more = (await this.change((view) => this.makeBlock(view))) && !this.closing;
        // A table in memory commits without a turn of the event loop, so others get one here.
        if (more) await new Promise<void>((resolve) => setImmediate(resolve));
      }
      if (this.failures > 0)
        this.options.log("info", "blocks are made again", { failures: this.failures });
      this.failures = 0;
    } catch (error) {
      const code = error instanceof StoreError ? error.code : "bug";
      const said = { code, error: code === "bug" ? errorStack(error) : error };
      if (this.failures === 0) this.failedAtMs = this.options.now();
      if (this.failures++ === 0 || code === "bug")
        this.options.log("error", "no block could be made; the ledger tries again", said);
    } finally {
      this.timer = null;
      this.arm();
    }
  }

  /** Another process may have made the block of this time. */
  private async isBlockDue(): Promise<boolean> {
    const { options, isShared } = this;
    const head = await this.read((view) => this.headIn(view));
    const blockTimeOf = (ms: number) => Math.floor(ms / options.blockTimeMs);
    return (
      records.pendingIn(head) > 0 &&
      (!isShared || blockTimeOf(options.now()) !== blockTimeOf(head.last.timeMs))
    );
  }

  /** One block: the oldest pending calls, in the order of acceptance; whether it is full. */
  private makeBlock(view: TableChange): boolean {
    view.prefetch([records.headKey, logHeadKey]);
    const head = records.readHead(view);
    const oldest = view.range(records.poolPrefix, { limit: this.limits.blockCallsMax });
    if (oldest.length === 0) return false;
    const pending = oldest.map(([key, bytes]) => ({ key, ...records.decodePending(bytes) }));
    const timeMs = Math.max(this.options.now(), head.last.timeMs);
    const number = head.last.number + 1n;
    const block: Block = {
      number,
      timeMs,
      hash: records.blockHash(head.last, { number, timeMs }, pending),
    };
    const { retainedMax } = this.limits;
    let { settled } = head;
    const displaced = pending.flatMap(
      (_, n) => records.displacedKey(settled + BigInt(n), retainedMax) ?? [],
    );
    if (this.isShared) fetchBlock(view, { pending, displaced });
    const touched = nothingTouched();
    for (const entry of pending) {
      this.settle(view, entry, block, touched);
      records.keepSettled(view, settled++, entry.txHash, retainedMax);
    }
    appendTouched(view, touched);
    const poolFirst = records.sequenceOf(oldest.at(-1)![0]) + 1n;
    view.put(records.headKey, records.encodeHead({ ...head, last: block, poolFirst, settled }));
    return oldest.length === this.limits.blockCallsMax;
  }

  /** Moves one call out of the pool: writes its changes and its outcome. */
  private settle(
    view: TableChange,
    entry: records.PendingCall & { readonly key: string },
    block: Block,
    touched: Touched,
  ): void {
    const kept = records.readSubmission(view, entry.txHash);
    if (kept === null) throw new StoreError("corrupt", "a pending call has no submission");
    const { limits, options, openedAtMs } = this;
    const endMs =
      Math.max(kept.submittedAtMs, openedAtMs) + limits.lifetimeBlocks * options.blockTimeMs;
    const dropped = options.now() > endMs;
    const outcome = dropped ? lifeOver : this.apply(view, entry);
    const refused = isFault(outcome);
    if (!refused) {
      records.writeApplied(view, kept.did, outcome);
      touch(touched, kept.did, outcome);
      const binding = { ...this.proofsIn(view), submitter: this.options.operator };
      if (entry.call !== null) records.writeKeyProof(view, entry.call, binding);
    }
    const included = refused ? "failed" : "finalized";
    const submission: Submission = {
      ...kept,
      state: dropped ? "dropped" : included,
      reason: refused ? outcome : null,
      block: dropped ? null : block,
    };
    view.put(records.submissionKey(entry.txHash), records.encodeSubmission(submission));
    view.remove(entry.key);
    if (entry.call !== null) records.releaseClaims(view, entry.call, entry.key);
  }

  /**
   * A call that throws is failed and logged; later calls go on. Calls
   * expire by the clock, as when they were accepted: the time of blocks never goes back,
   * and may be ahead of it.
   */
  private apply(view: TableView, entry: records.PendingCall): Applied | Fault {
    try {
      if (entry.call === null) throw new StoreError("corrupt", "a pending call can't be read");
      return this.outcomeOf(view, entry.call, this.options.now());
    } catch (error) {
      if (error instanceof StoreError && error.code !== "corrupt") throw error;
      const text = errorStack(error);
      this.options.log("error", "a call could not be applied", {
        tx_hash: entry.txHash,
        error: text,
      });
      return fault("internal_error", "the call could not be applied");
    }
  }

  // --------------------------------------------------------------------------------------- closing

  private async track<T>(work: Promise<T>): Promise<T> {
    this.underWay.add(work);
    try {
      return await work;
    } finally {
      this.underWay.delete(work);
    }
  }

  async close(): Promise<void> {
    this.closing = true;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    await Promise.allSettled(this.underWay);
  }
}

const lifeOver = fault(
  "chain_submission_rejected",
  "no block included the call within its lifetime",
);
