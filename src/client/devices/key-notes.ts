/**
 * What is noted next to the keys, in the key store: which devices were removed, and which one made
 * each root key. The local store of a device may be an older copy than its keys, as from a backup
 * of a file system. It lists who was removed, and under the root key in force they must not be
 * listed again, or they would be sent its seed. And it has another maker, who alone signs again
 * what was followed under the key before.
 * Source: docs/trust.md ("Own devices").
 */
import { inOrder } from "../../core/std/order.ts";
import {
  array,
  keptDid,
  keptHex32,
  object,
  optional,
  parseKept,
  renderKept,
} from "../base/shapes.ts";
import type { TextStore } from "../keys/key-stores.ts";
import { type Head, type KeyNotes, missingIn } from "./keyring.ts";

const notesShape = object({
  dids: array(keptDid),
  makers: optional(array(object({ root: keptHex32, maker: keptDid }))),
});
const notesAt = "devices/removed";
/** More than a user removes. The last ones. */
const removedMax = 200;
/** Of root keys, the last ones: those of replacements that were given up are among them. */
const makersMax = 16;
const changes = inOrder<TextStore>();

export async function keyNotes(memory: TextStore): Promise<KeyNotes> {
  const { dids = [], makers = [] } =
    parseKept((await memory.load(notesAt)) ?? "", notesShape) ?? {};
  return { removed: dids, makers };
}

/** Before the new keys, so that no copy of the store is older than this. */
export function noteBesideKeys(
  memory: TextStore,
  { removed = [], makers = [] }: Partial<KeyNotes>,
): Promise<void> {
  return changes(memory, async () => {
    const known = await keyNotes(memory);
    const gone = removed.filter((did) => !known.removed.includes(did));
    const made = makers.filter((one) => known.makers.every(({ root }) => root !== one.root));
    if (gone.length + made.length === 0) return;
    const dids = [...known.removed, ...gone].slice(-removedMax);
    const all = [...known.makers, ...made.map(({ root, maker }) => ({ root, maker }))];
    await memory.save(notesAt, renderKept({ dids, makers: all.slice(-makersMax) }));
  });
}

/** Of a head that comes after another one. */
export const noteHead = (memory: TextStore, head: Head, before: Head): Promise<void> =>
  noteBesideKeys(memory, { removed: missingIn(head, before), makers: [head] });
