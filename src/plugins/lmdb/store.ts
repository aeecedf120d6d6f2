/**
 * The LMDB store, put together: the mailbox, and the small tables: the embedded ledger's, receipts and replay claims.
 * Loaded only when a store is opened, because it brings the native addon along.
 */
import { resolve } from "node:path";
import { equalBytes } from "../../core/codec/bytes.ts";
import { minuteMs } from "../../core/codec/time.ts";
import type { LedgerCall } from "../../core/ledger/calls.ts";
import {
  type ImportTarget,
  type ReceiptPage,
  type Receipts,
  type Replay,
  type Store,
  type StoreEnvironment,
  StoreError,
  type TagClaim,
} from "../../storage/contract.ts";
import { openLogs } from "../../storage/embedded-log.ts";
import { checkKey, type Table, type TableChange, type TableView } from "../../storage/table.ts";
import { checkPrefix, checkReceipt, checkText, endOfPrefix, openLedger } from "../drivers.ts";
import type { Batch, View, WriteKind, WriteSize } from "./commits.ts";
import { type Disk, type Environment, openEnvironment } from "./environment.ts";
import type { JournalLimits } from "./journal.ts";
import type { LmdbOptions } from "./lmdb.ts";
import { type ClaimWithin, DiskMailbox } from "./mailbox.ts";
import { orderedKey, orderedNumber, RecordReader, RecordWriter, sealed, unsealed } from "./records.ts";

/** Tests give their own disk, shorter journals, blocks that go at once, and commits as long as a busy machine needs. */
type LmdbTestSettings = {
  readonly disk?: Disk;
  readonly journal?: JournalLimits;
  readonly blocksToFreeMin?: number;
  readonly claimsMax?: number;
  readonly commitMsMax?: number;
};

const openFiles = (options: LmdbOptions, host: StoreEnvironment, test: LmdbTestSettings = {}): Promise<Environment> =>
  openEnvironment({
    path: resolve(options.path),
    space: { floorBytes: options.free_space_floor_bytes, reserveBytes: options.reserve_bytes },
    host,
    ...(test.disk === undefined ? {} : { disk: test.disk }),
    ...(test.commitMsMax === undefined ? {} : { commitMsMax: test.commitMsMax }),
  });

type Opening = readonly [options: LmdbOptions, host: StoreEnvironment, test?: LmdbTestSettings];

function openMailbox(environment: Environment, [{ message_ids_max: rowsMax }, host, test = {}]: Opening) {
  const claims = new Claims(environment, test.claimsMax);
  const claimWithin: ClaimWithin = (...claim) => claims.winWithin(...claim);
  const mailbox = new DiskMailbox(environment, { ...test, rowsMax, claimWithin }, host.log);
  return { claims, mailbox, receipts: new DiskReceipts(environment) };
}

/** Fills the store of an import, in a folder where nobody looks for one. */
export async function fillLmdb(
  options: LmdbOptions,
  host: StoreEnvironment,
  fill: (target: ImportTarget) => Promise<void>,
): Promise<void> {
  const environment = await openFiles(options, host);
  try {
    const { claims, mailbox, receipts } = openMailbox(environment, [options, host]);
    const table = openTable(environment, () => "record");
    const putLedger: ImportTarget["putLedger"] = (pairs) =>
      table.commit((view) => {
        for (const [key, value] of pairs) view.put(key, value);
      });
    await fill({ mailbox, replay: claims, receipts, putLedger });
    mailbox.close();
  } finally {
    await environment.close();
  }
}

export async function openLmdb(...opening: Opening): Promise<Store> {
  const [options, host] = opening;
  const environment = await openFiles(...opening);
  try {
    const { claims, mailbox, receipts } = openMailbox(environment, opening);
    let isOpening = true;
    const table = openTable(environment, () => (isOpening ? "removal" : "record"));
    const checkRoom = ledgerBound(environment, host);
    const ledger = await openLedger(table, options.block_time_ms, { ...host, checkRoom });
    isOpening = false;
    let closed: Promise<void> | null = null;
    const close = async () => {
      await ledger.close();
      mailbox.close();
      await environment.close();
    };
    return {
      plugin: "lmdb",
      durability: "flushed",
      capabilities: { mailbox, replay: claims, receipts, ledger, logs: openLogs(table) },
      async probe() {
        environment.checkReady();
      },
      close() {
        closed ??= close();
        return closed;
      },
    };
  } catch (error) {
    await environment.close();
    throw error;
  }
}

