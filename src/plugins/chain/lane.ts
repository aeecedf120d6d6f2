/**
 * The submission lane: from a call that was accepted to its end on the chain. A call is written to the
 * outbox before it is answered; the operator's nonces are counted here; up to a number of extrinsics are
 * with the node at a time; every finalized block is looked through for them. What a block has not taken
 * is sent again until its life is over, and a call whose nonce somebody else has used is signed anew.
 *
 * Laws: a call ends once. An extrinsic is given up for another only when no block can hold it any more:
 * its nonce is used, its runtime is gone or its era is over, all by finalized blocks that were looked at.
 * Source: decisions section 4 ("Submissions on a chain").
 */

import type { Did } from "../../core/codec/did.ts";
import { type Fault, fault, isFault } from "../../core/fault.ts";
import {
  aliasesNamed,
  claimsOf,
  decideClash,
  decodeLedgerCall,
  encodeLedgerCall,
  type LedgerCall,
} from "../../core/ledger/calls.ts";
import { faultOfRefusal, isRefusal } from "../../core/ledger/refusals.ts";
import { applyCall } from "../../core/ledger/rules.ts";
import { errorStack } from "../../core/std/error-text.ts";
import { type Block, type StoreEnvironment, StoreError, type Submission } from "../../storage/contract.ts";
import { claimKey } from "../../storage/embedded-records.ts";
import { BestBlocks } from "./best.ts";
import { readContents, readOutcomes } from "./blocks.ts";
import { type End, type Entry, fresh, isOwned, stateOf, subjectsOf } from "./entry.ts";
import { callMark, extrinsicHash, generalExtrinsic, type OperatorKey, signedExtrinsic } from "./extrinsic.ts";
import { faultOfFailure, lifeOver, lostSight, poolCodes, renewedTooOften } from "./faults.ts";
import type { Link } from "./link.ts";
import type { Ended, Outbox, Pending, Wire } from "./outbox.ts";
import type { Facts, Reader } from "./reader.ts";
import { NodeRefusal } from "./rpc.ts";
import type { Head, Session } from "./session.ts";

export type LaneLimits = {
  readonly pendingMax: number;
  readonly inFlightMax: number;
  readonly resendMs: number;
  /** The life of an extrinsic in blocks: a power of two from 4 to 4,096. */
  readonly lifetimeBlocks: number;
};

export type LaneOptions = {
  readonly link: Link;
  readonly reader: Reader;
  readonly outbox: Outbox;
  readonly key: OperatorKey & { readonly address: string };
  readonly limits: LaneLimits;
  readonly environment: Pick<StoreEnvironment, "now" | "log">;
  /** Heads that are only best are looked through as well, to tell `in_block`. */
  readonly watchBest: boolean;
};

const renewalsMax = 32;
const readsMax = 8;
/** Far more than can end while one state is read. */
const endsMax = 10_000;

export class Lane {
  private readonly entries = new Map<string, Entry>();
  private readonly byMark = new Map<string, Entry>();
  private readonly claims = new Map<string, Entry>();
  private readonly nonces = new Map<number, Entry>();
  private readonly best: BestBlocks;
  /** The block in which a call about a DID or an alias ended last. */
  private readonly ends = new Map<string, bigint>();
  private nextSequence = 0n;
  /** Every finalized block up to this one was looked through for what is pending. */
  private scanned: bigint | null = null;
  /** The head that is to be followed next, and the hash of the one that was followed to the end. */
  private wanted: Head | null = null;
  private followed = "";
  /** The last block that no node could show any more: what lies before it may have been missed. */
  private missed = -1n;
  private work: Promise<void> = Promise.resolve();
  private readonly taking = new Set<Promise<unknown>>();
  private timer: ReturnType<typeof setInterval> | null = null;
  private closing = false;
  /** The last refusal of a call of the operator that the log tells of. */
  private told = "";

