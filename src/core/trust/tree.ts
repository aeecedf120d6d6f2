/**
 * The append-only tree of a log: hashes and proofs of RFC 6962, read from tiles of 256
 * hashes as C2SP `tlog-tiles` has them. Sizes and indices are safe integers. Whatever reads
 * a proof treats it as hostile; whatever makes one reads hashes that are there.
 * Source: RFC 6962 §2.1, c2sp.org/tlog-tiles, docs/trust.md "Log".
 */
import { sha256 } from "#sha256";
import { concatBytes, equalBytes } from "../codec/bytes.ts";

export const hashBytes = 32;
/** Hashes of a full tile, and entries of a full bundle. */
export const tileWidth = 256;
/** More than a proof of a tree has whose size is a safe integer. */
export const treeProofMax = 64;

const leafPrefix = Uint8Array.of(0);
const nodePrefix = Uint8Array.of(1);

export const hashLeaf = (entry: Uint8Array): Uint8Array => sha256(concatBytes(leafPrefix, entry));
const hashNode = (left: Uint8Array, right: Uint8Array): Uint8Array =>
  sha256(concatBytes(nodePrefix, left, right));

/** The hash of the complete subtree over the leaves from `index * 2^level`, `2^level` of them. */
type ReadNode = (level: number, index: number) => Uint8Array;

