/**
 * The conformance kit over the chain driver: one node for all cases, an outbox and a connection for
 * each.
 */
import { afterAll, beforeAll } from "bun:test";
import type { Ledger, Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { runConformance } from "../conformance/kit.ts";
import { certifiedOf } from "../support/identity.ts";
import { endStand, freshPath, type Node, openStore, startNode, until } from "./stand.ts";

let node: Node;
beforeAll(async () => {
  node = await startNode();
});
afterAll(endStand);

const paths = new WeakMap<Store, string>();

async function openAt(outbox: string, environment: StoreEnvironment): Promise<Store> {
  const store = await openStore(environment, { endpoints: [node.endpoint], outbox });
  paths.set(store, outbox);
  // The blocks of earlier cases are read first: until then a key proof is unavailable.
  const ledger = store.capabilities.ledger as Ledger;
  const { did } = certifiedOf("nobody", (await ledger.proofs()).genesisHash);
  await until("the blocks to be read", () =>
    ledger.keyProof(did).then(
      () => true,
      () => null,
    ),
  );
  return store;
}

runConformance({
  name: "chain",
  provides: ["ledger"],
  open: (environment) => openAt(freshPath("outbox"), environment),
  reopen: (store, environment) => openAt(paths.get(store)!, environment),
});
