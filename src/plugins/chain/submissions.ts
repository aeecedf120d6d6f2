/**
 * Submissions: a call from its acceptance to its end on the chain. This file executes the actions
 * of the pool (`pool.ts`): it writes a call to the outbox before it answers, signs, submits, scans
 * every finalized block, and reads the head's state where blocks are gone. An end is on disk before
 * anyone can read it.
 * Source: docs/decisions.md D74, D75.
 */
import { errorStack, type Fault, fault, isFault } from "../../core/fault.ts";
import {
  aliasesNamed,
  claimsOf,
  decideClash,
  decodeLedgerCall,
  encodeLedgerCall,
  type LedgerCall,
} from "../../core/ledger/calls.ts";
import { faultOfRefusal, refuse } from "../../core/ledger/refusals.ts";
import { type Block, StoreError, type Submission } from "../../storage/contract.ts";
import type { OpenSession } from "./connections.ts";
import type { Endpoints } from "./endpoints.ts";
import { encodeExtrinsic, extrinsicHash, fingerprintOf, isOwned } from "./layouts.ts";
import type { ChainOutbox, PendingEntry } from "./outbox.ts";
import {
  type End,
  type Entry,
  lostSight,
  newEntry,
  type PoolAction,
  type Send,
  type Signed,
  SubmissionPool,
} from "./pool.ts";
import { type ChainReader, extrinsicsIn, type Facts, FinalizedScan, hasCalls } from "./reader.ts";
import type { SignedBlock } from "./rpc.ts";
import {
  type ChainHead,
  type Common,
  clockSkewMs,
  Disputed,
  heartbeatMs,
  readable,
} from "./session.ts";

type SubmissionsOptions = Common & {
  readonly endpoints: Endpoints;
  readonly reader: ChainReader;
  readonly outbox: ChainOutbox;
};

/** An entry of the pool, and what belongs to it. */
type KeptCall = Entry & {
  readonly call: LedgerCall;
  readonly submission: Submission;
  readonly claims: readonly string[];
  /** Settles when it is in the outbox. */
  readonly durable: Promise<void>;
};

const readsMax = 8;
/** Ends of calls that are read at a time: a light client needs about 13 proofs for each. */
const endsMax = 16;
/** Signatures at a time: half a millisecond each, in which nothing else goes on. */
const signsMax = 64;
/** The log shows a warning once in this time: the reason is usually the same for all calls. */
const quietMs = 3_600_000;

/** What a state without the record leaves as the reason. */
const noDeposit = faultOfRefusal(refuse("DepositUnavailable"));
/** Of a call that is still pending. */
const notSeen = fault(
  "chain_unavailable",
  "the only endpoint that can be asked shows neither the call nor all blocks that may hold it",
);
const notShown = fault(
  "chain_submission_rejected",
  "the chain refused the call; the state does not show why",
);

export class Submissions {
  private readonly pool: SubmissionPool<KeptCall>;
  private readonly resendMs: number;
  private readonly claims = new Map<string, KeptCall>();
  private nextSequence = 0n;
  /** To be signed again, and for which nonce. */
  private readonly toSign = new Map<KeptCall, number | null>();
  /** Calls in blocks that were scanned, about whose records two endpoints disagree. */
  private readonly undecided = new Map<KeptCall, SignedBlock>();
  private readonly scan: FinalizedScan;
  /** The last block up to which calls may have ended. */
  private following = 0n;
  /** The hash of the last head that was followed to the end; whether the newest is to be. */
  private followed = "";
  private isDue = false;
  private work: Promise<void> = Promise.resolve();
  private cancelTick: () => void = () => {};
  private closing = false;
  /** When the log showed a warning last. */
  private readonly loggedAtMs = new Map<string, number>();

