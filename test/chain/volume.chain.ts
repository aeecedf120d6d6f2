/** A thousand registrations at once: none is lost, registered twice or wrongly called failed. */
import { afterAll, expect, test } from "bun:test";
import { isFault } from "../../src/core/fault.ts";
import { identityOf, registrationOf } from "../support/identity.ts";
import { endStand, openStore, startNode, until } from "./stand.ts";

const registrations = 1_000;

afterAll(endStand);

test(`${registrations} concurrent registrations all end as finalized, with one record each`, async () => {
  const node = await startNode({ intervalMs: 100 });
  const environment = { now: Date.now, log: () => {}, fatal: () => {} };
  const store = await openStore(environment, { endpoints: [node.endpoint], resend_ms: 20_000 });
  const ledger = store.capabilities.ledger!;
  const identities = Array.from({ length: registrations }, () => identityOf(crypto.randomUUID()));
  const began = performance.now();
  const outcomes = await Promise.all(
    identities.map((identity) =>
      ledger.submit(registrationOf(identity, { timestamp: String(Date.now()) }), "register"),
    ),
  );
  const takenMs = performance.now() - began;
  const hashes = outcomes.map((outcome) => {
    if (isFault(outcome)) throw new Error(outcome.detail);
    return outcome.txHash;
  });
  expect(new Set(hashes).size).toBe(registrations);
  const ends = await until("all to settle", async () => {
    await Bun.sleep(200);
    const all = await Promise.all(hashes.map((hash) => ledger.submission(hash)));
    return all.every((one) => one !== null && !["pending", "in_block"].includes(one.state))
      ? all
      : null;
  });
  expect(new Set(ends.map((one) => `${one?.state} ${one?.reason?.code}`))).toEqual(
    new Set(["finalized undefined"]),
  );
  for (const { did } of identities) expect((await ledger.account(did)).record?.version).toBe(1n);
  console.log(
    `taken in ${Math.round(takenMs)} ms, finalized in ${Math.round(performance.now() - began)} ms`,
  );
  await store.close();
});
