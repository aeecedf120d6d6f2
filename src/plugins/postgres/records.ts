/**
 * What the store keeps besides mailboxes: the table of the embedded ledger,
 * replay claims and receipts.
 *
 * The ledger's work is synchronous and PostgreSQL is not: work runs against what was fetched, stops
 * at the first key that was not, and runs again once that is there. The commits of one turn are one
 * transaction, which holds the ledger's lock from its first read to its commit: a process that lost
 * its connection has lost the lock and its writes with it, so two block makers never both write.
 *
 * Claims and receipts are decided by their primary keys: an insert that meets a row waits for it,
 * in the order of keys. Keys are texts of any characters, U+0000 among them, which no text of the
 * database can hold, so bytes are the keys there.
 */
import { concatBytes, utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import { errorText } from "../../core/fault.ts";
import { Batcher } from "../../storage/batcher.ts";
import { type Receipts, type Replay, StoreError } from "../../storage/contract.ts";
import { decodeHead, headKey } from "../../storage/embedded-records.ts";
import { checkPrefix, checkReceipt, checkText, isScanned } from "../../storage/records.ts";
import {
  Overlay,
  type SharedTable,
  type TableChange,
  type TableView,
} from "../../storage/table.ts";
import { endOfPrefix } from "../shared/drivers.ts";
import { clockColumn } from "./clock.ts";
import { batchLimits, type Pool, type Query } from "./pool.ts";
import type { Parameter, SqlRow } from "./servers.ts";

type RangeRequest = { readonly prefix: string; readonly after: string; readonly limit: number };
type Entries = readonly (readonly [string, Uint8Array])[];

/** Far more runs than a tree of pages is deep. */
const runsMax = 1_000;

/**
 * What was fetched of the table. Anything else reads as absent, and is wanted: its reader runs
 * again with it, and the result of the run before is discarded.
 */
class Fetched implements TableView {
  readonly ranges = new Map<string, Entries>();
  readonly wantedKeys = new Set<string>();
  readonly wantedRanges = new Map<string, RangeRequest>();

  constructor(readonly keys = new Map<string, Uint8Array | null>()) {}

  get isWhole(): boolean {
    return this.wantedKeys.size + this.wantedRanges.size === 0;
  }

  get(key: string): Uint8Array | null {
    const value = this.keys.get(key);
    if (value === undefined) this.wantedKeys.add(key);
    return value?.slice() ?? null;
  }

  prefetch(keys: readonly string[]): void {
    for (const key of keys) if (!this.keys.has(key)) this.wantedKeys.add(key);
    if (!this.isWhole) throw new StoreError("unavailable", "not fetched yet");
  }

  range(
    prefix: string,
    { after = "", limit }: { readonly after?: string; readonly limit: number },
  ) {
    const request = { prefix, after, limit };
    const name = JSON.stringify(request);
    const fetched = this.ranges.get(name);
    if (fetched === undefined) this.wantedRanges.set(name, request);
    return (fetched ?? []).map(([key, value]): [string, Uint8Array] => [key, value.slice()]);
  }

  /** All wanted keys in one statement, and each range in one. */
  async fetch(query: Query): Promise<void> {
    const wanted = [...this.wantedKeys];
    const found = wanted.length === 0 ? null : await fetchKeys(query, wanted);
    for (const key of wanted) this.keys.set(key, found?.get(key) ?? null);
    for (const [name, range] of this.wantedRanges) {
      const entries = await fetchRange(query, range);
      this.ranges.set(name, entries);
      for (const [key, value] of entries) if (!this.keys.has(key)) this.keys.set(key, value);
    }
    this.wantedKeys.clear();
    this.wantedRanges.clear();
  }
}

type ViewChange = (view: TableChange) => unknown;
type Outcome =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: unknown };

export class PostgresTable implements SharedTable {
  private readonly reads: Batcher<readonly string[], ReadonlyMap<string, Uint8Array>>;
  private readonly commits: Batcher<ViewChange, Outcome>;
  /** The last record of the ledger's head that this process has seen. */
  private knownHead: Uint8Array | null = null;

