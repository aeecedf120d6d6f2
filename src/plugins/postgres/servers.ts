/**
 * The servers of one database: which of them takes its writes, whether a standby has what it
 * answers, and a standby to read from while none takes writes. A promotion begins a timeline, so of
 * two servers that take writes, an old primary that came back among them, the one with the higher
 * timeline is the database. All servers are asked before each new connection, and every few seconds
 * while there is work: a connection to a lower timeline ends before its next work, reads included.
 */
import { SQL } from "bun";
import { minuteMs } from "../../core/codec/time.ts";
import { BoundedMap, late, withDeadline } from "../../core/std/bounded.ts";
import type { PostgresOptions } from "./postgres.ts";

export type Parameter = string | number | bigint | Uint8Array | null;
export type SqlRow = Readonly<Record<string, unknown>>;

/** `ca`: certificates in PEM; `null` connects without encryption. */
export type SqlPoolSettings = PostgresOptions & { readonly ca: string | null };

const connectMsMax = 5_000;

/**
 * Statements touch few rows and find them by index, which the planner can't know: it would read
 * whole partitions to join them. Planning takes longer than execution, so each plan is made once:
 * by a look at each new connection, since Citus must plan anew.
 */
const planning = {
  jit: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_seqscan: "off",
};

/**
 * What a server that takes writes says of itself. `system` names the database:
 * its standbys have the same.
 */
export type Primary = {
  readonly system: string;
  readonly timeline: number;
  /** Standbys that a commit waits for. Without the right to see them, all that follow. */
  readonly standbys: number;
};

/**
 * Also in schema.sql (`need_standby`). Names of segments of the log begin with the timeline; a
 * standby has none to write.
 */
const primaryQuery = `select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as ro,
  set_config('plan_cache_mode',
    case when exists (select 1 from pg_extension where extname = 'citus') then 'auto' else 'force_generic_plan' end, false),
  case when pg_is_in_recovery() then null else pg_walfile_name(pg_current_wal_lsn()) end as wal,
  (select system_identifier::text from pg_control_system()) as system,
  case when current_setting('synchronous_standby_names') = '' then 0 else (
    select count(*) from pg_stat_replication where coalesce(sync_state, 'sync') in ('sync', 'quorum')
  ) end as standbys`;
const databasesMax = 256;
/** How long after the primary was last seen a standby is read from. */
const standbyMsMax = 5 * minuteMs;
const standbyAgainMs = 500;
const lookAgainMs = 5_000;
const lookMsMax = 2_000;
/**
 * Connections that open together look once: faster than a standby is promoted
 * and the old primary back.
 */
const lookTogetherMs = 250;

export class Servers {
  /** The last server that took writes. */
  primary: Primary | null = null;
  private highest = 0;
  /** By database, as other processes said. */
  private readonly learned = new BoundedMap<string, number>(databasesMax);
  private lookedAtMs = Number.NEGATIVE_INFINITY;
  private found: Promise<string> = Promise.resolve("");
  private primarySeenAtMs = Number.NEGATIVE_INFINITY;
  private standby: Promise<SQL> | null = null;
  private noStandbyUntilMs = Number.NEGATIVE_INFINITY;

  constructor(
    readonly settings: SqlPoolSettings,
    /** Called with each look that finds the primary. */
    private readonly onPrimary: (found: Primary) => void = () => {},
  ) {}

  isOld(timeline: number): boolean {
    return timeline < this.highest;
  }

  /** Another process knows the database with this timeline. */
  learn(system: string, timeline: number): void {
    this.learned.set(system, Math.max(timeline, this.learned.get(system) ?? 0));
    if (this.primary?.system === system) this.highest = Math.max(this.highest, timeline);
  }

  /** While there is work. */
  lookAgain(): void {
    void this.urlOfPrimary(lookAgainMs);
  }

  /** A connection to the server to use. Throws where none is reachable that takes writes. */
  async connect(onBreak: () => void): Promise<{ readonly client: SQL; readonly timeline: number }> {
    const client = sqlClient(await this.urlOfPrimary(lookTogetherMs), this.settings, onBreak);
    try {
      const { timeline } = await this.look(client);
      return { client, timeline };
    } catch (error) {
      client.close({ timeout: 0 }).catch(() => {});
      throw error;
    }
  }

  /** The URL of the server to use, as all of them said so long ago at most. */
  private urlOfPrimary(ageMsMax: number): Promise<string> {
    const { urls } = this.settings;
    if (urls.length === 1) return Promise.resolve(urls[0]!);
    if (performance.now() - this.lookedAtMs > ageMsMax) {
      this.lookedAtMs = performance.now();
      this.found = this.find();
      this.found.catch(() => {});
    }
    return this.found;
  }

