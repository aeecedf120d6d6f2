/**
 * The connections of a process to PostgreSQL, and what every operation does with them. Reads are
 * tried again when a connection breaks. A write whose answer was lost is sent again under its own
 * number, and the database answers its outcome (`begin_write` in schema.sql). Only committed writes
 * are answered; when the outcome can't be read in time, the operation is `unavailable`.
 */
import { errorText } from "../../core/fault.ts";
import type { BatchLimits } from "../../storage/batcher.ts";
import { type StoreEnvironment, StoreError } from "../../storage/contract.ts";
import { clockColumn, DatabaseClock } from "./clock.ts";
import { OutcomeUnknown, SqlConnection, StatementError, stateOf } from "./connection.ts";
import { Pulse } from "./pulse.ts";
import {
  type Parameter,
  type Primary,
  Servers,
  type SqlPoolSettings,
  type SqlRow,
} from "./servers.ts";

export const batchLimits: BatchLimits = {
  operationsMax: 256,
  bytesMax: 8 * 1024 ** 2,
  runningMax: 2,
  turnsMax: 0,
};

// ---------------------------------------------------------------------------------------- the pool

/** The most operations that may wait for a connection. */
const waitingMax = 4_096;
/** How long to ask for the outcome of a write whose answer was lost. */
const findOutMsMax = 15_000;
const againMs = 100;
/**
 * Serialization failure, deadlock, and no partition, where a node whose clock is ahead has just
 * dropped it: the statement changed nothing and can be sent again.
 */
const againCodes = new Set(["40001", "40P01", "23514"]);
const againMax = 5;

/** The database says that a write comes from its future (`check_time` in schema.sql). */
const tooEarlyCode = "WP003";
/** A server that answers so is there, and has no connection left. */
const crowdedCode = "53300";
/** A node whose clock is wrong looks again so often. */
const clockAgainMs = 1_000;

function isTransient(error: unknown): boolean {
  return error instanceof StatementError && againCodes.has(error.code);
}

/** A connection with the identity under which its writes are numbered. */
type Slot = { readonly connection: SqlConnection; readonly writer: string; seq: bigint };
/** `tried`: how often it has failed by now. */
type Repeating = {
  readonly again: (error: unknown, tried: number) => boolean;
  readonly msMax: number;
};
export type Query = (text: string, parameters?: readonly Parameter[]) => Promise<SqlRow[]>;

/** What a pool uses of the program. */
export type PoolContext = Pick<StoreEnvironment, "now" | "log"> & {
  readonly onPrimary?: (found: Primary) => void;
};

/** One that waits for a connection. */
type Waiter = {
  readonly give: (slot: Slot) => void;
  readonly refuse: (reason: StoreError) => void;
};

export class Pool {
  readonly clock: DatabaseClock;
  readonly servers: Servers;
  private readonly pulse: Pulse;
  private readonly free: Slot[];
  private readonly all: readonly Slot[];
  private readonly waiting: Waiter[] = [];
  private closing: Promise<void> | null = null;
  private busy = 0;
  private clockReadAtMs = Number.NEGATIVE_INFINITY;
  private readonly idle = Promise.withResolvers<void>();

  constructor(
    private readonly settings: SqlPoolSettings,
    { now, log, onPrimary }: PoolContext = { now: Date.now, log: () => {} },
  ) {
    this.clock = new DatabaseClock(now, log);
    this.servers = new Servers(settings, onPrimary);
    this.pulse = new Pulse(
      () => this.look(),
      (reason) => this.refuseWaiting(reason),
    );
    this.all = Array.from({ length: settings.connections }, () => ({
      connection: this.newConnection(),
      writer: crypto.randomUUID(),
      seq: 0n,
    }));
    this.free = [...this.all];
  }

  /** Comes before what writes, in one statement with it. */
  private get guard(): string {
    return this.settings.standby === "required" ? "{s}.need_standby(), " : "";
  }

  /** In addition to those of the pool. The caller closes it. */
  newConnection(): SqlConnection {
    return new SqlConnection(this.servers, this.pulse);
  }

  /** Works once with one of the pool's connections, which no other work uses meanwhile. */
  withConnection<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T> {
    const once = { again: () => false, msMax: this.settings.statement_timeout_ms };
    return this.withSlot(({ connection }) => work(connection), once);
  }