  constructor(private readonly options: SubmissionsOptions) {
    const { settings, outbox, log } = options;
    const { lifetime_blocks: lifetimeBlocks } = settings;
    this.resendMs = settings.resend_ms ?? 4 * heartbeatMs(settings);
    this.pool = new SubmissionPool({ resendMs: this.resendMs, lifetimeBlocks });
    this.scan = new FinalizedScan(options.endpoints, log);
    for (const pending of outbox.pending()) {
      this.keep(pending, "waiting", Promise.resolve());
      this.nextSequence = pending.sequence + 1n;
    }
    if (this.pool.size > 0) log("info", "pending calls found", { calls: this.pool.size });
  }

  start(): void {
    const tick = () => {
      this.cancelTick = this.options.host.after(Math.max(50, this.resendMs / 2), tick);
      this.onTick();
    };
    tick();
  }

  submission(txHash: string): Submission | null {
    const kept = this.pool.get(txHash);
    if (kept?.state === "unsure") return { ...kept.submission, reason: notSeen };
    return kept?.submission ?? this.options.outbox.submission(txHash);
  }

  // --------------------------------------------------------------------------------------- enqueue

  async submit(call: LedgerCall, label: string): Promise<Submission | Fault> {
    const { callIndices } = this.options.endpoints.session().head.metadata.frame;
    if (!callIndices.has(call.name))
      return fault("chain_submission_rejected", `this chain takes no ${call.name}`);
    for (let reads = 0; reads < readsMax; reads++) {
      const facts = await this.options.reader.facts(call.did, aliasesNamed(call));
      const refused = this.dryRun(call, facts) ?? beyondBounds(call);
      if (refused !== null) return refused;
      // Pending calls exclude a call by the pool, ended calls by the state: a call that ended while
      // an older state was read is in neither, and would be accepted a second time.
      if (facts.head.number >= this.following) return this.enqueue(call, label);
    }
    throw new StoreError("unavailable", "the chain moves faster than it can be read");
  }

  private dryRun(call: LedgerCall, facts: Facts): Fault | null {
    return this.options.reader.dryRun(call, facts, {
      nowMs: this.options.host.nowMs(),
      operator: this.options.key.publicKey,
    });
  }

  /** Nothing waits before the call is in the pool: no other call takes its place or its nonce. */
  private async enqueue(call: LedgerCall, label: string): Promise<Submission | Fault> {
    const { settings, host, outbox, endpoints } = this.options;
    if (this.closing) throw new StoreError("closed", "the store is closed");
    const excluding = this.collision(call);
    if (isFault(excluding)) return excluding;
    if (excluding !== null) return whenDurable(excluding);
    if (this.pool.size >= settings.pending_max) {
      throw new StoreError("full", `the ledger already has ${settings.pending_max} pending calls`);
    }
    const signed = this.sign(call, isOwned(call) ? this.pool.freeNonce(endpoints.nonce()) : null);
    const holder = this.pool.holder(signed.fingerprint);
    // The same proof is already pending, and no block can hold it twice.
    if (holder !== undefined) return whenDurable(holder);
    const submission: Submission = {
      txHash: extrinsicHash(signed.extrinsic),
      did: call.did,
      call: call.name,
      label,
      state: "pending",
      reason: null,
      block: null,
      submittedAtMs: host.nowMs(),
    };
    const pending: PendingEntry = { sequence: this.nextSequence++, call, submission, signed };
    const kept = this.keep(pending, "storing", outbox.keep(pending));
    try {
      await kept.durable;
    } catch (error) {
      this.forget([kept]);
      throw error;
    }
    this.perform(this.pool.stored(kept));
    return submission;
  }

  /** The pending call that excludes this one: the same call, or why it does. */
  private collision(call: LedgerCall): KeptCall | Fault | null {
    for (const claim of claimsOf(call)) {
      const other = this.claims.get(claim);
      const clash = other === undefined ? null : decideClash(claim, other.call, call);
      if (clash === "same") return other ?? null;
      if (clash !== null) return clash;
    }
    return null;
  }

  private keep(
    pending: PendingEntry,
    state: "storing" | "waiting",
    durable: Promise<void>,
  ): KeptCall {
    const { sequence, call, submission, signed } = pending;
    const entry = newEntry({ id: submission.txHash, sequence, signed, state });
    const kept = { ...entry, call, submission, claims: claimsOf(call), durable };
    this.pool.add(kept);
    for (const key of kept.claims) this.claims.set(key, kept);
    return kept;
  }

