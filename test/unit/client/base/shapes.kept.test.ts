/**
 * Texts that programs keep between runs: what is written is read again, and nothing else.
 */
import { expect, test } from "bun:test";
import {
  integer,
  keptBytes32,
  keptCounter,
  keptDid,
  object,
  parseKept,
  renderKept,
} from "../../../../src/client/base/shapes.ts";

const rememberedShape = object({
  did: keptDid,
  root: integer,
  rootKey: keptBytes32,
  nonce: keptCounter,
  hash: keptBytes32,
});

test("what programs keep is read as it was written, also when its bytes are a Buffer", () => {
  const memory = {
    did: "did:svc:1111111111111111",
    root: 1,
    rootKey: new Uint8Array(32).fill(1),
    nonce: 2n ** 64n,
  };
  const text = renderKept({ ...memory, hash: Buffer.alloc(32, 2) });
  expect(JSON.parse(text)).toMatchObject({
    rootKey: "01".repeat(32),
    nonce: "18446744073709551616",
  });
  const kept = parseKept(text, rememberedShape);
  expect(kept as unknown).toEqual({ ...memory, hash: new Uint8Array(32).fill(2) });
  expect(parseKept(text.replace("0101", "01"), rememberedShape)).toBeNull();
});
