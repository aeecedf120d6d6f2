/**
 * Moving a store: its records as JSON lines, and reading them into another store, of the
 * same or another driver: with the embedded ledger, its log, and the copies of other logs.
 * The last line of an export says that it is whole.
 */
import { decodeBase64, encodeBase64, encodeHex } from "../core/codec/bytes.ts";
import {
  type ImportTarget,
  StoreError,
  type StoreMaintenance,
  type StoreRecord,
} from "./contract.ts";
import type { MailboxQuota } from "./quota.ts";

/** The first line of an export. */
export const exportHeader = JSON.stringify({ waypost_export: 1 });

/**
 * The last line: how many records are above it, and the SHA-256 of all lines above, each
 * with its line feed.
 */
export const exportEnd = (records: number, sum: Uint8Array): string =>
  JSON.stringify({ kind: "end", records, sha256: encodeHex(sum) });

/** Bytes are an object with their Base64, and everything else is as in memory. */
export function encodeExportLine(record: StoreRecord): string {
  return JSON.stringify(record, function (this: Record<string, unknown>, name, written) {
    const value = this[name];
    return value instanceof Uint8Array ? { base64: encodeBase64(value) } : written;
  });
}

function decodeBytes(_: string, value: unknown): unknown {
  const text =
    typeof value === "object" && value !== null && "base64" in value ? value.base64 : null;
  return typeof text === "string" ? (decodeBase64(text) ?? value) : value;
}

/**
 * The record of a line, or what is wrong with it. The sum of the export says that this
 * program wrote it.
 */
export function parseRecord(line: string): StoreRecord | string {
  try {
    const record = JSON.parse(line, decodeBytes) as StoreRecord | null;
    return record !== null && Object.hasOwn(reported, record.kind) ? record : "its kind is unknown";
  } catch (error) {
    if (error instanceof SyntaxError) return error.message;
    throw error;
  }
}

// --------------------------------------------------------------------------------------- importing

const batchLength = 256;
const noLimit: MailboxQuota = {
  recipientEntriesMax: Number.MAX_SAFE_INTEGER,
  recipientBytesMax: Number.MAX_SAFE_INTEGER,
  places: [],
  storeEntriesMax: Number.MAX_SAFE_INTEGER,
  storeBytesMax: Number.MAX_SAFE_INTEGER,
  storeShare: null,
};

type ImportReport = Record<"messages" | "claims" | "receipts" | "ledger", number> & {
  /** Of the messages, those that have expired, of which something is kept. */
  expired: number;
  /** Left out. */
  readonly over: Record<"messages" | "claims" | "receipts", number>;
};

const reported = {
  message: "messages",
  claim: "claims",
  receipt: "receipts",
  ledger: "ledger",
} as const;

/**
 * Makes a store out of records, each of which it must take: a double one is refused.
 * Records that have ended at `nowMs` are left out and counted, and of an expired message that
 * leaves something it is that alone.
 */
export async function importRecords(
  store: Pick<StoreMaintenance, "import">,
  records: AsyncIterable<StoreRecord>,
  nowMs: number,
): Promise<ImportReport> {
  const none = { messages: 0, claims: 0, receipts: 0 };
  const report: ImportReport = { ...none, ledger: 0, expired: 0, over: { ...none } };
  await store.import(async (target) => {
    const filling = new Filling(target, nowMs);
    for await (const record of records) {
      if (record.kind !== "ledger" && isOver(record, nowMs)) {
        report.over[reported[record.kind]]++;
        continue;
      }
      report[reported[record.kind]]++;
      if (record.kind === "message" && record.state !== "acked")
        report.expired += Number(record.entry.expiresAtMs <= nowMs);
      await filling.add(record);
    }
    await filling.flush();
  });
  return report;
}

function isOver(record: Exclude<StoreRecord, { kind: "ledger" }>, nowMs: number): boolean {
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
    const isApart =
      record.kind === "message" && record.state === "acked" && record.entry.chunk !== null;
    if (isApart) await this.flush();
    this.batch.push(record);
    if (isApart || this.batch.length >= batchLength) await this.flush();
  }

  async flush(): Promise<void> {
    const batch = this.batch;
    this.batch = [];
    const pairs = batch.flatMap((record) =>
      record.kind === "ledger" ? [[record.key, record.value] as const] : [],
    );
    if (pairs.length > 0) await this.target.putLedger(pairs);
    await Promise.all(batch.map((record) => this.write(record)));
    // What has ended and is kept must not stand in the way of later ones, and a store
    // clears only so much away.
    const hasEnded = batch.some(
      (record) => record.kind === "message" && record.entry.expiresAtMs <= this.importedAtMs,
    );
    if (hasEnded) await this.target.mailbox.expire(this.importedAtMs, batchLength);
  }

  private async write(record: StoreRecord): Promise<void> {
    const { mailbox, replay, receipts } = this.target;
    if (record.kind === "receipt") await receipts.put(record.key, record.value, record.untilMs);
    // At a time when nothing has ended: a later one could end others.
    const nowMs = 0;
    if (record.kind === "claim")
      taken(await replay.claim(record.tag, record.untilMs, nowMs), `claim ${record.tag}`);
    if (record.kind !== "message") return;
    const { recipient, messageId } = record.entry;
    // A store expires what has ended by its time, and after a clock that ran ahead that
    // lies in the future.
    const storedAtMs = Math.min(record.entry.storedAtMs, this.importedAtMs);
    const { kind } = await mailbox.store({ ...record.entry, storedAtMs }, noLimit);
    const removed =
      record.state === "acked" ? await mailbox.remove(recipient, [messageId], nowMs) : null;
    taken(kind === "stored" && removed?.length !== 0, `message ${messageId} (${kind})`);
  }
}

function taken(isTaken: boolean, record: string): void {
  if (!isTaken) throw new StoreError("corrupt", `the store did not take ${record}`);
}