/** Records of the ledger stay for ever, so it leaves the mailboxes half of the disk, and a quarter when keys must change. */
const ledgerPartMax = { registration: 1 / 2, change: 3 / 4 };

function ledgerBound(environment: Environment, { log }: StoreEnvironment): (call: LedgerCall) => void {
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  return ({ name }) => {
    const kind = name === "register_with_document_proof_signed" ? "registration" : "change";
    if (environment.ledgerPart() <= ledgerPartMax[kind]) return;
    if (performance.now() - loggedAtMs >= minuteMs) {
      loggedAtMs = performance.now();
      log("error", "the ledger has its part of the disk: it takes no more", { kind });
    }
    throw new StoreError("full", "the ledger has its part of the disk");
  };
}

/** About what a commit of the ledger writes. */
const commitBytes = 64 * 1024;

/** `kind`: what the commits of the moment are worth; opening must succeed even on a full disk. */
export function openTable(environment: Environment, kind: () => WriteKind): Table {
  return {
    ...viewOf(environment),
    commit<T>(change: (view: TableChange) => T): Promise<T> {
      return environment.join({ kind: kind(), bytes: commitBytes }, (batch) =>
        batch.attempt(() =>
          change({
            ...viewOf(batch),
            put(key, value) {
              checkKey(key);
              const bytes = Buffer.from(key);
              batch.put("table", bytes, sealed(bytes, value));
            },
            remove: (key) => batch.remove("table", Buffer.from(key)),
          }),
        ),
      );
    },
  };
}

function viewOf(source: View): TableView {
  return {
    get(key) {
      const bytes = Buffer.from(key);
      const record = source.get("table", bytes);
      return record === null ? null : unsealed(bytes, record, `table record ${key}`);
    },
    range(prefix, { after, limit }) {
      const first = Buffer.from(prefix);
      const past = after === undefined ? null : Buffer.concat([Buffer.from(after), Buffer.of(0)]);
      const start = past !== null && past.compare(first) > 0 ? past : first;
      const end = endOfPrefix(first);
      if (limit <= 0 || (end !== null && start.compare(end) >= 0)) return [];
      // An empty start is not a key to the library; no key of ours begins with a zero byte.
      const range = { start: start.length === 0 ? Buffer.of(0) : start, limit, ...(end === null ? {} : { end }) };
      return source.range("table", range).map(([key, record]) => {
        const text = key.toString();
        return [text, unsealed(key, record, `table record ${text}`)];
      });
    },
    prefetch() {},
  };
}

type Standing = { readonly untilMs: number; readonly value: Uint8Array };

const endBytes = 8;
const recordOverhead = 64;
const removal = { kind: "removal", bytes: recordOverhead } as const;

/**
 * Receipts: a database from key to sealed record, and a second one from (end, key) that says what has ended. Keys are
 * the UTF-16 units of the caller's text, so that no two texts meet in one key.
 */
class DiskReceipts implements Receipts {
  constructor(private readonly environment: Environment) {}

  async put(text: string, value: Uint8Array, untilMs: number): Promise<void> {
    checkReceipt(text, value);
    const key = keyOf(text);
    await this.environment.join(sizeOf(key, value), (batch) => set(batch, key, { untilMs, value }));
  }

  async putIfAbsent(text: string, value: Uint8Array, untilMs: number, nowMs: number): Promise<Uint8Array | null> {
    checkReceipt(text, value);
    const key = keyOf(text);
    return this.environment.join(sizeOf(key, value), (batch) => {
      const before = standing(batch, key);
      if (before !== null && before.untilMs > nowMs) return before.value;
      set(batch, key, { untilMs, value });
      return null;
    });
  }

  async get(text: string, nowMs: number): Promise<Uint8Array | null> {
    const found = standing(this.environment, keyOf(text));
    return found !== null && found.untilMs > nowMs ? found.value : null;
  }

  async remove(text: string, value?: Uint8Array): Promise<void> {
    const key = keyOf(text);
    await this.environment.join(removal, (batch) => {
      if (value === undefined || equalBytes(standing(batch, key)?.value ?? nothing, value)) set(batch, key, null);
    });
  }

