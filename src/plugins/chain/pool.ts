/**
 * The submission pool as a state machine: events in, actions out, no I/O and no clock. An entry is
 * one call of ours, with the extrinsic that is signed for it. `Entry.state` in its life:
 *
 *   storing --stored--> waiting --send--> sending --answered--> waiting
 *                        |  ^  ^              (due again after a time, or over another connection)
 *           reconsider   |  |  +-signed- signing <- refused by a node, in another era
 *                        v  |               ^        for the same nonce
 *                     inspected ------------+ absent: the state shows no such call, and would
 *                        |                    take it
 *                        |
 *                        +--> unsure -> inspected  an only endpoint lacks blocks that may hold it:
 *                        |                         again some blocks later
 *                        +--> ended      the state shows it, or refuses it; or absent, though it
 *                                        had its chance
 *
 * `reconsider` runs at each head that was scanned: shown by the node in use -> `confirm` (a second
 * endpoint has the same block and state, endpoints.ts) -> every block up to it scanned, and the
 * calls in them ended -> `scanned`. A head that differs, or that no endpoint confirms, goes no
 * further, and no entry moves by it. A proof that a node calls invalid is inspected at once. A call
 * had its chance when a node had it, its nonce being the next, for half its lifetime without a gap
 * in the blocks seen. What an only endpoint includes nowhere, or can't show, ends nothing: it may
 * lie, and the next honest answer decides.
 *
 * Laws:
 * 1. An entry ends once: `finalized` or `failed` when a finalized block holds its extrinsic or the
 *    head's state decides, as a second endpoint has it too (`submissions.ts` reports both),
 *    `dropped` only when the extrinsic can't enter any more by what two endpoints have. The state
 *    is asked before anything is signed again: a node may have hidden a block.
 * 2. An extrinsic can't enter any more when its era is over or its nonce is used, both by the
 *    finalized head, and every finalized block since its birth was scanned. A node's answer ends
 *    nothing. Nothing signs the era of a call with its own proof, so its bytes are valid again a
 *    life later: only the state ends it.
 * 3. The extrinsics of an entry that may still enter have one nonce, so at most one of them enters;
 *    a call with its own proof has one effect in however many. So what a node bans, or a new
 *    runtime refuses, is signed again for its nonce an eighth of a life later, and for another
 *    nonce only when none of them can enter any more.
 * 4. What is signed again takes the lowest free nonce: so a gap is closed when the calls above it
 *    have outlived it. They do, because nothing is signed again for a nonce above a gap: law 3
 *    would give it another life each time.
 * 5. Calls are sent by nonce, then those with their own proof; a node whose pool is
 *    full gets them again later.
 *
 * Source: docs/decisions.md D74, D75.
 */
import { type Fault, fault } from "../../core/fault.ts";
import type { Submission } from "../../storage/contract.ts";

/**
 * An extrinsic that was signed for a call. Blocks after `birth` up to, not including,
 * `death` may hold it, or a former one with the same fingerprint.
 */
export type Signed = {
  readonly extrinsic: Uint8Array;
  /** How a block shows it. */
  readonly fingerprint: string;
  /** The operator's nonce, `null` for a call with its own proof. */
  readonly nonce: number | null;
  readonly birth: bigint;
  readonly death: bigint;
};

export type Entry = {
  /** The submission's `tx_hash`: that of the first extrinsic. */
  readonly id: string;
  readonly sequence: bigint;
  signed: Signed;
  /** Its own, or the one that it is being signed for; `null` for a call with its own proof. */
  nonce: number | null;
  state: "storing" | "waiting" | "sending" | "signing" | "inspected" | "unsure" | "ended";
  /**
   * Grows with each change of the state: an answer to an earlier attempt to send changes
   * nothing.
   */
  attempt: number;
  /** When the node of this connection last answered about it; `null`: it is due. */
  sentAtMs: number | null;
  /** Whether a node has it, or may have. */
  isOut: boolean;
  /** The first finalized head at which a node had it and its nonce was the next. */
  eligibleSince: bigint | null;
  /** While it is unsure: from which block on its state is looked at again. */
  againFrom: bigint;
};

