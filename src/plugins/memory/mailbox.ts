/**
 * The mailbox of the memory driver: the index of storage/mailbox-index.ts, and the bytes of
 * each slot in a map. No method awaits anything before it is done, so every operation is
 * atomic.
 */
import type { MailboxKey, Uuid } from "../../core/codec/did.ts";
import type { Claims } from "../../storage/claims.ts";
import {
  type Mailbox,
  type MailboxEntry,
  type MailboxStats,
  type RemovedMessage,
  StoreError,
  type StoreOutcome,
  type TagClaim,
} from "../../storage/contract.ts";
import { IndexedMailbox } from "../../storage/indexed-mailbox.ts";
import { MailboxIndex, type RowChange } from "../../storage/mailbox-index.ts";
import { checkEntry } from "../../storage/mailbox-rules.ts";
import type { MailboxQuota } from "../../storage/quota.ts";

type HeldBody = { readonly envelope: Uint8Array; readonly preview: Uint8Array };

type MailboxOptions = {
  /** Ids that are active, remembered or kept, and their bytes. */
  readonly room: MailboxStats;
  /** Throws once the store is closed. */
  readonly checkOpen: () => void;
  readonly claims: Claims;
  readonly removableMs: () => number;
};

export class MemoryMailbox extends IndexedMailbox implements Mailbox {
  protected readonly index: MailboxIndex;
  /** By slot. */
  private readonly bodies = new Map<number, HeldBody>();
  private bytes = 0;

  constructor(private readonly options: MailboxOptions) {
    super();
    this.index = new MailboxIndex({
      room: options.room,
      checkRoom: (entry) => this.checkRoom(entry),
      onChange: (slot, change) => this.changed(slot, change),
      onText: () => {},
      removableMs: options.removableMs,
    });
  }

  async store(entry: MailboxEntry, quota: MailboxQuota): Promise<StoreOutcome> {
    this.options.checkOpen();
    checkEntry(entry, quota);
    this.index.begin();
    const outcome = this.index.admit(entry, quota);
    if (outcome.kind !== "stored") return outcome;
    this.keep(outcome.slot, {
      envelope: entry.envelope.slice(),
      preview: previewOf(entry).slice(),
    });
    return { kind: "stored" };
  }

  async remove(
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[]> {
    this.options.checkOpen();
    return this.removed(this.index.remove(recipient, messageIds, nowMs));
  }

  async claimAndRemove(
    claim: TagClaim,
    recipient: MailboxKey,
    messageIds: readonly Uuid[],
    nowMs: number,
  ): Promise<RemovedMessage[] | null> {
    this.options.checkOpen();
    return this.options.claims.claim(claim, nowMs)
      ? this.remove(recipient, messageIds, nowMs)
      : null;
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    this.options.checkOpen();
    return this.index.expire(nowMs, limit);
  }

  protected async reading<T>(read: () => T): Promise<T> {
    this.options.checkOpen();
    return read();
  }

  protected bytesOf(slots: readonly number[], part: keyof HeldBody): (Uint8Array | null)[] {
    return slots.map((slot) => this.bodies.get(slot)?.[part].slice() ?? null);
  }

  private checkRoom(entry: MailboxEntry): void {
    const { entries, bytes } = this.options.room;
    const more = entry.envelope.length + previewOf(entry).length;
    if (this.index.rows.rows < entries && this.bytes + more <= bytes) return;
    throw new StoreError(
      "full",
      `the memory store is full: ${entries} message ids, ${bytes} bytes`,
    );
  }

  /** Of a row that is over, its bytes go, all but a preview that it keeps. */
  private changed(slot: number, change: RowChange): void {
    const body = this.bodies.get(slot);
    if (body === undefined) return;
    this.bodies.delete(slot);
    this.bytes -= body.envelope.length + body.preview.length;
    if (change === "cut" && body.preview.length > 0)
      this.keep(slot, { ...body, envelope: noBytes });
  }

  private keep(slot: number, body: HeldBody): void {
    this.bodies.set(slot, body);
    this.bytes += body.envelope.length + body.preview.length;
  }
}

const noBytes = new Uint8Array(0);

function previewOf({ onExpiry, headerPreview }: MailboxEntry): Uint8Array {
  return (onExpiry === "KeepHeaderPreview" ? headerPreview : null) ?? noBytes;
}
