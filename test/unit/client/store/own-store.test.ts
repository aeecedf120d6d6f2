/** The local store's clock: it gives messages their order. */
import { expect, test } from "bun:test";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf } from "../../../support/own-store.ts";

test("the nodes' clock counts where Directory and Relay agree that the own one is wrong, and neither alone", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32));
  const own = await ownStoreOf(table, identityOf("own").did, { nowMs: () => 1_000_000 });
  const { client } = own.identity;
  const cases = [
    [0, 0, 0],
    [600_000, 700_000, 600_000],
    [-600_000, -700_000, -600_000],
    [600_000, 0, 0],
    [0, -600_000, 0],
    [600_000, -600_000, 0],
  ] as const;
  for (const [directoryMs, relayMs, aheadMs] of cases) {
    const [a, b] = [client.directory.endpoint, client.relay];
    Object.assign(client, {
      directory: { endpoint: { ...a, clock: { aheadMs: directoryMs } } },
      relay: { ...b, clock: { aheadMs: relayMs } },
    });
    expect([directoryMs, relayMs, own.arrivalMs()]).toEqual([
      directoryMs,
      relayMs,
      1_000_000 + aheadMs,
    ]);
  }
});
