/**
 * A mailbox over the index in memory (mailbox-index.ts): the index decides, and says which
 * slots a read returns; the driver keeps the bytes of each slot, and writes. Here is what
 * does not depend on where the bytes are.
 */
import type { MailboxKey, Uuid } from "../core/codec/did.ts";
import { type Fault, isFault } from "../core/fault.ts";
import {
  type HeldMessage,
  type KnownMessage,
  type MailboxEntry,
  type MailboxStats,
  type MessageState,
  type MessageSummary,
  type Page,
  type PageRequest,
  type RemovedMessage,
  StoreError,
} from "./contract.ts";
import type { MailboxIndex } from "./mailbox-index.ts";
import { none } from "./mailbox-rows.ts";

export abstract class IndexedMailbox {
  protected abstract readonly index: MailboxIndex;

  /** Runs a read when all that the index shows may be answered. */
  protected abstract reading<T>(read: () => T): Promise<T>;

  /** A part of the bytes of slots, the caller's own; `null` for what is damaged. */
  protected abstract bytesOf(
    slots: readonly number[],
    part: "envelope" | "preview",
  ): (Uint8Array | null)[];

  list(recipient: MailboxKey, page: PageRequest): Promise<Page<HeldMessage> | Fault> {
    return this.reading(() => {
      const found = this.index.page(recipient, page, page.bytesMax);
      return isFault(found) ? found : { entries: this.messages(found.slots), next: found.next };
    });
  }

  summary(recipient: MailboxKey, page: PageRequest): Promise<Page<MessageSummary> | Fault> {
    return this.reading(() => {
      const found = this.index.page(recipient, page, null);
      return isFault(found) ? found : { entries: this.summaries(found.slots), next: found.next };
    });
  }

  chunks(recipient: MailboxKey, groupId: Uuid, nowMs: number): Promise<MessageSummary[]> {
    return this.reading(() => this.summaries(this.index.chunksOf(recipient, groupId, nowMs)));
  }

  read(recipient: MailboxKey, messageIds: readonly Uuid[], nowMs: number): Promise<HeldMessage[]> {
    return this.reading(() => this.messages(this.index.activeOf(recipient, messageIds, nowMs)));
  }

  message(recipient: MailboxKey, messageId: Uuid, nowMs: number): Promise<MessageState> {
    return this.reading(() => {
      const { rows } = this.index;
      const { state, slot } = this.index.state(recipient, messageId, nowMs);
      if (state === "absent" || state === "acked") return { state };
      if (state === "active") {
        const [message] = this.messages([slot]);
        if (message === undefined) throw new StoreError("corrupt", "the stored message is damaged");
        return { state, message };
      }
      const kept = rows.hasPreview(slot) ? this.bytesOf([slot], "preview")[0]! : new Uint8Array(0);
      const headerPreview = rows.previewBytes[slot] === none ? null : kept;
      return { state, expiresAtMs: rows.expiresAtMs[slot]!, headerPreview };
    });
  }

  known(
    recipient: MailboxKey,
    named: Pick<MailboxEntry, "messageId" | "digest">,
    nowMs: number,
  ): Promise<KnownMessage | null> {
    return this.reading(() => this.index.known(recipient, named, nowMs));
  }

  stats(nowMs: number): Promise<MailboxStats> {
    return this.reading(() => this.index.stats(nowMs));
  }

  oldest(nowMs: number): Promise<number | null> {
    return this.reading(() => this.index.oldest(nowMs));
  }

  /** Of slots whose messages were acknowledged, by id. */
  protected removed(slots: readonly number[]): RemovedMessage[] {
    const { index } = this;
    const removed = slots.map((slot) => ({
      messageId: index.id(slot),
      labels: index.recipients.labels(slot),
    }));
    return removed.sort((a, b) => (a.messageId < b.messageId ? -1 : 1));
  }

  private summaries(slots: readonly number[]): MessageSummary[] {
    const { index } = this;
    const { expiresAtMs, envelopeBytes } = index.rows;
    return slots.map((slot) => ({
      messageId: index.id(slot),
      chunk: index.recipients.chunk(slot),
      expiresAtMs: expiresAtMs[slot]!,
      envelopeBytes: envelopeBytes[slot]!,
      labels: index.recipients.labels(slot),
      cursor: index.cursor(slot),
    }));
  }

  /** A damaged message is left out. */
  private messages(slots: readonly number[]): HeldMessage[] {
    const { index } = this;
    const envelopes = this.bytesOf(slots, "envelope");
    const found: HeldMessage[] = [];
    slots.forEach((slot, i) => {
      const envelope = envelopes[i]!;
      if (envelope === null) return;
      const messageId = index.id(slot);
      const chunk = index.recipients.chunk(slot);
      found.push({ messageId, chunk, expiresAtMs: index.rows.expiresAtMs[slot]!, envelope });
    });
    return found;
  }
}