  async scan(prefix: string, { after, limit, nowMs }: ReceiptPage): Promise<[string, Uint8Array][]> {
    checkPrefix(prefix);
    const found: [string, Uint8Array][] = [];
    const first = keyOf(prefix);
    const end = endOfPrefix(first) ?? first;
    let start = after === null ? first : Buffer.concat([keyOf(after), Buffer.of(0)]);
    while (found.length < limit && start.compare(end) < 0) {
      const records = this.environment.range("receipts", { start, end, limit: limit - found.length });
      for (const [key, record] of records) {
        const { untilMs, value } = receiptIn(key, record);
        if (untilMs > nowMs) found.push([textOf(key), value]);
      }
      const last = records.at(-1);
      if (last === undefined) break;
      start = Buffer.concat([last[0], Buffer.of(0)]);
    }
    return found;
  }

  expire(nowMs: number, limit: number): Promise<number> {
    return freeEnded(this.environment, "receipts-due", { nowMs, limit }, (batch, ended) => {
      for (const place of ended) {
        const key = Buffer.from(place.subarray(endBytes));
        if (standing(batch, key)?.untilMs === orderedNumber(place)) set(batch, key, null);
        else batch.remove("receipts-due", place);
      }
      return ended.length;
    });
  }
}

type Expiring = { readonly nowMs: number; readonly limit: number };

/** Frees what the keys name that begin with their end. Looks first without a commit: mostly nothing has ended. */
async function freeEnded(
  environment: Environment,
  table: "receipts-due" | "claims",
  { nowMs, limit }: Expiring,
  free: (batch: Batch, ended: Buffer[]) => number,
): Promise<number> {
  const range = { start: orderedKey(0), end: orderedKey(nowMs + 1), limit };
  if (limit <= 0 || environment.keys(table, { ...range, limit: 1 }).length === 0) return 0;
  return environment.join(removal, (batch) => free(batch, environment.keys(table, range)));
}

function sizeOf(key: Buffer, value: Uint8Array): WriteSize {
  return { kind: "record", bytes: key.length * 2 + value.length + recordOverhead };
}

/** What stands under a key. Within a commit, the operations before this one count. */
function standing(view: View, key: Buffer): Standing | null {
  const record = view.get("receipts", key);
  return record === null ? null : receiptIn(key, record);
}

/** The end of a receipt, then its value. */
export function receiptIn(key: Uint8Array, record: Uint8Array): Standing {
  const content = unsealed(key, record, "a receipt");
  // Copied, because the caller may keep it.
  return { untilMs: orderedNumber(content), value: content.slice(endBytes) };
}

/** Sets the value of a key; `null` removes it. */
function set(batch: Batch, key: Buffer, to: Standing | null): void {
  const before = standing(batch, key);
  if (before !== null && before.untilMs !== to?.untilMs) batch.remove("receipts-due", endKey(before.untilMs, key));
  if (to === null) {
    if (before !== null) batch.remove("receipts", key);
    return;
  }
  batch.put("receipts", key, sealed(key, Buffer.concat([orderedKey(to.untilMs), to.value])));
  batch.put("receipts-due", endKey(to.untilMs, key), ended);
}

const ended = new Uint8Array([1]);
const nothing = new Uint8Array(0);

function keyOf(text: string): Buffer {
  return Buffer.from(text, "utf16le");
}

export function textOf(key: Uint8Array): string {
  return Buffer.from(key.buffer, key.byteOffset, key.length).toString("utf16le");
}

function endKey(untilMs: number, key: Buffer): Buffer {
  return Buffer.concat([orderedKey(untilMs), key]);
}

const claimsMax = 2 ** 22;
const claimsPerRecord = 256;
const claimOverhead = 10;

/**
 * Replay claims: decided in memory, and written with the next commit, up to 256 claims as one record. The key of a
 * record is the end of its last claim (8 bytes) and its number (4); for each claim it holds the end, the length of the
 * tag and the tag. A record goes when its last claim has ended.
 * Memory: about 200 bytes for each claim; at most 4.2 million claims are known at a time, beyond that new ones are
 * refused as `full`. A start reads all of them.
 */
class Claims implements Replay {
  /** When the last claim of each tag ends, on the disk or on its way there. */
  private readonly ends = new Map<string, number>();
  private lastNumber = 0;
  /** The latest end of a claim that was forgotten. */
  private forgottenMs: number;
  /** Claims of the commit that is being decided. */
  private deciding: TagClaim[] = [];

