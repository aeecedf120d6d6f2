/**
 * The kept runtime over a state that the version before made of calls (before.ts): its first block
 * upgrades the state, and what was there is read as before and can be changed.
 */
import { afterAll, expect, test } from "bun:test";
import { xxhashAsHex } from "@polkadot/util-crypto";
import { isFault } from "../../src/core/fault.ts";
import type { Ledger } from "../../src/storage/contract.ts";
import { authorizedCall, identityOf } from "../support/identity.ts";
import { beforeFolder } from "./before.ts";
import { endStand, makeBlock, openStore, startNode, until } from "./stand.ts";

afterAll(endStand);

const environment = { now: Date.now, log: () => {}, fatal: () => {} };
const keyOf = (pallet: string, item: string) =>
  `${xxhashAsHex(pallet, 128)}${xxhashAsHex(item, 128).slice(2)}`;
const lastUpgrade = keyOf("System", "LastRuntimeUpgrade");

test("a block of the kept runtime upgrades the state of the version before, which keeps its records", async () => {
  const { specVersion } = (await Bun.file(
    new URL("../../runtime/artifacts/waypost-runtime.interface.json", import.meta.url),
  ).json()) as { specVersion: number };
  const state = `${beforeFolder}${specVersion - 1}.json`;
  const node = await startNode({ manual: true, strict: true, state });
  // A compact number: the version times four.
  const upgradedTo = async () =>
    Number((await node.ask<string>("state_getStorage", [lastUpgrade])).slice(0, 4)) / 4;
  expect(await upgradedTo()).toBe(specVersion - 1);
  await makeBlock(node);
  expect(await upgradedTo()).toBe(specVersion);

  const store = await openStore(environment, { endpoints: [node.endpoint] });
  const ledger = store.capabilities.ledger as Ledger;
  const team = identityOf("before team");
  const didOf = (name: string) => identityOf(`before ${name}`).did;
  const account = await ledger.account(team.did);
  expect(account.record?.aliases).toEqual(["team"]);
  expect(account.record?.links?.recipientPolicy).toBe(team.did);
  expect((await ledger.aliasReserve("office"))?.did).toBe(team.did);
  expect((await ledger.account(didOf("closed"))).record?.deactivated).toBe(true);
  expect(await ledger.account(didOf("gone"))).toMatchObject({ record: null, life: 1 });
  expect((await ledger.policy("recipient", team.did))?.effectiveTtlBlocks).toBe(14_400);

  // A counter goes on where it was.
  const terms = {
    nonce: account.counters.alias,
    validUntilMs: BigInt(Date.now() + 1_800_000),
    signerKeyId: "root",
  };
  const { genesisHash } = await ledger.proofs();
  const intent = { did: team.did, action: "add_alias", alias: "office" } as const;
  const taken = await ledger.submit(
    authorizedCall(intent, terms, team.root, genesisHash),
    "add_alias",
  );
  if (isFault(taken)) throw new Error(taken.detail);
  await until("the call to end", async () => {
    await makeBlock(node);
    return (await ledger.submission(taken.txHash))?.state === "finalized";
  });
  expect((await ledger.account(team.did)).record?.aliases).toEqual(["team", "office"]);
  await store.close();
});