  private forget(ended: readonly KeptCall[]): void {
    for (const kept of ended) this.undecided.delete(kept);
    for (const kept of ended)
      for (const key of kept.claims) if (this.claims.get(key) === kept) this.claims.delete(key);
    this.perform(this.pool.ended(ended));
  }

  /** Its era begins at the finalized head. */
  private sign(call: LedgerCall, nonce: number | null): Signed {
    const { key, settings, endpoints } = this.options;
    const { number: birth, hash, metadata } = endpoints.session().head;
    const { tip, lifetime_blocks: periodBlocks } = settings;
    const era = { birth, birthHash: Uint8Array.fromHex(hash.slice(2)), periodBlocks };
    return {
      ...encodeExtrinsic(call, { era, nonce, tip }, { frame: metadata.frame, key }),
      nonce,
      birth,
      death: birth + BigInt(periodBlocks),
    };
  }

  // ----------------------------------------------------------------------------------------- flush

  /** A new connection knows nothing of what was sent over the last one. */
  resume(): void {
    this.perform(this.pool.connected());
    this.follow();
  }

  private onTick(): void {
    if (this.sessionOrNull() === null) return;
    // A head that could not be followed for lack of an answer is followed again.
    this.follow();
    this.perform(this.pool.flush(this.options.host.elapsedMs()));
  }

  private sessionOrNull(): OpenSession | null {
    if (this.closing) return null;
    try {
      return this.options.endpoints.session();
    } catch {
      return null;
    }
  }

  private perform(actions: readonly PoolAction<KeptCall>[]): void {
    if (this.closing) return;
    const ends: (readonly [KeptCall, End])[] = [];
    for (const action of actions) {
      if (action.do === "send") void this.send(action);
      else if (action.do === "end") ends.push([action.entry, action.end]);
      else if (action.do === "sign") this.signLater(action.entry, action.nonce);
      else void this.queued(() => this.inspect(action.entry), action.entry);
    }
    if (ends.length > 0) void this.queued(() => this.finish(ends));
  }

  private async send(sent: Send<KeptCall>): Promise<void> {
    const { signed } = sent.entry;
    const { verdict, refusal } = await this.options.endpoints.submit(signed.extrinsic);
    const isUnusual = verdict === "invalid" || verdict === "full";
    if (signed.nonce !== null && refusal !== null && isUnusual)
      this.logHourly("the chain's nodes do not accept the operator's calls", { reason: refusal });
    this.perform(this.pool.answered(sent, verdict, this.options.host.elapsedMs()));
  }

  private logHourly(message: string, fields: Readonly<Record<string, string>> = {}): void {
    const nowMs = this.options.host.elapsedMs();
    if (nowMs - (this.loggedAtMs.get(message) ?? Number.NEGATIVE_INFINITY) < quietMs) return;
    this.loggedAtMs.set(message, nowMs);
    this.options.log("warn", message, fields);
  }

  /** Without funds a node refuses each call of the operator again: many share a commit. */
  private signLater(entry: KeptCall, nonce: number | null): void {
    this.toSign.set(entry, nonce);
    if (this.toSign.size === 1) void this.queued(() => this.signSome());
  }

  private async signSome(): Promise<void> {
    const some = [...this.toSign].slice(0, signsMax);
    for (const [entry] of some) this.toSign.delete(entry);
    if (this.toSign.size > 0) void this.queued(() => this.signSome());
    await Promise.all(
      some.map(([entry, nonce]) => this.tried(() => this.signAnew(entry, nonce), entry)),
    );
  }

  private async signAnew(entry: KeptCall, nonce: number | null): Promise<void> {
    const { signed: former } = entry;
    const anew = this.sign(entry.call, nonce);
    // The former one for this nonce may still enter, or be in a block that was not scanned yet.
    const signed = nonce === former.nonce ? { ...anew, birth: former.birth } : anew;
    await this.options.outbox.replace({ ...entry, signed });
    this.perform(this.pool.signed(entry, signed));
  }