  /** A server that stays silent is waited for only where no other takes writes. */
  private async find(): Promise<string> {
    const found: { readonly url: string; readonly timeline: number }[] = [];
    let failure: unknown;
    const asking = Promise.all(
      this.settings.urls.map(async (url) => {
        const client = sqlClient(url, this.settings);
        try {
          found.push({ url, timeline: (await this.look(client)).timeline });
        } catch (error) {
          failure = error;
        }
        await client.close({ timeout: 0 }).catch(() => {});
      }),
    );
    await withDeadline(asking, lookMsMax);
    if (found.length === 0) await asking;
    const [first] = found.sort((a, b) => b.timeline - a.timeline);
    if (first === undefined) throw failure;
    return first.url;
  }

  /** Throws where the server takes no writes or is an old one. */
  private async look(client: SQL): Promise<Primary> {
    const row = await firstRow(client, primaryQuery);
    if (row?.["standby"] !== false || row["ro"] !== "off")
      throw new Error("the server takes no writes");
    const found: Primary = {
      system: String(row["system"]),
      timeline: Number.parseInt(String(row["wal"]).slice(0, 8), 16),
      standbys: Number(row["standbys"]),
    };
    const { timeline } = found;
    this.highest = Math.max(this.highest, this.learned.get(found.system) ?? 0);
    if (this.isOld(timeline)) {
      throw new Error(
        `an old primary: it is on timeline ${timeline}, and the database is on ${this.highest}`,
      );
    }
    this.highest = timeline;
    this.primary = found;
    this.primarySeenAtMs = performance.now();
    this.leaveStandby();
    this.onPrimary(found);
    return found;
  }

  /**
   * Rows that a standby answers which has replayed all that it got. `null`: there is none,
   * or the primary was not seen for minutes, or did not wait for a standby, so that one
   * may lack what was answered.
   */
  async askStandby(text: string, parameters: readonly Parameter[]): Promise<SqlRow[] | null> {
    const unseenMs = performance.now() - this.primarySeenAtMs;
    if ((this.primary?.standbys ?? 0) === 0 || unseenMs > standbyMsMax) return null;
    if (performance.now() < this.noStandbyUntilMs) return null;
    this.standby ??= this.findStandby();
    const asked = this.standby;
    const answer = asked.then(async (client) => {
      if (!(await this.isWholeStandby(client))) throw new Error("it lags, or was promoted");
      return (await client.unsafe(text, [...parameters])) as SqlRow[];
    });
    const rows = await withDeadline(
      answer.catch(() => null),
      lookMsMax,
    );
    if (rows !== late && rows !== null) return rows;
    this.noStandbyUntilMs = performance.now() + standbyAgainMs;
    if (this.standby === asked) this.leaveStandby();
    return null;
  }

  /** Ends what was opened for reads from a standby. */
  leaveStandby(): void {
    const { standby } = this;
    this.standby = null;
    standby?.then((client) => client.close({ timeout: 0 })).catch(() => {});
  }

  private findStandby(): Promise<SQL> {
    const opened = this.settings.urls.map(async (url) => {
      const client = sqlClient(url, this.settings);
      if (await this.isWholeStandby(client).catch(() => false)) return client;
      client.close({ timeout: 0 }).catch(() => {});
      throw new Error("not a standby that has replayed all");
    });
    return Promise.any(opened);
  }

  private async isWholeStandby(client: SQL): Promise<boolean> {
    const row = await firstRow(client, standbyQuery);
    return row?.["whole"] === true && row["system"] === this.primary?.system;
  }
}

const standbyQuery = `select (select system_identifier::text from pg_control_system()) as system,
  pg_is_in_recovery() and pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() as whole`;

async function firstRow(client: SQL, text: string): Promise<SqlRow | undefined> {
  const rows = await withDeadline<unknown>(client.unsafe(text), connectMsMax);
  if (rows === late) throw new Error("the server does not answer");
  return (rows as SqlRow[])[0];
}

function sqlClient(url: string, settings: SqlPoolSettings, onclose = () => {}): SQL {
  const { password, ca, statement_timeout_ms } = settings;
  const timeout = String(statement_timeout_ms);
  return new SQL({
    url,
    max: 1,
    idleTimeout: 0,
    connectionTimeout: connectMsMax / 1_000,
    onclose,
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
