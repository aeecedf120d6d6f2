/**
 * Messages on their way out: the outbox owns a copy from the moment it is added until the Relay has
 * it or will not get it, and reports what became of it. Key and bytes are fixed and saved before
 * the first attempt, and the same bytes go out until their `ttl` ends. Then a message that surely
 * never left is prepared anew, and one with an unknown outcome is `uncertain`. Files go in parallel
 * with what is short, so that no text waits for a file.
 * Source: docs/client.md "Sending" and "A local store", interface "Relay".
 */

import { encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { deferred } from "../../core/std/deferred.ts";
import { Slots } from "../../core/std/order.ts";
import {
  abortedError,
  askedPauseMs,
  attempt,
  ClientError,
  isTemporary,
  localError,
} from "../base/failure.ts";
import { randomUuid } from "../keys/crypto.ts";
import {
  groupType,
  profileType,
  type Source,
  withAfter,
  withId,
  withPass,
} from "../mail/content.ts";
import { planFor } from "../mail/plan.ts";
import type { FileFacts } from "../mail/seal.ts";
import {
  type ChunkProgress,
  chunkBytesDefault,
  chunkCount,
  type MessageOptions,
  parsePlan,
  renderPlan,
  type SendPlan,
  type SendProgress,
  type Sent,
  sendPlan,
} from "../mail/send.ts";
import type { NameTrust } from "../trust/trust.ts";
import type { Body } from "./files.ts";
import { digits, endOf, isFileLane, laneIn, laneOf, numberInKey, rowsOf } from "./keys.ts";
import { type Courier, type Flight, formerName, Lane, putEnd, takeEnd } from "./lane.ts";
import type { OutNews, OwnStore, StoreNews } from "./own-store.ts";
import type { Passes } from "./passes.ts";
import type { Batch, Table } from "./table.ts";

/** One copy of a message to one recipient. */
export type OutRow = {
  readonly did: Did;
  readonly id: string;
  /** The own message; `null` for what no conversation shows, such as a receipt. */
  readonly key: string | null;
  readonly file: Omit<FileFacts, "sha256"> & { readonly sha256: string };
  /** `given`: the program has it, and the copy ends with the program. */
  readonly body: Body | { readonly is: "given" };
  readonly options: SendChoices;
  /** `renderPlan`, from the first attempt on. */
  readonly plan: string | null;
  /** The Relay may have it, or a part of it. */
  readonly hasLeft: boolean;
  /** How often a node had something else under its id, so that it got another one. */
  readonly renamed?: number;
};

type SendChoices = Pick<
  MessageOptions,
  "ttl" | "tag" | "hint" | "chunkBytes" | "trust" | "anonymous"
>;

/** `leftMs`: when its bytes were fixed, by the Relay's clock. `waiting`: why it has not left. */
export type Outcome =
  | { readonly state: "sent"; readonly sent: Sent; readonly leftMs: number | null }
  | { readonly state: "renamed"; readonly id: string }
  | { readonly state: "failed" | "uncertain" | "waiting"; readonly error: ClientError };

/** Who keeps the messages that are sent. Each is called in the change of the copy itself. */
export type Keeper = {
  readonly sourceOf: (row: OutRow) => Source;
  readonly changed: (batch: Batch, copy: PlacedRow, outcome: Outcome) => Promise<StoreNews | null>;
};
type PlacedRow = { readonly place: string; readonly row: OutRow };

/** Who waits for a copy in this tab. */
type Follower = Pick<MessageOptions, "onProgress" | "signal"> & {
  /** Content that is not kept. */
  readonly source?: Source;
  /**
   * After so many temporary failures it is given up; without it, it is tried until its `ttl` ends.
   */
  readonly retries?: number;
  readonly name: NameTrust | null;
};
type Followed = Follower & {
  readonly resolve: (sent: Sent) => void;
  readonly reject: (error: unknown) => void;
  /** Temporary failures one after the other. */
  failures: number;
  /** What the program's `onProgress` threw. */
  thrown: { readonly error: unknown } | null;
};

/** No one can foresee a new id: a node that refuses several refuses all. */
const renamedMax = 3;
/** Texts, and files, that are sent at once to all recipients together. */
const [shortAtOnce, filesAtOnce] = [16, 4];

/** Puts a copy at the end of its recipient's lane, in the order of changes; returns its place. */
export async function enqueue(
  table: Table,
  batch: Batch,
  row: Omit<OutRow, "plan" | "hasLeft">,
  nowMs: number,
): Promise<string> {
  const { file, options } = row;
  const shortBytes = Math.min(options.chunkBytes ?? chunkBytesDefault, chunkBytesDefault);
  const prefix = laneOf(table, row.did, file.sizeBytes <= shortBytes ? "short" : "file");
  const [last] = await table.scan({ prefix, limit: 1, isReverse: true });
  const number = last === undefined ? nowMs : Math.max(nowMs, numberInKey(last[0]) + 1);
  let place = prefix + digits(number);
  // Behind what the same change has put there.
  for (let next = number + 1; batch.rows.has(place); next++) place = prefix + digits(next);
  batch.put(place, { ...row, plan: null, hasLeft: false } satisfies OutRow);
  return place;
}

/** The options of a message that count when it is sent. */
export function choicesOf(options: MessageOptions): SendChoices {
  const { ttl, tag, hint, chunkBytes, trust, anonymous } = options;
  const given = Object.entries({ ttl, tag, hint, chunkBytes, trust, anonymous });
  return Object.fromEntries(given.filter(([, one]) => one !== undefined));
}

export const outFile = ({ sha256, ...file }: FileFacts): OutRow["file"] => ({
  ...file,
  sha256: encodeHex(sha256),
});

export class Outbox {
  /** `null`: nothing is kept of what was sent. */
  keeper: Keeper | null = null;
  /** `null`: messages bring and show none. */
  passes: Pick<Passes, "given" | "shownTo"> | null = null;
  isLeading = false;
  readonly #own: OwnStore;
  readonly #table: Table;
  readonly #lanes = new Map<string, Lane<OutRow>>();
  readonly #slots = { short: new Slots(shortAtOnce), file: new Slots(filesAtOnce) };
  readonly #followed = new Map<string, Followed>();
  /** On their way at this moment. */
  readonly #flying = new Set<string>();
  #isClosing = false;

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
    own.onOut = (news) => this.#hear(news);
  }

  // ---------------------------------------------------------------------------------------- adding

  /** Adds a copy of what the program has and keeps: no content, no history. Returns its place. */
  addGiven(
    did: Did,
    { file }: Source,
    { id, ...options }: MessageOptions & { readonly id: string },
  ): Promise<string> {
    const out: Omit<OutRow, "plan" | "hasLeft"> = {
      did,
      id,
      key: null,
      file: outFile(file),
      body: { is: "given" },
      options: choicesOf(options),
    };
    return this.#table.change((batch) => enqueue(this.#table, batch, out, this.#own.nowMs()));
  }

  /** What becomes of a copy that was added. A program need not wait for it. */
  follow(place: string, follower: Follower): Promise<Sent> {
    const { promise, resolve, reject } = deferred<Sent>();
    promise.catch(() => undefined);
    this.#followed.set(place, { ...follower, resolve, reject, failures: 0, thrown: null });
    const { signal } = follower;
    // What is on its way sees it itself.
    const failAborted = () => {
      if (!this.#flying.has(place))
        void this.#end(place, { state: "failed", error: abortedError() });
    };
    signal?.addEventListener("abort", failAborted, { once: true });
    promise.catch(() => undefined).finally(() => signal?.removeEventListener("abort", failAborted));
    this.#own.announce({ type: "out", place });
    return promise;
  }

  // --------------------------------------------------------------------------------------- leading

  /** Sends what waits, from now on. */
  async lead(): Promise<void> {
    this.isLeading = true;
    for (let from: string = rowsOf.outbox; ; ) {
      const [next] = await this.#table.scan({ prefix: rowsOf.outbox, from, limit: 1 });
      if (next === undefined) return;
      this.#wake(next[0]);
      from = endOf(laneIn(next[0]));
    }
  }

  /** The network may be back: nothing waits for the end of its pause. */
  retry(): void {
    for (const lane of this.#lanes.values()) lane.retry();
  }

  /** Ends what is on its way; with `retries` the others have one attempt. What waits is kept. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.retry();
    await Promise.allSettled([...this.#lanes.values()].map((lane) => lane.ended()));
    for (const { reject } of this.#followed.values())
      reject(localError("closed", "close() was called: it waits in the store"));
    this.#followed.clear();
  }

  #wake(place: string): void {
    if (!this.isLeading || this.#own.signal.aborted) return;
    const prefix = laneIn(place);
    const lane = this.#lanes.get(prefix) ?? this.#laneAt(prefix);
    this.#lanes.set(prefix, lane);
    lane.wake();
  }

  #laneAt(prefix: string): Lane<OutRow> {
    const isFile = isFileLane(prefix);
    const courier: Courier<OutRow> = {
      waiting: (lane, limit) => this.#table.scan<OutRow>({ prefix: lane, limit }),
      isAlone: ({ file }) => isFile || changesReading(file),
      prepare: (place, row) => this.#prepare(place, row),
    };
    return new Lane(prefix, courier, this.#slots[isFile ? "file" : "short"], this.#own.signal);
  }

  #hear({ place, sent, error }: OutNews): void {
    const followed = this.#followed.get(place);
    if (sent === undefined && error === undefined) this.#wake(place);
    else this.#followed.delete(place);
    if (error !== undefined) followed?.reject(localError(error.code, error.message));
    else if (sent !== undefined) followed?.resolve(namedIn(sent, followed));
  }

  // --------------------------------------------------------------------------------------- sending

  /** Fixes and saves what is sent; nothing has left so far. */
  async #prepare(place: string, row: OutRow): Promise<Flight | number | null> {
    const prepared = await attempt(() => this.#planned(place, row));
    if (prepared === null) return null;
    if (prepared instanceof ClientError)
      return orPause(() => this.#failed({ place, row }, prepared));
    return () => orPause(() => this.#fly({ place, row }, prepared));
  }

  async #fly(copy: PlacedRow, prepared: PreparedSend): Promise<number | null> {
    const { place } = copy;
    this.#flying.add(place);
    const sent = await attempt(() => this.#post(place, prepared));
    this.#flying.delete(place);
    if (sent instanceof ClientError) return this.#failed(copy, sent);
    if (sent === null) return null;
    const leftMs = parseTimestamp(prepared.plan.timestamp);
    await this.#end(place, { state: "sent", sent, leftMs });
    return null;
  }

  async #planned(place: string, row: OutRow): Promise<PreparedSend | null> {
    const followed = this.#followed.get(place);
    if (followed?.signal?.aborted === true) throw abortedError();
    const source = this.#sourceOf(place, row);
    const known = row.plan === null ? null : parsePlan(row.plan);
    if (known !== null) {
      const plan = await this.#signed(known);
      if (plan !== null) return { row, source, plan, delivered: known.delivered, isNew: false };
      if (row.hasLeft)
        throw localError("uncertain", "the Relay may have it or not; its time or its key is over");
      return this.#put(place, { ...row, plan: null });
    }
    const { did: to, id, options } = row;
    const { identity } = this.#own;
    const file = { ...source.file, mediaType: row.file.mediaType };
    // An anonymous message brings none: its recipient may have the same one by name.
    const pass = options.anonymous === true ? null : await this.passes?.given(to, file.mediaType);
    const passed = pass == null ? file : { ...file, mediaType: withPass(file.mediaType, pass) };
    const former = await formerName(this.#table, place, { row, nowMs: this.#own.nowMs() });
    const told =
      former === null ? passed : { ...passed, mediaType: withAfter(passed.mediaType, former) };
    const wanted = await planFor(identity, to, told, { ...options, id });
    const begun = await this.#begun(wanted, row);
    const { plan, delivered } = begun ?? { plan: wanted, delivered: 0 };
    const fixed: OutRow = { ...row, plan: renderPlan(plan, delivered), hasLeft: true };
    await this.#put(place, fixed, plan);
    return { row: fixed, source, plan, delivered, isNew: true, saved: begun?.save };
  }

  #sourceOf(place: string, row: OutRow): Source {
    const source = this.#followed.get(place)?.source ?? this.keeper?.sourceOf(row);
    if (source !== undefined) return source;
    throw localError("removed", "the program that had the content has ended");
  }

  /** What is not kept here, and was interrupted, goes on with the bytes that were fixed before. */
  async #begun(wanted: SendPlan, { body }: OutRow) {
    if (body.is !== "given" || chunkCount(wanted) === 1) return null;
    return (await import("./resume.ts")).resume(this.#own.identity.client.known.memory, wanted);
  }

  /** One attempt; `null` when the row has changed and another is due. Throws why it failed. */
  async #post(place: string, prepared: PreparedSend): Promise<Sent | null> {
    const { row, source, plan, isNew, saved } = prepared;
    const { identity } = this.#own;
    const followed = this.#followed.get(place);
    let { delivered } = prepared;
    const left = (): OutRow => ({ ...row, plan: renderPlan(plan, delivered), hasLeft: true });
    if (!row.hasLeft) await this.#put(place, left());
    const onDelivered = async ({ chunk, chunks, sentBytes, totalBytes }: ChunkProgress) => {
      delivered = chunk + 1;
      if (followed !== undefined) followed.failures = 0;
      this.#lanes.get(laneIn(place))?.progressed();
      await saved?.(delivered);
      if (delivered < chunks) await this.#put(place, left());
      await this.#report(place, { sentBytes, totalBytes });
      if (delivered < chunks) this.#checkGoesOn(place);
    };
    const { relay } = identity.client;
    // An anonymous message shows none: its recipient would see who it is.
    const pass = plan.sender === null ? null : await this.passes?.shownTo(plan.to);
    const once = { relay, retries: 0, from: delivered, onDelivered, pass: pass ?? null };
    const sent = await attempt(() => sendPlan(plan, source, once));
    if (!(sent instanceof ClientError)) return sent;
    if (sent.code === "duplicate_conflict" && (row.renamed ?? 0) < renamedMax)
      return this.#rename({ place, row });
    const isUnknown = mayHaveIt(sent);
    const hasLeft = (row.hasLeft && !isNew) || isUnknown || delivered > 0;
    // The key that signs was replaced: once more with the one that signs now.
    const isStale = sent.code === "sender_signature_invalid" && !hasLeft && !isNew;
    if (sent.code === "sender_signature_invalid") identity.forgetAuthor();
    if (!hasLeft)
      await this.#put(place, { ...left(), hasLeft, ...(isStale ? { plan: null } : {}) });
    if (isStale) return null;
    if (isUnknown && !isTemporary(sent) && followed?.retries === undefined)
      throw localError("uncertain", `the Relay may have it or not: ${sent.message} (${sent.code})`);
    throw sent;
  }

  /** A node has other bytes under the id: the copy goes out under a new one, and keeps its name. */
  async #rename({ place, row }: PlacedRow): Promise<null> {
    const id = randomUuid();
    const { file, renamed = 0 } = row;
    const named = { ...file, mediaType: withId(file.mediaType, row.id) };
    const again: OutRow = { ...row, id, file: named, plan: null, hasLeft: false };
    await this.#put(place, { ...again, renamed: renamed + 1 });
    await this.#change({ place, row: again }, { state: "renamed", id });
    return null;
  }

  /** Between two chunks. */
  #checkGoesOn(place: string): void {
    const followed = this.#followed.get(place);
    if (followed?.signal?.aborted === true) throw abortedError();
    if (followed !== undefined && followed.thrown !== null)
      throw localError("aborted", "onProgress has thrown");
    if (this.#own.signal.aborted) throw localError("closed", "close() was called");
  }

  /** What the program throws there ends the message, and is what it gets. */
  async #report(place: string, progress: SendProgress): Promise<void> {
    const followed = this.#followed.get(place);
    try {
      await followed?.onProgress?.(progress);
    } catch (error) {
      if (followed !== undefined) followed.thrown = { error };
    }
  }

  /** `null` when its time is over, or another key signs now. */
  async #signed({ plan, senderKeyId }: KeptPlan): Promise<SendPlan | null> {
    const { identity } = this.#own;
    const endsMs = (parseTimestamp(plan.timestamp) ?? 0) + (parseDuration(plan.ttl) ?? 0);
    if (endsMs <= identity.nowMs() + identity.client.relay.clock.aheadMs) return null;
    if (senderKeyId === null) return { ...plan, sender: null };
    const sender = await identity.author();
    return sender.keyId === senderKeyId ? { ...plan, sender } : null;
  }

  /** Saves a row unless it was removed meanwhile. */
  async #put(place: string, row: OutRow, plan?: SendPlan): Promise<null> {
    const isThere = await this.#table.change(async (batch) => {
      if ((await batch.get(place)) === null) return false;
      batch.put(place, row);
      if (plan === undefined) return true;
      batch.meta = { sentMs: parseTimestamp(plan.timestamp) ?? 0 };
      await putEnd(batch, place, { row, nowMs: this.#own.nowMs() });
      return true;
    });
    if (!isThere) throw localError("removed", "the message was removed before it was sent");
    return null;
  }

  // ---------------------------------------------------------------------------------------- ending

  /** `null`: the lane may go on; else how long the node asks to wait, 0 for the usual pause. */
  async #failed({ place, row }: PlacedRow, error: ClientError): Promise<number | null> {
    if (this.#own.signal.aborted) return 0;
    const followed = this.#followed.get(place);
    // The store itself fails: nothing is known to have changed.
    const isStoreFault = ["store_full", "unusable", "store_unreadable"].includes(error.code);
    const isLater = isStoreFault || isTemporary(error);
    if (isLater && !(followed !== undefined && this.#isGivenUp(followed, error))) {
      if (!isStoreFault) await this.#change({ place, row }, { state: "waiting", error });
      return askedPauseMs(error);
    }
    const state = error.code === "uncertain" ? "uncertain" : "failed";
    await this.#end(place, { state, error });
    return null;
  }

  #isGivenUp(followed: Followed, error: ClientError): boolean {
    if (followed.retries === undefined) return false;
    followed.failures++;
    // After 504 the Relay has tried for as long as its destinations may take.
    return this.#isClosing || followed.failures > followed.retries || error.status === 504;
  }

  async #change(copy: PlacedRow, outcome: Outcome): Promise<void> {
    const { keeper } = this;
    if (keeper === null) return;
    const news = await this.#table.change((batch) => keeper.changed(batch, copy, outcome));
    if (news !== null) this.#own.announce(news);
  }

  /** The row leaves its lane: for ever, or to wait aside for the program. */
  async #end(place: string, outcome: Ended): Promise<void> {
    const change = await this.#table.change(async (batch) => {
      const row = await batch.get<OutRow>(place);
      if (row === null) return null;
      batch.delete(place);
      if (outcome.state !== "sent") await takeEnd(batch, place);
      return (await this.keeper?.changed(batch, { place, row }, outcome)) ?? null;
    });
    if (change !== null) this.#own.announce(change);
    const followed = this.#followed.get(place);
    this.#followed.delete(place);
    if (outcome.state === "sent") {
      const { sent } = outcome;
      followed?.resolve(namedIn(sent, followed));
      return this.#own.announce({ type: "out", place, sent });
    }
    const { error } = outcome;
    followed?.reject(followed.thrown === null ? error : followed.thrown.error);
    this.#own.announce({ type: "out", place, error: { code: error.code, message: error.message } });
  }
}

