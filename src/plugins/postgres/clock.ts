/**
 * The clock of this machine compared with the database's. Messages expire by the clocks of nodes:
 * one that is far from the others' would end lives early, or late. So each answered write carries
 * the database's time, and a node whose clock is more than five seconds away is refused until both
 * agree again, at its start and later.
 */
import { StoreError } from "../../storage/contract.ts";

/**
 * How far the clocks may be apart. The schema refuses writes of a later time, too (`check_time`).
 */
export const clockMsMax = 5_000;

/** The last column of a statement that `DatabaseClock.follow` reads. */
export const clockColumn = "extract(epoch from clock_timestamp()) * 1000 as now_ms";

export class DatabaseClock {
  /**
   * How far the database's clock is ahead, by the last answer; negative when it is
   * behind. Blocks follow it.
   */
  aheadMs = 0;
  /** The least by which the clocks are apart, whenever the answer was on its way. */
  private apartMs = 0;

  constructor(
    /** This machine's wall clock, in milliseconds. */
    readonly now: () => number,
    private readonly log: (level: "info" | "error", message: string) => void,
  ) {}

  /** `databaseMs` was read between `sentMs` and now. */
  follow(databaseMs: number, sentMs: number): void {
    const receivedMs = this.now();
    const [firstMs, lastMs] = [Math.min(sentMs, receivedMs), Math.max(sentMs, receivedMs)];
    const before = this.problem();
    this.aheadMs = Math.round(databaseMs) - receivedMs;
    this.apartMs = Math.max(0, databaseMs - lastMs) + Math.min(0, databaseMs - firstMs);
    const after = this.problem();
    if (after !== null && before === null) this.log("error", after);
    if (after === null && before !== null)
      this.log("info", "this machine's clock and the database's agree again");
  }

  /** Why this machine must not work with the database, or null. */
  problem(): string | null {
    if (Math.abs(this.apartMs) <= clockMsMax) return null;
    const seconds = Math.abs(this.apartMs / 1_000).toFixed(0);
    const side = this.apartMs > 0 ? "behind" : "ahead of";
    return `this machine's clock is ${seconds} s ${side} the database's: synchronize both`;
  }

  check(): void {
    const problem = this.problem();
    if (problem !== null) throw new StoreError("unavailable", problem);
  }
}
