/**
 * The map against a plain one whose root is computed from the definition, and proofs against
 * forgeries: a proof that was changed anywhere shows another root or nothing. Entries that say
 * something else than they lead to are not replayed.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { equalBytes } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { encodeBatch, replayEntries } from "../../src/core/trust/log.ts";
import { changeMap, type MapChange, proveInMap, readMapProof } from "../../src/core/trust/map.ts";
import { parseCheckpoint, parseNote } from "../../src/core/trust/note.ts";
import {
  decodeBundle,
  hashLeaf,
  treeRoot,
  verifyConsistency,
  verifyInclusion,
} from "../../src/core/trust/tree.ts";

const zeros = new Uint8Array(32);

/** The root by its definition; keys are sorted. */
function plainRoot(
  leaves: readonly { key: Uint8Array; value: Uint8Array }[],
  depth = 0,
): Uint8Array {
  const [first] = leaves;
  if (first === undefined) return zeros;
  if (leaves.length === 1) return sha256(Buffer.concat([Uint8Array.of(0), first.key, first.value]));
  const isRight = ({ key }: { key: Uint8Array }) =>
    (((key[depth >> 3] as number) >> (7 - (depth & 7))) & 1) === 1;
  const left = plainRoot(
    leaves.filter((one) => !isRight(one)),
    depth + 1,
  );
  const right = plainRoot(leaves.filter(isRight), depth + 1);
  return sha256(Buffer.concat([Uint8Array.of(1), left, right]));
}

/** Keys that share long beginnings, so that pages nest and collapse. */
const key = fc
  .tuple(fc.constantFrom(0, 1, 31), fc.integer({ min: 0, max: 5 }), fc.integer({ min: 0, max: 2 }))
  .map(([place, byte, last]) => zeros.with(place, byte).with(30, last));
const change = fc.record({
  key,
  value: fc.option(fc.uint8Array({ minLength: 32, maxLength: 32 }).filter((v) => v.some(Boolean))),
});
const batch = fc.uniqueArray(change, { selector: (one) => one.key.join(), maxLength: 12 });

test("any changes lead to the root of the definition, and every key has its proof there", () => {
  fc.assert(
    fc.property(fc.array(batch, { maxLength: 8 }), (batches) => {
      const [pages, plain] = [new Map<string, Uint8Array>(), new Map<string, MapChange>()];
      const read = (path: string) => pages.get(path) ?? null;
      for (const changes of batches) {
        const changed = changeMap(read, changes);
        for (const [path, page] of changed.pages)
          page === null ? pages.delete(path) : pages.set(path, page);
        for (const one of changes) plain.set(one.key.join(), one);
        const leaves = [...plain.values()].filter(
          (one): one is { key: Uint8Array; value: Uint8Array } => one.value !== null,
        );
        expect(changed.root.toHex()).toBe(plainRoot(leaves).toHex());
        expect(pages.size === 0).toBe(leaves.length === 0);
        for (const one of plain.values()) {
          const shown = readMapProof(proveInMap(read, one.key), one.key);
          expect([shown?.root.toHex(), shown?.value?.toHex()]).toEqual([
            changed.root.toHex(),
            one.value?.toHex(),
          ]);
        }
      }
    }),
    { numRuns: 50 },
  );
});

test("a changed proof shows another root, or is none", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.uint8Array({ minLength: 32, maxLength: 32 }), {
        selector: (k) => k.join(),
        minLength: 2,
        maxLength: 40,
      }),
      fc.nat(),
      fc.nat(),
      (keys, pick, at) => {
        const pages = new Map<string, Uint8Array | null>();
        const read = (path: string) => pages.get(path) ?? null;
        const { root, pages: written } = changeMap(
          read,
          keys.map((one) => ({ key: one, value: sha256(one) })),
        );
        for (const [path, page] of written) pages.set(path, page);
        const asked = keys[pick % keys.length] as Uint8Array;
        const proof = proveInMap(read, asked);
        const sibling = proof.siblings[at % proof.siblings.length] as Uint8Array;
        const forged = [
          { ...proof, leaf: null },
          { ...proof, leaf: { key: asked, value: sha256(sibling) } },
          { ...proof, siblings: proof.siblings.slice(1) },
          {
            ...proof,
            siblings: proof.siblings.map((one) =>
              one === sibling ? one.with(at % 32, (one[at % 32] as number) ^ 1) : one,
            ),
          },
        ];
        for (const one of forged)
          expect(equalBytes(readMapProof(one, asked)?.root ?? zeros, root)).toBe(false);
        // The leaf of another key is not on the way, unless both ways begin alike.
        const other = sha256(asked);
        const moved = readMapProof(proof, other);
        if (moved !== null && equalBytes(moved.root, root)) expect(moved.value).toBeNull();
      },
    ),
    { numRuns: 300 },
  );
});

test("entries are replayed only as whole batches that lead to the root that they name", () => {
  const value = sha256(zeros);
  const changes = [
    { key: sha256(value), value },
    { key: zeros, value },
  ];
  const { root, pages } = changeMap(() => null, changes);
  const entries = encodeBatch(changes, root);
  expect(replayEntries(() => null, entries, 7)?.pages).toEqual(pages);
  const wrong = [
    entries.slice(0, 2),
    entries.slice(1),
    [...entries.slice(0, 2), zeros],
    [...entries, value.slice(1)],
    [],
  ];
  for (const one of wrong) expect(replayEntries(() => null, one, 7)).toBeNull();
});

test("hostile proofs, notes and bundles are refused without a throw", () => {
  const hash = fc.uint8Array({ minLength: 32, maxLength: 32 });
  fc.assert(
    fc.property(
      fc.array(hash, { maxLength: 70 }),
      fc.nat(),
      fc.nat(),
      hash,
      (proof, a, b, root) => {
        const [size, later] = [Math.min(a, b), Math.max(a, b) + 1];
        expect(verifyInclusion(hashLeaf(root), size, { size: later, root }, proof)).toBe(false);
        if (size > 0)
          expect(
            verifyConsistency({ size, root }, { size: later, root: sha256(root) }, proof),
          ).toBe(false);
      },
    ),
    { numRuns: 300 },
  );
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom("\n", "—", " ", "a", "+", "/", "1", "A", "=", "\r") }),
      (text) => {
        parseNote(text);
        parseCheckpoint(text);
      },
    ),
  );
  fc.assert(fc.property(fc.uint8Array(), (bytes) => void decodeBundle(bytes)));
  expect(treeRoot(() => zeros, 0)).toEqual(sha256(new Uint8Array(0)));
  expect(parseCheckpoint(`o\n1\n${zeros.toBase64()}\nextension\n`)).toBeNull();
});