  constructor(private readonly options: LaneOptions) {
    this.best = new BestBlocks({
      link: options.link,
      log: options.environment.log,
      isWanted: () => this.entries.size > 0,
      onMarks: (marks) => this.mark(marks),
    });
    for (const pending of options.outbox.pending()) {
      this.enter({ ...fresh(pending, Promise.resolve()), mayBeOut: true });
      this.nextSequence = pending.sequence + 1n;
    }
    if (this.entries.size > 0) options.environment.log("info", "pending calls found", { calls: this.entries.size });
  }

  start(): void {
    this.timer = setInterval(() => this.resend(), Math.max(50, this.options.limits.resendMs / 2));
  }

  submission(txHash: string): Submission | null {
    const entry = this.entries.get(txHash);
    if (entry === undefined) return this.options.outbox.submission(txHash);
    return stateOf(entry);
  }

  // ------------------------------------------------------------------------------------------------- taking

  async submit(call: LedgerCall, label: string): Promise<Submission | Fault> {
    if (decodeLedgerCall(encodeLedgerCall(call)) === null) {
      return fault("chain_submission_rejected", "the call exceeds a bound");
    }
    for (let reads = 0; reads < readsMax; reads++) {
      const facts = await this.options.reader.facts(call.did, aliasesNamed(call));
      const refused = this.dryRun(call, facts);
      if (refused !== null) return refused;
      if (!this.isOutdated(call, facts.head)) return this.take(call, label, this.options.link.session().head);
    }
    throw new StoreError("unavailable", "the chain moves faster than it can be read");
  }

  /**
   * What is pending stands in the way of a call, and what has ended stands in the state: a call that ended
   * while the state was read is in neither, and would be taken a second time.
   */
  private isOutdated(call: LedgerCall, head: Head): boolean {
    return subjectsOf(call).some((subject) => (this.ends.get(subject) ?? 0n) > head.number);
  }

  private dryRun(call: LedgerCall, facts: Facts): Fault | null {
    const outcome = applyCall({
      account: facts.account,
      aliasHolder: (alias: string): Did | null => facts.holders.get(alias) ?? null,
      call,
      nowMs: this.options.environment.now(),
      operator: this.options.key.publicKey,
      bounds: facts.head.surface.bounds,
    });
    return isRefusal(outcome) ? faultOfRefusal(outcome) : null;
  }

  private async take(call: LedgerCall, label: string, head: Head): Promise<Submission | Fault> {
    if (this.closing) throw new StoreError("closed", "the store is closed");
    const standing = this.collision(call);
    if (isFault(standing)) return standing;
    if (standing !== null) {
      await standing.durable;
      return stateOf(standing);
    }
    const { limits, environment, outbox } = this.options;
    if (this.entries.size >= limits.pendingMax) {
      throw new StoreError("full", `the ledger holds ${limits.pendingMax} pending calls`);
    }
    const wire = this.sign(call, head, isOwned(call) ? this.freeNonce(head) : null);
    const same = this.byMark.get(wire.mark);
    if (same !== undefined) {
      // The very same proof is on its way, and no block can hold it twice.
      await same.durable;
      return stateOf(same);
    }
    const submission: Submission = {
      txHash: extrinsicHash(wire.extrinsic),
      did: call.did,
      call: call.name,
      label,
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: environment.now(),
    };
    const pending: Pending = { sequence: this.nextSequence++, call, submission, wire, renewals: 0 };
    const durable = outbox.keep(pending);
    const entry = fresh(pending, durable);
    entry.stands = false;
    this.enter(entry);
    this.taking.add(durable);
    try {
      await durable;
      entry.stands = true;
    } catch (error) {
      this.leave(entry);
      throw error;
    } finally {
      this.taking.delete(durable);
    }
    this.pump();
    return submission;
  }

  /** The pending call that stands in the way: its entry when it is the same one, else why it excludes this one. */
  private collision(call: LedgerCall): Entry | Fault | null {
    for (const claim of claimsOf(call)) {
      const standing = this.claims.get(claimKey(claim));
      const clash = standing === undefined ? null : decideClash(claim, standing.pending.call, call);
      if (clash === "same") return standing ?? null;
      if (clash !== null) return clash;
    }
    return null;
  }

