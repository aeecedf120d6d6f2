/**
 * Moving a store: its records as JSON lines, and reading them into another store, of the same or another driver. The
 * ledger moves only between drivers with an embedded one.
 */
import { decodeBase64, encodeBase64 } from "../core/codec/bytes.ts";
import { type MailboxKey, parseUuid } from "../core/codec/did.ts";
import { type MailboxEntry, type MailboxQuota, type Store, StoreError, type StoreRecord } from "./contract.ts";
import { checkEntry } from "./mailbox-rules.ts";

/** The first line of an export. */
export const exportHeader = { waypost_export: 1 } as const;

type Fields = Readonly<Record<string, unknown>>;

export function encodeRecord(record: StoreRecord): string {
  switch (record.kind) {
    case "message":
      return JSON.stringify({ kind: "message", state: record.state, ...encodeEntry(record.entry) });
    case "claim":
      return JSON.stringify({ kind: "claim", tag: record.tag, until_ms: record.untilMs });
    case "receipt": {
      const value = encodeBase64(record.value);
      return JSON.stringify({ kind: "receipt", key: record.key, value, until_ms: record.untilMs });
    }
    case "ledger":
      return JSON.stringify({ kind: "ledger", key: record.key, value: encodeBase64(record.value) });
  }
}

function encodeEntry(entry: MailboxEntry): Fields {
  const { chunk, headerPreview } = entry;
  return {
    recipient: entry.recipient,
    message_id: entry.messageId,
    chunk: chunk === null ? null : { group_id: chunk.groupId, sequence: chunk.sequence, total: chunk.total },
    stored_at_ms: entry.storedAtMs,
    expires_at_ms: entry.expiresAtMs,
    on_expiry: entry.onExpiry,
    kept_until_ms: entry.keptUntilMs,
    header_preview: headerPreview === null ? null : encodeBase64(headerPreview),
    labels: entry.labels,
    envelope: encodeBase64(entry.envelope),
  };
}

/** The record of a line, or what is wrong with it. */
export function parseRecord(line: string): StoreRecord | string {
  try {
    const fields: unknown = JSON.parse(line);
    return isFields(fields) ? parseFields(fields) : "it is not a JSON object";
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return error.message;
    throw error;
  }
}

function parseFields(fields: Fields): StoreRecord {
  const { kind } = fields;
  if (kind === "claim") return { kind, tag: text(fields, "tag"), untilMs: whole(fields, "until_ms") };
  if (kind === "receipt") {
    return { kind, key: text(fields, "key"), value: bytes(fields, "value"), untilMs: whole(fields, "until_ms") };
  }
  if (kind === "ledger") return { kind, key: text(fields, "key"), value: bytes(fields, "value") };
  const { state } = fields;
  if (kind !== "message") throw new RangeError("its kind is unknown");
  if (state !== "active" && state !== "acked" && state !== "kept") throw new RangeError("its state is unknown");
  const entry = parseEntry(fields);
  checkEntry(entry);
  return { kind, state, entry };
}

function parseEntry(fields: Fields): MailboxEntry {
  const { labels, on_expiry: onExpiry, chunk } = fields;
  if (!Array.isArray(labels) || !labels.every((label) => typeof label === "string")) throw new RangeError("labels");
  if (onExpiry !== "DeleteOnExpiry" && onExpiry !== "KeepHeaderPreview" && onExpiry !== "TombstoneReference") {
    throw new RangeError("its on_expiry is unknown");
  }
  return {
    recipient: text(fields, "recipient") as MailboxKey,
    messageId: uuid(fields, "message_id"),
    chunk: isFields(chunk)
      ? { groupId: uuid(chunk, "group_id"), sequence: whole(chunk, "sequence"), total: whole(chunk, "total") }
      : null,
    storedAtMs: whole(fields, "stored_at_ms"),
    expiresAtMs: whole(fields, "expires_at_ms"),
    onExpiry,
    keptUntilMs: whole(fields, "kept_until_ms"),
    headerPreview: fields["header_preview"] === null ? null : bytes(fields, "header_preview"),
    labels,
    envelope: bytes(fields, "envelope"),
  };
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== "string" || value === "") throw new RangeError(`${name} is not text`);
  return value;
}

