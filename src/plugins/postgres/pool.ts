/**
 * The connections of a process to PostgreSQL, and what every operation does with them. Reads are tried again when a
 * connection breaks. A write whose answer was lost is sent again under its own number, and the
 * database answers its outcome (`begin_write` in sql.ts). Only committed writes are answered;
 * when the outcome can't be read in time, the operation is `unavailable`.
 * A connection runs one statement at a time, and a statement without an answer in time ends the connection: its
 * outcome is then unknown, and the caller has to ask for it.
 * Bun's own client is used: in one run it wrote batches of 200 envelopes in 2.6 ms (0.6 ms of processor
 * time) where postgres.js took 6.5 ms (2.3 ms), because it sends bytes as they are and not as hex digits.
 */
import { SQL } from "bun";
import { errorText } from "../../core/fault.ts";
import { late, withDeadline } from "../../core/std/bounded.ts";
import { StoreError } from "../../storage/contract.ts";
import type { PostgresOptions } from "./postgres.ts";

// --------------------------------------------------------------------------------------------- one connection

type Parameter = string | number | bigint | Uint8Array | null;
export type Row = Readonly<Record<string, unknown>>;

/** `ca`: certificates in PEM; `null` connects without encryption. */
type PoolSettings = PostgresOptions & { readonly ca: string | null };

/** Whether the statement was executed is unknown: only the database can tell. */
class OutcomeUnknown extends Error {}

/** The statement failed as a whole and left nothing behind. `code` is the SQLSTATE. */
export class StatementError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = "StatementError";
  }
}

/** Time for connecting, and beyond the statement's own time for its answer to arrive. */
const connectMsMax = 5_000;
const answerSlackMs = 2_000;

/**
 * Statements touch few rows and find them by index, which the planner can't know: it would read whole partitions to join
 * them. Planning takes longer than execution, so each plan is made once.
 */
const planning = {
  jit: "off",
  plan_cache_mode: "force_generic_plan",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_seqscan: "off",
};

/** Connection exceptions, server shutting down, too many connections. */
const goneCodes = /^(08|57P0|53300)/;
const readOnlyCode = "25006";
/** An administrator ended the connection, or the server begins to shut down: then the next attempt has another code. */
const endedCode = "57P01";

/** The SQLSTATE that the server answered, or nothing. */
function stateOf(error: unknown): string {
  const { errno } = error as { readonly errno?: unknown };
  return typeof errno === "string" ? errno : "";
}

class Connection {
  private client: SQL | null = null;
  private server = 0;

  constructor(private readonly settings: PoolSettings) {}

  /** Rows of a statement. Throws `OutcomeUnknown` or `StatementError`, or `unavailable` when it was never sent. */
  async query(text: string, parameters: readonly Parameter[] = []): Promise<Row[]> {
    const client = await this.connected();
    return this.inTime(() => client.unsafe(text, [...parameters]));
  }

  /** Several statements, without parameters. */
  async script(text: string): Promise<void> {
    const client = await this.connected();
    await this.inTime(() => client.unsafe(text).simple());
  }

  async close(): Promise<void> {
    const client = this.client;
    this.client = null;
    await client?.close({ timeout: 1 }).catch(() => {});
  }

  private async inTime(run: () => PromiseLike<unknown>): Promise<Row[]> {
    const waitMs = this.settings.statement_timeout_ms + answerSlackMs;
    try {
      const rows = await withDeadline(run(), waitMs);
      if (rows === late) throw new OutcomeUnknown("no answer in time");
      return rows as Row[];
    } catch (error) {
      throw this.failureOf(error);
    }
  }

  private failureOf(error: unknown): Error {
    const state = stateOf(error);
    if (error instanceof OutcomeUnknown || state === "" || goneCodes.test(state)) {
      this.drop();
      const { code } = error as { readonly code?: unknown };
      return new OutcomeUnknown(`${String(code ?? "")} ${errorText(error)}`.trim(), { cause: error });
    }
    if (state === readOnlyCode) this.drop();
    return new StatementError(state, errorText(error));
  }

  /** The next statement connects again, to the next server. */
  private drop(): void {
    const client = this.client;
    this.client = null;
    this.server = (this.server + 1) % this.settings.urls.length;
    client?.close({ timeout: 0 }).catch(() => {});
  }

