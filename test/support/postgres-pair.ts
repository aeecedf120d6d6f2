/**
 * A PostgreSQL server and its synchronous standby, and what a monitor such as pg_auto_failover does
 * with them: commits wait for a standby that follows, and for none while there is none; only one
 * that has every answered commit is promoted.
 */
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { type PostgresServer, startPostgres } from "./postgres.ts";

/** Its faults come one after the other: the caller looks at `isBusy`. */
export class PostgresPair {
  private constructor(
    private primary: PostgresServer,
    private standby: PostgresServer,
  ) {
    this.urls = [primary.url, standby.url];
  }

  readonly urls: readonly [string, string];
  isBusy = false;

  static async start(settings: readonly string[]): Promise<PostgresPair> {
    const primary = await startPostgres(settings);
    const pair = new PostgresPair(primary, await primary.standby());
    await pair.waitForStandby();
    return pair;
  }

  /** At the primary. */
  sql(text: string): Promise<string> {
    return this.primary.sql(text);
  }

  async restartPrimary(downMs: number): Promise<void> {
    await this.primary.stop("immediate");
    await Bun.sleep(downMs);
    await this.primary.start();
    await this.waitForStandby();
  }

  async loseStandby(downMs: number, noticedMs: number): Promise<void> {
    await this.standby.kill();
    await Bun.sleep(noticedMs);
    await this.waitFor("");
    await Bun.sleep(downMs);
    await this.standby.start();
    await this.waitForStandby();
  }

  /**
   * The machine of the primary is lost, and the standby promoted. Then the old primary comes back
   * as it was, and would take writes alone; returns how many functions of the schema it was called
   * for meanwhile. At last it follows the new one.
   */
  async failOver(noticedMs: number, oldMs: number): Promise<number> {
    const old = this.primary;
    await old.kill();
    await Bun.sleep(noticedMs);
    await this.standby.sql("alter system set synchronous_standby_names = ''");
    await this.standby.promote();
    [this.primary, this.standby] = [this.standby, old];
    const settings = "synchronous_standby_names = ''\ntrack_functions = 'pl'\n";
    appendFileSync(join(old.folder, "data", "postgresql.auto.conf"), settings);
    await old.start();
    await Bun.sleep(oldMs);
    await old.sql(
      "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'waypost'",
    );
    const calls = await old.sql(
      "select coalesce(sum(calls), 0) from pg_stat_user_functions where schemaname = 'waypost'",
    );
    await old.kill();
    await old.follow(this.primary);
    await this.waitForStandby();
    return Number(calls);
  }

  /** Only the primary stays silent. */
  freezePrimary(): void {
    this.primary.freeze();
  }

  freezeStandby(): void {
    this.standby.freeze();
  }

  thawStandby(): void {
    this.standby.thaw();
  }

  thawPrimary(): void {
    this.primary.thaw();
  }

  /** The standby still gets everything, and shows nothing of it. */
  async pauseReplay(): Promise<void> {
    await this.standby.sql("select pg_wal_replay_pause()");
  }

  async resumeReplay(): Promise<void> {
    await this.standby.sql("select pg_wal_replay_resume()");
  }

  /** Both are away: at first they stay silent, then their ports are closed. */
  async leave(silentMs: number, closedMs: number): Promise<void> {
    const both = [this.primary, this.standby];
    for (const one of both) one.freeze();
    await Bun.sleep(silentMs);
    await Promise.all(both.map((one) => one.kill()));
    await Bun.sleep(closedMs);
    await this.primary.start();
    await this.standby.start();
    await this.waitForStandby();
  }

  async end(): Promise<void> {
    await Promise.all([this.primary.end(), this.standby.end()]);
  }

  /** Whether commits wait for a standby from now on. */
  async waitFor(standbys: "" | "*"): Promise<void> {
    await this.sql(`alter system set synchronous_standby_names = '${standbys}'`);
    await this.sql("select pg_reload_conf()");
  }

  /** Until it has all that was committed, and each commit waits for it. */
  private async waitForStandby(): Promise<void> {
    await this.until("select count(*) from pg_stat_replication where state = 'streaming'");
    await this.waitFor("*");
    await this.until(
      "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'",
    );
  }

  private async until(counted: string): Promise<void> {
    for (
      const endMs = performance.now() + 60_000;
      (await this.sql(counted)) !== "1\n";
      await Bun.sleep(50)
    )
      if (performance.now() > endMs) throw new Error(`the standby does not follow: ${counted}`);
  }
}
