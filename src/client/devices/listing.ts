/** Devices as a program sees them, and what new keys would drop. */
import type { Did } from "../../core/codec/did.ts";
import type { RecordReplacement } from "../identity/replacement.ts";
import type { DeviceFacts } from "../store/rows.ts";
import type { Table } from "../store/table.ts";
import type { RingDevice } from "./keyring.ts";
import { isCurrent, peersOf } from "./replica.ts";

export type Device = DeviceFacts & {
  readonly isThis: boolean;
  readonly addedAt: Date | null;
  /** The device that accepted it. */
  readonly addedBy: Did | null;
  /** Its Cache has all that is here. */
  readonly isCurrent: boolean;
};

export type Replacing = {
  /** Devices that stay. */
  readonly keep?: readonly string[];
  readonly services?: readonly string[];
  /** Ids of methods that stay although this device doesn't hold them. */
  readonly methods?: readonly string[];
};

/** This device first, which is called `name`, as soon as it has a DID. */
export async function listDevices(
  table: Table,
  name: string,
  listed: readonly RingDevice[],
): Promise<Device[]> {
  const { deviceDid } = await table.meta();
  const others = await listOthers(table, listed);
  if (deviceDid === "") return [...others];
  const added = { addedAt: null, addedBy: null };
  return [{ did: deviceDid as Did, name, isThis: true, ...added, isCurrent: true }, ...others];
}

/** With what the keyring says of them. */
async function listOthers(table: Table, listed: readonly RingDevice[]): Promise<readonly Device[]> {
  const peers = (await peersOf(table)).map(async (peer): Promise<Device> => {
    const { did, name } = peer;
    const { addedMs = peer.addedMs, addedBy = null } = listed.find((one) => one.did === did) ?? {};
    const addedAt = new Date(addedMs);
    return { did, name, isThis: false, addedAt, addedBy, isCurrent: await isCurrent(table, peer) };
  });
  return Promise.all(peers);
}

/** What new keys would drop, unless the user says that it stays. */
export type Replacement = RecordReplacement & {
  /** The other ones, with who added them and when. */
  readonly devices: readonly Device[];
};
