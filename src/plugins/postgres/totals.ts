/** Sums of the whole store: of its databases, for the quota and the statistics, and of labels that are counted over all. */
import { late, withDeadline } from "../../core/std/bounded.ts";
import { type MailboxStats, StoreError, type StoreShare } from "../../storage/contract.ts";
import { exceedsShare, nothingHeld } from "../../storage/mailbox-rules.ts";
import type { Pool } from "./pool.ts";

/**
 * What the whole store holds, for its quota and its statistics. Every connection counts in rows of its own
 * (`tally`), so that no write waits for another's count; a node reads their sum now and then and adds what
 * it wrote itself since. So the quota of the store lags by what the other nodes wrote in between.
 */
export class StoreTotals {
  private known: MailboxStats = { entries: 0, bytes: 0 };
  private readAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly pool: Pool,
    /** The sum is read again when it is older than this. */
    private readonly ageMsMax: number,
  ) {}

  async read(nowMs: number): Promise<MailboxStats> {
    const [row] = await this.pool.query(
      `select coalesce(sum(entries), 0) as entries, coalesce(sum(bytes), 0) as bytes
       from {s}.tally where upper_ms > $1`,
      [nowMs],
    );
    return { entries: Math.max(0, Number(row?.["entries"])), bytes: Math.max(0, Number(row?.["bytes"])) };
  }

  async current(nowMs: number): Promise<MailboxStats> {
    if (performance.now() - this.readAtMs >= this.ageMsMax) {
      this.readAtMs = performance.now();
      this.known = await this.read(nowMs);
    }
    return this.known;
  }

  /** Without waiting, unless every sum is read: what was known last. */
  async recent(nowMs: number): Promise<MailboxStats> {
    const current = this.current(nowMs).catch(() => this.known);
    return this.ageMsMax === 0 ? current : this.known;
  }

  private knownDespite(error: unknown): MailboxStats {
    if (error instanceof StoreError && error.code === "unavailable") return this.known;
    throw error;
  }

  async readOrKnown(nowMs: number): Promise<MailboxStats> {
    const found = await withDeadline(
      this.read(nowMs).catch((error: unknown) => this.knownDespite(error)),
      statsMsMax,
    );
    return found === late ? this.known : found;
  }

  add({ entries, bytes }: MailboxStats): void {
    this.known = { entries: this.known.entries + entries, bytes: this.known.bytes + bytes };
  }
}

const statsMsMax = 1_000;

/** The sums of all databases of a store. */
export class StoreSums {
  constructor(
    private readonly all: readonly StoreTotals[],
    readonly labels: LabelTotals,
  ) {}

  /** For a write to one of them, which waits for no other. */
  async current(own: StoreTotals, nowMs: number): Promise<MailboxStats> {
    return sumOf(await Promise.all(this.all.map((one) => (one === own ? one.current(nowMs) : one.recent(nowMs)))));
  }

  async stats(nowMs: number): Promise<MailboxStats> {
    const [only] = this.all;
    if (only !== undefined && this.all.length === 1) return only.read(nowMs);
    return sumOf(await Promise.all(this.all.map((one) => one.readOrKnown(nowMs))));
  }
}

function sumOf(all: readonly MailboxStats[]): MailboxStats {
  return all.reduce((sum, one) => ({ entries: sum.entries + one.entries, bytes: sum.bytes + one.bytes }), nothingHeld);
}

/** A scan may take this part of the time that a database has. */
const scanPart = 0.05;

/**
 * What each label that is counted over the store holds. Counting it at every write would make a row for each
 * client network, span and connection, so it is counted by a scan: rarely, and only when the store holds so much
 * that a share can be used up. Until the first scan is done no share applies.
 */
export class LabelTotals {
  /** By database; one that is away keeps what it held. */
  private readonly held: ReadonlyMap<string, MailboxStats>[];
  private readAtMs = Number.NEGATIVE_INFINITY;
  private tookMs = 0;
  private reading: Promise<void> | null = null;

  constructor(
    private readonly pools: readonly Pool[],
    /** 0, for tests: every write waits for a scan. */
    private readonly ageMsMax: number,
  ) {
    this.held = pools.map(() => new Map());
  }

  /** Whether one more entry of so many bytes is beyond the share. `nowMs` is the time of the entry. */
  async exceeds(share: StoreShare, all: MailboxStats, { bytes, nowMs }: { bytes: number; nowMs: number }) {
    const { entriesMax, bytesMax, rest } = share;
    if (all.entries + 1 <= rest.part * entriesMax && all.bytes + bytes <= rest.part * bytesMax) return false;
    const isExact = this.ageMsMax === 0;
    const ageMsMax = isExact ? 0 : Math.max(this.ageMsMax, this.tookMs / scanPart);
    if (this.reading === null && performance.now() - this.readAtMs >= ageMsMax) {
      this.reading = this.read(nowMs);
      void this.reading.then(() => (this.reading = null));
    }
    if (isExact) await this.reading;
    const own = sumOf(this.held.map((held) => held.get(share.label) ?? nothingHeld));
    return exceedsShare(share, { own, all }, bytes);
  }

  private async read(nowMs: number): Promise<void> {
    const startedMs = performance.now();
    // A scan that fails leaves what the last one counted.
    await Promise.all(this.pools.map((pool, n) => this.scan(pool, n, nowMs).catch(() => undefined)));
    this.readAtMs = performance.now();
    this.tookMs = this.readAtMs - startedMs;
  }

  private async scan(pool: Pool, n: number, nowMs: number): Promise<void> {
    const rows = await pool.query(
      `select l.label, count(*) as entries, sum(h.size) as bytes from {s}.held h
       cross join lateral unnest(h.labels) l(label)
       where h.expires_ms > $1 and l.label like 'via:%' group by l.label`,
      [nowMs],
    );
    this.held[n] = new Map(
      rows.map((row) => [String(row["label"]), { entries: Number(row["entries"]), bytes: Number(row["bytes"]) }]),
    );
  }
}