export type End = Pick<Submission, "state" | "reason" | "block">;
/**
 * What a node answered to an extrinsic; `silence`: no answer, or one that leaves open
 * whether it was accepted.
 */
export type Verdict = "taken" | "nonce-used" | "silence" | "full" | "banned" | "invalid";
/** The finalized head. */
type PoolHead = {
  readonly number: bigint;
  /** The operator's next nonce in the head's state. */
  readonly nonce: number;
  /** Whether the head's time is close to the clock: with an old head, no call is given up. */
  readonly recent: boolean;
  /** Whether a second endpoint has the same, or a light client has proven it. */
  readonly isWitnessed: boolean;
};

export type Send<E extends Entry = Entry> = {
  readonly do: "send";
  readonly entry: E;
  readonly attempt: number;
};

export type PoolAction<E extends Entry = Entry> =
  | Send<E>
  | { readonly do: "sign"; readonly entry: E; readonly nonce: number | null }
  /**
   * Look at the head's state: its life is over, its nonce was used and no block shows it,
   * or a node calls it invalid.
   */
  | { readonly do: "inspect"; readonly entry: E }
  | { readonly do: "end"; readonly entry: E; readonly end: End };

export type PoolLimits = {
  readonly resendMs: number;
  /** The life of an extrinsic in blocks. */
  readonly lifetimeBlocks: number;
};

/** Requests with the node that have no answer yet. */
const sendingMax = 128;

const lifeOver: End = {
  state: "dropped",
  reason: fault("chain_submission_rejected", "no block included the call within its lifetime"),
  block: null,
};
export const lostSight: Fault = fault(
  "chain_submission_rejected",
  "a block may have included the call while this Directory was offline; the record shows it",
);

/** A new entry; it is sent once it is stored. */
export const newEntry = (given: Pick<Entry, "id" | "sequence" | "signed" | "state">): Entry => ({
  ...given,
  nonce: given.signed.nonce,
  attempt: 0,
  sentAtMs: null,
  isOut: false,
  eligibleSince: null,
  againFrom: 0n,
});

/** Each event is a method, and its answer is what is to be done. */
export class SubmissionPool<E extends Entry = Entry> {
  private readonly entries = new Map<string, E>();
  private readonly byFingerprint = new Map<string, E>();
  private readonly nonces = new Map<number, E>();
  /** Every nonce from the chain's up to, not including, this one is used by an entry. */
  private lowestNonce = 0;
  private head: PoolHead | null = null;
  /** To be sent, the most urgent last. */
  private queue: E[] = [];
  private sending = 0;

  constructor(private readonly limits: PoolLimits) {}

  get size(): number {
    return this.entries.size;
  }

  all(): E[] {
    return [...this.entries.values()];
  }

  get(id: string): E | undefined {
    return this.entries.get(id);
  }

  holder(fingerprint: string): E | undefined {
    return this.byFingerprint.get(fingerprint);
  }

  /** The block after which a block may hold one of our extrinsics, or `null`. */
  oldestBirth(): bigint | null {
    let oldest: bigint | null = null;
    for (const { birth } of this.all().map(({ signed }) => signed))
      if (oldest === null || birth < oldest) oldest = birth;
    return oldest;
  }

  /** The lowest nonce that neither the chain nor an entry has used. */
  freeNonce(chainNonce: number): number {
    let nonce = Math.max(this.lowestNonce, chainNonce);
    while (this.nonces.has(nonce)) nonce++;
    this.lowestNonce = nonce;
    return nonce;
  }

  add(entry: E): void {
    if (entry.nonce !== null) this.nonces.set(entry.nonce, entry);
    this.entries.set(entry.id, entry);
    this.byFingerprint.set(entry.signed.fingerprint, entry);
  }

  private end(entry: E): void {
    if (entry.state === "ended") return;
    this.move(entry, "ended");
    this.entries.delete(entry.id);
    this.byFingerprint.delete(entry.signed.fingerprint);
    this.freeNonceOf(entry);
  }

  private move(entry: E, state: Entry["state"]): void {
    this.sending += Number(state === "sending") - Number(entry.state === "sending");
    entry.state = state;
    entry.attempt++;
  }