/** The largest power of two below `n`, which is at least 2. */
function splitOf(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

function hashRange(read: ReadNode, from: number, to: number): Uint8Array {
  const count = to - from;
  const level = Math.log2(count);
  if (Number.isInteger(level) && 2 ** level === count) return read(level, from / count);
  const middle = from + splitOf(count);
  return hashNode(hashRange(read, from, middle), hashRange(read, middle, to));
}

/** The root of the first `size` leaves. */
export function treeRoot(read: ReadNode, size: number): Uint8Array {
  return size === 0 ? sha256(new Uint8Array(0)) : hashRange(read, 0, size);
}

/** PATH of RFC 6962. */
export function proveInclusion(read: ReadNode, index: number, size: number): Uint8Array[] {
  const path = (from: number, to: number): Uint8Array[] => {
    if (to - from === 1) return [];
    const middle = from + splitOf(to - from);
    return index < middle
      ? [...path(from, middle), hashRange(read, middle, to)]
      : [...path(middle, to), hashRange(read, from, middle)];
  };
  return path(0, size);
}

/** PROOF of RFC 6962, from `size` leaves to `laterSize`; empty from nothing. */
export function proveConsistency(read: ReadNode, size: number, laterSize: number): Uint8Array[] {
  const prove = (from: number, to: number, isWhole: boolean): Uint8Array[] => {
    if (size === to) return isWhole ? [] : [hashRange(read, from, to)];
    const middle = from + splitOf(to - from);
    return size <= middle
      ? [...prove(from, middle, isWhole), hashRange(read, middle, to)]
      : [...prove(middle, to, false), hashRange(read, from, middle)];
  };
  return size === 0 ? [] : prove(0, laterSize, true);
}

type Tree = { readonly size: number; readonly root: Uint8Array };

/** Whether a proof leads from a leaf at `index` to the root (RFC 6962 2.1.1). */
export function verifyInclusion(
  leafHash: Uint8Array,
  index: number,
  tree: Tree,
  proof: readonly Uint8Array[],
): boolean {
  if (index < 0 || index >= tree.size || proof.length > treeProofMax) return false;
  const rest = [...proof];
  const climb = (from: number, to: number): Uint8Array | null => {
    if (to - from === 1) return leafHash;
    const middle = from + splitOf(to - from);
    const sibling = rest.pop();
    const below = index < middle ? climb(from, middle) : climb(middle, to);
    if (sibling === undefined || below === null) return null;
    return index < middle ? hashNode(below, sibling) : hashNode(sibling, below);
  };
  const root = climb(0, tree.size);
  return root !== null && rest.length === 0 && equalBytes(root, tree.root);
}

/**
 * Whether a later tree continues an earlier one (RFC 6962 2.1.2). The empty tree needs an
 * empty proof.
 */
export function verifyConsistency(
  before: Tree,
  later: Tree,
  proof: readonly Uint8Array[],
): boolean {
  if (before.size > later.size || proof.length > treeProofMax) return false;
  if (before.size === 0) return proof.length === 0;
  const rest = [...proof];
  type Both = readonly [old: Uint8Array, now: Uint8Array];
  const climb = (from: number, to: number, isWhole: boolean): Both | null => {
    if (before.size === to) {
      const hash = isWhole ? before.root : rest.pop();
      return hash === undefined ? null : [hash, hash];
    }
    const middle = from + splitOf(to - from);
    const sibling = rest.pop();
    const isLeft = before.size <= middle;
    const below = isLeft ? climb(from, middle, isWhole) : climb(middle, to, false);
    if (sibling === undefined || below === null) return null;
    const [old, now] = below;
    return isLeft
      ? [old, hashNode(now, sibling)]
      : [hashNode(sibling, old), hashNode(sibling, now)];
  };
  const roots = climb(0, later.size, true);
  if (roots === null || rest.length > 0) return false;
  return equalBytes(roots[0], before.root) && equalBytes(roots[1], later.root);
}

// ------------------------------------------------------------------------------------------- tiles

/**
 * The hashes of a tile one after the other; at least as many as the tree of the reader has
 * there.
 */
export type ReadTile = (level: number, index: number) => Uint8Array;

/** Complete subtrees out of tiles. Throws a `RangeError` when a tile has too few hashes. */
export function nodesOfTiles(readTile: ReadTile): ReadNode {
  return (level, index) => {
    const tileLevel = Math.floor(level / 8);
    const count = 2 ** (level % 8);
    const first = index * count;
    const start = first % tileWidth;
    const tile = readTile(tileLevel, Math.floor(first / tileWidth));
    if (tile.length < (start + count) * hashBytes)
      throw new RangeError("a tile has too few hashes");
    return hashTile(tile.subarray(start * hashBytes, (start + count) * hashBytes));
  };
}

/** The root over the hashes of a tile, or of a part of it whose length is a power of two. */
export function hashTile(hashes: Uint8Array): Uint8Array {
  if (hashes.length === hashBytes) return hashes;
  const middle = hashes.length / 2;
  return hashNode(hashTile(hashes.subarray(0, middle)), hashTile(hashes.subarray(middle)));
}

/** How many hashes a tile has in a tree of `size` leaves. */
export function widthOfTile(level: number, index: number, size: number): number {
  return Math.max(
    0,
    Math.min(tileWidth, Math.floor(size / tileWidth ** level) - index * tileWidth),
  );
}

/** `0/x001/234.p/5`: a tile, or a bundle with the level `entries`, of `width` hashes or entries. */
export function tilePath(level: number | "entries", index: number, width: number): string {
  const digits = String(index);
  const groups = digits.padStart(Math.ceil(digits.length / 3) * 3, "0").match(/.{3}/g) ?? [];
  const place = groups.map((group, i) => (i === groups.length - 1 ? group : `x${group}`)).join("/");
  return `${level}/${place}${width === tileWidth ? "" : `.p/${width}`}`;
}

export type TilePlace = {
  readonly level: number | "entries";
  readonly index: number;
  readonly width: number;
};

/** `null` for anything but the one path of a tile. */
export function parseTilePath(path: string): TilePlace | null {
  const [, name = "", groups = "", partial] =
    /^(entries|0|[1-9]|[1-5]\d|6[0-3])\/((?:x\d{3}\/){0,4}\d{3})(?:\.p\/([1-9]\d{0,2}))?$/.exec(
      path,
    ) ?? [];
  const level = name === "entries" ? name : Number(name);
  const index = Number(groups.replace(/[x/]/g, ""));
  const width = partial === undefined ? tileWidth : Number(partial);
  return name !== "" && tilePath(level, index, width) === path && width <= tileWidth
    ? { level, index, width }
    : null;
}

// ----------------------------------------------------------------------------------------- bundles

/** Entries with the two bytes of their lengths, big endian. */
export function encodeBundle(entries: readonly Uint8Array[]): Uint8Array {
  return concatBytes(
    ...entries.flatMap((entry) => [Uint8Array.of(entry.length >> 8, entry.length & 255), entry]),
  );
}

/** `null` for anything but whole entries, at most those of a full bundle. */
export function decodeBundle(bytes: Uint8Array): Uint8Array[] | null {
  const entries: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 2 + ((bytes[at] as number) << 8) + (bytes[at + 1] ?? 0);
    if (end > bytes.length || at + 2 > bytes.length || entries.length === tileWidth) return null;
    entries.push(bytes.subarray(at + 2, end));
    at = end;
  }
  return entries;
}
