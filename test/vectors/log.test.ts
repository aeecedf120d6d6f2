/**
 * Trees, proofs, tile paths and notes, as Go's `tlog` and `note` packages make them, and the
 * example of c2sp.org/signed-note.
 */
import { expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { concatBytes, utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import {
  noteKey,
  parseCheckpoint,
  parseNote,
  parseSignerKey,
  parseVerifierKey,
  renderCheckpoint,
  renderNote,
  renderSignerKey,
  renderVerifierKey,
  signedBy,
  signNote,
} from "../../src/core/trust/note.ts";
import {
  hashLeaf,
  hashTile,
  nodesOfTiles,
  parseTilePath,
  proveConsistency,
  proveInclusion,
  tilePath,
  treeRoot,
  verifyConsistency,
  verifyInclusion,
} from "../../src/core/trust/tree.ts";
import vectors from "./log/valid.json";

const hex = (bytes: Uint8Array) => bytes.toHex();
const bytes = (list: readonly string[] | null) =>
  (list ?? []).map((text) => Uint8Array.fromHex(text));
const leaf = (i: number) => hashLeaf(utf8(`entry ${i}`));

const tiles = new Map<string, Uint8Array>();
/** Of 70,000 leaves. */
function tileOf(level: number, index: number): Uint8Array {
  const name = `${level}/${index}`;
  const known = tiles.get(name);
  if (known !== undefined) return known;
  const count = Math.min(256, Math.floor(70_000 / 256 ** level) - index * 256);
  const hashes = Array.from({ length: count }, (_, i) =>
    level === 0 ? leaf(index * 256 + i) : hashTile(tileOf(level - 1, index * 256 + i)),
  );
  const tile = new Uint8Array(Buffer.concat(hashes));
  tiles.set(name, tile);
  return tile;
}
const read = nodesOfTiles(tileOf);
const rootOf = (size: number) => treeRoot(read, size);

test("roots", () => {
  for (const [size, root] of Object.entries(vectors.roots))
    expect([size, hex(rootOf(Number(size)))]).toEqual([size, root]);
});

test("proofs of inclusion", () => {
  for (const { Index: index, Size: size, Proof: proof } of vectors.inclusion) {
    expect(proveInclusion(read, index, size).map(hex)).toEqual(proof ?? []);
    expect(verifyInclusion(leaf(index), index, { size, root: rootOf(size) }, bytes(proof))).toBe(
      true,
    );
  }
});

test("an empty tree includes nothing, whatever a proof of it has", () => {
  const sibling = leaf(1);
  const root = sha256(concatBytes(Uint8Array.of(1), leaf(0), sibling));
  for (const [index, proof] of [
    [-1, [sibling]],
    [0, [sibling]],
    [-1, []],
  ] as const)
    for (const size of [0, 1])
      expect([size, verifyInclusion(leaf(0), index, { size, root }, proof)]).toEqual([size, false]);
});

test("proofs of consistency", () => {
  for (const { From: from, To: to, Proof: proof } of vectors.consistency) {
    expect(proveConsistency(read, from, to).map(hex)).toEqual(proof ?? []);
    const [before, later] = [from, to].map((size) => ({ size, root: rootOf(size) })) as [
      Tree,
      Tree,
    ];
    expect(verifyConsistency(before, later, bytes(proof))).toBe(true);
  }
});
type Tree = { size: number; root: Uint8Array };

test("paths of tiles", () => {
  for (const { level, index, width, path } of vectors.paths) {
    expect(tilePath(level, index, width)).toBe(path);
    expect(parseTilePath(path)).toEqual({ level, index, width });
  }
  for (const wrong of [
    "0/01",
    "0/x000/001",
    "64/000",
    "0/000.p/0",
    "0/000.p/256",
    "00/000",
    "entries/1",
    "0/000/",
  ])
    expect([wrong, parseTilePath(wrong)]).toEqual([wrong, null]);
});

test("keys and notes", () => {
  const { vkey, skey, text, note } = vectors;
  const secret = parseSignerKey(skey);
  const seed = secret?.bytes ?? new Uint8Array(32);
  const key = noteKey("directory.example/log", "log", ed25519.getPublicKey(seed));
  if (key === null) throw new Error("no key");
  expect([renderVerifierKey(key), renderSignerKey(key, seed), secret?.id]).toEqual([
    vkey,
    skey,
    key.id,
  ]);
  expect(parseVerifierKey(vkey)).toEqual(key);
  const sign = (message: Uint8Array) => ed25519.sign(message, seed);
  expect(renderNote({ text, signatures: [signNote(text, key, sign)] })).toBe(note);
  const checkpoint = parseCheckpoint(text);
  expect(checkpoint).toMatchObject({ origin: "directory.example/log", size: 300 });
  expect(checkpoint === null ? "" : renderCheckpoint(checkpoint)).toBe(text);
});

test("the example of the specification verifies", () => {
  const key = parseVerifierKey(
    "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
  );
  const note = parseNote(
    "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n",
  );
  const signed = note === null || key === null ? null : signedBy(note, key);
  if (signed === null) throw new Error("unreadable");
  expect(ed25519.verify(signed.signature, signed.message, signed.publicKey)).toBe(true);
});
