/**
 * What becomes of own messages, in the rows that show them: each copy waits, and why, is sent,
 * received, read, or failed.
 * Source: docs/client.md "A local store".
 */
import { decodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { minuteMs } from "../../core/codec/time.ts";
import { randomUuid } from "../keys/crypto.ts";
import { profileType, type Source, withId } from "../mail/content.ts";
import type { StoreChange } from "../mail/message.ts";
import { bodySource, deleteBody } from "./files.ts";
import {
  asideOf,
  deliveryKey,
  isAside,
  keyOfConversation,
  keyOfFile,
  keyOfId,
  messagesOf,
} from "./keys.ts";
import { enqueue, type Keeper, type Outcome, type OutRow } from "./outbox.ts";
import type { OwnStore } from "./own-store.ts";
import { keyOfMessage, orderOf } from "./places.ts";
import {
  type ConversationRow,
  type Copy,
  laterState,
  type MessageRow,
  messageNamed,
  putPerson,
  stateChange,
} from "./rows.ts";
import type { Batch, Table } from "./table.ts";

export class Copies implements Keeper {
  readonly #own: OwnStore;
  readonly #table: Table;

  constructor(own: OwnStore) {
    this.#own = own;
    this.#table = own.table;
  }

  sourceOf({ body, file }: OutRow): Source {
    const facts = { ...file, sha256: decodeHex(file.sha256) ?? new Uint8Array(0) };
    return bodySource(this.#table, body.is === "given" ? { is: "removed" } : body, facts);
  }

  async changed(
    batch: Batch,
    { place, row: out }: { readonly place: string; readonly row: OutRow },
    outcome: Outcome,
  ): Promise<StoreChange | null> {
    const row = out.key === null ? null : await batch.get<MessageRow>(out.key);
    if (outcome.state === "waiting") return this.#waits(batch, { place, out, row }, outcome.error);
    if (outcome.state === "renamed") return this.#renamed(batch, { place, out, row }, outcome.id);
    if (out.key === null || row === null) {
      if (out.body.is !== "given") deleteBody(batch, out.body);
      // The next message brings the own profile once more.
      const isUntold = outcome.state !== "sent" && out.file.mediaType.startsWith(profileType);
      if (isUntold) await putPerson(this.#table, batch, out.did, { toldMs: 1 });
      return null;
    }
    const aside = outcome.state === "sent" ? null : asideOf(place);
    if (aside !== null) batch.put(aside, { ...out, plan: null, hasLeft: false });
    const error = outcome.state === "sent" ? null : outcome.error;
    const ended = (copy: Copy): Copy => ({
      ...copy,
      state: laterState(copy.state, outcome.state),
      code: error?.code ?? null,
      reason: error?.message ?? null,
      out: aside,
    });
    const to = row.to.map((copy) => (copy.out === place ? ended(copy) : copy));
    const leftMs = outcome.state === "sent" ? outcome.leftMs : null;
    const isAhead = leftMs !== null && row.sentMs > leftMs + aheadMsMax;
    const { key, placed } = isAhead
      ? await moveBack(this.#table, batch, { key: out.key, row: { ...row, to } }, leftMs)
      : { key: out.key, placed: { ...row, to } };
    batch.put(key, placed);
    batch.log(deliveryKey(key));
    if (placed.body.is === "pieces" && to.every((copy) => copy.out === null))
      batch.put(keyOfFile({ at: orderOf(placed), id: placed.body.id }), key);
    return isAhead ? { ...stateChange(row), what: "message" } : stateChange(row);
  }

  /** The same message under another id, by which old clients name it. */
  async #renamed(batch: Batch, { place, out, row }: WaitingCopy, id: string): Promise<null> {
    if (out.key === null || row === null) return null;
    const to = row.to.map((copy) => (copy.out === place ? { ...copy, id } : copy));
    batch.put(out.key, { ...row, to });
    batch.put(keyOfId(this.#table, id), out.key);
    batch.log(deliveryKey(out.key));
    return null;
  }

  /** Why it has not left so far. */
  async #waits(
    batch: Batch,
    { place, out, row }: WaitingCopy,
    { code, message: reason }: { readonly code: string; readonly message: string },
  ): Promise<StoreChange | null> {
    const copy = row?.to.find((one) => one.out === place);
    if (out.key === null || row === null || copy === undefined || copy.code === code) return null;
    const to = row.to.map((one) => (one === copy ? { ...one, code, reason } : one));
    batch.put(out.key, { ...row, to });
    return stateChange(row);
  }

  /** A recipient has messages, or has read them. Returns what changed. */
  async received(
    batch: Batch,
    from: Did,
    state: "received" | "read",
    ids: readonly string[],
  ): Promise<readonly StoreChange[]> {
    const changes: StoreChange[] = [];
    for (const id of ids) {
      const author = this.#own.did;
      const found = await messageNamed(this.#table, { author, id }, batch);
      if (found === null) continue;
      const { key, row } = found;
      const isReported = (copy: Copy) =>
        copy.did === from &&
        (id === row.id || id === copy.id) &&
        laterState(copy.state, state) !== copy.state;
      if (!row.to.some(isReported)) continue;
      const to = row.to.map((copy): Copy => (isReported(copy) ? { ...copy, state } : copy));
      batch.put(key, { ...row, to });
      batch.log(deliveryKey(key));
      changes.push(stateChange(row));
    }
    return changes;
  }

  /**
   * Puts `failed` and `uncertain` copies of a message back, under new ids: their
   * old bytes count no more.
   */
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
        const { file } = out;
        const named = { ...file, mediaType: withId(file.mediaType, row?.id ?? out.id) };
        const again = { ...out, id, file: named };
        const place = await enqueue(this.#table, batch, again, this.#own.nowMs());
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
    if (row !== null) this.#own.announce(stateChange(row));
    for (const place of places) this.#own.announce({ type: "out", place });
  }
}

/** Between the clocks of a program and a Relay that agree. */
const aheadMsMax = 5 * minuteMs;

/**
 * A message that was written after it left was written by a clock that was ahead: it stands where
 * it left, and so does the end of its conversation. The caller puts its row.
 */
async function moveBack(
  table: Table,
  batch: Batch,
  { key: former, row }: { readonly key: string; readonly row: MessageRow },
  atMs: number,
): Promise<{ readonly key: string; readonly placed: MessageRow }> {
  const placed = { ...row, sentMs: atMs, arrivedMs: atMs };
  const key = keyOfMessage(table, placed);
  batch.delete(former);
  batch.log(key);

  const ids = [row.id, ...row.to.map(({ id }) => id)].map((id) => keyOfId(table, id));
  for (const one of ids) if ((await batch.get<string>(one)) === former) batch.put(one, key);
  for (const { out } of row.to) {
    const waiting = out === null ? null : await batch.get<OutRow>(out);
    if (out !== null && waiting !== null) batch.put(out, { ...waiting, key });
  }

  const place = keyOfConversation(table, row.conversation);
  const conversation = await batch.get<ConversationRow>(place);
  const prefix = messagesOf(table, row.conversation);
  const rest = await table.scan<MessageRow>({ prefix, limit: 2, isReverse: true });
  const [other = "", before = null] = rest.find(([one]) => one !== former) ?? [];
  const [last, at] = before === null || key > other ? [key, atMs] : [other, orderOf(before)];
  const arrivedMs = Math.max(atMs, before?.arrivedMs ?? 0);
  if (conversation === null) return { key, placed };

  const readMs = Math.min(conversation.readMs, arrivedMs);
  const readAtMs = Math.min(conversation.readAtMs, at);
  batch.put(place, { ...conversation, last, at, arrivedMs, readMs, readAtMs });
  return { key, placed };
}

type WaitingCopy = {
  readonly place: string;
  readonly out: OutRow;
  readonly row: MessageRow | null;
};