  /** Decides by the head's state what blocks can't show, and why a node refuses a call. */
  private async inspect(entry: KeptCall): Promise<void> {
    // Of the last head that was scanned: our own call may have changed a newer state, and an older
    // one proves nothing.
    const { head } = this.scan;
    // Its block is known: the state after that decides.
    if (this.undecided.has(entry)) return void this.pool.unchanged(entry);
    if (head === null || entry.signed.birth > head.number) return void this.pool.unchanged(entry);
    const { reader, key } = this.options;
    const facts = await reader.factsAt(head, entry.call.did, aliasesNamed(entry.call));
    const wasUsed = entry.nonce !== null && facts.head.nonce > entry.nonce;
    // A counter shows calls of others too: it proves nothing unless a block was missed.
    const isMissed = entry.signed.birth < this.scan.missed && (entry.nonce === null || wasUsed);
    if ((isMissed || wasUsed) && (await reader.showsEffect(entry.call, facts, key.publicKey)))
      return this.finish([[entry, { state: "finalized", reason: null, block: null }]]);
    const refused = this.dryRun(entry.call, facts);
    // A proof has one effect, however often it is sent.
    const mayBeSent = refused === null && entry.nonce === null;
    if (isMissed && !mayBeSent && !this.options.endpoints.isWitnessed) return this.wait(entry);
    if (refused === null) return this.perform(this.pool.absent(entry));
    const [state, reason] = isMissed
      ? (["dropped", lostSight] as const)
      : (["failed", refused] as const);
    await this.finish([[entry, { state, reason, block: null }]]);
  }

  /** An only endpoint may hide blocks and records: no second one has said how the call ended. */
  private wait(entry: KeptCall): void {
    this.pool.unsure(entry);
    this.logHourly("calls wait: an endpoint lacks blocks that may hold them, name a second one");
  }

  // ------------------------------------------------------------------------------------- following

  /** When heads come faster than they can be followed, only the newest is followed. */
  follow(): void {
    if (this.isDue) return;
    this.isDue = true;
    void this.queued(async () => {
      this.isDue = false;
      const session = this.sessionOrNull();
      if (session !== null && session.head.hash !== this.followed)
        await this.followTo(session, session.head);
    });
  }

  /** Runs one step after another; a step that fails for lack of an answer runs again later. */
  private queued(step: () => Promise<void>, entry?: KeptCall): Promise<void> {
    this.work = this.work.then(() => this.tried(step, entry));
    return this.work;
  }

  private async tried(step: () => Promise<void>, entry?: KeptCall): Promise<void> {
    if (this.closing || entry?.state === "ended") return;
    try {
      await step();
    } catch (error) {
      if (entry !== undefined) this.pool.unchanged(entry);
      if (error instanceof StoreError && error.code !== "corrupt") return;
      this.options.log("error", "following the chain failed", { error: errorStack(error) });
    }
  }

  private async followTo(session: OpenSession, newest: ChainHead): Promise<void> {
    const { endpoints, host } = this.options;
    if (this.pool.size === 0) {
      this.following = newest.number;
      this.scan.skipTo(newest);
      this.followed = newest.hash;
      return;
    }
    const head = await endpoints.confirm(session, newest);
    if (head === null || (await this.scan.isPast(session, head))) return;
    this.following = head.number;
    if (
      this.pool.all().some(({ state, againFrom }) => state === "unsure" && againFrom <= head.number)
    )
      await this.scan.lookForMissed();
    const oldest = (this.pool.oldestBirth() ?? head.number) + 1n;
    await this.scan.upTo(session, head, {
      oldest,
      onBlock: (block) => this.finishFound(session, block, head),
    });
    for (const block of new Set(this.undecided.values()))
      await this.finishFound(session, block, head);
    if (this.closing) return;
    const { number, nonce, timeMs } = head;
    const { isWitnessed } = endpoints;
    const recent = timeMs > host.nowMs() - clockSkewMs;
    this.perform(this.pool.scanned({ number, nonce, recent, isWitnessed }));
    if (head === newest) this.followed = head.hash;
  }

