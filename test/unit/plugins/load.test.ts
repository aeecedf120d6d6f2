/** External storage plugins: modules by path. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isFault } from "../../../src/core/fault.ts";
import { builtInPlugins, isModulePath, loadPlugins } from "../../../src/plugins/load.ts";
import { openStores, planStores } from "../../../src/storage/bind.ts";
import { StoreError } from "../../../src/storage/contract.ts";
import { testEnvironment } from "../../conformance/kit.ts";
import { alice, failureOf, pageOf } from "../../conformance/samples.ts";

const base = mkdtempSync(join(tmpdir(), "waypost-load-"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

const working = `
  type Options = { readonly answer: boolean };
  export default {
    name: "sample",
    provides: ["replay"],
    migrate: null,
    maintenance: null,
    parseOptions(input: any) {
      return typeof input?.answer === "boolean"
        ? { ok: true, options: { answer: input.answer } }
        : { ok: false, problems: [{ setting: "answer", message: "a boolean, please" }] };
    },
    async open({ answer }: Options) {
      const replay = { claim: async () => answer, expire: async () => 0 };
      return { plugin: "sample", capabilities: { replay }, probe: async () => {}, close: async () => {} };
    },
  };`;

function module(name: string, text: string): string {
  writeFileSync(join(base, name), text);
  return `./${name}`;
}

const need = (store: string) => ({ setting: "x.replay", store, capability: "replay" }) as const;

describe("an external plugin", () => {
  test("is named by path, a built-in one by a bare word", () => {
    for (const path of ["./a.ts", "../a.ts", "/opt/a.js"]) expect(isModulePath(path)).toBe(true);
    for (const word of ["lmdb", "memory", "a.ts", "postgres"])
      expect(isModulePath(word)).toBe(false);
  });

  test("is loaded from its module, takes its own options, and is bound like any other", async () => {
    const plugin = module("working.ts", working);
    const stores = {
      one: { plugin, options: { answer: true } },
      two: { plugin, options: { answer: false } },
    };
    const { plugins, problems } = await loadPlugins(stores, base);
    expect(problems).toEqual([]);
    expect(plugins.length).toBe(1);
    const all = [...builtInPlugins, ...plugins];
    const open = await openStores(
      { stores, plugins: all, needs: [need("two")] },
      testEnvironment(),
    );
    if (Array.isArray(open)) throw new Error("refused");
    expect(await open.capability("x.replay", "replay").claim("tag", 2, 1)).toBe(false);
    await open.close();
    const wrong = { one: { plugin, options: { answer: "yes" } } };
    const reported = planStores({ stores: wrong, plugins: all, needs: [need("one")] }).problems;
    expect(reported).toEqual([{ setting: "stores.one.answer", message: "a boolean, please" }]);
  });

  test("may be a function that is given the program's own classes", async () => {
    const text = `export default ({ StoreError, fault }) => ({
      name: "strict",
      provides: ["mailbox"],
      migrate: null,
      maintenance: null,
      parseOptions: () => ({ ok: true, options: null }),
      async open() {
        const list = async () => fault("invalid_request", "no such cursor");
        const stats = async () => { throw new StoreError("unavailable", "gone"); };
        const mailbox = { list, stats };
        const others = ["store", "summary", "read", "group", "message", "remove", "claimAndRemove", "expire"];
        for (const one of others) mailbox[one] = stats;
        return { plugin: "strict", capabilities: { mailbox }, probe: async () => {}, close: async () => {} };
      },
    });`;
    const stores = { main: { plugin: module("function.ts", text), options: {} } };
    const { plugins, problems } = await loadPlugins(stores, base);
    expect(problems).toEqual([]);
    const needs = [{ ...need("main"), capability: "mailbox" } as const];
    const open = await openStores({ stores, plugins, needs }, testEnvironment());
    if (Array.isArray(open)) throw new Error("refused");
    const mailbox = open.capability("x.replay", "mailbox");
    expect(isFault(await mailbox.list(alice, pageOf()))).toBe(true);
    expect(await failureOf(() => mailbox.stats(1))).toBeInstanceOf(StoreError);
    await open.close();
  });

  const broken = {
    "missing.ts": null,
    "throws.ts": "throw new Error('at once');",
    "nothing.ts": "export const x = 1;",
    "nameless.ts": "export default { provides: ['replay'], parseOptions() {}, open() {} };",
    "useless.ts": "export default { name: 'u', provides: [], parseOptions() {}, open() {} };",
    "unknown.ts":
      "export default { name: 'u', provides: ['teleport'], parseOptions() {}, open() {} };",
    "promised.ts":
      "export default async () => ({ name: 'u', provides: ['replay'], parseOptions() {}, open() {} });",
    "closed.ts": "export default { name: 'u', provides: ['replay'], parseOptions() {} };",
  };
  for (const [name, text] of Object.entries(broken)) {
    test(`that can't serve is reported under its setting, once (${name})`, async () => {
      const plugin = text === null ? `./${name}` : module(name, text);
      const stores = { main: { plugin, options: {} } };
      const { plugins, problems } = await loadPlugins(stores, base);
      expect(plugins).toEqual([]);
      const reported = planStores({
        stores,
        plugins: builtInPlugins,
        needs: [need("main")],
        pluginProblems: problems,
      }).problems;
      expect(reported.map(({ setting }) => setting)).toEqual(["stores.main.plugin"]);
      expect(reported[0]!.message).toContain(name);
    });
  }
});