  constructor(private readonly pool: Pool) {
    this.reads = new Batcher((sets) => this.fetchSets(sets), Number.MAX_SAFE_INTEGER, batchLimits);
    const limits = { operationsMax: 64, bytesMax: 1 << 20, runningMax: 1, turnsMax: 0 };
    this.commits = new Batcher((given) => this.commitBatch(given), Number.MAX_SAFE_INTEGER, limits);
  }

  /** Blocks of all nodes follow the database's clock. */
  databaseNow(): number {
    return this.pool.clock.now() + this.pool.clock.aheadMs;
  }

  /** Everything that the last run reads was fetched by one statement. */
  async read<T>(work: (view: TableView) => T): Promise<T> {
    const keys = new Set<string>();
    for (let run = 0; run < runsMax; run++) {
      const found =
        keys.size === 0 ? null : await this.reads.add({ given: [...keys], bytes: 64 * keys.size });
      const values = [...keys].map((key) => [key, found?.get(key) ?? null] as const);
      const fetched = new Fetched(new Map(values));
      const outcome = tryWork(() => work(fetched));
      if (fetched.isWhole) return resultOf(outcome) as T;
      for (const key of fetched.wantedKeys) keys.add(key);
    }
    throw new StoreError("unavailable", "a read of the ledger did not finish");
  }

  private async fetchSets(
    sets: readonly (readonly string[])[],
  ): Promise<ReadonlyMap<string, Uint8Array>[]> {
    const keys = [...new Set([headKey, ...sets.flat()])];
    const found = await fetchKeys((text, given) => this.pool.query(text, given), keys)
      .then((fetched) => this.keepHead(fetched))
      .catch(async (error: unknown) => await this.fetchFromStandby(keys, error));
    return sets.map(() => found);
  }

  private keepHead<M extends ReadonlyMap<string, Uint8Array | null>>(seen: M): M {
    this.knownHead = seen.get(headKey) ?? this.knownHead;
    return seen;
  }

  /**
   * While no server takes writes: from a standby that has the last block and call
   * that this process knows of.
   */
  private async fetchFromStandby(
    keys: readonly string[],
    failure: unknown,
  ): Promise<Map<string, Uint8Array>> {
    if (!(failure instanceof StoreError && failure.code === "unavailable")) throw failure;
    if (this.pool.clock.problem() !== null) throw failure;
    const askRows = async (text: string, given: readonly Parameter[] = []) => {
      const rows = await this.pool.askStandby(text, given);
      if (rows === null) throw failure;
      return rows;
    };
    const found = await fetchKeys(askRows, keys);
    const head = found.get(headKey);
    if (head === undefined || this.knownHead === null) throw failure;
    const [there, known] = [decodeHead(head), decodeHead(this.knownHead)];
    if (there.last.number < known.last.number || there.poolNext < known.poolNext) throw failure;
    return found;
  }

  async commit<T>(change: (view: TableChange) => T): Promise<T> {
    return resultOf(await this.commits.add({ given: change, bytes: 1_024 })) as T;
  }

  /** A change sees the writes of those before it; one that throws leaves nothing. */
  private async commitBatch(batch: readonly ViewChange[]): Promise<Outcome[]> {
    let written: ReadonlyMap<string, Uint8Array | null> = new Map();
    const outcomes = await this.pool.transaction(async (query) => {
      const sentMs = this.pool.clock.now();
      const [locked] = await query(lockQuery);
      this.pool.clock.follow(Number(locked?.["now_ms"]), sentMs);
      this.pool.clock.check();
      const fetched = new Fetched();
      for (let run = 0; run < runsMax; run++) {
        const changes = new Overlay(fetched);
        const outcomes = batch.map((change) => tryWork(() => changes.attempt(change)));
        if (fetched.isWhole) {
          written = changes.written;
          await writeAll(query, written);
          return outcomes;
        }
        await fetched.fetch(query);
      }
      throw new StoreError("unavailable", "a change of the ledger did not finish");
    });
    this.keepHead(written);
    return outcomes;
  }
}

/** A node that stops in the middle of a commit loses the lock after this time. */
const frozenMs = 2_000;
const lockQuery = `with locked as materialized (
    select set_config('idle_in_transaction_session_timeout', '${frozenMs}', true),
      pg_advisory_xact_lock(hashtextextended('{s}', 3)))
  select ${clockColumn} from locked`;