  private freeNonceOf(entry: E): void {
    if (entry.nonce === null || this.nonces.get(entry.nonce) !== entry) return;
    this.nonces.delete(entry.nonce);
    this.lowestNonce = Math.min(this.lowestNonce, entry.nonce);
  }

  // --------------------------------------------------------------------------------------- sending

  /** A new connection knows nothing of what was sent over the last one. */
  connected(): PoolAction<E>[] {
    for (const entry of this.entries.values()) {
      entry.sentAtMs = null;
      if (entry.state === "sending") this.move(entry, "waiting");
    }
    return this.flush();
  }

  stored(entry: E): PoolAction<E>[] {
    this.move(entry, "waiting");
    return this.sendNext(entry);
  }

  /** Without going through all entries. */
  private sendNext(entry: E): PoolAction<E>[] {
    this.queue.unshift(entry);
    return this.sendQueue();
  }

  /** Fills the queue with the entries that are due, and sends as many as may wait for an answer. */
  flush(nowMs?: number): PoolAction<E>[] {
    const dueMs = nowMs === undefined ? Number.NEGATIVE_INFINITY : nowMs - this.limits.resendMs;
    const order = ({ nonce }: E) => nonce ?? Number.MAX_SAFE_INTEGER;
    const isDue = ({ sentAtMs }: E) => sentAtMs === null || sentAtMs <= dueMs;
    const due = this.all().filter(isDue);
    this.queue = due.sort((a, b) => order(a) - order(b)).reverse();
    return this.sendQueue();
  }

  private sendQueue(): PoolAction<E>[] {
    const actions: PoolAction<E>[] = [];
    while (this.sending < sendingMax) {
      const entry = this.queue.pop();
      if (entry === undefined) break;
      if (entry.state !== "waiting") continue;
      this.move(entry, "sending");
      actions.push({ do: "send", entry, attempt: entry.attempt });
    }
    return actions;
  }

  answered({ entry, attempt }: Send<E>, verdict: Verdict, atMs: number): PoolAction<E>[] {
    if (attempt !== entry.attempt) return [];
    this.move(entry, "waiting");
    entry.sentAtMs = atMs;
    if (verdict === "taken" || verdict === "silence") entry.isOut = true;
    if (verdict === "invalid" || verdict === "banned" || verdict === "full") {
      // A node that had it has dropped it: its chance ended, and the next one begins when a
      // node has it again.
      entry.isOut = false;
      entry.eligibleSince = null;
    }
    return [...this.onRefused(entry, verdict), ...this.sendQueue()];
  }

  private onRefused(entry: E, verdict: Verdict): PoolAction<E>[] {
    if (verdict !== "invalid" && verdict !== "banned") return [];
    // The state may say why a proof is invalid.
    if (verdict === "invalid" && entry.nonce === null) return this.inspect(entry);
    if (this.isAboveGap(entry)) return [];
    // A ban is of bytes, and a new runtime takes those that are signed for it.
    const { lifetimeBlocks } = this.limits;
    const ageBlocks = (this.head?.number ?? 0n) - entry.signed.death + BigInt(lifetimeBlocks);
    return ageBlocks >= BigInt(Math.max(1, lifetimeBlocks >> 3)) ? this.signAgain(entry) : [];
  }

  /** Whether a lower nonce is free: until an entry takes it, no node puts this one into a block. */
  private isAboveGap({ nonce }: E): boolean {
    return nonce !== null && this.head !== null && this.freeNonce(this.head.nonce) < nonce;
  }

  /** It was signed again, and stored. */
  signed(entry: E, signed: Signed): PoolAction<E>[] {
    if (entry.state !== "signing") return [];
    this.move(entry, "waiting");
    this.byFingerprint.delete(entry.signed.fingerprint);
    this.byFingerprint.set(signed.fingerprint, entry);
    entry.signed = signed;
    entry.sentAtMs = null;
    return this.sendNext(entry);
  }

  // ------------------------------------------------------------------------------------- following

  /**
   * A request about it had no result: it stays as it was. Whether its state was to be
   * looked at.
   */
  unchanged(entry: E): boolean {
    const isInspected = entry.state === "inspected";
    if (isInspected || entry.state === "signing") this.move(entry, "waiting");
    return isInspected;
  }