  private sign(call: LedgerCall, head: Head, nonce: number | null): Wire {
    const { key, limits } = this.options;
    const { surface, number: birth } = head;
    const { frame } = surface;
    const birthHash = Uint8Array.fromHex(head.hash.slice(2));
    const era = { birth, birthHash, periodBlocks: limits.lifetimeBlocks };
    const bytes = surface.encodeCall(call);
    const { specVersion } = frame;
    if (nonce === null) {
      return { extrinsic: generalExtrinsic(bytes, era, frame), mark: callMark(bytes), nonce, birth, specVersion };
    }
    const extrinsic = signedExtrinsic(bytes, { era, nonce }, { frame, key });
    return { extrinsic, mark: extrinsicHash(extrinsic), nonce, birth, specVersion };
  }

  /** The lowest nonce that neither the chain nor a pending call has used. */
  private freeNonce(head: Head, least = 0): number {
    let nonce = Math.max(head.nonce, least);
    while (this.nonces.has(nonce)) nonce++;
    return nonce;
  }

  private enter(entry: Entry): void {
    const { submission, wire } = entry.pending;
    this.entries.set(submission.txHash, entry);
    this.byMark.set(wire.mark, entry);
    if (wire.nonce !== null) this.nonces.set(wire.nonce, entry);
    for (const key of entry.claims) this.claims.set(key, entry);
  }

  private leave(entry: Entry): void {
    const { submission, wire } = entry.pending;
    this.entries.delete(submission.txHash);
    if (this.byMark.get(wire.mark) === entry) this.byMark.delete(wire.mark);
    if (wire.nonce !== null && this.nonces.get(wire.nonce) === entry) this.nonces.delete(wire.nonce);
    for (const key of entry.claims) if (this.claims.get(key) === entry) this.claims.delete(key);
  }

  // ------------------------------------------------------------------------------------------------ sending

  /** A new connection knows nothing of what was sent over the last one. */
  resume(): void {
    for (const entry of this.entries.values()) entry.sentAtMs = null;
    this.pump();
  }

  private pump(): void {
    this.sendWhere((entry) => entry.sentAtMs === null);
  }

  private resend(): void {
    const session = this.sessionOrNull();
    if (session === null) return;
    // What was left for want of an answer is gone through again, also when no newer head comes.
    if (session.head.hash !== this.followed) this.onHead(session.head);
    const dueMs = performance.now() - this.options.limits.resendMs;
    this.sendWhere((entry) => (entry.sentAtMs ?? 0) < dueMs);
  }

  /** The oldest calls come first, and only so many are with the node at a time. */
  private sendWhere(isDue: (entry: Entry) => boolean): void {
    const session = this.sessionOrNull();
    if (session === null) return;
    let inFlight = 0;
    for (const entry of this.entries.values()) {
      if (++inFlight > this.options.limits.inFlightMax) return;
      if (entry.stands && entry.inBlock === null && entry.awaiting !== session && isDue(entry))
        void this.send(entry, session);
    }
  }

  private sessionOrNull(): (Session & { readonly head: Head }) | null {
    if (this.closing) return null;
    try {
      return this.options.link.session();
    } catch {
      return null;
    }
  }

  private async send(entry: Entry, session: Session): Promise<void> {
    const { wire } = entry.pending;
    entry.awaiting = session;
    try {
      await session.submit(wire.extrinsic);
      entry.mayBeOut = true;
      if (wire.nonce !== null) this.told = "";
    } catch (error) {
      if (!(error instanceof NodeRefusal) || error.code === poolCodes.alreadyKnown) entry.mayBeOut = true;
      else await this.queued(() => this.refused(entry, wire, error));
    } finally {
      if (entry.awaiting === session) {
        entry.awaiting = null;
        if (entry.pending.wire === wire) entry.sentAtMs = performance.now();
      }
    }
  }