  /** As `Servers.askStandby`. */
  askStandby(text: string, parameters: readonly Parameter[]): Promise<SqlRow[] | null> {
    return this.servers.askStandby(this.named(text), parameters);
  }

  /** Resolves when a server answers that takes writes. */
  private async look(): Promise<void> {
    try {
      const { client } = await this.servers.connect(() => {});
      await client.close({ timeout: 0 });
    } catch (error) {
      if (stateOf(error) !== crowdedCode) throw error;
    }
  }

  /** Looks whether reads and writes work, and at the database's clock. */
  async probe(): Promise<void> {
    await this.readClock();
    this.clock.check();
  }

  private async readClock(): Promise<void> {
    this.clockReadAtMs = performance.now();
    const sentMs = this.clock.now();
    const row = await this.withSlot(({ connection }) => connection.query(`select ${clockColumn}`), {
      again: (error, tried) => tried < againMax && error instanceof OutcomeUnknown,
      msMax: this.settings.statement_timeout_ms,
    });
    this.clock.follow(Number(row[0]?.["now_ms"]), sentMs);
  }

  /** Before any work: a wrong clock decides nothing. */
  private async checkClock(): Promise<void> {
    if (this.clock.problem() === null) return;
    if (performance.now() - this.clockReadAtMs > clockAgainMs) await this.readClock();
    this.clock.check();
  }

  /** Rows of a statement that may run twice without harm. */
  async query(text: string, parameters: readonly Parameter[] = []): Promise<SqlRow[]> {
    await this.checkClock();
    const named = this.named(text);
    const again = (error: unknown, tried: number) =>
      tried < againMax && error instanceof OutcomeUnknown;
    return this.withSlot(({ connection }) => connection.query(named, parameters), {
      again,
      msMax: this.settings.statement_timeout_ms,
    });
  }

  /**
   * Calls a writing function of the schema, whose first parameters are the writer and the number of
   * the write, and answers its result: it runs exactly once, whatever happens to connections.
   */
  async write(name: string, parameters: readonly Parameter[]): Promise<unknown> {
    await this.checkClock();
    const places = parameters.map((_, i) => `$${i + 3}`);
    const call = `{s}.${name}(${["$1", "$2", ...places].join(", ")})`;
    const text = this.named(`select ${this.guard}${call} as answer, ${clockColumn}`);
    let seq: bigint | null = null;
    let sent = false;
    const again = (error: unknown, tried: number) => {
      sent ||= error instanceof OutcomeUnknown;
      return error instanceof StatementError ? isTransient(error) && tried < againMax : sent;
    };
    const work = async (slot: Slot): Promise<unknown> => {
      seq ??= ++slot.seq;
      const sentMs = this.clock.now();
      const [row] = await slot.connection.query(text, [slot.writer, seq, ...parameters]);
      this.clock.follow(Number(row?.["now_ms"]), sentMs);
      return row?.["answer"];
    };
    try {
      return await this.withSlot(work, { again, msMax: findOutMsMax });
    } catch (error) {
      if (isTooEarly(error)) await this.probe();
      throw error;
    }
  }

  /**
   * Several statements that are committed together or not at all. `work` may run again when the
   * connection broke before the commit; when it broke in the commit, the database answers whether
   * it was committed. A migration is not numbered: there may be no table for it.
   */
  async transaction<T>(
    work: (query: Query) => Promise<T>,
    numbering: "numbered" | "none" = "numbered",
  ): Promise<T> {
    await this.checkClock();
    const again = (error: unknown, tried: number) =>
      tried < againMax && (error instanceof OutcomeUnknown || isTransient(error));
    return this.withSlot(
      (slot) => this.attempt(slot, numbering === "numbered" ? this.numbered(slot, work) : work),
      {
        again,
        msMax: findOutMsMax,
      },
    );
  }

  /** The work between the begin and the end of a numbered write. */
  private numbered<T>(slot: Slot, work: (query: Query) => Promise<T>) {
    return async (query: Query): Promise<T> => {
      const given = [slot.writer, slot.seq];
      await query(`select ${this.guard}{s}.begin_write($1, $2)`, given);
      const value = await work(query);
      await query("select {s}.end_write($1, $2, null)", given);
      return value;
    };
  }

