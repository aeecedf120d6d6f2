/**
 * Sums of the whole store: of its databases, for the quota and the statistics, and of labels
 * that are counted over all.
 */
import { withDeadline } from "../../core/std/bounded.ts";
import { type MailboxStats, StoreError } from "../../storage/contract.ts";
import { exceedsBounds, nothingHeld } from "../../storage/mailbox-rules.ts";
import type { MailboxShare } from "../../storage/quota.ts";
import type { Pool } from "./pool.ts";

const statsMsMax = 1_000;
/**
 * A scan of the labels may take this part of the time that a database has, and counts this
 * many times as long as a sum.
 */
const scanPart = 0.05;
const scanAgeFactor = 60;

type Scanned = ReadonlyMap<string, MailboxStats>;

/**
 * What the databases of a store hold. Every connection counts in rows of its own (`tally`), so that
 * no write waits for another's count; a node reads their sums now and then and adds what it wrote
 * itself since. So the quota of the store lags by what the other nodes wrote in between. A database
 * that is away keeps what it held.
 *
 * Counting each label at every write would make a row for each client network, span and connection,
 * so labels are counted by a scan: rarely, and only when the store holds so much that a share can
 * be used up. Until the first scan is done no share applies.
 */
export class StoreTotals {
  private readonly known: MailboxStats[];
  private readonly readAtMs: number[];
  private readonly labels: Scanned[];
  private readonly scan = {
    endedAtMs: Number.NEGATIVE_INFINITY,
    tookMs: 0,
    running: null as Promise<void> | null,
  };

  constructor(
    private readonly pools: readonly Pool[],
    /**
     * A sum is read again when it is older than this. 0, for tests: every write
     * waits for all sums and scans.
     */
    private readonly ageMsMax: number,
  ) {
    this.known = pools.map(() => nothingHeld);
    this.readAtMs = pools.map(() => Number.NEGATIVE_INFINITY);
    this.labels = pools.map(() => new Map());
  }

  async stats(nowMs: number): Promise<MailboxStats> {
    if (this.pools.length === 1) return this.read(0, nowMs);
    const reads = this.pools.map((_, n) => this.read(n, nowMs).catch(passUnlessAway));
    await withDeadline(Promise.all(reads), statsMsMax);
    return sumOf(this.known);
  }

  /** For a write to one database, which waits for no other. */
  async current(own: number, nowMs: number): Promise<MailboxStats> {
    const reads = this.pools.map((_, n) => {
      if (performance.now() - (this.readAtMs[n] ?? 0) < this.ageMsMax) return undefined;
      this.readAtMs[n] = performance.now();
      const read = this.read(n, nowMs);
      if (n === own) return read;
      const passed = read.catch(() => {});
      return this.ageMsMax === 0 ? passed : undefined;
    });
    await Promise.all(reads);
    return sumOf(this.known);
  }

  /** What this node wrote. */
  add(n: number, written: MailboxStats): void {
    this.known[n] = sumOf([this.known[n] ?? nothingHeld, written]);
  }

  private async read(n: number, nowMs: number): Promise<MailboxStats> {
    const [row] = await this.pools[n]!.query(
      `select coalesce(sum(entries), 0) as entries, coalesce(sum(bytes), 0) as bytes
       from {s}.tally where upper_ms > $1`,
      [nowMs],
    );
    const found = {
      entries: Math.max(0, Number(row?.["entries"])),
      bytes: Math.max(0, Number(row?.["bytes"])),
    };
    this.known[n] = found;
    return found;
  }

  /**
   * Whether one more entry of so many bytes is beyond the share. `nowMs` is the time of the entry.
   */
  async exceeds(
    share: MailboxShare,
    all: MailboxStats,
    { bytes, nowMs }: { bytes: number; nowMs: number },
  ) {
    const { entriesMax, bytesMax } = share;
    if (!exceedsBounds(all, bytes, entriesMax, bytesMax)) return false;
    const { scan } = this;
    const isExact = this.ageMsMax === 0;
    const ageMsMax = isExact ? 0 : Math.max(this.ageMsMax * scanAgeFactor, scan.tookMs / scanPart);
    if (performance.now() - scan.endedAtMs >= ageMsMax) scan.running ??= this.scanAll(nowMs);
    if (isExact) await scan.running;
    const own = sumOf(this.labels.map((held) => held.get(share.label) ?? nothingHeld));
    return exceedsBounds(own, bytes, entriesMax, bytesMax);
  }

  private async scanAll(nowMs: number): Promise<void> {
    const startedMs = performance.now();
    const scanned = this.pools.map(async (pool, n) => {
      this.labels[n] = await scanLabels(pool, nowMs);
    });
    await Promise.allSettled(scanned);
    const endedAtMs = performance.now();
    Object.assign(this.scan, { endedAtMs, tookMs: endedAtMs - startedMs, running: null });
  }
}

async function scanLabels(pool: Pool, nowMs: number): Promise<Scanned> {
  const rows = await pool.query(
    `select label, count(*) as entries, sum(size) as bytes
     from (select unnest(labels) as label, size from {s}.held where expires_ms > $1) l
     where label like 'via:%' group by label`,
    [nowMs],
  );
  return new Map(
    rows.map((row) => [
      String(row["label"]),
      { entries: Number(row["entries"]), bytes: Number(row["bytes"]) },
    ]),
  );
}

function passUnlessAway(error: unknown): void {
  if (!(error instanceof StoreError && error.code === "unavailable")) throw error;
}

function sumOf(all: readonly MailboxStats[]): MailboxStats {
  return all.reduce(
    (sum, one) => ({ entries: sum.entries + one.entries, bytes: sum.bytes + one.bytes }),
    nothingHeld,
  );
}