  private async connected(): Promise<SQL> {
    if (this.client !== null) return this.client;
    let last: unknown;
    for (let tried = 0, ended = 0; tried < this.settings.urls.length; ) {
      const client = this.clientOf(this.settings.urls[this.server]!);
      try {
        await this.checkWritable(client);
        this.client = client;
        return client;
      } catch (error) {
        last = error;
        client.close({ timeout: 0 }).catch(() => {});
        // A server that ended this one connection serves: the next may last.
        if (stateOf(error) === endedCode && ended++ < againMax) continue;
        tried++;
        this.server = (this.server + 1) % this.settings.urls.length;
      }
    }
    throw new StoreError("unavailable", `the database is unreachable: ${errorText(last)}`, { cause: last });
  }

  private async checkWritable(client: SQL): Promise<void> {
    const asked = client.unsafe(
      "select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as ro",
    );
    const rows = await withDeadline<unknown>(asked, connectMsMax);
    if (rows === late) throw new Error("the server does not answer");
    const [row] = rows as Row[];
    if (row?.["standby"] !== false || row["ro"] !== "off") throw new Error("the server takes no writes");
  }

  private clientOf(url: string): SQL {
    const { password, ca, statement_timeout_ms } = this.settings;
    const timeout = String(statement_timeout_ms);
    return new SQL({
      url,
      max: 1,
      idleTimeout: 0,
      connectionTimeout: connectMsMax / 1_000,
      ...(password === null ? {} : { password }),
      ...(ca === null ? {} : { tls: { ca, rejectUnauthorized: true } }),
      connection: {
        application_name: "waypost",
        statement_timeout: timeout,
        lock_timeout: timeout,
        idle_in_transaction_session_timeout: timeout,
        ...planning,
      },
    });
  }
}

// --------------------------------------------------------------------------------------------------- the pool

/** The most operations that may wait for a connection. */
const waitingMax = 4_096;
/** How long to ask for the outcome of a write whose answer was lost. */
const findOutMsMax = 15_000;
const againMs = 100;
/** Serialization failure, deadlock: the statement changed nothing and can be sent again. */
const againCodes = new Set(["40001", "40P01"]);
const againMax = 5;

/** A connection with the identity under which its writes are numbered. */
type Slot = { readonly connection: Connection; readonly writer: string; seq: bigint };
type Attempt<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown };
export type Query = (text: string, parameters?: readonly Parameter[]) => Promise<Row[]>;

export class Pool {
  private readonly free: Slot[];
  private readonly all: readonly Slot[];
  private readonly waiting: { readonly start: (slot: Slot) => void; readonly fail: (error: StoreError) => void }[] = [];
  private closing: Promise<void> | null = null;
  private busy = 0;
  private readonly idle = Promise.withResolvers<void>();

  constructor(private readonly settings: PoolSettings) {
    this.all = Array.from({ length: settings.connections }, () => ({
      connection: new Connection(settings),
      writer: crypto.randomUUID(),
      seq: 0n,
    }));
    this.free = [...this.all];
  }

  /** Rows of a statement that may run twice without harm. */
  query(text: string, parameters: readonly Parameter[] = []): Promise<Row[]> {
    const named = this.named(text);
    return this.withSlot(async ({ connection }) => {
      const endMs = performance.now() + this.settings.statement_timeout_ms;
      for (let tried = 1; ; tried++) {
        try {
          return await connection.query(named, parameters);
        } catch (error) {
          const again = tried < 2 || (tried < againMax && performance.now() < endMs);
          if (!again || !(error instanceof OutcomeUnknown)) throw storeErrorOf(error);
          if (tried > 1) await Bun.sleep(againMs);
        }
      }
    });
  }

