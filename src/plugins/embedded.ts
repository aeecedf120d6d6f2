/**
 * The embedded ledger over a driver's table, with the operator account that owns what is registered.
 * The account is drawn once per ledger and kept in its table: it signs nothing here, since the driver
 * itself is the authority that a chain would be.
 */
import { type Store, type StoreEnvironment, StoreError } from "../storage/contract.ts";
import { type EmbeddedLedger, openEmbeddedLedger } from "../storage/embedded.ts";
import type { SharedTable, Table } from "../storage/table.ts";

/** No record of the ledger begins with this letter sequence. */
const operatorKey = "driver/operator";

export type FollowedLedger = {
  readonly ledger: EmbeddedLedger;
  readonly followHead: NonNullable<Store["followHead"]>;
};

export async function openLedger(
  table: Table | SharedTable,
  blockTimeMs: number,
  environment: StoreEnvironment,
): Promise<FollowedLedger> {
  const operator = await table.commit((view) => {
    const known = view.get(operatorKey);
    if (known !== null) return known;
    const drawn = crypto.getRandomValues(new Uint8Array(32));
    view.put(operatorKey, drawn);
    return drawn;
  });
  const { now, log } = environment;
  const followers = new Set<() => void>();
  const onHead = (): void => followers.forEach((changed) => void changed());
  const ledger = await openEmbeddedLedger({ table, blockTimeMs, now, log, operator, onHead });
  return {
    ledger,
    followHead: (changed) => {
      followers.add(changed);
      return () => void followers.delete(changed);
    },
  };
}

/** What a new ledger has: its head, its operator and its genesis. */
const freshRecordsMax = 3;

/** Writes the pairs of an exported ledger over the table of a new one. Throws `unavailable` when it is in use. */
export function ledgerImport(table: Table): (pairs: readonly (readonly [string, Uint8Array])[]) => Promise<void> {
  let isBegun = false;
  return async (pairs) => {
    if (!isBegun && table.range("", { limit: freshRecordsMax + 1 }).length > freshRecordsMax) {
      throw new StoreError("unavailable", "the ledger is not empty: import into a new store");
    }
    isBegun = true;
    await table.commit((view) => {
      for (const [key, value] of pairs) view.put(key, value);
    });
  };
}
