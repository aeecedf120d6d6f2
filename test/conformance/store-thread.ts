/**
 * A thread that opens stores and lets several other ends use them, as the main thread of a node does for its workers.
 * `storeThread` starts it; the file itself runs there.
 */
import { isMainThread, MessageChannel, type MessagePort, Worker, workerData } from "node:worker_threads";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import { Channel } from "../../src/plugins/port/channel.ts";
import { portStore, type StoreDescription, serveStore } from "../../src/plugins/port/contracts.ts";
import { capabilityMethods } from "../../src/storage/bind.ts";
import type { Capabilities, Store, StoreEnvironment } from "../../src/storage/contract.ts";
import { optionsOf } from "./options.ts";

/** `path` is the folder of an LMDB store, `null` opens one in memory. */
export type StoreThread = {
  readonly open: (path: string | null, environment: StoreEnvironment) => Promise<Store>;
  readonly end: () => Promise<void>;
};

/** A thread, and `ends` others that use its stores in turn: each operation goes through the next end. */
export function storeThread(ends: number): StoreThread {
  const pairs = Array.from({ length: ends }, () => new MessageChannel());
  const ports = pairs.map(({ port2 }) => port2);
  const worker = new Worker(new URL(import.meta.url), { workerData: { ports }, transferList: ports });
  const channels = pairs.map(({ port1 }) => new Channel(port1));
  let opened = 0;
  return {
    async open(path, environment) {
      const name = `store ${opened++}`;
      for (const channel of channels) {
        channel.serve(`host ${name}`, (_, [reason]) => environment.fatal(String(reason)));
      }
      const descriptions = await channels[0]?.call("thread", "open", [name, path]);
      if (!isDescription(descriptions)) throw new Error("the thread opened nothing");
      const stores = channels.map((channel) => portStore(channel, descriptions));
      return inTurn(stores, async () => void (await channels[0]?.call("thread", "close", [name])));
    },
    end: async () => {
      await worker.terminate();
    },
  };
}

function isDescription(value: unknown): value is StoreDescription {
  return typeof value === "object" && value !== null && "plugin" in value;
}

/** Ends of one store as one of them: each operation goes through the next. `closed` runs once all are closed. */
export function inTurn(stores: readonly Store[], closed: () => Promise<void> = async () => {}): Store {
  let turn = 0;
  const next = (): Store => stores[turn++ % stores.length] as Store;
  const [first] = stores;
  if (first === undefined) throw new Error("there is no end");
  const names = Object.keys(first.capabilities) as (keyof Capabilities)[];
  const capabilities = Object.fromEntries(
    names.map((name) => {
      const methods = Object.keys(capabilityMethods[name]).map((method) => {
        const operation = (...args: readonly unknown[]): unknown => {
          const capability = next().capabilities[name];
          return Reflect.apply(Reflect.get(capability ?? {}, method), capability, args);
        };
        return [method, operation] as const;
      });
      return [name, Object.fromEntries(methods)];
    }),
  );
  let ending: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    await Promise.all(stores.map((store) => store.close()));
    await closed();
  };
  return {
    ...first,
    capabilities,
    probe: () => next().probe(),
    close: () => {
      ending ??= close();
      return ending;
    },
  };
}

// ---------------------------------------------------------------------------------------------- the thread

if (!isMainThread && workerData?.ports !== undefined) {
  const { ports } = workerData as { readonly ports: readonly MessagePort[] };
  const channels = ports.map((port) => new Channel(port));
  const open = new Map<string, Store>();
  for (const channel of channels) {
    channel.serve("thread", async (method, [name, path]) => {
      const key = String(name);
      if (method === "close") return open.get(key)?.close();
      const fatal = (reason: string) => channel.send(`host ${key}`, "fatal", [reason]);
      const store = await openStore(typeof path === "string" ? path : null, { now: Date.now, log: () => {}, fatal });
      open.set(key, store);
      return channels.map((one) => serveStore(one, key, store))[0];
    });
  }
}

function openStore(path: string | null, environment: StoreEnvironment): Promise<Store> {
  if (path === null) return memoryPlugin.open(optionsOf(memoryPlugin, { block_time_ms: 50 }), environment);
  const options = optionsOf(lmdbPlugin, { path, block_time_ms: 50, reserve_bytes: 1024 * 1024 });
  return openLmdb(options, environment, { fold: { operationsMax: 7, recordsMax: 5 } });
}
