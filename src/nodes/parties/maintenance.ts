/**
 * Maintenance: the operator has the node refuse writes, while reads and acknowledgements
 * go on. One record in a store of the node, so that it holds in every process on that
 * store, also after a restart.
 * Source: rules section 9 ("Maintenance").
 */
import { type Fault, fault } from "../../core/fault.ts";
import { keptMs } from "../results.ts";
import { type FollowParts, followRecords } from "./followed.ts";
import { encodeRecord } from "./records.ts";

type MaintenanceState = {
  readonly sinceMs: number;
  /** For members; `null` without one. */
  readonly message: string | null;
};

export type Maintenance = {
  /** `null` while there is none. */
  readonly state: () => MaintenanceState | null;
  /** 503 `maintenance` while writes are refused. */
  readonly check: () => Fault | null;
  /** Durable when it resolves. */
  readonly begin: (message: string | null) => Promise<void>;
  readonly end: () => Promise<void>;
  readonly close: () => void;
};

const prefix = "/maintenance/";
const key = `${prefix}now`;
/** When a client should ask again. */
const retryAfterSeconds = 60;

export async function openMaintenance(parts: FollowParts): Promise<Maintenance> {
  const { receipts, now } = parts;
  let state: MaintenanceState | null = null;
  const { announce, close } = await followRecords<MaintenanceState>(parts, {
    prefix,
    subject: "operator-maintenance.changed",
    name: "whether there is maintenance",
    changed: ([found]) => {
      state = found ?? null;
    },
  });
  return {
    state: () => state,
    check: () => {
      if (state === null) return null;
      const detail = state.message ?? "this node takes nothing new during maintenance";
      return fault("maintenance", detail, { retryAfterSeconds });
    },
    begin: async (message) => {
      const begun = { sinceMs: state?.sinceMs ?? now(), message };
      await receipts.put(key, encodeRecord(begun), now() + keptMs);
      await announce();
    },
    end: async () => {
      await receipts.remove(key);
      await announce();
    },
    close,
  };
}