function tryWork(work: () => unknown): Outcome {
  try {
    return { ok: true, value: work() };
  } catch (error) {
    return { ok: false, error };
  }
}

function resultOf(outcome: Outcome): unknown {
  if (outcome.ok) return outcome.value;
  throw outcome.error;
}

async function fetchRange(query: Query, { prefix, after, limit }: RangeRequest): Promise<Entries> {
  const rows = await query(
    `select key, value from {s}.ledger where key >= $1 and key > $2 and starts_with(key, $1) order by key limit $3`,
    [prefix, after, limit],
  );
  return rows.map((row) => [String(row["key"]), valueBytes(row)] as const);
}

async function fetchKeys(query: Query, keys: readonly string[]): Promise<Map<string, Uint8Array>> {
  // No key of the ledger holds U+0000, so one that is asked for is absent.
  const possible = keys.filter((key) => !key.includes("\u0000") && key.isWellFormed());
  const rows = await query(
    "select l.key, l.value from {s}.ledger l where l.key = any (array(select json_array_elements_text($1::text::json)))",
    [JSON.stringify(possible)],
  );
  return new Map(rows.map((row) => [String(row["key"]), valueBytes(row)]));
}

function valueBytes(row: SqlRow): Uint8Array {
  const value = row["value"];
  if (!(value instanceof Uint8Array))
    throw new StoreError("corrupt", `a ledger record has an unexpected value: ${errorText(value)}`);
  return new Uint8Array(value);
}

async function writeAll(
  query: Query,
  written: ReadonlyMap<string, Uint8Array | null>,
): Promise<void> {
  const puts = [...written].filter((entry): entry is [string, Uint8Array] => entry[1] !== null);
  const removed = [...written].filter(([, value]) => value === null).map(([key]) => key);
  const { bytes, starts } = packed(puts.map(([, value]) => value));
  const rows = puts.map(([key, { length: size }], n) => ({ key, start: starts[n], size }));
  if (rows.length > 0) {
    await query(
      `insert into {s}.ledger (key, value)
       select g.key, substring($2::bytea from g.start for g.size)
       from json_to_recordset($1::text::json) as g(key text, start integer, size integer)
       on conflict (key) do update set value = excluded.value`,
      [JSON.stringify(rows), bytes],
    );
  }
  if (removed.length > 0) {
    await query(
      "delete from {s}.ledger where key = any (array(select json_array_elements_text($1::text::json)))",
      [JSON.stringify(removed)],
    );
  }
}

// ----------------------------------------------------------------------------- claims and receipts

/**
 * Byte strings one after the other as one parameter, and where each begins:
 * the database counts from 1.
 */
export function packed(values: readonly Uint8Array[]): {
  readonly bytes: Uint8Array;
  readonly starts: number[];
} {
  let start = 1;
  const starts = values.map(({ length }) => {
    start += length;
    return start - length;
  });
  return { bytes: concatBytes(...values), starts };
}

type ClaimRow = {
  readonly tag: string;
  readonly place: number;
  readonly until: number;
  readonly at: number;
};

/**
 * The bytes of a row for a tag, in hex: its UTF-8, or with lone surrogates, which that can't hold,
 * its UTF-16. No two texts have the same bytes, and an export finds the text again.
 */
export function tagKeyOf(tag: string): string {
  return tag.isWellFormed()
    ? `00${Buffer.from(tag).toString("hex")}`
    : `01${Buffer.from(tag, "utf16le").toString("hex")}`;
}

export function textOfTag(key: Uint8Array): string {
  return Buffer.from(key.subarray(1)).toString(key[0] === 0 ? "utf8" : "utf16le");
}

/**
 * The first ten bits of the SHA-256 of the DID that a text names, as `place_of` in schema.sql: so
 * what belongs to a mailbox is where the mailbox is. Texts without one are spread.
 */
export function placeOf(text: string): number {
  const [owner] = /did:svc:\w+/.exec(text) ?? [text];
  const [first = 0, second = 0] = sha256(utf8(owner));
  return (first << 2) | (second >> 6);
}

/**
 * The same for a receipt: two bytes that begin with its place, then its UTF-16 units, in whose
 * order a scan finds them. Those that a scan finds begin with a slash, and are all of place 0.
 */
