/**
 * The mailbox of the memory driver: the book, and the bytes of its rows in an array by slot.
 * Bounded by `rowsMax` (held, remembered and kept ids together) and `bytesMax`.
 */
import { isFault } from "../../core/fault.ts";
import { type HeldMessage, type Mailbox, type MailboxEntry, StoreError } from "../../storage/contract.ts";
import { checkEntry, MailboxBook } from "../mailbox/book.ts";

export type MailboxLimits = { readonly rowsMax: number; readonly bytesMax: number };

type Body = { readonly envelope: Uint8Array | null; readonly preview: Uint8Array | null };

export function openMemoryMailbox(limits: MailboxLimits): Mailbox {
  const bodies: (Body | undefined)[] = [];
  let bytes = 0;
  const book = new MailboxBook((slot) => setBody(slot, undefined));

  function setBody(slot: number, body: Body | undefined): void {
    bytes += bodyBytes(body) - bodyBytes(bodies[slot]);
    bodies[slot] = body;
  }

  function message(slot: number): HeldMessage {
    return {
      messageId: book.id(slot),
      chunk: book.chunk(slot),
      expiresAtMs: book.expiresAtMs(slot),
      envelope: bodies[slot]!.envelope!.slice(),
    };
  }

  return {
    async store(entry, quota) {
      checkEntry(entry);
      const size = entry.envelope.length + (entry.headerPreview?.length ?? 0);
      if (book.rowCount >= limits.rowsMax) {
        throw new StoreError("full", `the memory store holds ${limits.rowsMax} message ids`);
      }
      if (bytes + size > limits.bytesMax) {
        throw new StoreError("full", `the memory store holds ${limits.bytesMax} bytes`);
      }
      const outcome = book.admit(rowOf(entry), entry.storedAtMs, quota);
      if (outcome.kind !== "stored") return outcome;
      setBody(outcome.slot, { envelope: entry.envelope.slice(), preview: entry.headerPreview?.slice() ?? null });
      return { kind: "stored" };
    },
    async list(recipient, page) {
      const found = book.page(recipient, page, page.bytesMax);
      return isFault(found) ? found : { entries: found.slots.map(message), next: found.next };
    },
    async summary(recipient, page) {
      const found = book.page(recipient, page, null);
      if (isFault(found)) return found;
      const entries = found.slots.map((slot) => ({
        messageId: book.id(slot),
        chunk: book.chunk(slot),
        expiresAtMs: book.expiresAtMs(slot),
        cursor: book.cursor(slot),
      }));
      return { entries, next: found.next };
    },
    async group(recipient, groupId, page) {
      const found = book.groupPage(recipient, groupId, page);
      if (isFault(found)) return found;
      const { total, complete, next } = found;
      return { entries: found.slots.map(message), next, total, complete };
    },
    async message(recipient, messageId, nowMs) {
      const { state, slot } = book.state(recipient, messageId, nowMs);
      if (state === "active") return { state, message: message(slot) };
      if (state !== "expired") return { state };
      const preview = book.keepsPreview(slot) ? (bodies[slot]?.preview?.slice() ?? null) : null;
      return { state, expiresAtMs: book.expiresAtMs(slot), headerPreview: preview };
    },
    async remove(recipient, messageIds, nowMs) {
      const slots = book.remove(recipient, messageIds, nowMs);
      for (const slot of slots) setBody(slot, undefined);
      return slots.map((slot) => book.id(slot)).sort();
    },
    async expire(nowMs, limit) {
      const swept = book.sweep(nowMs, limit);
      for (const { slot, action } of swept) {
        if (action === "cut") setBody(slot, { envelope: null, preview: bodies[slot]?.preview ?? null });
      }
      return swept.length;
    },
    async stats(nowMs) {
      return book.stats(nowMs);
    },
  };
}

function bodyBytes(body: Body | undefined): number {
  return (body?.envelope?.length ?? 0) + (body?.preview?.length ?? 0);
}

/** What the book keeps of an entry. */
export function rowOf(entry: MailboxEntry) {
  const { recipient, messageId, chunk, expiresAtMs, keptUntilMs, onExpiry, envelope, headerPreview } = entry;
  const previewBytes = headerPreview?.length ?? null;
  return {
    recipient,
    messageId,
    chunk,
    expiresAtMs,
    keptUntilMs,
    onExpiry,
    envelopeBytes: envelope.length,
    previewBytes,
  };
}
