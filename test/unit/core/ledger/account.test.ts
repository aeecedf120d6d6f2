/** The account of the embedded ledger in SCALE: the count of lives came later, and what was written before is read. */
import { expect, test } from "bun:test";
import { decodeWith, encodeWith } from "../../../../src/core/codec/scale.ts";
import { type Account, emptyAccount } from "../../../../src/core/ledger/account.ts";
import { accountCodec } from "../../../../src/core/ledger/structures.ts";
import { aliceWorld, did } from "../../../support/alice.ts";

const account: Account = aliceWorld().account(did);

test("an account that was never deleted has no byte for its life", () => {
  const before = encodeWith(accountCodec, { ...account, life: 0 });
  const after = encodeWith(accountCodec, { ...account, life: 1 });
  expect(after.length).toBe(before.length + 4);
  expect(after.subarray(0, before.length)).toEqual(before);
  expect(decodeWith(accountCodec, before)).toEqual({ ...account, life: 0 });
});

test("the number of lives is stored, with one encoding for each", () => {
  for (const life of [1, 2, 4_294_967_295]) {
    const bytes = encodeWith(accountCodec, { ...emptyAccount, life });
    expect(decodeWith(accountCodec, bytes)?.life).toBe(life);
    expect(decodeWith(accountCodec, bytes.subarray(0, -1))).toBeNull();
  }
  const zero = new Uint8Array([...encodeWith(accountCodec, emptyAccount), 0, 0, 0, 0]);
  expect(decodeWith(accountCodec, zero)).toBeNull();
});