const rowKeyOf = (key: string): string =>
  (placeOfReceipt(key) << 6).toString(16).padStart(4, "0") +
  Buffer.from(key, "utf16le").swap16().toString("hex");
export const placeOfReceipt = (key: string): number => (isScanned(key) ? 0 : placeOf(key));
export const textOfRow = (key: Uint8Array): string =>
  Buffer.from(key.slice(2)).swap16().toString("utf16le");

export function openPostgresReplay(pool: Pool): Replay {
  const claims = new Batcher<ClaimRow, boolean>(
    async (given) => {
      const won = new Set((await pool.write("claim_tags", [JSON.stringify(given)])) as string[]);
      return given.map(({ tag }) => won.has(tag));
    },
    1,
    batchLimits,
  );
  return {
    async claim(tag, untilMs, nowMs) {
      checkText("tag", tag);
      const given = { tag: tagKeyOf(tag), place: placeOf(tag), until: untilMs, at: nowMs };
      return claims.add({ given, bytes: 64 + given.tag.length, key: given.tag });
    },
    async expire(nowMs, limit) {
      const [row] = await pool.query("select {s}.expire_claims($1, $2) as freed", [nowMs, limit]);
      return Number(row?.["freed"]);
    },
  };
}

type Writing = {
  readonly key: string;
  readonly how: "put" | "absent" | "remove";
  /** `null` removes whatever there is. */
  readonly value: Uint8Array | null;
  readonly until: number;
  readonly at: number;
};

export function openPostgresReceipts(pool: Pool): Receipts {
  const writes = new Batcher<Writing, Uint8Array | null>(
    (given) => writeBatch(pool, given),
    1,
    batchLimits,
  );
  const addWrite = (writing: Writing) =>
    writes.add({ given: writing, bytes: (writing.value?.length ?? 0) + 256, key: writing.key });
  return {
    async put(key, value, untilMs) {
      checkReceipt(key, value);
      await addWrite({ key: rowKeyOf(key), how: "put", value, until: untilMs, at: 0 });
    },
    async putIfAbsent(key, value, untilMs, nowMs) {
      checkReceipt(key, value);
      return addWrite({ key: rowKeyOf(key), how: "absent", value, until: untilMs, at: nowMs });
    },
    async get(key, nowMs) {
      const [row] = await pool.query("select {s}.receipt_of(decode($1, 'hex'), $2) as value", [
        rowKeyOf(key),
        nowMs,
      ]);
      const value = row?.["value"] as Uint8Array | null;
      return value === null ? null : new Uint8Array(value);
    },
    async remove(key, value) {
      await addWrite({ key: rowKeyOf(key), how: "remove", value: value ?? null, until: 0, at: 0 });
    },
    async scan(prefix, { after, limit, nowMs }) {
      checkPrefix(prefix);
      const first = rowKeyOf(prefix);
      const end = endOfPrefix(Buffer.from(first, "hex"))?.toString("hex") ?? first;
      const rows = await pool.query(
        "select * from {s}.scan(decode($1, 'hex'), decode($2, 'hex'), decode($3, 'hex'), $4, $5)",
        [first, end, after === null ? "" : rowKeyOf(after), nowMs, limit],
      );
      return rows.map(
        ({ key, value }) =>
          [textOfRow(key as Uint8Array), new Uint8Array(value as Uint8Array)] as const,
      );
    },
    async expire(nowMs, limit) {
      const [row] = await pool.query("select {s}.expire_receipts($1, $2) as freed", [nowMs, limit]);
      return Number(row?.["freed"]);
    },
  };
}

/** The value that excludes each write, or null. */
async function writeBatch(pool: Pool, given: readonly Writing[]): Promise<(Uint8Array | null)[]> {
  const { bytes, starts } = packed(given.map(({ value }) => value ?? new Uint8Array(0)));
  const rows = given.map(({ key, value, ...writing }, n) => ({
    ...writing,
    key: `\\x${key}`,
    start: starts[n],
    size: value?.length ?? null,
  }));
  const answer = (await pool.write("write_receipts", [JSON.stringify(rows), bytes])) as [
    string,
    string,
  ][];
  const standing = new Map(answer);
  return given.map(({ key }) => {
    const value = standing.get(key);
    return value === undefined ? null : new Uint8Array(Buffer.from(value, "base64"));
  });
}