  private async attempt<T>(slot: Slot, work: (query: Query) => Promise<T>): Promise<T> {
    const query: Query = (text, given = []) => slot.connection.queryAgain(this.named(text), given);
    slot.seq++;
    try {
      await slot.connection.query("begin");
      const value = await work(query);
      await query("commit").catch(async (error: unknown) => {
        if (!(error instanceof OutcomeUnknown) || !(await this.isCommitted(slot))) throw error;
      });
      return value;
    } catch (error) {
      // The end of the connection rolls the transaction back.
      await slot.connection.close();
      throw error;
    }
  }

  /**
   * Whether the slot's last write was committed. The lock waits for a lost
   * twin that still works on it.
   */
  private async isCommitted(slot: Slot): Promise<boolean> {
    const text = this.named("select seq from {s}.writer where id = $1 for update");
    for (const endMs = performance.now() + findOutMsMax; ; await Bun.sleep(againMs)) {
      try {
        const [row] = await slot.connection.query(text, [slot.writer]);
        return row !== undefined && BigInt(String(row["seq"])) >= slot.seq;
      } catch (error) {
        if (performance.now() > endMs) throw storeErrorOf(error);
      }
    }
  }

  /** `{s}` in statements is the schema. */
  private named(text: string): string {
    return text.replaceAll("{s}", this.settings.schema);
  }

  /**
   * Works with one connection, which no other work uses meanwhile, and again at once, then in
   * steps, where that helps.
   */
  private async withSlot<T>(
    work: (slot: Slot) => Promise<T>,
    { again, msMax }: Repeating,
  ): Promise<T> {
    const slot = await this.slot();
    this.busy++;
    try {
      slot.connection.checkTimeline();
      const endMs = performance.now() + msMax;
      for (let tried = 1; ; tried++) {
        try {
          return await work(slot);
        } catch (error) {
          const isOver = tried > 1 && performance.now() > endMs;
          if (isOver || this.closing !== null || !again(error, tried)) throw storeErrorOf(error);
          if (tried > 1) await Bun.sleep(againMs);
        }
      }
    } finally {
      this.busy--;
      const next = this.waiting.shift();
      if (next !== undefined) next.give(slot);
      else this.free.push(slot);
      if (this.closing !== null && this.busy === 0 && this.waiting.length === 0)
        this.idle.resolve();
    }
  }

  private async slot(): Promise<Slot> {
    if (this.closing !== null) throw new StoreError("closed", "the store is closed");
    this.pulse.check();
    const slot = this.free.pop();
    if (slot !== undefined) return slot;
    if (this.waiting.length >= waitingMax) {
      throw new StoreError("unavailable", "all connections are busy and their queue is full");
    }
    const { promise, resolve, reject } = Promise.withResolvers<Slot>();
    const refuseWaiter = (reason: StoreError): void => {
      clearTimeout(timer);
      this.waiting.splice(this.waiting.indexOf(waiter), 1);
      reject(reason);
    };
    const timer = setTimeout(
      () => refuseWaiter(new StoreError("unavailable", "no connection became free in time")),
      this.settings.statement_timeout_ms,
    );
    const giveSlot = (given: Slot): void => {
      clearTimeout(timer);
      resolve(given);
    };
    const waiter = { give: giveSlot, refuse: refuseWaiter };
    this.waiting.push(waiter);
    return promise;
  }

  private refuseWaiting(reason: StoreError): void {
    for (const waiter of [...this.waiting]) waiter.refuse(reason);
  }

  /** Waits for the operations that have begun. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    await Promise.resolve();
    this.pulse.close();
    this.servers.leaveStandby();
    if (this.busy > 0 || this.waiting.length > 0) await this.idle.promise;
    await Promise.all(this.all.map(({ connection }) => connection.close()));
  }
}

function isTooEarly(error: unknown): boolean {
  const cause = error instanceof StoreError ? error.cause : null;
  return cause instanceof StatementError && cause.code === tooEarlyCode;
}

const corruptCodes = /^XX00[12]$/;

/** The error that the caller of the store gets for a failed statement. */
function storeErrorOf(error: unknown): unknown {
  if (error instanceof OutcomeUnknown) {
    return new StoreError("unavailable", `the connection broke: ${errorText(error)}`, {
      cause: error,
    });
  }
  if (!(error instanceof StatementError)) return error;
  const text = `PostgreSQL ${error.code}: ${error.message}`;
  if (error.code === "53100") return new StoreError("full", text, { cause: error });
  return new StoreError(corruptCodes.test(error.code) ? "corrupt" : "unavailable", text, {
    cause: error,
  });
}