function whole(fields: Fields, name: string): number {
  const value = fields[name];
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw new RangeError(`${name} is not a whole number`);
  return value as number;
}

function uuid(fields: Fields, name: string) {
  const value = parseUuid(text(fields, name));
  if (value === null) throw new RangeError(`${name} is not a UUID`);
  return value;
}

function bytes(fields: Fields, name: string): Uint8Array {
  const value = fields[name];
  const decoded = typeof value === "string" ? decodeBase64(value) : null;
  if (decoded === null) throw new RangeError(`${name} is not Base64`);
  return decoded;
}

// ---------------------------------------------------------------------------------------------- importing

type ImportReport = { messages: number; claims: number; receipts: number; ledgerPairs: number; over: number };

const batchLength = 256;
const noLimit: MailboxQuota = {
  recipientEntriesMax: Number.MAX_SAFE_INTEGER,
  recipientBytesMax: Number.MAX_SAFE_INTEGER,
  shares: [],
  storeEntriesMax: Number.MAX_SAFE_INTEGER,
  storeBytesMax: Number.MAX_SAFE_INTEGER,
  storeShare: null,
};

/**
 * Puts records into an empty store. Records that have ended at `nowMs` are left out and counted. After ledger pairs
 * were imported, the store must be opened again. Throws `unavailable` when messages wait in the store already, or
 * identities are registered in it.
 */
export async function importRecords(
  store: Store,
  records: AsyncIterable<StoreRecord>,
  nowMs: number,
): Promise<ImportReport> {
  const report: ImportReport = { messages: 0, claims: 0, receipts: 0, ledgerPairs: 0, over: 0 };
  if (((await store.capabilities.mailbox?.stats(nowMs))?.entries ?? 0) > 0) {
    throw new StoreError("unavailable", "the store is not empty: import into a new one");
  }
  let batch: StoreRecord[] = [];
  for await (const record of records) {
    if (isOver(record, nowMs)) {
      report.over++;
      continue;
    }
    batch.push(record);
    if (batch.length < batchLength) continue;
    await importBatch(store, batch, report);
    batch = [];
  }
  await importBatch(store, batch, report);
  return report;
}

function isOver(record: StoreRecord, nowMs: number): boolean {
  if (record.kind === "ledger") return false;
  if (record.kind !== "message") return record.untilMs <= nowMs;
  const { expiresAtMs, keptUntilMs, onExpiry } = record.entry;
  const keeps = record.state !== "acked" && onExpiry !== "DeleteOnExpiry";
  return (keeps ? keptUntilMs : expiresAtMs) <= nowMs;
}

/** Calls made together keep their order and share a commit. */
async function importBatch(store: Store, batch: readonly StoreRecord[], report: ImportReport): Promise<void> {
  const { mailbox, replay, receipts } = store.capabilities;
  const pairs: [string, Uint8Array][] = [];
  const writes = batch.map(async (record) => {
    if (record.kind === "message" && mailbox !== undefined) {
      const { recipient, messageId, storedAtMs } = record.entry;
      const outcome = await mailbox.store(record.entry, noLimit);
      if (outcome.kind === "stored") report.messages++;
      if (record.state === "acked") await mailbox.remove(recipient, [messageId], storedAtMs);
    } else if (record.kind === "claim" && replay !== undefined) {
      if (await replay.claim(record.tag, record.untilMs, 0)) report.claims++;
    } else if (record.kind === "receipt" && receipts !== undefined) {
      await receipts.put(record.key, record.value, record.untilMs);
      report.receipts++;
    } else if (record.kind === "ledger" && store.importLedger !== null) pairs.push([record.key, record.value]);
    else throw new StoreError("unavailable", `a store of "${store.plugin}" does not accept a ${record.kind} record`);
  });
  await Promise.all(writes);
  if (pairs.length === 0) return;
  await store.importLedger?.(pairs);
  report.ledgerPairs += pairs.length;
}
