/** What nodes answer about accounts, from its bytes. */
import { expect, test } from "bun:test";
import { readAccountState } from "../../../../src/plugins/chain/metadata.ts";

test("an account's nonce and balance are read from its bytes", () => {
  expect(readAccountState(null)).toEqual({ nonce: 0, free: 0n });
  const bytes = Uint8Array.fromHex(
    `07000000${"00".repeat(12)}${"01".padEnd(16, "0")}${"02".padEnd(16, "0")}${"00".repeat(48)}`,
  );
  expect(readAccountState(bytes)).toEqual({ nonce: 7, free: 1n + (2n << 64n) });
});
