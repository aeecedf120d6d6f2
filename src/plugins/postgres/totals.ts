/**
 * What the whole store holds, for its quota and its statistics. Every connection counts in rows of its own
 * (`tally`), so that no write waits for another's count; a node reads their sum now and then and adds what
 * it wrote itself since. So the quota of the store lags by what the other nodes wrote in between.
 */
import type { MailboxStats } from "../../storage/contract.ts";
import type { Pool } from "./pool.ts";

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
      this.known = await this.read(nowMs);
      this.readAtMs = performance.now();
    }
    return this.known;
  }

  add({ entries, bytes }: MailboxStats): void {
    this.known = { entries: this.known.entries + entries, bytes: this.known.bytes + bytes };
  }
}
