/**
 * The submission pool as a state machine: events in, actions out, no I/O and no clock. An entry is one call of
 * ours; it has a list of the extrinsics signed for it, each with its era and its fingerprint. `Entry.state` in its life:
 *
 *   storing --stored--> waiting --send--> sending --answered--> waiting    (due again after a time,
 *                        |  ^  |             |                              or over another connection)
 *           reconsider   |  |  +------+------+
 *                        |  |         | reconsider, or refused twice: none of its extrinsics suits the node or runtime
 *                        |  |         v
 *                        |  +-signed- signing
 *                        v            ^
 *                     inspected ------+ absent: the state shows no such call and would take it
 *                        |
 *                        +--> ended      the state shows it, or refuses it; or absent, though it had its chance
 *
 * `reconsider` runs at each head that was scanned: shown by the node in use -> `confirm` (a second endpoint has the same
 * block and state, endpoints.ts) -> every block up to it scanned, and the calls in them ended -> `scanned`. A head that
 * differs, or that nobody confirms, goes no further, and no entry moves by it.
 *
 * Laws:
 * 1. An entry ends once: `finalized` or `failed` when a finalized block holds one of its extrinsics or the head's
 *    state decides, as a second endpoint has it too (`submissions.ts` reports both), `dropped` only when none of them can
 *    enter any more. The state is asked before anything is signed for another nonce: a node may have hidden a block.
 * 2. An extrinsic can't enter any more when its era is over or its nonce is used, both by the finalized head, and
 *    every finalized block since its birth was scanned. A node's answer ends nothing. Nothing signs the era of a call
 *    with its own proof, so its bytes are valid again a life later: only the state ends it.
 * 3. Extrinsics of one entry that can still enter, or may be with some node, have one nonce: so at most one of them
 *    ever enters. Signing another one for the same nonce is always safe; a new runtime version or a node that takes
 *    none of the present ones is a reason for it.
 * 4. A free nonce below others is filled by signing the oldest call that no node can have.
 * 5. The first `windowMax` calls, by nonce, are with the node, and those with their own proof beside them.
 *
 * Source: docs/decisions.md D74, D75.
 */
import { type Fault, fault } from "../../core/fault.ts";
import type { Submission } from "../../storage/contract.ts";

/** One extrinsic that was signed for a call. Blocks after `birth` up to, not including, `death` may hold it. */
export type Signed = {
  readonly extrinsic: Uint8Array;
  /** How a block shows it: its hash, or the fingerprint of its call. */
  readonly fingerprint: string;
  /** The operator's nonce, `null` for a call with its own proof. */
  readonly nonce: number | null;
  readonly birth: bigint;
  readonly death: bigint;
  readonly specVersion: number;
  /** Whether a node has it, or may have: it was sent, and not refused. */
  out: boolean;
};

export type Entry = {
  /** The submission's `tx_hash`: that of the first extrinsic. */
  readonly id: string;
  readonly sequence: bigint;
  /** The nonce of all of `signed`, `null` for a call with its own proof. */
  nonce: number | null;
  /** Those that may still enter, oldest first. The last one of the present runtime is the one that is sent. */
  signed: readonly Signed[];
  state: "storing" | "waiting" | "sending" | "signing" | "inspected" | "ended";
  /** Grows with each change of the state: an answer to an earlier attempt to send changes nothing. */
  attempt: number;
  /** When the node of this connection last answered about it; `null`: it is due. */
  sentAtMs: number | null;
  /** Invalid verdicts in a row. */
  invalid: number;
  /** The first finalized head at which a node had it and its nonce was the next. */
  eligibleSince: bigint | null;
};

export type End = Pick<Submission, "state" | "reason" | "block">;
/** What a node answered to an extrinsic; `silence`: no answer, or one that leaves open whether it was accepted. */
export type Verdict = "taken" | "known" | "nonce-used" | "invalid" | "banned" | "nonce-taken" | "full" | "silence";
/** The finalized head: extrinsics are signed for its runtime, and their era begins at its block. */
type PoolHead = {
  readonly number: bigint;
  /** The operator's next nonce in the head's state. */
  readonly nonce: number;
  readonly specVersion: number;
  /** Whether the head's time is close to the clock: with an old head, no call is given up. */
  readonly recent: boolean;
};

/** `couldHave`: whether a node may have had it before. */
export type Send<E extends Entry = Entry> = {
  readonly do: "send";
  readonly entry: E;
  readonly signed: Signed;
  readonly attempt: number;
  readonly couldHave: boolean;
};

/** The operator's nonce was used, and no block shows the call; a node calls it invalid; its life is over. */
export type Why = "nonce-used" | "invalid" | "over";
export type PoolAction<E extends Entry = Entry> =
  | Send<E>
  | { readonly do: "sign"; readonly entry: E; readonly nonce: number | null }
  /** Look at the head's state. */
  | { readonly do: "inspect"; readonly entry: E; readonly why: Why }
  | { readonly do: "end"; readonly entry: E; readonly end: End };

