/**
 * The LMDB store, put together: the mailbox, and the small tables: the embedded ledger's, receipts
 * and replay claims. Loaded only when a store is opened, because it brings the native addon along.
 */
import { resolve } from "node:path";
import type { LedgerCall } from "../../core/ledger/calls.ts";
import { BoundedMap } from "../../core/std/bounded.ts";
import { Claims } from "../../storage/claims.ts";
import {
  type ImportTarget,
  type Replay,
  type Store,
  type StoreEnvironment,
  StoreError,
  type TagClaim,
} from "../../storage/contract.ts";
import { openLogs } from "../../storage/embedded-log.ts";
import { TableReceipts } from "../../storage/records.ts";
import {
  type CommitSize,
  type OpenLocalTable,
  type OrderedTable,
  Overlay,
  type TableChange,
} from "../../storage/table.ts";
import { endOfPrefix, openLedger } from "../shared/drivers.ts";
import { type CommitBatch, type Environment, openEnvironment } from "./environment.ts";
import type { LmdbOptions } from "./lmdb.ts";
import { DiskMailbox } from "./mailbox.ts";
import { orderedKey, orderedNumber, sealed, unsealed } from "./records.ts";
import type { Disk, WriteKind } from "./space.ts";

/** Tests give their own disk, fewer claims, and commits as long as a busy machine needs. */
type LmdbTestSettings = {
  readonly disk?: Disk;
  readonly claimsMax?: number;
  readonly commitMsMax?: number;
};

const openFiles = (
  options: LmdbOptions,
  host: StoreEnvironment,
  test: LmdbTestSettings = {},
): Promise<Environment> =>
  openEnvironment({
    path: resolve(options.path),
    space: { floorBytes: options.free_space_floor_bytes, reserveBytes: options.reserve_bytes },
    host,
    ...(test.disk === undefined ? {} : { disk: test.disk }),
    ...(test.commitMsMax === undefined ? {} : { commitMsMax: test.commitMsMax }),
  });

type Opening = readonly [options: LmdbOptions, host: StoreEnvironment, test?: LmdbTestSettings];

function openMailbox(
  environment: Environment,
  [{ message_ids_max: rowsMax }, host, test = {}]: Opening,
) {
  const claims = new DiskClaims(environment, test.claimsMax);
  const claim = (wanted: TagClaim, nowMs: number): boolean => claims.take(wanted, nowMs);
  const { log, removableMs = () => Number.POSITIVE_INFINITY } = host;
  const mailbox = new DiskMailbox(environment, { rowsMax, claim, removableMs }, log);
  return { claims, mailbox, receipts: new TableReceipts(new DiskTable(environment, "receipts")) };
}