  /** An only endpoint shows neither its effect nor the blocks that may hold it. */
  unsure(entry: E): void {
    if (!this.unchanged(entry)) return;
    this.move(entry, "unsure");
    entry.againFrom = (this.head?.number ?? 0n) + BigInt(this.limits.lifetimeBlocks >> 2);
  }

  /** The head's state shows that no block holds the call, and would accept it. */
  absent(entry: E): PoolAction<E>[] {
    return this.unchanged(entry) ? this.onAbsent(entry) : [];
  }

  ended(entries: readonly E[]): PoolAction<E>[] {
    for (const entry of entries) this.end(entry);
    return this.flush();
  }

  /**
   * Every finalized block up to the head was scanned, or no node could show it. Calls in
   * them have ended before; calls that can't enter any more are looked for in the state.
   */
  scanned(head: PoolHead): PoolAction<E>[] {
    // Over a leap, a node that stood still gave nothing its chance. The next block is none,
    // however short the life.
    const leapMin = BigInt(Math.max(2, this.limits.lifetimeBlocks >> 2));
    if (this.head !== null && head.number - this.head.number >= leapMin)
      for (const entry of this.entries.values()) entry.eligibleSince = null;
    this.head = head;
    this.lowestNonce = head.nonce;
    const actions: PoolAction<E>[] = [];
    if (head.recent) {
      for (const entry of this.entries.values())
        if (entry.state === "waiting" || entry.state === "sending")
          actions.push(...this.reconsider(entry, head));
        else if (entry.state === "unsure" && head.number >= entry.againFrom)
          actions.push(...this.inspect(entry));
    }
    return [...actions, ...this.flush()];
  }

  private reconsider(entry: E, head: PoolHead): PoolAction<E>[] {
    const isNext = entry.nonce === null || entry.nonce === head.nonce;
    if (entry.isOut && isNext) entry.eligibleSince ??= head.number;
    // By an endpoint that took its nonce back: what no node could include had no chance.
    if (!isNext) entry.eligibleSince = null;
    return isTooLate(entry.signed, head) ? this.inspect(entry) : [];
  }

  /**
   * Its extrinsic can't enter any more. A call that had its chance ends, any other is
   * signed again.
   */
  private onAbsent(entry: E): PoolAction<E>[] {
    const { head } = this;
    if (head === null || !isTooLate(entry.signed, head)) return [];
    const chance = entry.eligibleSince === null ? 0n : head.number - entry.eligibleSince;
    const wasUsed = isUsed(entry.nonce, head);
    // The era of a call with its own proof is not signed: its bytes are valid again a life
    // later, so only the state ends it.
    const hadChance = chance >= BigInt(this.limits.lifetimeBlocks >> 1) && head.isWitnessed;
    if (entry.nonce !== null && !wasUsed && hadChance) return [{ do: "end", entry, end: lifeOver }];
    entry.isOut = false;
    entry.eligibleSince = null;
    // Even if its own nonce is unused: above a gap it would wait another life.
    const free = this.freeNonce(head.nonce);
    if (entry.nonce !== null && (wasUsed || free < entry.nonce)) this.moveTo(entry, free);
    return this.signAgain(entry);
  }

  private signAgain(entry: E): PoolAction<E>[] {
    this.move(entry, "signing");
    return [{ do: "sign", entry, nonce: entry.nonce }];
  }

  /** At once, so that nothing else uses the nonce while the entry is signed for it. */
  private moveTo(entry: E, nonce: number): void {
    this.freeNonceOf(entry);
    entry.nonce = nonce;
    this.nonces.set(nonce, entry);
  }

  private inspect(entry: E): PoolAction<E>[] {
    this.move(entry, "inspected");
    return [{ do: "inspect", entry }];
  }
}

/** Whether no block after the head can hold it. */
function isTooLate({ nonce, death }: Signed, head: PoolHead): boolean {
  return head.number + 1n >= death || isUsed(nonce, head);
}

const isUsed = (nonce: number | null, head: PoolHead): boolean =>
  nonce !== null && head.nonce > nonce;
