/** Stores and the bus behind message ports keep the contract, used from several ends in turn. */
import { afterAll, expect, test } from "bun:test";
import { MessageChannel } from "node:worker_threads";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import { Channel } from "../../src/plugins/port/channel.ts";
import { PortBus, serveBus, ThreadsBus } from "../../src/plugins/port/contracts.ts";
import type { Bus, BusEnvironment } from "../../src/storage/bus.ts";
import type { Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { folderInMemory, scratchPaths } from "../support/scratch.ts";
import { runBusConformance } from "./bus.ts";
import { runConformance } from "./kit.ts";
import { storeThread } from "./store-thread.ts";

const newPath = scratchPaths("port", folderInMemory());
const two = storeThread(2);
const four = storeThread(4);
const paths = new WeakMap<Store, string>();
const ports: MessageChannel[] = [];

afterAll(async () => {
  await Promise.all([two.end(), four.end()]);
  for (const { port1, port2 } of ports) for (const port of [port1, port2]) port.close();
});

runConformance({
  name: "memory behind two ports",
  provides: memoryPlugin.provides,
  open: (environment) => two.open(null, environment),
});

runConformance({
  name: "lmdb behind four ports",
  provides: lmdbPlugin.provides,
  open: (environment) => openAt(newPath(), environment),
  reopen: (store, environment) => openAt(paths.get(store) as string, environment),
});

async function openAt(path: string, environment: StoreEnvironment): Promise<Store> {
  const store = await four.open(path, environment);
  paths.set(store, path);
  return store;
}

/** One end of a bus that another thread would have open: messages cross a port in either direction. */
function portEnd(bus: Bus, environment: BusEnvironment): PortBus {
  const pair = new MessageChannel();
  ports.push(pair);
  return new PortBus(new Channel(pair.port2), serveBus(new Channel(pair.port1), bus), environment.log);
}

runBusConformance({
  name: "local between two workers",
  open: async (environment) => {
    const bus = openLocalBus(environment);
    return [portEnd(bus, environment), portEnd(bus, environment)];
  },
});

runBusConformance({
  name: "local between two workers that know each other's subjects",
  open: async (environment) => {
    const bus = new ThreadsBus(openLocalBus(environment));
    return [portEnd(bus, environment), portEnd(bus, environment)];
  },
});

runBusConformance({
  name: "local between a worker and the thread that has it open",
  open: async (environment) => {
    const bus = openLocalBus(environment);
    return [portEnd(bus, environment), bus];
  },
});

runBusConformance({
  name: "local between a worker and the thread that has it open, which know each other's subjects",
  open: async (environment) => {
    const bus = new ThreadsBus(openLocalBus(environment));
    return [portEnd(bus, environment), bus];
  },
});

test("a thread that begins late reaches those who subscribed before, and knows who has ended", async () => {
  const environment: BusEnvironment = { log: () => {} };
  const bus = new ThreadsBus(openLocalBus(environment));
  const early = portEnd(bus, environment);
  const got: string[] = [];
  const subscriptions = [bus, early].map((end, at) =>
    end.subscribe(`of.${at}`, (message) => void got.push(`${message}`)),
  );
  await Promise.all(subscriptions.map(({ ready }) => ready));
  const late = portEnd(bus, environment);
  for (const at of [0, 1]) late.publish(`of.${at}`, Uint8Array.of(at));
  expect(await late.request("of.2", Uint8Array.of(9), 1_000)).toBe("nobody");
  expect(late.mayReach("of.1")).toBe(true);
  for (const at of [0, 1]) late.publish(`of.${at}`, Uint8Array.of(at));
  while (got.length < 4) await Bun.sleep(1);
  expect(got.sort()).toEqual(["0", "0", "1", "1"]);
  for (const { unsubscribe } of subscriptions) unsubscribe();
  while (late.mayReach("of.1") !== false) await Bun.sleep(1);
});
