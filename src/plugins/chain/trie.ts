/**
 * The root that a block's header has of its extrinsics: of a trie of base 16 whose keys are their numbers in compact SCALE,
 * with BLAKE2b-256. So a node that leaves one out, or shows another, is noticed.
 * Source: the Polkadot specification, "State storage trie"; state versions 0 and 1, which a runtime chooses.
 */
import { compactAddLength, compactToU8a } from "@polkadot/util";
import { concatBytes, encodeHex0x } from "../../core/codec/bytes.ts";
import { blake2b256 } from "../../core/codec/crypto.ts";

/** In version 1, a value of so many bytes is in its node by its hash. */
const hashedValueBytesMin = 33;
/** A longer encoding of a node is in its parent by its hash. */
const inlineNodeBytesMax = 31;

/** What a node of the trie is, by the bits that its header begins with, and how many bits remain for a length. */
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

/** The bytes whose hash is the root. They are the body of no block, although a hash of them alone would be its root. */
export function orderedRootNode(list: readonly Uint8Array[], version: Version): Uint8Array {
  const items = list.map((value, index) => ({ path: nibblesOf(compactToU8a(index)), value }));
  return items.length === 0 ? Uint8Array.of(0) : encodeNode(items, 0, version);
}

const nibblesOf = (bytes: Uint8Array): number[] =>
  [...bytes].flatMap((byte) => [byte >> 4, byte & 15]);

/** The node of some items, whose paths agree before `depth`. */
function encodeNode(items: readonly Item[], depth: number, version: Version): Uint8Array {
  const [first] = items as [Item];
  let end = depth;
  while (items.every(({ path }) => end < path.length && path[end] === first.path[end])) end++;
  const own = items.find(({ path }) => path.length === end);
  const value = own === undefined ? null : encodeValue(own.value, version);
  const ending = value === null ? "" : value.isHash ? " with hash" : " with value";
  const partial = first.path.slice(depth, end);
  if (items.length === 1 && value !== null)
    return concatBytes(header(value.isHash ? "leaf with hash" : "leaf", partial), value.bytes);
  const children = Array.from({ length: 16 }, (_, n) =>
    items.filter(({ path }) => path[end] === n),
  );
  const bitmap = children.reduce((bits, { length }, n) => (length > 0 ? bits | (1 << n) : bits), 0);
  return concatBytes(
    header(`branch${ending}`, partial),
    Uint8Array.of(bitmap & 0xff, bitmap >> 8),
    value?.bytes ?? new Uint8Array(),
    ...children
      .filter(({ length }) => length > 0)
      .map((some) => encodeChild(encodeNode(some, end + 1, version))),
  );
}

function encodeValue(
  value: Uint8Array,
  version: Version,
): { readonly isHash: boolean; readonly bytes: Uint8Array } {
  const isHash = version === 1 && value.length >= hashedValueBytesMin;
  return { isHash, bytes: isHash ? blake2b256(value) : compactAddLength(value) };
}

const encodeChild = (node: Uint8Array): Uint8Array =>
  compactAddLength(node.length > inlineNodeBytesMax ? blake2b256(node) : node);

/** Kind and length of the partial path, and its nibbles in pairs, of an odd number the first alone. */
function header(kind: keyof typeof kinds, partial: readonly number[]): Uint8Array {
  const [bits, width] = kinds[kind];
  // Numbers of extrinsics have at most eight nibbles, and the shortest length that overflows is fifteen.
  const nibbles = partial.length % 2 === 1 ? [0, ...partial] : partial;
  const bytes = Array.from(
    { length: nibbles.length / 2 },
    (_, n) => ((nibbles[2 * n] ?? 0) << 4) | (nibbles[2 * n + 1] ?? 0),
  );
  if (partial.length >= (1 << width) - 1) throw new RangeError("a path is too long");
  return Uint8Array.of(bits | partial.length, ...bytes);
}
