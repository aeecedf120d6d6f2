/**
 * The root that a block's header has of its extrinsics: of a trie of base 16 whose keys are
 * their numbers in compact SCALE, with BLAKE2b-256. So a node that leaves one out, or shows
 * another, is noticed.
 * Source: the Polkadot specification, "State storage trie"; state versions 0 and 1, which a
 * runtime chooses.
 */
import { compactAddLength, compactToU8a } from "@polkadot/util";
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";

/** In version 1, a value of so many bytes is in its node by its hash. */
const hashedValueBytesMin = 33;
/** A longer encoding of a node is in its parent by its hash. */
const inlineNodeBytesMax = 31;

/**
 * What a node of the trie is, by the bits that its header begins with, and how many bits
 * remain for a length.
 */
const kinds = {
  leaf: [0b01_000000, 6],
  branch: [0b10_000000, 6],
  "branch with value": [0b11_000000, 6],
  "leaf with hash": [0b001_00000, 5],
  "branch with hash": [0b0001_0000, 4],
} as const;

type Version = 0 | 1;
/** Path: a nibble an element. */
type Item = { readonly path: readonly number[]; readonly value: Uint8Array };

/** Whether a header with this root names exactly these extrinsics, by one of the two versions. */
export function isRootOf(root: string, extrinsics: readonly Uint8Array[]): boolean {
  return orderedRoot(extrinsics, 0) === root || orderedRoot(extrinsics, 1) === root;
}

export const orderedRoot = (list: readonly Uint8Array[], version: Version): string =>
  encodeHex0x(blake2b256(orderedRootNode(list, version)));

/**
 * The bytes whose hash is the root. They are the body of no block, although a hash of them
 * alone would be its root.
 */
export function orderedRootNode(list: readonly Uint8Array[], version: Version): Uint8Array {
  const items = list.map((value, index) => ({ path: nibblesOf(compactToU8a(index)), value }));
  return items.length === 0 ? Uint8Array.of(0) : encodeNode(items, 0, version);
}

const nibblesOf = (bytes: Uint8Array): number[] =>
  [...bytes].flatMap((byte) => [byte >> 4, byte & 15]);

/** The node of some items, whose paths agree before `depth`. */
function encodeNode(items: readonly Item[], depth: number, version: Version): Uint8Array {
  const [first] = items as [Item];
  const end = endOfCommonPath(items, depth);
  const partial = first.path.slice(depth, end);
  const own = items.find(({ path }) => path.length === end);
  if (own === undefined)
    return concatBytes(header("branch", partial), ...branchesOf(items, end, version));
  const value = encodeValue(own.value, version);
  if (items.length === 1) {
    const leaf = value.isHash ? "leaf with hash" : "leaf";
    return concatBytes(header(leaf, partial), value.bytes);
  }
  const branch = value.isHash ? "branch with hash" : "branch with value";
  const [bitmap, children] = branchesOf(items, end, version);
  return concatBytes(header(branch, partial), bitmap, value.bytes, children);
}

/** Up to where all paths are the same. */
function endOfCommonPath(items: readonly Item[], depth: number): number {
  const [first] = items as [Item];
  let end = depth;
  while (items.every(({ path }) => end < path.length && path[end] === first.path[end])) end++;
  return end;
}

/**
 * Which nibbles have a child, as 16 bits, and the children in order. An item that ends here
 * is in none.
 */
function branchesOf(
  items: readonly Item[],
  end: number,
  version: Version,
): readonly [bitmap: Uint8Array, children: Uint8Array] {
  let bits = 0;
  const children: Uint8Array[] = [];
  for (let nibble = 0; nibble < 16; nibble++) {
    const below = items.filter(({ path }) => path[end] === nibble);
    if (below.length === 0) continue;
    bits |= 1 << nibble;
    children.push(encodeChild(encodeNode(below, end + 1, version)));
  }
  return [Uint8Array.of(bits & 0xff, bits >> 8), concatBytes(...children)];
}

type EncodedValue = { readonly isHash: boolean; readonly bytes: Uint8Array };

function encodeValue(value: Uint8Array, version: Version): EncodedValue {
  const isHash = version === 1 && value.length >= hashedValueBytesMin;
  return { isHash, bytes: isHash ? blake2b256(value) : compactAddLength(value) };
}

const encodeChild = (node: Uint8Array): Uint8Array =>
  compactAddLength(node.length > inlineNodeBytesMax ? blake2b256(node) : node);

/**
 * Kind and length of the partial path, and its nibbles in pairs, of an odd number the first
 * alone.
 */
function header(kind: keyof typeof kinds, partial: readonly number[]): Uint8Array {
  const [bits, width] = kinds[kind];
  // Numbers of extrinsics have at most eight nibbles, and the shortest length that
  // overflows is fifteen.
  const nibbles = partial.length % 2 === 1 ? [0, ...partial] : partial;
  const bytes = Array.from(
    { length: nibbles.length / 2 },
    (_, n) => ((nibbles[2 * n] ?? 0) << 4) | (nibbles[2 * n + 1] ?? 0),
  );
  if (partial.length >= (1 << width) - 1) throw new RangeError("a path is too long");
  return Uint8Array.of(bits | partial.length, ...bytes);
}
