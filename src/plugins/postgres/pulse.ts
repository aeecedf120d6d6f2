/**
 * Whether a database answers. Work that stays without an answer for a second makes the process
 * look, over a connection of its own; so does work that can't connect. When the look fails, what
 * waits ends, and work is refused at once until a later look succeeds: a frozen server, or one
 * behind a cut network, would otherwise take the time of a statement from each caller.
 */
import { errorText } from "../../core/fault.ts";
import { late, Waiters, withDeadline } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";

/** How long work waits until the first look, and between two. */
const silentMsMax = 1_000;
/** Longer than a silent server is waited for where another takes writes. */
const lookMsMax = 3_500;
const againMs = 200;

export class Pulse {
  /** Why the database is away, or null. */
  private reason: string | null = null;
  private looking = false;
  private closed = false;
  private readonly lost = new Waiters();

  constructor(
    /** Resolves when the database answers over a new connection. */
    private readonly look: () => Promise<void>,
    private readonly onLost: (refusal: StoreError) => void = () => {},
  ) {}

  /** Throws while the database is away. */
  check(): void {
    if (this.reason !== null) throw refusalOf(this.reason);
  }

  /**
   * The outcome of a statement; `late` after `msMax`, and when the database turns out to be away.
   */
  async watch<T>(statement: PromiseLike<T>, msMax: number): Promise<T | typeof late> {
    const timer = setInterval(() => this.suspect(), silentMsMax);
    try {
      return await this.lost.orEvent(withDeadline(statement, msMax));
    } finally {
      clearInterval(timer);
    }
  }

  /** Something hints that the database is away. */
  suspect(): void {
    if (!this.looking && !this.closed) void this.find();
  }

  private async find(): Promise<void> {
    this.looking = true;
    for (; !this.closed; await Bun.sleep(againMs)) {
      const outcome = await withDeadline(
        this.look().then(() => null, errorText),
        lookMsMax,
      );
      const before = this.reason;
      this.reason = outcome === late ? "it does not answer" : outcome;
      if (this.reason === null) break;
      if (before !== null) continue;
      this.lost.release();
      this.onLost(refusalOf(this.reason));
    }
    this.looking = false;
  }

  close(): void {
    this.closed = true;
  }
}

function refusalOf(reason: string): StoreError {
  return new StoreError("unavailable", `the database is unreachable: ${reason}`);
}
