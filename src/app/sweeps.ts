/**
 * The sweeps of a process: every two seconds they free what has ended, in small batches, so
 * that a sweep never stalls the writes of requests for long. Nothing depends on a sweep for
 * correctness: what has ended is invisible before. Until when they may remove is decided in
 * storage/removal-time.ts.
 * Source: rules section 6 ("Expiry").
 */
import { decodeUtf8, utf8 } from "../core/codec/bytes.ts";
import { dayMs, secondMs } from "../core/codec/time.ts";
import { Waiters } from "../core/std/bounded.ts";
import { type Log, onceAMinute } from "../nodes/http/log.ts";
import type { OpenStores } from "../storage/bind.ts";
import { type Capabilities, type Receipts, StoreError } from "../storage/contract.ts";
import type { Jump, RemovalTime } from "../storage/removal-time.ts";

/** Between two rounds: an idle process wakes for each. */
const usualRoundMs = 2_000;
const lagsMax = 5;
const batchMax = 256;
/** A store with a backlog gives way to requests between two batches. */
const betweenBatchesMs = 5;

/** One thing that a round frees. */
type Sweep = {
  readonly store: string;
  readonly expire: (nowMs: number, limit: number) => Promise<number>;
  readonly removableMs: (removal: RemovalTime) => number;
};

function sweepsOf(store: string, { mailbox, replay, receipts }: Capabilities): Sweep[] {
  const sweep = (of: Pick<Sweep, "expire"> | undefined, removableMs: Sweep["removableMs"]) =>
    of === undefined ? [] : [{ store, expire: of.expire.bind(of), removableMs }];
  const records = (removal: RemovalTime) => removal.recordsMs();
  return [
    ...sweep(mailbox, records),
    ...sweep(replay, (removal) => removal.claimsMs()),
    ...sweep(receipts, records),
  ];
}

type SweepOptions = {
  readonly removal: RemovalTime;
  readonly log: Log;
  /** Instead of 2 s, in tests. */
  readonly roundMs?: number;
};

export function startSweeps(
  stores: OpenStores,
  { removal, log, roundMs = usualRoundMs }: SweepOptions,
) {
  let running = true;
  const sweeps = [...stores.stores].flatMap(([name, { capabilities }]) =>
    sweepsOf(name, capabilities),
  );
  const lastSweep = new LastSweep(stores);
  const stopping = new Waiters();
  const lagsMs = [0];
  const isDue = onceAMinute(() => performance.now());

  async function runLogged(store: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (running)
        log("warn", "a sweep failed", {
          store,
          error: error instanceof StoreError ? error : String(error),
        });
    }
  }

  async function free({ expire, removableMs }: Sweep): Promise<void> {
    while (running && (await expire(removableMs(removal), batchMax)) >= batchMax)
      await Bun.sleep(betweenBatchesMs);
  }

  async function round(): Promise<void> {
    if (!removal.hasBegun)
      await runLogged("all", async () => removal.begin(await lastSweep.read()));
    if (!removal.hasBegun) return;
    const jump = removal.look();
    if (jump !== null && isDue("jump")) logJump(log, jump);
    for (const sweep of sweeps) await runLogged(sweep.store, () => free(sweep));
    if (isDue("keep")) await runLogged("all", () => lastSweep.keep(removal.recordsMs()));
  }

  async function sweepAll(): Promise<void> {
    while (running) {
      await round();
      if (!running) return;
      const dueMs = performance.now() + roundMs;
      await stopping.wait(roundMs);
      lagsMs.push(Math.max(0, performance.now() - dueMs));
      if (lagsMs.length > lagsMax) lagsMs.shift();
    }
  }

  const ended = sweepAll();
  return {
    /**
     * How late a round began, at most, of the last ten seconds: so long the event loop was
     * busy.
     */
    loopLagSeconds: () => Math.max(...lagsMs) / 1_000,
    stop: async () => {
      running = false;
      stopping.release();
      await ended;
    },
  };
}

function logJump(log: Log, { aheadMs, isOfStart }: Jump): void {
  const by = { seconds: Math.round(aheadMs / secondMs) };
  if (isOfStart) log("warn", "the last sweep was long ago: nothing is removed for an hour", by);
  else log("error", "the clock went ahead: nothing that this ended is removed for an hour", by);
}

const lastSweepKey = "last sweep";
const keptForMs = 366 * dayMs;

/**
 * Until when records were removed, in each store that keeps receipts: the next run compares
 * its clock with it.
 */
class LastSweep {
  private readonly receipts: readonly Receipts[];

  constructor({ stores }: OpenStores) {
    this.receipts = [...stores.values()].flatMap(({ capabilities: { receipts } }) =>
      receipts === undefined ? [] : [receipts],
    );
  }

  /** The latest of all stores; `null` where there was none. */
  async read(): Promise<number | null> {
    const values = await Promise.all(this.receipts.map((one) => one.get(lastSweepKey, 0)));
    const times = values.flatMap((value) => (value === null ? [] : [Number(decodeUtf8(value))]));
    return times.length === 0 ? null : Math.max(...times);
  }

  async keep(ms: number): Promise<void> {
    const value = utf8(String(ms));
    await Promise.all(this.receipts.map((one) => one.put(lastSweepKey, value, ms + keptForMs)));
  }
}