type Ended = Exclude<Outcome, { readonly state: "waiting" | "renamed" }>;
type KeptPlan = NonNullable<ReturnType<typeof parsePlan>>;

type PreparedSend = {
  readonly row: OutRow;
  readonly source: Source;
  readonly plan: SendPlan;
  readonly delivered: number;
  /** The plan was made for this attempt. */
  readonly isNew: boolean;
  /** Awaited after each chunk. */
  readonly saved?: ((delivered: number) => Promise<unknown>) | undefined;
};

/** A store that fails has changed nothing: the same is tried again. */
async function orPause(work: () => Promise<number | null>): Promise<number | null> {
  const done = await attempt(work);
  return done instanceof ClientError ? 0 : done;
}

/** What comes behind it is understood by it: a group's members, somebody's name. */
const changesReading = ({ mediaType }: OutRow["file"]): boolean =>
  mediaType.startsWith(groupType) || mediaType.startsWith(profileType);

/** How the recipient's name was found is known to who called. */
const namedIn = (sent: Sent, followed: Followed | undefined): Sent =>
  followed === undefined
    ? sent
    : { ...sent, recipient: { ...sent.recipient, name: followed.name } };

/** The Relay, or a destination behind it, failed or gave no answer: it may have what was sent. */
const mayHaveIt = ({ kind, status }: ClientError): boolean =>
  kind === "refused" ? [500, 502, 504].includes(status ?? 0) : kind !== "local";