  /**
   * Calls a writing function of the schema, whose first parameters are the writer and the number of the
   * write, and answers its result: it runs exactly once, whatever happens to connections.
   */
  write(name: string, parameters: readonly Parameter[]): Promise<unknown> {
    const places = parameters.map((_, i) => `$${i + 3}`);
    const text = this.named(`select {s}.${name}(${["$1", "$2", ...places].join(", ")}) as answer`);
    return this.withSlot(async (slot) => {
      slot.seq++;
      const given = [slot.writer, slot.seq, ...parameters];
      const endMs = performance.now() + findOutMsMax;
      for (let tried = 1, sent = false; ; tried++) {
        try {
          const [row] = await slot.connection.query(text, given);
          return row?.["answer"];
        } catch (error) {
          sent ||= error instanceof OutcomeUnknown;
          const again = error instanceof StatementError ? againCodes.has(error.code) && tried < againMax : sent;
          if (!again || performance.now() > endMs || this.closing !== null) throw storeErrorOf(error);
          await Bun.sleep(againMs);
        }
      }
    });
  }

  /**
   * Several statements that are committed together or not at all. `work` may run again when the connection broke
   * before the commit; when it broke in the commit, the database answers whether it was committed.
   */
  transaction<T>(work: (query: Query) => Promise<T>): Promise<T> {
    return this.withSlot(async (slot) => {
      const endMs = performance.now() + findOutMsMax;
      for (let tried = 1; ; tried++) {
        const attempt = await this.attempt(slot, work, endMs);
        if (attempt.ok) return attempt.value;
        const { error } = attempt;
        const again =
          error instanceof OutcomeUnknown || (error instanceof StatementError && againCodes.has(error.code));
        if (!again || tried >= againMax || performance.now() > endMs || this.closing !== null)
          throw storeErrorOf(error);
        await Bun.sleep(againMs);
      }
    });
  }

  private async attempt<T>(slot: Slot, work: (query: Query) => Promise<T>, endMs: number): Promise<Attempt<T>> {
    const query: Query = (text, given = []) => slot.connection.query(this.named(text), given);
    slot.seq++;
    try {
      await query("begin");
      await query("select {s}.begin_write($1, $2)", [slot.writer, slot.seq]);
      const value = await work(query);
      await query("select {s}.end_write($1, $2, null)", [slot.writer, slot.seq]);
      try {
        await query("commit");
      } catch (error) {
        if (!(error instanceof OutcomeUnknown) || !(await this.isCommitted(slot, endMs))) throw error;
      }
      return { ok: true, value };
    } catch (error) {
      // The end of the connection rolled the transaction back.
      await slot.connection.close();
      return { ok: false, error };
    }
  }

  /** Whether the slot's last write was committed. The lock waits for a lost twin that still works on it. */
  private async isCommitted(slot: Slot, endMs: number): Promise<boolean> {
    const text = this.named("select seq from {s}.writer where id = $1 for update");
    for (;;) {
      try {
        const [row] = await slot.connection.query(text, [slot.writer]);
        return row !== undefined && BigInt(String(row["seq"])) >= slot.seq;
      } catch (error) {
        if (performance.now() > endMs) throw storeErrorOf(error);
        await Bun.sleep(againMs);
      }
    }
  }

  /** Several statements with a transaction of their own, sent once. */
  script(text: string): Promise<void> {
    return this.withSlot(async ({ connection }) => {
      try {
        await connection.script(this.named(text));
      } catch (error) {
        // The end of the connection ends its transaction.
        await connection.close();
        throw storeErrorOf(error);
      }
    });
  }

  /** `{s}` in statements is the schema. */
  private named(text: string): string {
    return text.replaceAll("{s}", this.settings.schema);
  }

  private async withSlot<T>(work: (slot: Slot) => Promise<T>): Promise<T> {
    const slot = await this.slot();
    this.busy++;
    try {
      return await work(slot);
    } finally {
      this.busy--;
      const next = this.waiting.shift();
      if (next !== undefined) next.start(slot);
      else this.free.push(slot);
      if (this.closing !== null && this.busy === 0 && this.waiting.length === 0) this.idle.resolve();
    }
  }

  private slot(): Promise<Slot> {
    if (this.closing !== null) return Promise.reject(new StoreError("closed", "the store is closed"));
    const slot = this.free.pop();
    if (slot !== undefined) return Promise.resolve(slot);
    if (this.waiting.length >= waitingMax) {
      return Promise.reject(new StoreError("unavailable", "all database connections are busy and their queue is full"));
    }
    const { promise, resolve, reject } = Promise.withResolvers<Slot>();
    const waiter = {
      start: (given: Slot) => {
        clearTimeout(timer);
        resolve(given);
      },
      fail: reject,
    };
    const timer = setTimeout(() => {
      this.waiting.splice(this.waiting.indexOf(waiter), 1);
      reject(new StoreError("unavailable", "no connection became free in time"));
    }, this.settings.statement_timeout_ms);
    this.waiting.push(waiter);
    return promise;
  }

