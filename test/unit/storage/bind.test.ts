/** How configured stores are matched to what the nodes need. */
import { describe, expect, test } from "bun:test";
import { builtInPlugins } from "../../../src/plugins/load.ts";
import { memoryPlugin } from "../../../src/plugins/memory/memory.ts";
import { type Need, openStores, planStores } from "../../../src/storage/bind.ts";
import { type StoragePlugin, type Store, StoreError } from "../../../src/storage/contract.ts";
import type { InputProblem } from "../../../src/storage/setting-problem.ts";
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
function sampleDriver(name: string, says: { fails?: boolean; closed?: string[] } = {}) {
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
      };
      const probe = async () => {};
      return { plugin: name, capabilities: { replay }, probe, close };
    },
  };
  return plugin as StoragePlugin;
}

describe("a plugin of somebody else", () => {
  const stores = { main: { plugin: "theirs", options: {} } };
  const needs = [need({ capability: "replay" })];

  test("that throws on its options is named with the store", () => {
    const parseOptions = (): never => {
      throw new TypeError("undefined is not an object");
    };
    const { problems } = planStores({
      stores,
      plugins: [{ ...sampleDriver("theirs"), parseOptions }],
      needs,
    });
    expect(problems).toEqual([
      {
        setting: "stores.main",
        message: "the plugin theirs fails on its options: undefined is not an object",
      },
    ]);
  });

  test("that never opens its store is named after some seconds", async () => {
    const warned = Promise.withResolvers<unknown>();
    const opening = openStores(
      {
        stores,
        plugins: [{ ...sampleDriver("theirs"), open: () => new Promise(() => {}) }],
        needs,
      },
      { ...testEnvironment(), log: (level, _, fields) => warned.resolve({ level, ...fields }) },
    );
    expect(await Promise.race([warned.promise, opening])).toEqual({
      level: "warn",
      store: "main",
    });
  }, 20_000);
});

describe("binding", () => {
  test("every problem of the configuration is reported at once, under its setting", () => {
    const problems = planStores({
      stores: {
        main: { plugin: "memory", options: { claims_max: 0, colour: "red" } },
        other: { plugin: "papyrus", options: {} },
        claims: { plugin: "claims-only", options: {} },
      },
      plugins: [...builtInPlugins, sampleDriver("claims-only")],
      needs: [
        need(),
        need({ setting: "relay.store", store: "missing" }),
        need({ setting: "x", store: "claims" }),
      ],
    }).problems;
    expect(settings(problems).sort()).toEqual(
      [
        "relay.store",
        "x",
        "stores.main.claims_max",
        "stores.main.colour",
        "stores.other.plugin",
      ].sort(),
    );
  });

  test("a name that every object has, such as toString, is not a store", () => {
    const needs = [need({ store: "toString" })];
    expect(settings(planStores({ stores: {}, plugins: builtInPlugins, needs }).problems)).toEqual([
      "cache.mailbox",
    ]);
  });

  test("each need gets the capability of its store, and nothing else is opened", async () => {
    const plugins = [
      memoryPlugin as StoragePlugin,
      sampleDriver("other"),
      sampleDriver("unused", { fails: true }),
    ];
    const stores = {
      unused: { plugin: "unused", options: {} },
      other: { plugin: "other", options: {} },
      memory: { plugin: "memory", options: {} },
    };
    const replay = (store: string) =>
      need({ setting: `${store}.replay`, store, capability: "replay" });
    const open = await openStores(
      { stores, plugins, needs: [replay("other"), replay("memory")] },
      testEnvironment(),
    );
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
    expect(open.capability("cache.mailbox", "mailbox")).toBe(
      open.stores.get("main")!.capabilities.mailbox!,
    );
    await open.close();
  });

  test("when one store can't be opened, those already open are closed and the error names the store", async () => {
    const closed: string[] = [];
    const plugins = [sampleDriver("good", { closed }), sampleDriver("bad", { fails: true })];
    const stores = { a: { plugin: "good", options: {} }, b: { plugin: "bad", options: {} } };
    const needs = ["a", "b"].map((store) => need({ setting: store, store, capability: "replay" }));
    const error = await openStores({ stores, plugins, needs }, testEnvironment()).catch(
      (thrown: StoreError) => thrown,
    );
    expect(error).toBeInstanceOf(StoreError);
    expect((error as StoreError).message).toContain('"b"');
    expect(closed).toEqual(["good"]);
  });
});
