/**
 * The sweepers: what is due in the stores is freed in small batches, so that a sweep never stalls the
 * writes of requests for long. Nothing depends on them for correctness: what is due is invisible before.
 * Source: rules section 6 ("Expiry").
 */
import type { Log } from "../nodes/http/log.ts";
import type { OpenStores } from "../storage/bind.ts";

export type Sweepers = { readonly stop: () => Promise<void> };

const roundMs = 1_000;
const batchMax = 256;
/** A store with a backlog gives way to requests between two batches. */
const betweenBatchesMs = 5;

type Expiring = { readonly expire: (nowMs: number, limit: number) => Promise<number> };

export function startSweepers(
  stores: OpenStores,
  environment: { readonly now: () => number; readonly log: Log },
): Sweepers {
  let running = true;
  const rounds = [...stores.stores].flatMap(([name, { capabilities }]) =>
    ([capabilities.mailbox, capabilities.replay, capabilities.receipts] as const).flatMap((capability) =>
      capability === undefined ? [] : [{ name, capability }],
    ),
  );
  const stopped = Promise.withResolvers<void>();
  const sweepAll = async (): Promise<void> => {
    while (running) {
      for (const { name, capability } of rounds) await sweep(capability, name);
      await Promise.race([Bun.sleep(roundMs), stopped.promise]);
    }
  };
  const sweep = async (capability: Expiring, name: string): Promise<void> => {
    try {
      while (running && (await capability.expire(environment.now(), batchMax)) >= batchMax)
        await Bun.sleep(betweenBatchesMs);
    } catch (error) {
      if (running) environment.log("warn", "a sweep failed", { store: name, error: String(error) });
    }
  };
  const ended = sweepAll();
  return {
    stop: async () => {
      running = false;
      stopped.resolve();
      await ended;
    },
  };
}
