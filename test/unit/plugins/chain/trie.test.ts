/** The root of a block's extrinsics. */
import { expect, test } from "bun:test";
import { encodeHex0x } from "../../../../src/core/codec/bytes.ts";
import { blake2b256 } from "../../../../src/core/codec/crypto.ts";
import { isRootOf, orderedRoot, orderedRootNode } from "../../../../src/plugins/chain/trie.ts";

const list = (length: number) => Array.from({ length }, (_, n) => new Uint8Array(n + 1).fill(n));

test("of no extrinsics is the hash of a zero byte", () => {
  expect(orderedRoot([], 0)).toBe(
    "0x03170a2e7597b7b7e3d84c05391d139a62b157e78786d8c082f29dcf4c111314",
  );
});

test("of one extrinsic is the hash of its leaf, as the specification writes it", () => {
  const extrinsic = Uint8Array.fromHex("280401000bc730a907a201");
  const leaf = Uint8Array.fromHex("42002c280401000bc730a907a201");
  expect(orderedRoot([extrinsic], 0)).toBe(encodeHex0x(blake2b256(leaf)));
});

test("of a block that a real node made is the one in its header", () => {
  // A chain with Aura, version 0: block 47,810, whose only extrinsic sets the time.
  const root = "0xc0fa389ae8109dffe61ddd306afddd9035c34aba3a3c70c7f0a1a29c1c86b329";
  expect(orderedRoot([Uint8Array.fromHex("280401000b10f28e778c01")], 0)).toBe(root);
});

test("is not that of the node that it is the hash of", () => {
  for (const version of [0, 1] as const) {
    for (const length of [0, 1, 2, 17]) {
      const node = orderedRootNode(list(length), version);
      expect(orderedRoot(list(length), version)).toBe(encodeHex0x(blake2b256(node)));
      expect(isRootOf(orderedRoot(list(length), version), [node])).toBe(false);
    }
  }
});

test.each([0, 1] as const)("of version %d names every extrinsic and its place", (version) => {
  for (const length of [1, 2, 16, 17, 70, 300]) {
    const whole = list(length);
    const root = orderedRoot(whole, version);
    expect(isRootOf(root, whole)).toBe(true);
    expect(isRootOf(root, whole.slice(0, -1))).toBe(false);
    expect(isRootOf(root, [...whole, Uint8Array.of(1)])).toBe(false);
    expect(isRootOf(root, whole.with(length >> 1, Uint8Array.of(9, 9)))).toBe(false);
    if (length > 1) expect(isRootOf(root, whole.toReversed())).toBe(false);
  }
});

test("differs between the versions once a value has 33 bytes", () => {
  expect(orderedRoot([new Uint8Array(32)], 1)).toBe(orderedRoot([new Uint8Array(32)], 0));
  expect(orderedRoot([new Uint8Array(33)], 1)).not.toBe(orderedRoot([new Uint8Array(33)], 0));
});
