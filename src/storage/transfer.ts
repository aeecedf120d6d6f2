/**
 * Moving a store: its records as JSON lines, and reading them into another store, of the same or another driver: with the
 * embedded ledger, its log, and the copies of other logs. The last line of an export says that it is whole.
 */
import { decodeBase64, encodeBase64, encodeHex } from "../core/codec/bytes.ts";
import { type MailboxKey, parseUuid } from "../core/codec/did.ts";
import {
  type ImportTarget,
  type MailboxEntry,
  type MailboxQuota,
  StoreError,
  type StoreMaintenance,
  type StoreRecord,
} from "./contract.ts";
import { checkEntry } from "./mailbox-rules.ts";

/** The first line of an export. */
export const exportHeader = JSON.stringify({ waypost_export: 1 });

/** The last line: how many records are above it, and the SHA-256 of all lines above, each with its line feed. */
export const exportEnd = (records: number, sum: Uint8Array): string =>
  JSON.stringify({ kind: "end", records, sha256: encodeHex(sum) });

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

const batchLength = 256;
const noLimit: MailboxQuota = {
  recipientEntriesMax: Number.MAX_SAFE_INTEGER,
  recipientBytesMax: Number.MAX_SAFE_INTEGER,
  shares: [],
  storeEntriesMax: Number.MAX_SAFE_INTEGER,
  storeBytesMax: Number.MAX_SAFE_INTEGER,
  storeShare: null,
};

type ImportReport = Record<"messages" | "claims" | "receipts" | "ledger" | "over", number>;

const reported = { message: "messages", claim: "claims", receipt: "receipts", ledger: "ledger" } as const;

/**
 * Makes a store out of records, each of which it must take: a double one is refused. Records that have ended at `nowMs`
 * are left out and counted.
 */
export async function importRecords(
  store: Pick<StoreMaintenance, "import">,
  records: AsyncIterable<StoreRecord>,
  nowMs: number,
): Promise<ImportReport> {
  const report: ImportReport = { messages: 0, claims: 0, receipts: 0, ledger: 0, over: 0 };
  await store.import(async (target) => {
    const filling = new Filling(target, nowMs);
    for await (const record of records) {
      if (isOver(record, nowMs)) report.over++;
      else {
        report[reported[record.kind]]++;
        await filling.add(record);
      }
    }
    await filling.flush();
  });
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
class Filling {
  private batch: StoreRecord[] = [];

  constructor(
    private readonly target: ImportTarget,
    private readonly importedAtMs: number,
  ) {}

  async add(record: StoreRecord): Promise<void> {
    // A chunk that is acknowledged gives its place in the group to one that came later.
    const isApart = record.kind === "message" && record.state === "acked" && record.entry.chunk !== null;
    if (isApart) await this.flush();
    this.batch.push(record);
    if (isApart || this.batch.length >= batchLength) await this.flush();
  }

  async flush(): Promise<void> {
    const batch = this.batch;
    this.batch = [];
    const pairs = batch.flatMap((record) => (record.kind === "ledger" ? [[record.key, record.value] as const] : []));
    if (pairs.length > 0) await this.target.putLedger(pairs);
    await Promise.all(batch.map((record) => this.write(record)));
    // What has ended and is kept must not stand in the way of later ones, and a store clears only so much away.
    const hasEnded = batch.some((record) => record.kind === "message" && record.entry.expiresAtMs <= this.importedAtMs);
    if (hasEnded) await this.target.mailbox.expire(this.importedAtMs, batchLength);
  }

  private async write(record: StoreRecord): Promise<void> {
    const { mailbox, replay, receipts } = this.target;
    if (record.kind === "receipt") await receipts.put(record.key, record.value, record.untilMs);
    // At a time when nothing has ended: a later one could end others.
    const nowMs = 0;
    if (record.kind === "claim") taken(await replay.claim(record.tag, record.untilMs, nowMs), `claim ${record.tag}`);
    if (record.kind !== "message") return;
    const { recipient, messageId } = record.entry;
    // A store expires what has ended by its time, and after a clock that ran ahead that lies in the future.
    const storedAtMs = Math.min(record.entry.storedAtMs, this.importedAtMs);
    const { kind } = await mailbox.store({ ...record.entry, storedAtMs }, noLimit);
    const removed = record.state === "acked" ? await mailbox.remove(recipient, [messageId], nowMs) : null;
    taken(kind === "stored" && removed?.length !== 0, `message ${messageId} (${kind})`);
  }
}

function taken(isTaken: boolean, record: string): void {
  if (!isTaken) throw new StoreError("corrupt", `the store did not take ${record}`);
}
