/**
 * The partitions: made before the first entry of their span of time, dropped when the span is over and the
 * clocks of all nodes are past it. Several nodes may try both at once: the database lets one do it.
 */
import type { MailboxEntry } from "../../storage/contract.ts";
import type { Pool } from "./pool.ts";

type PartitionSettings = {
  readonly partitionMs: number;
  /** How long a span must be over: more than clocks of nodes differ, and than a write takes. */
  readonly graceMs: number;
};

type Kind = "held" | "acked" | "kept";

const dayMs = 86_400_000;
const idleMailboxesAtOnce = 1_000;

export class Partitions {
  private readonly known = new Set<string>();
  /** Idle mailboxes are looked for from this number on. */
  private idleAfter = 0;
  private idleLookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly pool: Pool,
    private readonly settings: PartitionSettings,
  ) {}

  async ensure(entries: readonly MailboxEntry[]): Promise<void> {
    const missing = new Map<string, { kind: Kind; upperMs: number }>();
    const need = (kind: Kind, ms: number): void => {
      const upperMs = Math.ceil(ms / this.settings.partitionMs) * this.settings.partitionMs;
      const name = `${kind} ${upperMs}`;
      if (!this.known.has(name)) missing.set(name, { kind, upperMs });
    };
    for (const { expiresAtMs, keptUntilMs, onExpiry } of entries) {
      need("held", expiresAtMs);
      need("acked", expiresAtMs);
      if (onExpiry !== "DeleteOnExpiry" && keptUntilMs > expiresAtMs) need("kept", keptUntilMs);
    }
    for (const [name, { kind, upperMs }] of missing) {
      await this.pool.query("select {s}.add_part($1, $2)", [kind, upperMs]);
      this.known.add(name);
    }
  }

  /** Another node dropped a partition that this one knows. */
  forget(): void {
    this.known.clear();
  }

  async expire(nowMs: number, limit: number): Promise<number> {
    const [row] = await this.pool.query("select {s}.expire($1, $2, $3) as freed", [
      nowMs,
      this.settings.graceMs,
      limit,
    ]);
    const freed = Number(row?.["freed"]);
    if (freed > 0) this.known.clear();
    await this.dropIdle(nowMs);
    return freed;
  }

  /** A page of mailboxes a second: ten million are gone through in three hours. */
  private async dropIdle(nowMs: number): Promise<void> {
    if (nowMs - this.idleLookedAtMs < 1_000 && nowMs >= this.idleLookedAtMs) return;
    this.idleLookedAtMs = nowMs;
    const [row] = await this.pool.query("select {s}.drop_idle($1, $2, $3) as last", [
      this.idleAfter,
      nowMs - dayMs,
      idleMailboxesAtOnce,
    ]);
    this.idleAfter = Number(row?.["last"] ?? 0);
  }
}

// -------------------------------------------------------------------------------------------- functions

/** A partition holds what is over after \`upper - partition_ms\` and not after \`upper\`. */
export const partitionFunctions = `
create function {s}.add_part(p_kind text, p_upper bigint) returns void language plpgsql as $$
declare
  span bigint := (select partition_ms from {s}.meta);
  name text := p_kind || '_' || p_upper;
begin
  perform pg_advisory_xact_lock(hashtextextended('{s}', 1));
  if exists (select 1 from {s}.part where kind = p_kind and upper_ms = p_upper) then
    return;
  end if;
  execute format('create table {s}.%I (like {s}.%I including defaults including storage)', name, p_kind);
  if p_kind = 'held' then
    execute format('alter table {s}.%I set (autovacuum_vacuum_scale_factor = 0.05)', name);
  end if;
  execute format('alter table {s}.%I attach partition {s}.%I for values from (%s) to (%s)',
    p_kind, name, p_upper - span + 1, p_upper + 1);
  insert into {s}.part (kind, upper_ms) values (p_kind, p_upper);
end $$;
-- Mailboxes that count what a partition holds are settled in steps, oldest partition first, then it is dropped.
create function {s}.settle_part(p_upper bigint, p_after bigint, p_limit integer) returns bigint[] language plpgsql as $$
declare
  nos bigint[];
begin
  execute format('select array(select mailbox_no from {s}.%I where mailbox_no > $1 group by 1 order by 1 limit $2)',
    'held_' || p_upper) into nos using p_after, p_limit;
  perform 1 from {s}.mailbox m where m.no = any (nos) order by m.key for update;
  perform {s}.settle(nos, p_upper);
  return nos;
end $$;
create function {s}.expire(p_now bigint, p_grace bigint, p_limit integer) returns integer language plpgsql as $$
declare
  due record;
  nos bigint[];
  freed integer := 0;
  patience text := current_setting('lock_timeout');
begin
  if not pg_try_advisory_xact_lock(hashtextextended('{s}', 2)) then
    return 0;
  end if;
  for due in
    select kind, upper_ms, settled_no from {s}.part where upper_ms <= p_now - p_grace order by upper_ms, kind
  loop
    exit when freed >= p_limit;
    if due.kind = 'held' then
      nos := {s}.settle_part(due.upper_ms, due.settled_no, p_limit - freed);
      freed := freed + cardinality(nos);
      update {s}.part set settled_no = coalesce((select max(n) from unnest(nos) n), settled_no)
        where kind = due.kind and upper_ms = due.upper_ms;
      -- Locks on mailboxes and on a whole partition are never held together.
      exit when cardinality(nos) > 0;
    end if;
    -- A table in use is dropped at the next call: nobody may wait for long behind the lock that it needs.
    begin
      perform set_config('lock_timeout', '200ms', true);
      execute format('drop table {s}.%I', due.kind || '_' || due.upper_ms);
      perform set_config('lock_timeout', patience, true);
    exception when lock_not_available then
      exit;
    end;
    delete from {s}.part where kind = due.kind and upper_ms = due.upper_ms;
    freed := freed + 1;
  end loop;
  delete from {s}.tally where upper_ms <= p_now - p_grace;
  return freed;
end $$;
-- Mailboxes of which nothing is left, from a number on; answers the number to go on from, or null at the end.
create function {s}.drop_idle(p_after bigint, p_before_ms bigint, p_limit integer) returns bigint language plpgsql as $$
declare
  last bigint;
begin
  select max(no) into last from (select no from {s}.mailbox where no > p_after order by no limit p_limit) page;
  delete from {s}.mailbox where no in (
    select no from {s}.mailbox where no > p_after and no <= last and until_ms < p_before_ms for update skip locked);
  delete from {s}.writer where used_at < now() - interval '7 days';
  return last;
end $$;
`;
