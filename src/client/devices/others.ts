/**
 * The other devices of an identity as those that share its sealing secrets: who replaces the key
 * first, and whether all have what is to be published.
 * Source: docs/trust.md ("The sealing key").
 */
import type { Did } from "../../core/codec/did.ts";
import type { OtherDevices } from "../identity/sharing.ts";
import { keysKey, placeInLog } from "../store/keys.ts";
import type { Table } from "../store/table.ts";
import { peersOf } from "./replica.ts";
import type { Sync } from "./sync.ts";

type Here = {
  readonly own: Did;
  readonly table: Table;
  /** Its `sync` is there as soon as this tab leads and the DID of the device is open. */
  readonly of: { readonly sync: Sync | null };
};

export function otherDevices(others: readonly Did[], here: Here): OtherDevices {
  const { own, table, of } = here;
  return {
    rank: [own, ...others].sort().indexOf(own),
    others: others.length,
    share: async () => of.sync !== null && (await share(table, of.sync, others)),
    ask: async (publicKey) => of.sync?.askForKey(publicKey),
  };
}

/**
 * Whether the Caches of all others have the keys that are here now. They go with the next message.
 */
async function share(table: Table, sync: Sync, others: readonly Did[]): Promise<boolean> {
  await table.change(async (batch) => batch.log(keysKey));
  const number = (await table.get<number>(placeInLog(keysKey))) ?? 0;
  await sync.synced();
  const peers = await peersOf(table);
  return others.every((did) => peers.some((peer) => peer.did === did && peer.sent >= number));
}