export type PoolLimits = {
  readonly windowMax: number;
  readonly resendMs: number;
  /** The life of an extrinsic in blocks. */
  readonly lifetimeBlocks: number;
};

/** Extrinsics of one entry that may still enter; over it, it waits until one can't. */
const signedMax = 8;
/** Requests with the node that have no answer yet. */
const sendingMax = 128;
/** Calls that move into free nonces at one head. */
const movesMax = 256;

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
  nonce: given.signed.at(-1)?.nonce ?? null,
  attempt: 0,
  sentAtMs: null,
  invalid: 0,
  eligibleSince: null,
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
    for (const { signed } of this.entries.values())
      for (const { birth } of signed) if (oldest === null || birth < oldest) oldest = birth;
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
    this.keepSigned(entry, entry.signed);
  }

  private end(entry: E): void {
    if (entry.state === "ended") return;
    this.move(entry, "ended");
    this.entries.delete(entry.id);
    this.keepSigned(entry, []);
    this.freeNonceOf(entry);
  }

  private move(entry: E, state: Entry["state"]): void {
    this.sending += Number(state === "sending") - Number(entry.state === "sending");
    entry.state = state;
    entry.attempt++;
  }

  /** Forgets every other extrinsic of the entry. */
  private keepSigned(entry: E, kept: readonly Signed[]): void {
    for (const { fingerprint } of entry.signed) this.byFingerprint.delete(fingerprint);
    entry.signed = kept;
    for (const { fingerprint } of kept) this.byFingerprint.set(fingerprint, entry);
  }

  private freeNonceOf(entry: E): void {
    if (entry.nonce === null || this.nonces.get(entry.nonce) !== entry) return;
    this.nonces.delete(entry.nonce);
    this.lowestNonce = Math.min(this.lowestNonce, entry.nonce);
  }

  // ------------------------------------------------------------------------------------------------- sending

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

  /** Without going through all entries; one that has no place in the window waits for the next tick. */
  private sendNext(entry: E): PoolAction<E>[] {
    if (this.entries.size > this.limits.windowMax) return [];
    this.queue.unshift(entry);
    return this.sendQueue();
  }

  /** Fills the queue with the entries of the window that are due, and sends as many as may wait for an answer. */
  flush(nowMs?: number): PoolAction<E>[] {
    const dueMs = nowMs === undefined ? Number.NEGATIVE_INFINITY : nowMs - this.limits.resendMs;
    const owned: E[] = [];
    const proofs: E[] = [];
    for (const entry of this.entries.values()) (entry.nonce === null ? proofs : owned).push(entry);
    owned.sort((a, b) => (a.nonce ?? 0) - (b.nonce ?? 0));
    const isDue = ({ sentAtMs }: E) => sentAtMs === null || sentAtMs <= dueMs;
    const { windowMax } = this.limits;
    this.queue = [...owned.slice(0, windowMax), ...proofs.slice(0, windowMax)].filter(isDue).reverse();
    return this.sendQueue();
  }

  private sendQueue(): PoolAction<E>[] {
    const actions: PoolAction<E>[] = [];
    while (this.sending < sendingMax) {
      const entry = this.queue.pop();
      if (entry === undefined) break;
      const signed = this.present(entry);
      if (entry.state !== "waiting" || signed === undefined) continue;
      this.move(entry, "sending");
      actions.push({ do: "send", entry, signed, attempt: entry.attempt, couldHave: signed.out });
      signed.out = true;
    }
    return actions;
  }

  /** The extrinsic that the present runtime can accept. */
  private present({ signed }: E): Signed | undefined {
    const version = this.head?.specVersion;
    return signed.findLast(({ specVersion }) => version === undefined || specVersion === version);
  }

  answered({ entry, attempt, signed, couldHave }: Send<E>, verdict: Verdict, atMs: number): PoolAction<E>[] {
    if (attempt !== entry.attempt) return [];
    if (verdict !== "taken" && verdict !== "known" && verdict !== "silence") signed.out = couldHave;
    this.move(entry, "waiting");
    entry.sentAtMs = atMs;
    const isRefused = verdict === "invalid" || verdict === "banned";
    // The node that had it has dropped it: its chance ended, and the next one begins when a node has it again.
    if (isRefused || verdict === "full") entry.eligibleSince = null;
    entry.invalid = isRefused ? entry.invalid + (verdict === "banned" ? 2 : 1) : 0;
    return [...(isRefused ? this.onRefused(entry) : []), ...this.sendQueue()];
  }

  /**
   * The state may say why a proof is invalid. A call of the operator can be kept out by its bytes alone: a node bans
   * a hash for half an hour, and an era may begin in a block that was reverted. Another era is another hash.
   */
  private onRefused(entry: E): PoolAction<E>[] {
    if (entry.nonce === null && entry.invalid % 2 === 1) return this.inspect(entry, "invalid");
    const newest = entry.signed.at(-1)?.birth ?? 0n;
    return entry.invalid >= 2 && newest < (this.head?.number ?? 0n) ? this.sign(entry) : [];
  }

  /** It was signed again, and stored. */
  signed(entry: E, signed: Signed): PoolAction<E>[] {
    if (entry.state !== "signing") return [];
    this.move(entry, "waiting");
    this.keepSigned(entry, [...entry.signed, signed]);
    entry.sentAtMs = null;
    entry.invalid = 0;
    return this.sendNext(entry);
  }

  // ----------------------------------------------------------------------------------------------- following

  /** A request about it had no result: it stays as it was. Whether its state was to be looked at. */
  unchanged(entry: E): boolean {
    const isInspected = entry.state === "inspected";
    if (isInspected || entry.state === "signing") this.move(entry, "waiting");
    return isInspected;
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
   * Every finalized block up to the head was scanned, or no node could show it. Calls in them have ended before; calls
   * that can't enter any more are signed again or given up.
   */
  scanned(head: PoolHead): PoolAction<E>[] {
    this.head = head;
    this.lowestNonce = head.nonce;
    const actions: PoolAction<E>[] = [];
    if (head.recent) {
      for (const entry of this.entries.values()) {
        if (entry.state === "waiting" || entry.state === "sending") actions.push(...this.reconsider(entry, head));
      }
      actions.push(...this.fillGaps(head));
    }
    return [...actions, ...this.flush()];
  }

  private reconsider(entry: E, head: PoolHead): PoolAction<E>[] {
    const isOut = entry.signed.some(({ out }) => out);
    if (isOut && (entry.nonce === null || entry.nonce === head.nonce)) entry.eligibleSince ??= head.number;
    const open = entry.signed.filter((one) => !isOver(one, head));
    if (open.length === 0) return this.inspect(entry, isUsed(entry.nonce, head) ? "nonce-used" : "over");
    if (open.length < entry.signed.length) this.keepSigned(entry, open);
    return open.every((one) => one.specVersion !== head.specVersion) ? this.sign(entry) : [];
  }

  /** None of its extrinsics can enter any more. A call that had its chance ends, any other is signed again. */
  private onAbsent(entry: E): PoolAction<E>[] {
    const { head } = this;
    if (head === null || entry.signed.some((one) => !isOver(one, head))) return [];
    const chance = entry.eligibleSince === null ? 0n : head.number - entry.eligibleSince;
    const wasUsed = isUsed(entry.nonce, head);
    // The era of a call with its own proof is not signed: its bytes are valid again a life later, so only the state ends it.
    if (entry.nonce !== null && !wasUsed && chance >= BigInt(this.limits.lifetimeBlocks >> 1))
      return [{ do: "end", entry, end: lifeOver }];
    entry.eligibleSince = null;
    this.keepSigned(entry, entry.nonce === null ? entry.signed.slice(-1) : []);
    // Even if its own nonce is unused: above a gap it would wait another life.
    const free = this.freeNonce(head.nonce);
    if (entry.nonce !== null && (wasUsed || free < entry.nonce)) this.moveTo(entry, free);
    return this.sign(entry);
  }

  /** A gap in the nonces keeps every later call out of the blocks. */
  private fillGaps(head: PoolHead): PoolAction<E>[] {
    const actions: PoolAction<E>[] = [];
    for (const nonce of [...this.nonces.keys()].sort((a, b) => a - b)) {
      const free = this.freeNonce(head.nonce);
      const entry = this.nonces.get(nonce);
      if (free > nonce || entry === undefined || actions.length >= movesMax) continue;
      if (entry.state !== "waiting" || entry.signed.some(({ out }) => out)) continue;
      this.keepSigned(entry, []);
      this.moveTo(entry, free);
      actions.push(...this.sign(entry));
    }
    return actions;
  }

  /** At once, so that nothing else uses the nonce while the entry is signed for it. */
  private moveTo(entry: E, nonce: number): void {
    this.freeNonceOf(entry);
    entry.nonce = nonce;
    this.nonces.set(nonce, entry);
  }

  private sign(entry: E): PoolAction<E>[] {
    // Above a gap, another extrinsic with the same nonce would only keep the call from moving down.
    const waits = entry.nonce !== null && this.freeNonce(this.head?.nonce ?? 0) < entry.nonce;
    if (waits && entry.signed.length > 0) return [];
    if (entry.signed.length >= signedMax) {
      const refused = entry.signed.findIndex(({ out }) => !out);
      if (refused < 0) return [];
      this.keepSigned(entry, entry.signed.toSpliced(refused, 1));
    }
    this.move(entry, "signing");
    return [{ do: "sign", entry, nonce: entry.nonce }];
  }

  private inspect(entry: E, why: Why): PoolAction<E>[] {
    this.move(entry, "inspected");
    return [{ do: "inspect", entry, why }];
  }
}

/** Whether no block after the head can hold it. */
function isOver({ nonce, death }: Signed, head: PoolHead): boolean {
  return head.number + 1n >= death || isUsed(nonce, head);
}

const isUsed = (nonce: number | null, head: PoolHead): boolean => nonce !== null && head.nonce > nonce;