/** Fills the store of an import, in a folder where no one looks for one. */
export async function fillLmdb(
  options: LmdbOptions,
  host: StoreEnvironment,
  fill: (target: ImportTarget) => Promise<void>,
): Promise<void> {
  const environment = await openFiles(options, host);
  try {
    const { claims, mailbox, receipts } = openMailbox(environment, [options, host]);
    const table = new DiskTable(environment, "table");
    const putLedger: ImportTarget["putLedger"] = (pairs) =>
      table.commit((view) => {
        for (const [key, value] of pairs) view.put(key, value);
      });
    await fill({ mailbox, replay: claims, receipts, putLedger });
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
    // Opening must succeed even on a full disk.
    const table = new DiskTable(environment, "table", () => (isOpening ? "removal" : "record"));
    const checkRoom = ledgerBound(environment);
    const ledger = await openLedger(table, options.block_time_ms, { ...host, checkRoom });
    isOpening = false;
    let closed: Promise<void> | null = null;
    const close = async () => {
      await ledger.close();
      await environment.close();
    };
    return {
      plugin: "lmdb",
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

/**
 * Records of the ledger stay for ever, so it leaves the mailboxes half of the disk, and a quarter
 * when keys must change.
 */
const ledgerPartMax = { registration: 1 / 2, change: 3 / 4 };

function ledgerBound(environment: Environment): (call: LedgerCall) => void {
  return ({ name }) => {
    const kind = name === "register_with_document_proof_signed" ? "registration" : "change";
    if (environment.ledgerPart() > ledgerPartMax[kind])
      throw new StoreError("full", "the ledger has its part of the disk");
  };
}

/** One table and nothing else, for a driver whose store lies elsewhere. */
export const openTable: OpenLocalTable = async ({ folder, floorBytes, reserveBytes }, host) => {
  const space = { floorBytes, reserveBytes };
  const environment = await openEnvironment({ path: folder, space, host });
  return {
    table: new DiskTable(environment, "table"),
    checkOpen: () => environment.checkOpen(),
    close: () => environment.close(),
  };
};

const knownMax = 4_096;
const knownBytesMax = 2_048;
/** About what a commit of the ledger writes. */
const ledgerCommitBytes = 64 * 1024;

/**
 * A table over a database of the environment. The commits that a group commit gathers write once,
 * at its end.
 */
export class DiskTable implements OrderedTable {
  private changes = new Overlay(this);
  /**
   * Records as of the last commit, `null` where there is none: for every message an account and a
   * policy are read.
   */
  private readonly known = new BoundedMap<string, Uint8Array | null>(knownMax);

  constructor(
    private readonly environment: Environment,
    private readonly database: "table" | "receipts",
    /** Whether the ledger's writes may use the reserve for removals. */
    private readonly kind: () => WriteKind = () => "record",
  ) {
    environment.onCommit((batch) => this.write(batch));
  }

  get(key: string): Uint8Array | null {
    this.environment.checkOpen();
    const known = this.known.get(key);
    if (known !== undefined) return known;
    const bytes = Buffer.from(key);
    const record = this.environment.get(this.database, bytes);
    const what = `${this.database} record ${key}`;
    const value = record === null ? null : unsealed(bytes, record, what);
    const isLast = !this.environment.isCommitting;
    if (isLast && (value?.length ?? 0) <= knownBytesMax) this.known.set(key, value);
    return value;
  }

  range(prefix: string, { after, limit }: { readonly after?: string; readonly limit: number }) {
    const first = Buffer.from(prefix);
    const past = after === undefined ? null : Buffer.concat([Buffer.from(after), Buffer.of(0)]);
    const start = past !== null && past.compare(first) > 0 ? past : first;
    const end = endOfPrefix(first);
    if (limit <= 0 || (end !== null && start.compare(end) >= 0)) return [];
    // An empty start is not a key to the library; no key of ours begins with a zero byte.
    const range = {
      start: start.length === 0 ? Buffer.of(0) : start,
      limit,
      ...(end === null ? {} : { end }),
    };
    return this.environment
      .range(this.database, range)
      .map(([key, record]): [string, Uint8Array] => {
        const text = key.toString();
        return [text, unsealed(key, record, `${this.database} record ${text}`)];
      });
  }

  prefetch(): void {}

  commit<T>(change: (view: TableChange) => T, size?: CommitSize): Promise<T> {
    const asked = size ?? { kind: this.kind(), bytes: ledgerCommitBytes };
    return this.environment.join(asked, () => this.changes.attempt(change));
  }

  private write(batch: CommitBatch): void {
    if (this.changes.written.size === 0) return;
    this.known.clear();
    for (const [text, value] of this.changes.written) {
      const key = Buffer.from(text);
      if (value === null) batch.remove(this.database, key);
      else batch.put(this.database, key, sealed(key, value));
    }
    this.changes = new Overlay(this);
  }
}

const claimsMax = 2 ** 22;
/**
 * So many fit into a page of the file. More would need pages side by side, which a full file seldom
 * has free: reads would take of the reserve behind its pages, and nothing gives that back.
 */
const claimsPerRecord = 36;
/**
 * Replay claims: those of a commit are a record for every 36. Its key is the end of its last claim
 * and a number (8 bytes each). A record goes when its last claim was forgotten. A start reads all
 * of them.
 */
class DiskClaims implements Replay {
  private readonly claims: Claims;
  private lastNumber = 0;
  /** Claims of the commit that is being decided. */
  private deciding: TagClaim[] = [];

  constructor(
    private readonly environment: Environment,
    max = claimsMax,
  ) {
    this.claims = new Claims(max);
    for (const key of environment.keys("claims", {
      start: orderedKey(0),
      limit: Number.MAX_SAFE_INTEGER,
    })) {
      this.lastNumber = Math.max(this.lastNumber, orderedNumber(key.subarray(8)));
      for (const claim of claimsIn(key, environment.borrow("claims", key)!)) this.claims.add(claim);
    }
    environment.onCommit((batch) => this.finish(batch));
  }

  claim(tag: string, untilMs: number, nowMs: number): Promise<boolean> {
    const size = { kind: "claim", bytes: 2 * tag.length } as const;
    return this.environment.join(size, () => this.take({ tag, untilMs }, nowMs));
  }

  /** While a commit is being decided. */
  take(claim: TagClaim, nowMs: number): boolean {
    const isTaken = this.claims.claim(claim, nowMs);
    if (isTaken) this.deciding.push(claim);
    return isTaken;
  }

  private finish(batch: CommitBatch): void {
    if (this.deciding.length === 0) return;
    for (let at = 0; at < this.deciding.length; at += claimsPerRecord) {
      const claims = this.deciding.slice(at, at + claimsPerRecord);
      const endMs = Math.max(...claims.map(({ untilMs }) => untilMs));
      const key = Buffer.concat([orderedKey(endMs), orderedKey(++this.lastNumber)]);
      batch.add("claims", key, sealed(key, Buffer.from(JSON.stringify(claims))));
    }
    this.deciding = [];
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    const { environment, claims } = this;
    environment.checkOpen();
    if (limit <= 0 || claims.firstEndMs > nowMs) return 0;
    return environment.join(claimsSweepOf(limit), (batch) => {
      const freed = claims.expire(nowMs, limit);
      const firstMs = Math.min(claims.firstEndMs, Number.MAX_SAFE_INTEGER);
      const over = { start: orderedKey(0), end: orderedKey(firstMs), limit };
      for (const key of environment.keys("claims", over)) batch.remove("claims", key);
      return freed;
    });
  }
}

/** Records of claims lie side by side. */
const claimsSweepOf = (claims: number) =>
  ({ kind: "sweep", bytes: Math.min(1_024 * claims, 1024 ** 2) }) as const;

export function claimsIn(key: Uint8Array, record: Uint8Array): TagClaim[] {
  return JSON.parse(decoder.decode(unsealed(key, record, "a record of claims"))) as TagClaim[];
}

const decoder = new TextDecoder();
