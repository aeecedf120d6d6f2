/**
 * The map of a log: which value each key has, as a binary Merkle trie whose shape follows
 * from its content alone. The root covers every key, so a proof shows the value of a key,
 * or that there is none. A subtree with one key is that key's leaf, however deep: proofs
 * are about as long as the logarithm of the number of keys.
 *
 *   empty subtree          32 zero bytes
 *   subtree with one key   SHA-256(00, key, value)
 *   other subtree          SHA-256(01, left, right)
 *
 * Four levels are one page, so that a change writes few records: a page has 16 slots, each
 * empty, a leaf, or the hash of a further page. Its path is the hex digits of the keys
 * below it.
 * Source: docs/trust.md "Log".
 */
import { sha256 } from "#sha256";
import { concatBytes, encodeHex, equalBytes } from "../codec/bytes.ts";
import { hashBytes } from "./tree.ts";

export type MapLeaf = { readonly key: Uint8Array; readonly value: Uint8Array };
/** `null` removes the key. */
export type MapChange = { readonly key: Uint8Array; readonly value: Uint8Array | null };
/** The page at a path; `null` where there is none. */
export type ReadPage = (path: string) => Uint8Array | null;

/** An inner node has no leaf. */
type MapNode = { readonly hash: Uint8Array; readonly leaf: MapLeaf | null };
type Slot = MapNode | null;

const leafPrefix = Uint8Array.of(0);
const nodePrefix = Uint8Array.of(1);
const slotsOfPage = 16;
const levelsOfPage = 4;
/** Bits of a key. */
const depthMax = 256;

const emptyHash = new Uint8Array(hashBytes);
const hashOf = (slot: Slot): Uint8Array => slot?.hash ?? emptyHash;
/** Hashed when it is asked for: most leaves of a page are only passed by. */
function leafNode({ key, value }: MapLeaf): MapNode {
  let hash: Uint8Array | null = null;
  return {
    leaf: { key, value },
    get hash() {
      hash ??= sha256(concatBytes(leafPrefix, key, value));
      return hash;
    },
  };
}

function joinSlots(left: Slot, right: Slot): Slot {
  if (left === null && (right === null || right.leaf !== null)) return right;
  if (right === null && left?.leaf) return left;
  return { hash: sha256(concatBytes(nodePrefix, hashOf(left), hashOf(right))), leaf: null };
}

/** The levels of a page from its own node down to its slots. */
function levelsOf(slots: readonly Slot[]): Slot[][] {
  let level = [...slots];
  const levels = [level];
  while (level.length > 1) {
    const below = level;
    level = Array.from({ length: below.length / 2 }, (_, i) =>
      joinSlots(below[2 * i] ?? null, below[2 * i + 1] ?? null),
    );
    levels.unshift(level);
  }
  return levels;
}

const rootOfPage = (slots: readonly Slot[]): Slot => levelsOf(slots)[0]?.[0] ?? null;

/** A slot is its kind (0 empty, 1 leaf, 2 hash of a page), then 0, 64 or 32 bytes. */
function encodePage(slots: readonly Slot[]): Uint8Array {
  const parts = slots.flatMap((slot) => {
    if (slot === null) return [Uint8Array.of(0)];
    return slot.leaf === null
      ? [Uint8Array.of(2), slot.hash]
      : [Uint8Array.of(1), slot.leaf.key, slot.leaf.value];
  });
  return concatBytes(...parts);
}

function decodePage(bytes: Uint8Array | null): Slot[] {
  let at = 0;
  const take = (length: number) => {
    if (bytes === null || at + length > bytes.length)
      throw new RangeError("a page of the map is damaged");
    at += length;
    return bytes.slice(at - length, at);
  };
  return Array.from({ length: slotsOfPage }, () => {
    const kind = bytes === null ? 0 : take(1)[0];
    if (kind === 0) return null;
    return kind === 1
      ? leafNode({ key: take(hashBytes), value: take(hashBytes) })
      : { hash: take(hashBytes), leaf: null };
  });
}

// ------------------------------------------------------------------------------------------ change

type Changed = {
  readonly root: Uint8Array;
  /** Pages that differ; `null` for one that is gone. */
  readonly pages: ReadonlyMap<string, Uint8Array | null>;
};

/** The map after changes of different keys. Cost: about 8 µs for each level of pages and key. */
export function changeMap(read: ReadPage, changes: readonly MapChange[]): Changed {
  const pages = new Map<string, Uint8Array | null>();
  const named = changes.map((change) => ({ ...change, digits: encodeHex(change.key) }));
  return { root: hashOf(changePage({ read, pages }, "", named)), pages };
}

