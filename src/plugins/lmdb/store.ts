/**
 * The LMDB store, put together: the mailbox, the table of the embedded ledger, and records that end at a time
 * (replay claims and receipts). Loaded only when a store is opened, because it brings the native addon along.
 */
import { join, resolve } from "node:path";
import type { DeferredClaim, Receipts, Replay, Store, StoreEnvironment, TagClaim } from "../../storage/contract.ts";
import { checkKey, type Table, type TableChange, type TableView } from "../../storage/table.ts";
import { checkReceipt, checkText, ledgerImport, openLedger } from "../drivers.ts";
import type { Batch, View } from "./commits.ts";
import { type Environment, openEnvironment } from "./environment.ts";
import { dataFile } from "./folder.ts";
import { Scrub } from "./integrity.ts";
import type { FoldLimits } from "./journal.ts";
import type { LmdbOptions } from "./lmdb.ts";
import { type DecidedClaims, DiskMailbox, type JoinClaim } from "./mailbox.ts";
import { orderedKey, orderedNumber, Reader, sealedUnder, unsealedUnder, Writer } from "./records.ts";
import type { Disk, WriteKind } from "./space.ts";

/** Tests give their own disk, shorter folds, less waste, and commits as long as a busy machine needs. */
type LmdbTestSettings = {
  readonly disk?: Disk;
  readonly fold?: FoldLimits;
  readonly sparseBlocksMin?: number;
  readonly commitMsMax?: number;
};

