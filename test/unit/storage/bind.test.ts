/** How configured stores are matched to what the nodes need. */
import { describe, expect, jest, test } from "bun:test";
import { builtInPlugins } from "../../../src/plugins/load.ts";
import { memoryPlugin } from "../../../src/plugins/memory/memory.ts";
import { type Need, openStores, planStores } from "../../../src/storage/bind.ts";
import { type InputProblem, type StoragePlugin, type Store, StoreError } from "../../../src/storage/contract.ts";
import { testEnvironment } from "../../conformance/kit.ts";

const need = (changes: Partial<Need> = {}): Need => ({
  setting: "cache.mailbox",
  store: "main",
  capability: "mailbox",
  ...changes,
});

function settings(problems: InputProblem[]): string[] {
  return problems.map(({ setting }) => setting);
}

/** A driver that says what the test says, and counts how often it is closed. */
function sampleDriver(name: string, says: { fails?: boolean; hangs?: boolean; closed?: string[] } = {}) {
  const plugin: StoragePlugin<null> = {
    name,
    provides: ["replay"],
    parseOptions: () => ({ ok: true, options: null }),
    migrate: null,
    maintenance: null,
    async open(): Promise<Store> {
      if (says.fails) throw new StoreError("unavailable", "no disk here");
      const replay = { claim: async () => true, expire: async () => 0 };
      const close = async () => {
        says.closed?.push(name);
        if (says.hangs) await new Promise(() => {});
      };
      const probe = async () => {};
      return { plugin: name, capabilities: { replay }, probe, close };
    },
  };
  return plugin as StoragePlugin;
}

describe("binding", () => {
  test("every problem of the configuration is reported at once, under its setting", () => {
    const problems = planStores({
      stores: {
        main: { plugin: "memory", options: { claims_max: 0, colour: "red" } },
        other: { plugin: "papyrus", options: {} },
        claims: { plugin: "claims-only", options: {} },
      },
      plugins: [...builtInPlugins, sampleDriver("claims-only")],
      needs: [need(), need({ setting: "relay.store", store: "missing" }), need({ setting: "x", store: "claims" })],
    }).problems;
    expect(settings(problems).sort()).toEqual(
      ["relay.store", "x", "stores.main.claims_max", "stores.main.colour", "stores.other.plugin"].sort(),
    );
  });

  test("a plugin that throws over its options is a problem of the store", () => {
    const parseOptions = () => {
      throw new TypeError("no colour");
    };
    const plugins = [{ ...sampleDriver("external"), parseOptions }];
    const stores = { main: { plugin: "external", options: {} } };
    expect(planStores({ stores, plugins, needs: [need({ capability: "replay" })] }).problems).toEqual([
      { setting: "stores.main.plugin", message: '"external" fails over the options: no colour' },
    ]);
  });

  test("a plugin that opens a store without capabilities is named with the store, which is closed", async () => {
    const closed: string[] = [];
    const sample = sampleDriver("external", { closed });
    const open = async () => ({ ...(await sample.open(null, testEnvironment())), capabilities: undefined as never });
    const stores = { main: { plugin: "external", options: {} } };
    const needs = [need({ capability: "replay" })];
    const opening = openStores({ stores, plugins: [{ ...sample, open }], needs }, testEnvironment());
    const error = await opening.catch((thrown: StoreError) => thrown);
    expect(String(error)).toContain('store "main" can\'t be opened: plugin "external" gives it no replay');
    expect(closed).toEqual(["external"]);
  });

  test("a name that every object has, such as toString, is not a store", () => {
    const needs = [need({ store: "toString" })];
    expect(settings(planStores({ stores: {}, plugins: builtInPlugins, needs }).problems)).toEqual(["cache.mailbox"]);
  });

  test("each need gets the capability of its store, and nothing else is opened", async () => {
    const plugins = [memoryPlugin as StoragePlugin, sampleDriver("other"), sampleDriver("unused", { fails: true })];
    const stores = {
      unused: { plugin: "unused", options: {} },
      other: { plugin: "other", options: {} },
      memory: { plugin: "memory", options: {} },
    };
    const replay = (store: string) => need({ setting: `${store}.replay`, store, capability: "replay" });
    const open = await openStores({ stores, plugins, needs: [replay("other"), replay("memory")] }, testEnvironment());
    if (Array.isArray(open)) throw new Error("refused");
    expect([...open.stores.keys()]).toEqual(["other", "memory"]);
    expect(await open.capability("memory.replay", "replay").claim("tag", 2, 1)).toBe(true);
    expect(() => open.capability("unused.replay", "replay")).toThrow();
    await open.probe();
    await open.close();
    expect(await open.probe().catch((error: StoreError) => error.code)).toBe("closed");
  });

  test("one store serves several needs and is opened once", async () => {
    const needs = [need(), need({ setting: "cache.replay", capability: "replay" })];
    const stores = { main: { plugin: "memory", options: {} } };
    const open = await openStores({ stores, plugins: builtInPlugins, needs }, testEnvironment());
    if (Array.isArray(open)) throw new Error("refused");
    expect(open.stores.size).toBe(1);
    expect(open.capability("cache.mailbox", "mailbox")).toBe(open.stores.get("main")!.capabilities.mailbox!);
    await open.close();
  });

  test("when one store can't be opened, those already open are closed and the error names the store", async () => {
    const closed: string[] = [];
    const plugins = [sampleDriver("good", { closed }), sampleDriver("bad", { fails: true })];
    const stores = { a: { plugin: "good", options: {} }, b: { plugin: "bad", options: {} } };
    const needs = ["a", "b"].map((store) => need({ setting: store, store, capability: "replay" }));
    const error = await openStores({ stores, plugins, needs }, testEnvironment()).catch((thrown: StoreError) => thrown);
    expect(error).toBeInstanceOf(StoreError);
    expect((error as StoreError).message).toContain('"b"');
    expect(closed).toEqual(["good"]);
  });

  test("after 30 s, a store that does not close is abandoned, and the others are closed", async () => {
    const closed: string[] = [];
    const plugins = [sampleDriver("hanging", { hangs: true, closed }), sampleDriver("good", { closed })];
    const stores = { a: { plugin: "hanging", options: {} }, b: { plugin: "good", options: {} } };
    const needs = ["a", "b"].map((store) => need({ setting: store, store, capability: "replay" }));
    const opened = await openStores({ stores, plugins, needs }, testEnvironment());
    if (Array.isArray(opened)) throw new Error(JSON.stringify(opened));
    jest.useFakeTimers();
    try {
      let end: unknown = "waiting";
      const closing = opened.close().catch((error: unknown) => {
        end = error;
      });
      jest.advanceTimersByTime(29_999);
      await Promise.resolve();
      expect(end).toBe("waiting");
      jest.advanceTimersByTime(1);
      await closing;
      expect(end).toMatchObject({ code: "unavailable", message: 'a store of "hanging" did not close in time' });
    } finally {
      jest.useRealTimers();
    }
    expect(closed).toEqual(["hanging", "good"]);
  });
});
