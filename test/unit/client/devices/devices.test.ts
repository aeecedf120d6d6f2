/** How devices begin: the DID of a device is opened in the end, whatever the network says. */
import { expect, test } from "bun:test";
import { ClientError } from "../../../../src/client/base/failure.ts";
import { Devices } from "../../../../src/client/devices/devices.ts";
import type { DeviceLink } from "../../../../src/client/devices/sync.ts";
import { memoryStore } from "../../../../src/client/store/driver.ts";
import { Table } from "../../../../src/client/store/table.ts";
import { identityOf } from "../../../support/identity.ts";
import { ownStoreOf } from "../../../support/own-store.ts";

const own = identityOf("own").did;

test("a device goes on to open its own DID whatever the answer was, until it is open", async () => {
  const table = await Table.open(memoryStore(), new Uint8Array(32).fill(7));
  await table.change(async (batch) => {
    batch.meta = { hasDevices: true, deviceDid: own };
  });
  const answers = [
    ["unreadable", 200],
    ["http_504", 504],
  ] as const;
  const stop = new AbortController();
  const opened = Promise.withResolvers<void>();
  const failures: string[] = [];
  let tried = 0;
  const link = {
    did: own,
    close: async () => undefined,
    lock: async () => undefined,
  } as Partial<DeviceLink>;
  const openLink = async () => {
    const [code, status] = answers[tried++] ?? [null, 0];
    if (code !== null) throw new ClientError("refused", code, code, { status });
    stop.abort();
    opened.resolve();
    return link as DeviceLink;
  };
  const store = await ownStoreOf(table, own);
  stop.signal.addEventListener("abort", () => store.stop());
  store.identity.on((event) => {
    if (event.type === "failed") failures.push(event.error.code);
  });
  const devices = new Devices(store, { name: "", openLink, onOpened: () => undefined });
  await devices.start();
  await opened.promise;
  expect([tried, failures]).toEqual([3, []]);
}, 10_000);
