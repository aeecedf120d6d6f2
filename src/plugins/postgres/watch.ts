/**
 * What an operator and the other processes learn of a store's databases: figures for `/metrics`, a
 * warning while a primary waits for no standby, and the timelines of the primaries over the bus, so
 * that a node that still reaches an old primary only leaves it.
 */
import { decodeUtf8, utf8 } from "../../core/codec/bytes.ts";
import { secondMs } from "../../core/codec/time.ts";
import type { StoreEnvironment } from "../../storage/contract.ts";
import type { Pool, PoolContext } from "./pool.ts";
import type { PostgresOptions } from "./postgres.ts";
import type { Primary } from "./servers.ts";

/** Messages are the system identifier of a database and its timeline. */
const timelineSubject = "postgres.timeline";
const announceMs = 5 * secondMs;

/** What the pool of one database does with each look at its primary. */
export function watchContext(
  database: string,
  { urls }: Pick<PostgresOptions, "urls">,
  { now, log: logOf, bus }: Pick<StoreEnvironment, "now" | "log" | "bus">,
): PoolContext {
  const log: StoreEnvironment["log"] = (level, message, fields) =>
    logOf(level, message, { database, ...fields });
  if (urls.length === 1) return { now, log };
  let standbys: number | null = null;
  let announced = { timeline: 0, atMs: Number.NEGATIVE_INFINITY };
  const onPrimary = (found: Primary): void => {
    if (found.standbys === 0 && standbys !== 0)
      log("warn", "the primary waits for no standby: what it answers is lost with its machine");
    if (found.standbys > 0 && standbys === 0) log("info", "the primary waits for a standby again");
    standbys = found.standbys;
    const isOld = performance.now() - announced.atMs > announceMs;
    if (bus === undefined || (found.timeline === announced.timeline && !isOld)) return;
    announced = { timeline: found.timeline, atMs: performance.now() };
    if (bus.mayReach(timelineSubject))
      bus.publish(timelineSubject, utf8(`${found.system} ${found.timeline}`));
  };
  return { now, log, onPrimary };
}

/** Registers the figures and follows the bus; returns what ends that. */
export function watchDatabases(
  named: readonly (readonly [database: string, pool: Pool])[],
  { gauge, bus }: Pick<StoreEnvironment, "gauge" | "bus">,
): () => void {
  gauge?.(
    {
      name: "store_clock_ahead_seconds",
      help: "By how much this machine's clock is ahead of the database's.",
    },
    () => named.map(([database, { clock }]) => [[database], -clock.aheadMs / 1_000]),
  );
  const paired = named.filter(([, { servers }]) => servers.settings.urls.length > 1);
  if (paired.length > 0)
    gauge?.({ name: "store_standbys", help: "Standbys that a commit waits for." }, () =>
      paired.flatMap(([database, { servers }]) =>
        servers.primary === null ? [] : [[[database], servers.primary.standbys] as const],
      ),
    );
  const follows = paired.length > 0 ? bus : undefined;
  const subscription = follows?.subscribe(timelineSubject, (message) => {
    const [system = "", timeline = ""] = (decodeUtf8(message) ?? "").split(" ");
    if (!/^\d{1,10}$/.test(timeline)) return undefined;
    for (const [, { servers }] of paired) servers.learn(system, Number(timeline));
    return undefined;
  });
  return () => subscription?.unsubscribe();
}
