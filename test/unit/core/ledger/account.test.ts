/** The account of the embedded ledger in SCALE: every member, with one encoding for each value. */
import { expect, test } from "bun:test";
import { decodeWith, encodeWith } from "../../../../src/core/codec/scale.ts";
import { type Account, accountCodec, emptyAccount } from "../../../../src/core/ledger/account.ts";
import { aliceWorld, did } from "../../../support/alice.ts";

test("an account is read as it was written", () => {
  const account: Account = { ...aliceWorld().account(did), life: 3, componentCallsLeft: 7 };
  expect(decodeWith(accountCodec, encodeWith(accountCodec, account))).toEqual(account);
});

test("the number of lives and of component calls is stored, with one encoding for each", () => {
  for (const life of [0, 1, 2, 4_294_967_295]) {
    const bytes = encodeWith(accountCodec, { ...emptyAccount, life, componentCallsLeft: life % 9 });
    expect(decodeWith(accountCodec, bytes)).toMatchObject({ life, componentCallsLeft: life % 9 });
    expect(decodeWith(accountCodec, bytes.subarray(0, -1))).toBeNull();
    expect(decodeWith(accountCodec, new Uint8Array([...bytes, 0]))).toBeNull();
  }
});
