/**
 * Messages on their way out, kept in the local store until the Relay has them: of each recipient one after the other.
 * Content waits sealed; key and bytes are fixed and saved before the first attempt, and the same bytes go out until their
 * `ttl` ends. Then a message that surely never left is prepared anew, and one with an unknown outcome is `uncertain`.
 * Source: docs/client.md "A local store", interface "Relay".
 */

import { decodeHex, encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { hourMs, parseDuration, parseTimestamp } from "../../core/codec/time.ts";
import { Waiters } from "../../core/std/bounded.ts";
import {
  askedPauseMs,
  attempt,
  backoffMs,
  ClientError,
  isTemporary,
  localError,
} from "../base/failure.ts";
import { randomUuid } from "../keys/crypto.ts";
import { profileType, type Source } from "../mail/content.ts";
import type { StoreChange } from "../mail/message.ts";
import type { FileFacts } from "../mail/seal.ts";
import {
  type ChunkProgress,
  type MessageOptions,
  parsePlan,
  renderPlan,
  type SendPlan,
  type Sent,
  sendPlan,
} from "../mail/send.ts";
import { Wakeup } from "../net/connections.ts";
import type { Endpoint } from "../net/http.ts";
import { type Body, bodySource, deleteBody } from "./files.ts";
import {
  asideOf,
  deliveryKey,
  digits,
  endOf,
  isAside,
  keyOfFile,
  keyOfId,
  laneIn,
  laneOf,
  numberOf,
  rowsOf,
} from "./keys.ts";
import { type Copy, laterState, type MessageRow, orderOf, putPerson, stateChange } from "./rows.ts";
import type { Batch, StoreBase, Table } from "./table.ts";

/** One copy of a message to one recipient. */
export type OutRow = {
  readonly did: Did;
  readonly id: string;
  /** The own message; `null` for what no conversation shows, such as a receipt. */
  readonly key: string | null;
  readonly file: Omit<FileFacts, "sha256"> & { readonly sha256: string };
  readonly body: Body;
  readonly options: Pick<
    MessageOptions,
    "ttl" | "tag" | "hint" | "chunkBytes" | "trust" | "anonymous"
  >;
  /** `renderPlan`, from the first attempt on. */
  readonly plan: string | null;
  /** The Relay may have it, or a part of it. */
  readonly hasLeft: boolean;
};

/** What became of a message, for whoever waits for it in this tab or another. */
export type OutNews = {
  readonly type: "out";
  readonly place: string;
  readonly sent?: Sent;
  readonly error?: { readonly code: string; readonly message: string };
};

type OutboxHost = Omit<StoreBase<StoreChange | OutNews>, "did"> & {
  readonly relay: Endpoint;
  readonly plan: (row: OutRow, source: Source) => Promise<SendPlan>;
  /** `null` signs nothing. Forgotten after a Relay refused its signature. */
  readonly sender: () => Promise<NonNullable<SendPlan["sender"]>>;
  readonly forgetSender: () => void;
};

const sendsAtOnce = 8;

/** Puts a copy at the end of its recipient's lane, and returns its place. Lanes are in the order of the changes. */
export async function enqueue(
  table: Table,
  batch: Batch,
  row: Omit<OutRow, "plan" | "hasLeft">,
  nowMs: number,
): Promise<string> {
  const prefix = laneOf(table, row.did, "short");
  const [last] = await table.scan({ prefix, limit: 1, isReverse: true });
  const number = last === undefined ? nowMs : Math.max(nowMs, numberOf(last[0]) + 1);
  let place = prefix + digits(number);
  // Behind what the same change has put there.
  for (let next = number + 1; batch.rows.has(place); next++) place = prefix + digits(next);
  batch.put(place, { ...row, plan: null, hasLeft: false } satisfies OutRow);
  return place;
}

export class Outbox {
  readonly #host: OutboxHost;
  readonly #table: Table;
  readonly #lanes = new Map<string, { readonly news: Wakeup; readonly ended: Promise<void> }>();
  /** Of messages that were sent here, by their places. */
  readonly progress = new Map<string, MessageOptions["onProgress"]>();
  readonly #signal: AbortSignal;
  readonly #slots = new Waiters();
  #free = sendsAtOnce;
  isLeading = false;

  constructor(host: OutboxHost, signal: AbortSignal) {
    this.#host = host;
    this.#table = host.table;
    this.#signal = signal;
  }

  /** Sends what waits, from now on. */
  async lead(): Promise<void> {
    this.isLeading = true;
    for (let from: string = rowsOf.outbox; ; ) {
      const [next] = await this.#table.scan<OutRow>({ prefix: rowsOf.outbox, from, limit: 1 });
      if (next === undefined) return;
      this.wake(next[0]);
      from = endOf(laneIn(next[0]));
    }
  }

  /** Something is new at a place. */
  wake(place: string): void {
    if (!this.isLeading || this.#signal.aborted) return;
    const prefix = laneIn(place);
    const running = this.#lanes.get(prefix);
    const news = running?.news ?? new Wakeup();
    news.wake();
    if (running === undefined) this.#lanes.set(prefix, { news, ended: this.#run(prefix, news) });
  }

  /** The network may be back: nothing waits for the end of its pause. */
  retry(): void {
    for (const { news } of this.#lanes.values()) news.wake();
  }

  async ended(): Promise<void> {
    await Promise.allSettled([...this.#lanes.values()].map(({ ended }) => ended));
  }

  async #run(prefix: string, news: Wakeup): Promise<void> {
    for (let failures = 0; !this.#signal.aborted; ) {
      news.begin();
      // A store that fails has changed nothing: the same is tried again.
      const tried = await attempt(async () => {
        const [first] = await this.#table.scan<OutRow>({ prefix, limit: 1 });
        return first === undefined ? "empty" : this.#inSlot(() => this.#send(...first));
      });
      if (tried === "empty") await news.next(hourMs, this.#signal);
      failures = tried === "empty" || tried === null ? 0 : failures + 1;
      const askedMs = typeof tried === "number" ? tried : 0;
      if (failures > 0)
        await news.next(askedMs > 0 ? askedMs : backoffMs(failures - 1), this.#signal);
    }
  }

  async #inSlot<T>(work: () => Promise<T>): Promise<T> {
    while (this.#free === 0) await this.#slots.wait(hourMs);
    this.#free--;
    try {
      return await work();
    } finally {
      this.#free++;
      this.#slots.release();
    }
  }

  /** `null` when the lane may go on; otherwise how long the node asks to wait, 0 for the usual pause. */
  async #send(place: string, row: OutRow): Promise<number | null> {
    const result = await attempt(() => this.#attempt(place, row));
    if (this.#signal.aborted && result instanceof ClientError) return 0;
    if (!(result instanceof ClientError)) {
      if (result !== null) await this.#end(place, { state: "sent", sent: result });
      return null;
    }
    // The store itself fails: nothing is known to have changed.
    const isStoreFault = ["store_full", "unusable", "store_unreadable"].includes(result.code);
    if (isStoreFault || isTemporary(result)) return askedPauseMs(result);
    await this.#end(place, {
      state: result.code === "uncertain" ? "uncertain" : "failed",
      error: result,
    });
    return null;
  }

  /** One attempt; `null` when the row has changed and another is due. Throws why it failed. */
  async #attempt(place: string, row: OutRow): Promise<Sent | null> {
    const file = { ...row.file, sha256: decodeHex(row.file.sha256) ?? new Uint8Array(0) };
    const source = bodySource(this.#table, row.body, file);
    const known = row.plan === null ? null : parsePlan(row.plan);
    const plan = known === null ? await this.#host.plan(row, source) : await this.#signed(known);
    if (plan === null) {
      if (row.hasLeft)
        throw localError("uncertain", "the Relay may have it or not; its time or its key is over");
      return this.#put(place, { ...row, plan: null });
    }
    let delivered = known?.delivered ?? 0;
    const left = (): OutRow => ({ ...row, plan: renderPlan(plan, delivered), hasLeft: true });
    if (known === null || !row.hasLeft) await this.#put(place, left(), plan);
    const onDelivered = async ({ chunk, chunks, sentBytes, totalBytes }: ChunkProgress) => {
      delivered = chunk + 1;
      if (delivered < chunks) await this.#put(place, left());
      await this.progress.get(place)?.({ sentBytes, totalBytes });
    };
    const once = { relay: this.#host.relay, retries: 0, from: delivered, onDelivered };
    const sent = await attempt(() => sendPlan(plan, source, once));
    if (!(sent instanceof ClientError)) return sent;
    const isUnknown = mayHaveIt(sent);
    const hasLeft = row.hasLeft || isUnknown || delivered > 0;
    // The key that signs was replaced: once more with the one that signs now.
    const isStale = sent.code === "sender_signature_invalid" && !hasLeft && known !== null;
    if (sent.code === "sender_signature_invalid") this.#host.forgetSender();
    if (!hasLeft)
      await this.#put(place, { ...left(), hasLeft, ...(isStale ? { plan: null } : {}) });
    if (isStale) return null;
    if (isUnknown && !isTemporary(sent))
      throw localError("uncertain", `the Relay may have it or not: ${sent.message} (${sent.code})`);
    throw sent;
  }

  /** `null` when its time is over, or another key signs now. */
  async #signed({
    plan,
    senderKeyId,
  }: NonNullable<ReturnType<typeof parsePlan>>): Promise<SendPlan | null> {
    const endsMs = (parseTimestamp(plan.timestamp) ?? 0) + (parseDuration(plan.ttl) ?? 0);
    if (endsMs <= this.#host.nowMs() + this.#host.relay.clock.aheadMs) return null;
    if (senderKeyId === null) return { ...plan, sender: null };
    const sender = await this.#host.sender();
    return sender.keyId === senderKeyId ? { ...plan, sender } : null;
  }

  /** Saves a row unless it was removed meanwhile. */
  async #put(place: string, row: OutRow, plan?: SendPlan): Promise<null> {
    const isThere = await this.#table.change(async (batch) => {
      if ((await batch.get(place)) === null) return false;
      batch.put(place, row);
      if (plan !== undefined) batch.meta = { sentMs: parseTimestamp(plan.timestamp) ?? 0 };
      return true;
    });
    if (!isThere) throw localError("removed", "the message was removed before it was sent");
    return null;
  }

  /** The row leaves its lane: for ever, or to wait aside for the program. */
  async #end(
    place: string,
    {
      state,
      sent,
      error,
    }: { readonly state: Copy["state"]; readonly sent?: Sent; readonly error?: ClientError },
  ): Promise<void> {
    const change = await this.#table.change(async (batch): Promise<StoreChange | null> => {
      const out = await batch.get<OutRow>(place);
      if (out === null) return null;
      batch.delete(place);
      const row = out.key === null ? null : await batch.get<MessageRow>(out.key);
      if (out.key === null || row === null) {
        deleteBody(batch, out.body);
        // The next message brings the own profile once more.
        const isUntold = state !== "sent" && out.file.mediaType === profileType;
        if (isUntold) await putPerson(this.#table, batch, out.did, { toldMs: 1 });
        return null;
      }
      const aside = state === "sent" ? null : asideOf(place);
      if (aside !== null) batch.put(aside, { ...out, plan: null, hasLeft: false });
      const why = { code: error?.code ?? null, reason: error?.message ?? null };
      const isThis = (copy: Copy) => copy.out === place;
      const to = row.to.map(
        (copy): Copy =>
          isThis(copy)
            ? { ...copy, ...why, out: aside, state: laterState(copy.state, state) }
            : copy,
      );
      batch.put(out.key, { ...row, to });
      batch.log(deliveryKey(out.key));
      const { body } = row;
      if (body.is === "pieces" && to.every((copy) => copy.out === null))
        batch.put(keyOfFile({ at: orderOf(row), id: body.id }), out.key);
      return stateChange(row);
    });
    this.progress.delete(place);
    if (change !== null) this.#host.tell(change);
    const why = error === undefined ? {} : { error: { code: error.code, message: error.message } };
    this.#host.tell({ type: "out", place, ...(sent === undefined ? {} : { sent }), ...why });
  }

  /** Puts `failed` and `uncertain` copies of a message back, under new ids: their old bytes count no more. */
  async resend(key: string): Promise<void> {
    const places = await this.#table.change(async (batch) => {
      const row = await batch.get<MessageRow>(key);
      const queued: string[] = [];
      const to: Copy[] = [];
      for (const copy of row?.to ?? []) {
        const aside = copy.out !== null && isAside(copy.out) ? copy.out : null;
        const out = aside === null ? null : await batch.get<OutRow>(aside);
        if (aside === null || out === null) {
          to.push(copy);
          continue;
        }
        const id = randomUuid();
        const place = await enqueue(this.#table, batch, { ...out, id }, this.#host.nowMs());
        batch.delete(aside);
        batch.put(keyOfId(this.#table, id), key);
        to.push({ ...copy, id, state: "waiting", code: null, reason: null, out: place });
        queued.push(place);
      }
      if (row !== null && queued.length > 0) {
        batch.put(key, { ...row, to });
        batch.log(deliveryKey(key));
      }
      return queued;
    });
    const row = await this.#table.get<MessageRow>(key);
    if (row !== null) this.#host.tell(stateChange(row));
    for (const place of places) {
      this.wake(place);
      this.#host.tell({ type: "out", place });
    }
  }
}

/** The Relay, or a destination behind it, has failed or has not answered: it may have taken what was sent. */
const mayHaveIt = ({ kind, status }: ClientError): boolean =>
  kind === "refused" ? [500, 502, 504].includes(status ?? 0) : kind !== "local";

export const outFile = ({ sha256, ...file }: FileFacts): OutRow["file"] => ({
  ...file,
  sha256: encodeHex(sha256),
});