  /** A node's refusal is a reason to look closer, not an end: the extrinsic may lie in a block by now. */
  private async refused(entry: Entry, wire: Wire, refusal: NodeRefusal): Promise<void> {
    const { link, key, environment, reader } = this.options;
    if (entry.pending.wire !== wire || !this.entries.has(entry.pending.submission.txHash)) return;
    if (wire.nonce !== null) {
      const { head } = link.session();
      const hint = head.free === 0n ? { hint: "the operator account has no funds" } : {};
      // Whatever keeps one call out keeps out all of them, again and again: it is told once.
      if (refusal.message !== this.told)
        environment.log("warn", "the node does not take calls of the operator", { reason: refusal.message, ...hint });
      this.told = refusal.message;
      if (refusal.code !== poolCodes.taken || entry.mayBeOut) return;
      const next = await link.session().nextNonce(key.address);
      await this.renew(entry, head, this.freeNonce(head, Math.max(next, wire.nonce + 1)));
      return;
    }
    if (refusal.code !== poolCodes.invalid) return;
    const { call } = entry.pending;
    const facts = await reader.facts(call.did, aliasesNamed(call));
    // Until the blocks up to that state were looked through, it may be our own call that changed it.
    if (this.scanned === null || facts.head.number > this.scanned) return;
    const reason = this.dryRun(call, facts);
    if (reason !== null) await this.end([[entry, { state: "failed", reason, block: null }]]);
  }

  private async renew(entry: Entry, head: Head, nonce: number | null): Promise<void> {
    const { pending } = entry;
    if (pending.renewals >= renewalsMax) {
      await this.end([[entry, { state: "dropped", reason: renewedTooOften, block: null }]]);
      return;
    }
    const renewed = { ...pending, wire: this.sign(pending.call, head, nonce), renewals: pending.renewals + 1 };
    await this.options.outbox.renew(renewed);
    if (pending.wire.nonce !== null && this.nonces.get(pending.wire.nonce) === entry)
      this.nonces.delete(pending.wire.nonce);
    this.byMark.delete(pending.wire.mark);
    entry.pending = renewed;
    entry.mayBeOut = false;
    entry.sentAtMs = null;
    entry.awaiting = null;
    this.byMark.set(renewed.wire.mark, entry);
    if (nonce !== null) this.nonces.set(nonce, entry);
    this.pump();
  }

  // ----------------------------------------------------------------------------------------------- following

  /** Of heads that come faster than they can be followed the newest counts. */
  onHead(head: Head): void {
    const isAwaited = this.wanted !== null;
    this.wanted = head;
    if (isAwaited) return;
    void this.queued(async () => {
      const newest = this.wanted ?? head;
      this.wanted = null;
      if (newest.hash !== this.followed) await this.follow(newest);
    });
  }

  /** One thing after another; what fails for want of an answer is done again with the next head. */
  private queued(step: () => Promise<void>): Promise<void> {
    this.work = this.work.then(async () => {
      if (this.closing) return;
      try {
        await step();
      } catch (error) {
        if (error instanceof StoreError && error.code !== "corrupt") return;
        const text = errorStack(error);
        this.options.environment.log("error", "following the chain failed", { error: text });
      }
    });
    return this.work;
  }

  private async follow(head: Head): Promise<void> {
    if (this.entries.size === 0) {
      this.scanned = head.number;
      this.followed = head.hash;
      return;
    }
    let oldest = head.number + 1n;
    for (const { pending } of this.entries.values()) {
      if (pending.wire.birth < oldest) oldest = pending.wire.birth + 1n;
    }
    // A head that is not beyond what was looked through is another branch.
    let number =
      this.scanned === null || this.scanned >= head.number || this.scanned + 1n < oldest ? oldest : this.scanned + 1n;
    for (; number <= head.number && !this.closing; number++) {
      await this.look(number, head);
      this.scanned = number;
    }
    if (this.scanned === null || this.scanned < head.number) this.scanned = head.number;
    await this.reconsider(head);
    this.followed = head.hash;
    this.pump();
  }

