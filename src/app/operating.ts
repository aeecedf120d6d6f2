/** What the operator decides in a running process: where it is kept, and who may decide it. */
import type { Config } from "../config/schema.ts";
import { type Admin, createAdmin } from "../nodes/operations/admin.ts";
import { auditBounds, createAudit } from "../nodes/operations/audit.ts";
import type { FollowParts } from "../nodes/parties/followed.ts";
import type { OpenStores } from "../storage/bind.ts";
import type { Receipts } from "../storage/contract.ts";

/** Where the process keeps what its operator decides: the store of the first node that it runs. */
export function receiptsOf({ directory, cache, relay }: Config, stores: OpenStores): Receipts {
  const enabled = { cache: cache.enabled, relay: relay.enabled, directory: directory.enabled };
  const node = (["cache", "relay", "directory"] as const).find((name) => enabled[name]);
  return stores.capability(`${node ?? "witness"}.store`, "receipts");
}

export const directoryReceipts = (stores: OpenStores): Receipts =>
  stores.capability("directory.store", "receipts");

type DecidedParts = Pick<FollowParts, "now" | "log"> & { readonly stores: OpenStores };

/** Who may do what on the admin socket, and what they did. */
export function adminOf(config: Config, { stores, now, log }: DecidedParts): Admin {
  const audit = createAudit({
    receipts: receiptsOf(config, stores),
    bounds: auditBounds,
    now,
    log,
  });
  return createAdmin({ settings: config.server, audit, ownUid: process.getuid?.() ?? -1 });
}
