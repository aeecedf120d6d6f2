/**
 * The chain driver: the ledger on a Substrate chain that has the two pallets. It provides nothing else;
 * mailboxes, claims and receipts stay with another store.
 * Source: decisions sections 1, 4 and 10.
 */
import { resolve } from "node:path";
import type { StoragePlugin } from "../../storage/contract.ts";
import { loadNative, storeAbsence } from "../lmdb/folder.ts";
import { parseWith } from "../options.ts";
import { type ChainOptions, chainOptions } from "./options.ts";

export const chainPlugin: StoragePlugin<ChainOptions> = {
  name: "chain",
  provides: ["ledger"],
  parseOptions: (input) => parseWith(chainOptions, input),
  async open(options, environment) {
    const { openChain } = await loadNative(() => import("./store.ts"));
    return openChain(options, environment);
  },
  absence: ({ outbox }) => storeAbsence(resolve(outbox)),
};
