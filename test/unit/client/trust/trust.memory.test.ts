/**
 * What is remembered of a correspondent: which later states follow from it, and which are another
 * branch or an old one.
 */
import { describe, expect, test } from "bun:test";
import { attempt } from "../../../../src/client/base/failure.ts";
import { memoryKeys } from "../../../../src/client/keys/key-stores.ts";
import { claimNonce } from "../../../../src/client/trust/own.ts";
import { Trust } from "../../../../src/client/trust/trust.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { emptyDocument } from "../../../../src/core/ledger/document.ts";
import {
  findContradiction,
  type Remembered,
  rememberedOf,
} from "../../../../src/core/ledger/follow.ts";
import type { KeyState } from "../../../../src/core/ledger/key-proof.ts";

const did = "did:svc:wp9NJiEz5xd4VUtRixum9gB37c9P3m" as Did;
const bytes = (n: number) => new Uint8Array(32).fill(n);

/** A state with these root keys, whose documents from `base` on have these hashes. */
function stateOf(roots: number[], baseRoot: number, base: number, hashes: number[]): KeyState {
  const [first, ...rest] = hashes.map((hash, i) => ({
    nonce: BigInt(base + i),
    hash: bytes(hash),
  }));
  if (first === undefined) throw new Error("a state has a base");
  return {
    did,
    genesisHash: bytes(0),
    rootKeys: roots.map(bytes),
    baseRoot,
    document: emptyDocument(did),
    steps: [first, ...rest],
    signatures: [],
  };
}

/**
 * After one rotation, with a document by the second key at nonce 5 and one component call since.
 */
const before: Remembered = rememberedOf(stateOf([1, 2], 1, 5, [50, 60]));
const code = (state: KeyState) => findContradiction(before, state)?.code ?? "follows";

describe("a later proof", () => {
  test.each([
    ["is the same", [1, 2], 1, 5, [50, 60]],
    ["goes on from it", [1, 2], 1, 5, [50, 60, 70]],
    ["has a later base by the same key", [1, 2], 1, 9, [90]],
    ["has a base that made the remembered state", [1, 2], 1, 6, [60, 70]],
    ["has a rotation on top, and no document since", [1, 2, 3], 1, 5, [50, 60]],
    ["has another rotation and a document by its key", [1, 2, 3], 2, 9, [90]],
  ] as const)("follows when it %s", (_, roots, baseRoot, base, hashes) => {
    expect(code(stateOf([...roots], baseRoot, base, [...hashes]))).toBe("follows");
  });

  test.each([
    ["lacks a rotation", [1], 0, 9, [90], "record_went_back"],
    ["lacks the last change", [1, 2], 1, 5, [50], "record_went_back"],
    ["has a later document by an older root key", [1, 2], 0, 9, [90], "record_went_back"],
    ["has another second root key", [1, 3], 1, 5, [50, 60], "identity_changed"],
    ["has another document at the same place", [1, 2], 1, 5, [50, 61], "identity_changed"],
    [
      "has another document there and goes on from that",
      [1, 2],
      1,
      5,
      [50, 61, 70],
      "identity_changed",
    ],
    ["has a base there that is another document", [1, 2], 1, 6, [61], "identity_changed"],
  ] as const)("is refused when it %s", (_, roots, baseRoot, base, hashes, refused) => {
    expect(code(stateOf([...roots], baseRoot, base, [...hashes]))).toBe(refused);
  });

  test("shown with a rotation on top lets no document of the key before follow", () => {
    const rotated = rememberedOf(stateOf([1, 2], 0, 5, [50]));
    expect(findContradiction(rotated, stateOf([1, 2], 0, 5, [50, 60]))?.code).toBe(
      "record_went_back",
    );
    expect(findContradiction(rotated, stateOf([1, 2], 1, 6, [60]))).toBeNull();
  });
});

test("an alias is remembered until it is forgotten, by every program over the same memory", async () => {
  const memory = memoryKeys();
  const trust = () =>
    new Trust(
      async () => null,
      () => memory,
    );
  const random = "did:svc:2222222222222222" as Did;
  expect([await trust().nameOf("bob", random), await trust().nameOf("bob", random)]).toEqual([
    "told",
    "remembered",
  ]);
  const other = trust().nameOf("bob", "did:svc:1111111111111111" as Did);
  expect(await other.catch(({ code }) => code)).toBe("identity_changed");
  await trust().forget("bob");
  // Nor is one remembered that leads to a DID without a proof: it would stand in the way of the
  // true answer.
  expect(await attempt(() => trust().nameOf("bob", did))).toMatchObject({ code: "proof_missing" });
  expect(await trust().nameOf("bob", random)).toBe("told");
});

test("a nonce is signed for once while the signature is valid, and again for the same change", async () => {
  const memory = memoryKeys();
  const claim = (content: number, nowMs: number) =>
    attempt(() =>
      claimNonce(memory, did, {
        counter: "document",
        nonce: 0n,
        content: Uint8Array.of(content),
        nowMs,
      }),
    );
  const fiveMinutes = 300_000;
  expect([await claim(1, 0), await claim(1, 1)]).toEqual([undefined, undefined]);
  expect(await claim(2, fiveMinutes)).toMatchObject({ code: "change_pending" });
  expect(await claim(2, fiveMinutes + 1)).toBeUndefined();
});