type NamedChange = MapChange & { readonly digits: string };
type Pages = { readonly read: ReadPage; readonly pages: Map<string, Uint8Array | null> };

function changePage(within: Pages, path: string, changes: readonly NamedChange[]): Slot {
  const before = within.read(path);
  const slots = decodePage(before);
  for (const [digit, group] of Map.groupBy(changes, ({ digits }) => digits.charAt(path.length)))
    slots[Number.parseInt(digit, 16)] = changeSlot(within, path + digit, {
      slot: slots[Number.parseInt(digit, 16)] ?? null,
      changes: group,
    });
  const node = rootOfPage(slots);
  // A page with one key is a leaf of the page above; above the first there is none.
  const isKept = path === "" ? node !== null : node !== null && node.leaf === null;
  if (isKept || before !== null) within.pages.set(path, isKept ? encodePage(slots) : null);
  return node;
}

function changeSlot(
  within: Pages,
  path: string,
  { slot, changes }: { readonly slot: Slot; readonly changes: readonly NamedChange[] },
): Slot {
  if (slot !== null && slot.leaf === null) return changePage(within, path, changes);
  const held = slot?.leaf ?? null;
  const isHeld = held !== null && !changes.some(({ key }) => equalBytes(key, held.key));
  const left: NamedChange[] = [
    ...(isHeld ? [{ ...held, digits: encodeHex(held.key) }] : []),
    ...changes.filter(({ value }) => value !== null),
  ];
  const [only] = left;
  if (only === undefined) return null;
  if (left.length > 1) return changePage({ ...within, read: () => null }, path, left);
  return leafNode({ key: only.key, value: only.value as Uint8Array });
}

/** The value of a key, without a proof and without a hash. */
export function valueInMap(read: ReadPage, key: Uint8Array): Uint8Array | null {
  const digits = encodeHex(key);
  for (let path = ""; path.length < digits.length; path = digits.slice(0, path.length + 1)) {
    const slot = decodePage(read(path))[Number.parseInt(digits.charAt(path.length), 16)] ?? null;
    if (slot === null || slot.leaf !== null)
      return slot?.leaf && equalBytes(slot.leaf.key, key) ? slot.leaf.value : null;
  }
  return null;
}

// ------------------------------------------------------------------------------------------- proof

export type MapProof = {
  /** Hashes next to the way from the root to where the key is or would be. */
  readonly siblings: readonly Uint8Array[];
  /** What is there: the key, another one, or nothing. */
  readonly leaf: MapLeaf | null;
};

/**
 * What leads from the root to the value of a key, or to its absence: the hashes next to the
 * way. `read` gives a page by its path.
 */
export function proveInMap(read: ReadPage, key: Uint8Array): MapProof {
  const digits = encodeHex(key);
  const siblings: Uint8Array[] = [];
  for (let path = ""; path.length < digits.length; path = digits.slice(0, path.length + 1)) {
    const levels = levelsOf(decodePage(read(path)));
    const digit = Number.parseInt(digits.charAt(path.length), 16);
    for (let depth = 0; depth <= levelsOfPage; depth++) {
      const node = levels[depth]?.[digit >> (levelsOfPage - depth)] ?? null;
      if (node === null || node.leaf !== null) return { siblings, leaf: node?.leaf ?? null };
      if (depth < levelsOfPage)
        siblings.push(
          hashOf(levels[depth + 1]?.[(digit >> (levelsOfPage - depth - 1)) ^ 1] ?? null),
        );
    }
  }
  throw new RangeError("the map is deeper than its keys are long");
}

/**
 * The root that a proof leads to, and the value of the key there; `null` for what is not a
 * proof of this key.
 */
export function readMapProof(
  { siblings, leaf }: MapProof,
  key: Uint8Array,
): { readonly root: Uint8Array; readonly value: Uint8Array | null } | null {
  if (siblings.length > depthMax) return null;
  const bit = (of: Uint8Array, depth: number) =>
    ((of[depth >> 3] as number) >> (7 - (depth & 7))) & 1;
  const isOnWay =
    leaf === null || siblings.every((_, depth) => bit(leaf.key, depth) === bit(key, depth));
  if (!isOnWay) return null;
  let hash = leaf === null ? emptyHash : leafNode(leaf).hash;
  for (let depth = siblings.length - 1; depth >= 0; depth--) {
    const sibling = siblings[depth] as Uint8Array;
    hash = sha256(
      bit(key, depth) === 0
        ? concatBytes(nodePrefix, hash, sibling)
        : concatBytes(nodePrefix, sibling, hash),
    );
  }
  return { root: hash, value: leaf !== null && equalBytes(leaf.key, key) ? leaf.value : null };
}