  /** Waits for the operations that have begun. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    await Promise.resolve();
    if (this.busy > 0 || this.waiting.length > 0) await this.idle.promise;
    await Promise.all(this.all.map(({ connection }) => connection.close()));
  }
}

const corruptCodes = /^XX00[12]$/;

/** The error that the caller of the store gets for a failed statement. */
function storeErrorOf(error: unknown): unknown {
  if (error instanceof OutcomeUnknown) {
    return new StoreError("unavailable", `the connection broke: ${errorText(error)}`, { cause: error });
  }
  if (!(error instanceof StatementError)) return error;
  const text = `PostgreSQL ${error.code}: ${error.message}`;
  if (error.code === "53100") return new StoreError("full", text, { cause: error });
  return new StoreError(corruptCodes.test(error.code) ? "corrupt" : "unavailable", text, { cause: error });
}

// -------------------------------------------------------------------------------------------------------- group commit

export type BatchLimits = {
  readonly operationsMax: number;
  readonly bytesMax: number;
  /** Batches under way at once: enough to keep the database busy, few enough to let batches grow. */
  readonly runningMax: number;
};

export const batchLimits: BatchLimits = { operationsMax: 256, bytesMax: 8 * 1024 ** 2, runningMax: 2 };

/** The most operations that may wait; beyond them the store is overloaded. */
const operationsWaitingMax = 20_000;

type Operation<Given> = {
  readonly given: Given;
  readonly bytes: number;
  /** At most `perKeyMax` operations of one key go in one batch. */
  readonly key: string;
};

type Waiting<Given, Answer> = Operation<Given> & {
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
};

/**
 * Group commit: operations that arrive while others are under way wait and go together, so that they share a round trip
 * and a sync. A batch starts at once when none is under way, so an idle store adds no delay.
 */
export class Batcher<Given, Answer> {
  private waiting: Waiting<Given, Answer>[] = [];
  private running = 0;
  private scheduled = false;

  constructor(
    /** Answers in the order of the operations. */
    private readonly run: (given: readonly Given[]) => Promise<readonly Answer[]>,
    private readonly perKeyMax: number,
    private readonly limits: BatchLimits = batchLimits,
  ) {}

  add(operation: Operation<Given>): Promise<Answer> {
    if (this.waiting.length >= operationsWaitingMax) {
      return Promise.reject(new StoreError("unavailable", "too many operations wait for the database"));
    }
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    this.waiting.push({ ...operation, resolve, reject });
    this.schedule();
    return promise;
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    queueMicrotask(() => {
      this.scheduled = false;
      while (this.waiting.length > 0 && this.running < this.limits.runningMax) void this.runBatch(this.next());
    });
  }

  /** In order of arrival; an operation without room stays ahead of later ones. */
  private next(): Waiting<Given, Answer>[] {
    const batch: Waiting<Given, Answer>[] = [];
    const left: Waiting<Given, Answer>[] = [];
    const perKey = new Map<string, number>();
    let bytes = 0;
    for (const [at, one] of this.waiting.entries()) {
      if (batch.length >= this.limits.operationsMax || (batch.length > 0 && bytes + one.bytes > this.limits.bytesMax)) {
        left.push(...this.waiting.slice(at));
        break;
      }
      const count = perKey.get(one.key) ?? 0;
      perKey.set(one.key, count + 1);
      if (count >= this.perKeyMax) {
        left.push(one);
        continue;
      }
      bytes += one.bytes;
      batch.push(one);
    }
    this.waiting = left;
    return batch;
  }

  private async runBatch(batch: readonly Waiting<Given, Answer>[]): Promise<void> {
    this.running++;
    try {
      const answers = await this.run(batch.map(({ given }) => given));
      for (const [i, { resolve }] of batch.entries()) resolve(answers[i]!);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      this.running--;
      if (this.waiting.length > 0) this.schedule();
    }
  }
}