export async function openLmdb(
  options: LmdbOptions,
  host: StoreEnvironment,
  test: LmdbTestSettings = {},
): Promise<Store> {
  const environment = await openEnvironment({
    path: resolve(options.path),
    space: { floorBytes: options.free_space_floor_bytes, reserveBytes: options.reserve_bytes },
    host,
    ...(test.disk === undefined ? {} : { disk: test.disk }),
    ...(test.commitMsMax === undefined ? {} : { commitMsMax: test.commitMsMax }),
  });
  try {
    const claims = new Claims(environment);
    const mailbox = new DiskMailbox(environment, { ...test, rowsMax: options.message_ids_max, claims }, host.log);
    let opening = true;
    const table = openTable(environment, () => (opening ? "removal" : "record"));
    const { ledger, followHead } = await openLedger(table, options.block_time_ms, host);
    opening = false;
    let closed: Promise<void> | null = null;
    const scrub = openScrub(options, environment, host);
    scrub.start();
    const close = async () => {
      scrub.stop();
      await ledger.close();
      mailbox.close();
      await environment.close((saved) => mailbox.exchange(saved));
    };
    return {
      plugin: "lmdb",
      durability: "flushed",
      capabilities: { mailbox, replay: openReplay(environment, claims), receipts: openReceipts(environment), ledger },
      importLedger: ledgerImport(table),
      followHead,
      scrubbed: () => scrub.report,
      async probe() {
        environment.checkWork();
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

function openScrub(options: LmdbOptions, environment: Environment, host: StoreEnvironment): Scrub {
  return new Scrub({
    path: join(resolve(options.path), dataFile),
    bytesPerSecond: options.scrub_bytes_per_second,
    log: host.log,
    fail: (reason) => environment.fail(reason, null),
  });
}

/** About what a commit of the ledger writes. */
const commitBytes = 64 * 1024;

/** `kind`: what the commits of the moment are worth; opening must succeed even on a full disk. */
export function openTable(environment: Environment, kind: () => WriteKind): Table {
  return {
    ...viewOf(environment),
    commit<T>(change: (view: TableChange) => T): Promise<T> {
      return environment.join({ kind: kind(), bytes: commitBytes }, (batch) =>
        batch.attempt((view) =>
          change({
            ...viewOf(view),
            put(key, value) {
              checkKey(key);
              const bytes = Buffer.from(key);
              view.put("table", bytes, sealedUnder(bytes, value));
            },
            remove: (key) => view.remove("table", Buffer.from(key)),
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
      return record === null ? null : unsealedUnder(bytes, record, `table record ${key}`);
    },
    range(prefix, { after, limit }) {
      const first = Buffer.from(prefix);
      const past = after === undefined ? null : Buffer.concat([Buffer.from(after), Buffer.of(0)]);
      const start = past !== null && past.compare(first) > 0 ? past : first;
      const end = endOfPrefix(first);
      if (limit <= 0 || (end !== null && start.compare(end) >= 0)) return [];
      // An empty start is no key to the library; no key of ours begins with a zero byte.
      const range = { start: start.length === 0 ? Buffer.of(0) : start, limit, ...(end === null ? {} : { end }) };
      return source.range("table", range).map(([key, record]) => {
        const text = key.toString();
        return [text, unsealedUnder(key, record, `table record ${text}`)];
      });
    },
  };
}

/** The first key after all that begin with the prefix, or `null` when there is none. */
function endOfPrefix(prefix: Buffer): Buffer | null {
  const end = Buffer.from(prefix);
  for (let i = end.length - 1; i >= 0; i--) {
    if (end[i] === 0xff) continue;
    end[i] = end[i]! + 1;
    return end.subarray(0, i + 1);
  }
  return null;
}

type Kind = "claims" | "receipts";
type Standing = { readonly untilMs: number; readonly value: Uint8Array };
type Replacement = { readonly before: Standing | null; readonly record: Standing | null };

const endBytes = 8;
const recordOverhead = 64;
const nothing = new Uint8Array(0);

/** Claims are decided when they are made; their records go with a commit. */
class Claims implements DecidedClaims {
  private readonly records: EndingRecords;
  /** The ends of claims that are not on disk yet, by tag. */
  private readonly pending = new Map<string, number>();

  constructor(private readonly environment: Environment) {
    this.records = new EndingRecords(environment, "claims");
  }

  win<T>({ tag, untilMs }: TagClaim, nowMs: number, join: JoinClaim<T>): Promise<T> | null {
    checkText("tag", tag);
    const key = keyOf(tag);
    const before = this.records.standing(this.environment, key);
    if (Math.max(this.pending.get(tag) ?? 0, before?.untilMs ?? 0) > nowMs) return null;
    const size = { kind: "removal", bytes: key.length * 2 + recordOverhead } as const;
    const record = { untilMs, value: nothing };
    const joined = join(size, (batch) => this.records.replace(batch, key, { before, record }));
    this.pending.set(tag, untilMs);
    const end = () => {
      if (this.pending.get(tag) === untilMs) this.pending.delete(tag);
    };
    joined.then(end, end);
    return joined;
  }

  expire(nowMs: number, limit: number): Promise<number> {
    return this.records.expire(nowMs, limit);
  }
}

const lost: DeferredClaim = { isFirst: false, durable: async () => {} };

function openReplay(environment: Environment, claims: Claims): Replay {
  return {
    async claim(tag, untilMs, nowMs) {
      const written = claims.win({ tag, untilMs }, nowMs, (size, write) => environment.join(size, write));
      await written;
      return written !== null;
    },
    claimDeferred(tag, untilMs, nowMs) {
      const written = claims.win({ tag, untilMs }, nowMs, (size, write) => environment.joinLazily(size, write));
      if (written === null) return lost;
      const durable = () => {
        environment.beginCommit();
        return written;
      };
      return { isFirst: true, durable };
    },
    expire: (nowMs, limit) => claims.expire(nowMs, limit),
  };
}

function openReceipts(environment: Environment): Receipts {
  const receipts = new EndingRecords(environment, "receipts");
  const size = (key: Buffer, value: Uint8Array) => ({
    kind: "record" as const,
    bytes: key.length * 2 + value.length + recordOverhead,
  });
  return {
    async put(text, value, untilMs) {
      checkReceipt(text, value);
      const key = keyOf(text);
      await environment.join(size(key, value), (batch) => receipts.set(batch, key, { untilMs, value }));
    },
    async putIfAbsent(text, value, untilMs, nowMs) {
      checkReceipt(text, value);
      const key = keyOf(text);
      return environment.join(size(key, value), (batch) => {
        const standing = receipts.standing(batch, key);
        if (standing !== null && standing.untilMs > nowMs) return standing.value;
        receipts.set(batch, key, { untilMs, value });
        return null;
      });
    },
    async get(text, nowMs) {
      const standing = receipts.standing(environment, keyOf(text));
      return standing !== null && standing.untilMs > nowMs ? standing.value : null;
    },
    async remove(text) {
      const key = keyOf(text);
      await environment.join({ kind: "removal", bytes: recordOverhead }, (batch) => receipts.set(batch, key, null));
    },
    expire: (nowMs, limit) => receipts.expire(nowMs, limit),
  };
}

/**
 * Records that end at a time: a database from key to sealed record, and a second one from (end, key) that says
 * what has ended. Keys are the UTF-16 units of the caller's text, so that no two texts meet in one key.
 */
class EndingRecords {
  constructor(
    private readonly environment: Environment,
    private readonly kind: Kind,
  ) {}

  /** What stands under a key. Within a commit, the operations before this one count. */
  standing(view: View, key: Buffer): Standing | null {
    const record = view.get(this.kind, key);
    if (record === null) return null;
    const what = `${this.kind} record`;
    const reader = new Reader(unsealedUnder(key, record, what), what);
    const untilMs = reader.u53();
    // Copied, because the caller may keep it.
    return { untilMs, value: reader.bytes(reader.u32()).slice() };
  }

  /** Sets the value of a key; `null` removes it. */
  set(batch: Batch, key: Buffer, record: Standing | null): void {
    this.replace(batch, key, { before: this.standing(batch, key), record });
  }

  /** The same when it is known what stands there. */
  replace(batch: Batch, key: Buffer, { before, record: to }: Replacement): void {
    const { kind } = this;
    if (before !== null && before.untilMs !== to?.untilMs) batch.remove(`${kind}-due`, endKey(before.untilMs, key));
    if (to === null) {
      if (before !== null) batch.remove(kind, key);
      return;
    }
    const writer = new Writer(12 + to.value.length);
    writer.u53(to.untilMs);
    writer.u32(to.value.length);
    writer.bytes(to.value);
    batch.put(kind, key, sealedUnder(key, writer.finish()));
    batch.put(`${kind}-due`, endKey(to.untilMs, key), ended);
  }

  /** Looks first without a commit: mostly nothing has ended. */
  async expire(nowMs: number, limit: number): Promise<number> {
    const range = { start: orderedKey(0), end: orderedKey(nowMs + 1), limit };
    const database = `${this.kind}-due` as const;
    if (limit <= 0 || this.environment.keys(database, { ...range, limit: 1 }).length === 0) return 0;
    return this.environment.join({ kind: "removal", bytes: recordOverhead }, (batch) => {
      const found = this.environment.keys(database, range);
      for (const place of found) {
        const key = Buffer.from(place.subarray(endBytes));
        if (this.standing(batch, key)?.untilMs === orderedNumber(place)) this.set(batch, key, null);
        else batch.remove(database, place);
      }
      return found.length;
    });
  }
}

const ended = new Uint8Array([1]);

function keyOf(text: string): Buffer {
  return Buffer.from(text, "utf16le");
}

function endKey(untilMs: number, key: Buffer): Buffer {
  return Buffer.concat([orderedKey(untilMs), key]);
}