  private async look(number: bigint, head: Head): Promise<void> {
    const session = this.options.link.session();
    const hash = number === head.number ? head.hash : await session.hashAt(number);
    // A block's events are encoded by the runtime that its parent left.
    const surface = await session.surfaceAt(await session.hashAt(number - 1n));
    const contents = await readContents(session, hash, surface);
    if (contents === null) {
      const isFirst = this.missed !== number - 1n;
      this.missed = number;
      const text = "the node no longer has blocks that pending calls may lie in";
      if (isFirst) this.options.environment.log("warn", text, { from: String(number) });
      return;
    }
    const found = [...contents.marks].flatMap(([mark, index]) => {
      const entry = this.byMark.get(mark);
      return entry === undefined ? [] : [{ entry, index }];
    });
    if (found.length === 0) return;
    const { block, byIndex } = await readOutcomes(session, hash, { number, surface });
    await this.end(
      found.map(({ entry, index }) => {
        const failure = byIndex.get(index);
        const reason =
          failure === undefined
            ? fault("chain_submission_rejected", "the block has no word about the call")
            : failure && faultOfFailure(failure, entry.pending.call);
        return [entry, { state: reason === null ? "finalized" : "failed", reason, block }];
      }),
    );
  }

  /** Everything up to the head was looked through: what can no longer come is signed anew or given up. */
  private async reconsider(head: Head): Promise<void> {
    const { lifetimeBlocks } = this.options.limits;
    const over: [Entry, End][] = [];
    for (const entry of [...this.entries.values()]) {
      const { wire } = entry.pending;
      const isOver = head.number + 1n >= wire.birth + BigInt(lifetimeBlocks);
      const isUsed = wire.nonce !== null && head.nonce > wire.nonce;
      const isForeign = wire.specVersion !== head.surface.frame.specVersion;
      if (isUsed && wire.birth < this.missed) {
        over.push([entry, { state: "dropped", reason: lostSight, block: null }]);
      } else if (isUsed || isForeign || (isOver && entry.sentAtMs === null && !entry.mayBeOut)) {
        const nonce = wire.nonce === null ? null : isUsed ? this.freeNonce(head) : wire.nonce;
        await this.renew(entry, head, nonce);
      } else if (isOver) over.push([entry, { state: "dropped", reason: lifeOver, block: null }]);
    }
    if (over.length > 0) await this.end(over);
  }

  /** Ends are written, and only then told. */
  private async end(ends: readonly (readonly [Entry, End])[]): Promise<void> {
    const ended: Ended[] = ends.map(([{ pending }, end]) => ({
      sequence: pending.sequence,
      submission: { ...pending.submission, ...end },
    }));
    await Promise.allSettled(ends.map(([entry]) => entry.durable));
    await this.options.outbox.end(ended, this.options.environment.now());
    for (const [entry, { block }] of ends) {
      if (block !== null) this.remember(entry.pending.call, block);
      this.leave(entry);
    }
    this.pump();
  }

  private remember(call: LedgerCall, { number }: Block): void {
    for (const subject of subjectsOf(call)) {
      this.ends.delete(subject);
      this.ends.set(subject, number);
    }
    for (const subject of this.ends.keys()) {
      if (this.ends.size <= endsMax) return;
      this.ends.delete(subject);
    }
  }

  /** A best head: what lies in a block that is not final yet is shown as such, until it is or is taken back. */
  onBest(hash: string): void {
    if (this.options.watchBest) this.best.onBest(hash);
  }

  private mark(marks: ReadonlyMap<string, Block>): void {
    for (const entry of this.entries.values()) {
      const block = marks.get(entry.pending.wire.mark) ?? null;
      if (block === null && entry.inBlock !== null) entry.sentAtMs = null;
      entry.inBlock = block;
    }
    this.pump();
  }

  async close(): Promise<void> {
    this.closing = true;
    if (this.timer !== null) clearInterval(this.timer);
    this.best.close();
    await Promise.allSettled([...this.taking, this.work]);
  }
}