  private async finishFound(
    session: OpenSession,
    block: SignedBlock,
    head: ChainHead,
  ): Promise<void> {
    if (!hasCalls(block)) return;
    // Where no node has the runtime's state, the newest: what it does not show, the state shows.
    const runtime = await this.options.endpoints.runtimeAfter(block.header.parentHash);
    const extrinsics = extrinsicsIn(block, runtime ?? head.metadata);
    const found = [
      ...new Set(
        extrinsics.flatMap((extrinsic) => this.pool.holder(fingerprintOf(extrinsic)) ?? []),
      ),
    ];
    if (found.length === 0) return;
    const { number, hash } = block.header;
    // The newest state decides where that of the block is gone.
    const after = hash === head.hash ? head : ((await readable(session.headAt(hash))) ?? head);
    const at = { number, hash, timeMs: after.timeMs };
    const ends = found.map((kept, n) => async (): Promise<[KeptCall, End]> => {
      const { did, name } = kept.call;
      const isReplaced = found
        .slice(n + 1)
        .some(({ call }) => call.did === did && call.name === name);
      const endIn = (state: ChainHead) => this.endIn(state, kept.call, { at, isReplaced });
      return [kept, (await readable(endIn(after))) ?? (await endIn(head))];
    });
    // What a light client is asked at once must be answered before the first question is late.
    for (let first = 0; first < ends.length; first += endsMax) {
      const some = ends.slice(first, first + endsMax).map((end) => end().catch(disputed));
      await this.finish((await Promise.all(some)).filter((end) => end !== null));
    }
    for (const kept of found) if (kept.state !== "ended") this.undecided.set(kept, block);
  }

  /**
   * How a call in a block ended, by the state after that block: it shows what the call did, or why
   * the ledger refused it. Only a later one of ours of the same kind writes over it there: an
   * account's calls come after those with a proof, except those about aliases.
   */
  private async endIn(
    state: ChainHead,
    call: LedgerCall,
    { at, isReplaced }: { readonly at: Block; readonly isReplaced: boolean },
  ): Promise<End> {
    const { reader, key } = this.options;
    const facts = await reader.factsAt(state, call.did, aliasesNamed(call));
    const known = call.name === "register_with_document_proof_signed" ? noDeposit : notShown;
    const unknown = state.hash === at.hash ? known : lostSight;
    const refused = this.dryRun(call, facts) ?? (isReplaced ? null : unknown);
    const reason = (await reader.showsEffect(call, facts, key.publicKey)) ? null : refused;
    return { state: reason === null ? "finalized" : "failed", reason, block: at };
  }

  // ---------------------------------------------------------------------------------------- finish

  /** Writes the ends, and only then shows them. */
  private async finish(ends: readonly (readonly [KeptCall, End])[]): Promise<void> {
    const known = ends.filter(([{ state }]) => state !== "ended");
    await Promise.allSettled(known.map(([{ durable }]) => durable));
    const { outbox, endpoints } = this.options;
    await outbox.finish(
      known.map(([{ sequence, submission }, end]) => ({
        sequence,
        submission: { ...submission, ...end },
      })),
      endpoints.anchor,
    );
    this.forget(known.map(([kept]) => kept));
  }

  async close(): Promise<void> {
    this.closing = true;
    this.cancelTick();
    await Promise.allSettled(this.pool.all().map(({ durable }) => durable));
    await this.work;
  }
}

/** What the ledger's rules let pass, and no chain could read. */
const beyondBounds = (call: LedgerCall): Fault | null =>
  decodeLedgerCall(encodeLedgerCall(call)) === null
    ? fault("chain_submission_rejected", "the call exceeds a bound")
    : null;

/** A call about whose record two endpoints disagree waits alone, and not its block. */
function disputed(error: unknown): null {
  if (error instanceof Disputed) return null;
  throw error;
}

async function whenDurable(kept: KeptCall): Promise<Submission> {
  await kept.durable;
  return kept.submission;
}
