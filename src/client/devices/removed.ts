/**
 * Which devices were removed, beside the keys: the local store of a device may be an older copy
 * than its keys, as from a backup of a file system, and lists them. Under the root key in force
 * they must not be listed again, or they would be sent its seed.
 * Source: docs/trust.md ("Own devices").
 */
import type { Did } from "../../core/codec/did.ts";
import { inOrder } from "../../core/std/order.ts";
import { array, keptDid, object, parseKept, renderKept } from "../base/shapes.ts";
import type { TextStore } from "../keys/key-stores.ts";

const removedShape = object({ dids: array(keptDid) });
const removedAt = "devices/removed";
/** More than a user removes. The last ones. */
const removedMax = 200;
const changes = inOrder<TextStore>();

export async function removedDevices(memory: TextStore): Promise<readonly Did[]> {
  return parseKept((await memory.load(removedAt)) ?? "", removedShape)?.dids ?? [];
}

/** Before the new keys, so that no copy of the store is older than this. */
export function noteRemoved(memory: TextStore, dids: readonly Did[]): Promise<void> {
  return changes(memory, async () => {
    const known = await removedDevices(memory);
    const added = dids.filter((did) => !known.includes(did));
    if (added.length === 0) return;
    await memory.save(removedAt, renderKept({ dids: [...known, ...added].slice(-removedMax) }));
  });
}
