/**
 * The parts of the status page that only the process as a whole knows: checks, chain head, free disk space,
 * delay of the event loop.
 */
import { statfs } from "node:fs/promises";
import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Config } from "../config/schema.ts";
import { late, withDeadline } from "../core/std/bounded.ts";
import { createHistory, type History } from "../nodes/dashboard/dashboard.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { LedgerReader } from "../storage/contract.ts";

const probeDeadlineMs = 2_000;

/** The history, and the delay of the event loop that its newest sample saw. */
type ProcessHistory = History & { readonly loopLagSeconds: () => number };

/** `otherLagSeconds`: the largest delay that other threads saw lately. */
export function startHistory(
  readMetrics: () => Promise<string>,
  now: () => number,
  otherLagSeconds: () => number,
): ProcessHistory {
  const delay = monitorEventLoopDelay({ resolution: 20 });
  delay.enable();
  let lastLagSeconds = 0;
  const takeLag = (): number => {
    const ownSeconds = Number.isFinite(delay.max) ? Math.max(0, delay.max / 1e9) : 0;
    lastLagSeconds = Math.max(ownSeconds, otherLagSeconds());
    delay.reset();
    return lastLagSeconds;
  };
  const history = createHistory({ readMetrics, now, loopLagSeconds: takeLag });
  const close = (): void => {
    history.close();
    delay.disable();
  };
  return { ...history, close, loopLagSeconds: () => lastLagSeconds };
}

type Probes = Readonly<Record<string, () => Promise<unknown>>>;

export async function checksOf(probes: Probes): Promise<{ name: string; ok: boolean }[]> {
  return Promise.all(
    Object.entries(probes).map(async ([name, probe]) => {
      const succeeded = probe().then(
        () => true,
        () => false,
      );
      return { name, ok: (await withDeadline(succeeded, probeDeadlineMs)) === true };
    }),
  );
}

export async function factsOf(config: Config, stores: OpenStores): Promise<{ name: string; value: string }[]> {
  const perStore = await Promise.all(
    [...stores.stores].map(async ([name, store]) => {
      const head = await headOf(store.capabilities.ledger);
      const free = await freeBytesOf(config.stores[name]);
      return [
        { name: `store ${name}`, value: `${store.plugin}, ${store.durability}` },
        ...(head === null ? [] : [{ name: `ledger of ${name}`, value: head }]),
        ...(free === null ? [] : [{ name: `disk of ${name}`, value: `${(free / 2 ** 30).toFixed(1)} GiB free` }]),
      ];
    }),
  );
  return perStore.flat();
}

async function headOf(ledger: LedgerReader | undefined): Promise<string | null> {
  if (ledger === undefined) return null;
  const asked = ledger.head().catch(() => null);
  const head = await withDeadline(asked, probeDeadlineMs);
  if (head === late || head === null) return "does not answer";
  const { number, timeMs } = head.finalized;
  return `finalized block ${number}, ${new Date(timeMs).toISOString()}`;
}

/** `null` for a store without a folder. */
export async function freeBytesOf(options: Readonly<Record<string, unknown>> | undefined): Promise<number | null> {
  const path = options?.["path"];
  if (typeof path !== "string") return null;
  const found = await statfs(path).catch(() => null);
  return found === null ? null : found.bavail * found.bsize;
}