  constructor(
    private readonly environment: Environment,
    private readonly max = claimsMax,
  ) {
    const forgotten = environment.get("meta", forgottenKey);
    const what = "the end of the claims that were forgotten";
    this.forgottenMs = forgotten === null ? 0 : orderedNumber(unsealed(forgottenKey, forgotten, what));
    for (const key of environment.keys("claims", { start: orderedKey(0), limit: Number.MAX_SAFE_INTEGER })) {
      this.lastNumber = Math.max(this.lastNumber, key.readUInt32BE(8));
      for (const { tag, untilMs } of claimsIn(key, environment.borrow("claims", key)!)) {
        if (untilMs > (this.ends.get(tag) ?? 0)) this.ends.set(tag, untilMs);
      }
    }
    const begin = () => {
      this.deciding = [];
    };
    environment.takePart({ begin, finish: (batch) => this.writeRecords(batch, this.deciding) });
  }

  async claim(tag: string, untilMs: number, nowMs: number): Promise<boolean> {
    const size = { kind: "removal", bytes: 2 * tag.length + claimOverhead } as const;
    const written = this.winWithin({ tag, untilMs }, nowMs, (write) => this.environment.join(size, write));
    await written;
    return written !== null;
  }

  /** Claims in a commit that the caller joins, which `write`s the claim; `null` while an earlier one lasts. */
  winWithin<T>(claim: TagClaim, nowMs: number, join: (write: () => void) => Promise<T>): Promise<T> | null {
    const { tag, untilMs } = claim;
    checkText("tag", tag);
    if (untilMs <= this.forgottenMs) return null;
    const before = this.ends.get(tag);
    if (before !== undefined && before > nowMs) return null;
    if (before === undefined && this.ends.size >= this.max) {
      throw new StoreError("full", `the store knows ${this.max} claims`);
    }
    const joined = join(() => void this.deciding.push(claim));
    this.ends.set(tag, untilMs);
    // Refused, as on a full disk: the tag is free again.
    joined.catch(() => {
      if (this.ends.get(tag) === untilMs) this.ends.delete(tag);
    });
    return joined;
  }

  private writeRecords(batch: Batch, claims: readonly TagClaim[]): void {
    for (let at = 0; at < claims.length; at += claimsPerRecord) {
      this.lastNumber = (this.lastNumber + 1) >>> 0;
      const [key, record] = claimRecord(claims.slice(at, at + claimsPerRecord), this.lastNumber);
      batch.put("claims", key, record);
    }
  }

  expire(nowMs: number, limit: number): Promise<number> {
    return freeEnded(this.environment, "claims", { nowMs, limit }, (batch, ended) => {
      let freed = 0;
      for (const key of ended) {
        if (freed === limit) break;
        freed += this.forget(batch, key, { nowMs, limit: limit - freed });
      }
      batch.put("meta", forgottenKey, sealed(forgottenKey, orderedKey(this.forgottenMs)));
      return freed;
    });
  }

  /** Forgets claims of a record, at most `limit`, and the record with its last claim. */
  private forget(batch: Batch, key: Buffer, { nowMs, limit }: Expiring): number {
    let freed = 0;
    for (const { tag } of claimsIn(key, this.environment.borrow("claims", key)!)) {
      // A tag that was forgotten before, or claimed again later, is not this record's.
      const endMs = this.ends.get(tag) ?? Number.POSITIVE_INFINITY;
      if (endMs > nowMs) continue;
      if (freed === limit) return freed;
      this.forgottenMs = Math.max(this.forgottenMs, endMs);
      this.ends.delete(tag);
      freed++;
    }
    batch.remove("claims", key);
    return freed;
  }
}

const forgottenKey = Buffer.from("claims forgotten");

/** A record of claims with its key. */
function claimRecord(claims: readonly TagClaim[], number: number): readonly [Buffer, Uint8Array] {
  const writer = new RecordWriter(claims.length * 192);
  let endMs = 0;
  for (const { tag, untilMs } of claims) {
    if (untilMs > endMs) endMs = untilMs;
    const bytes = keyOf(tag);
    writer.u53(untilMs);
    writer.u16(bytes.length);
    writer.bytes(bytes);
  }
  const key = Buffer.concat([orderedKey(endMs), Buffer.alloc(4)]);
  key.writeUInt32BE(number, 8);
  return [key, sealed(key, writer.finish())];
}

export function claimsIn(key: Uint8Array, record: Uint8Array): TagClaim[] {
  const what = "a record of claims";
  const reader = new RecordReader(unsealed(key, record, what), what);
  const claims: TagClaim[] = [];
  while (!reader.done) {
    const untilMs = reader.u53();
    claims.push({ untilMs, tag: textOf(reader.bytes(reader.u16())) });
  }
  return claims;
}
