/**
 * The conformance kit: the laws of `storage/contract.ts` as cases that run over any driver. For
 * authors of plugins: a test file of ten lines calls `runConformance` with how to open a fresh
 * store (see docs/plugins.md). A waived case needs a reason, and must really fail: a waiver can
 * only shrink.
 */
import { describe, expect, test } from "bun:test";
import { fault } from "../../src/core/fault.ts";
import type { PluginKit, PluginModule } from "../../src/plugins/load.ts";
import {
  type CapabilityName,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
} from "../../src/storage/contract.ts";
import { ledgerCases } from "./ledger.ts";
import { logCases } from "./logs.ts";
import { mailboxCases } from "./mailbox.ts";
import { capabilityMethods } from "./methods.ts";
import { modelCases } from "./model.ts";
import { receiptsCases, replayCases } from "./records.ts";
import { storeCases } from "./store.ts";

/**
 * What a case is given: a fresh store, and for stores that last a way to close and open it again.
 */
export type Subject = {
  readonly store: Store;
  /** Closes the store and opens the same data; `null` for a store that keeps nothing. */
  readonly reopen: (() => Promise<Store>) | null;
  readonly expiry: ExpiryUnit;
};

/**
 * What one step of a mailbox's `expire` frees: single records, or whole spans of time when they are
 * over.
 */
export type ExpiryUnit = "records" | "spans";

export type ConformanceCase = {
  readonly name: string;
  /** Runs only over stores that have it; `null` concerns the store itself. */
  readonly capability: CapabilityName | null;
  /** Runs only where `reopen` is given. */
  readonly lasting?: true;
  readonly run: (subject: Subject) => Promise<void>;
};

export type ConformanceTarget = {
  readonly name: string;
  /**
   * What the plugin provides. Only cases of these run, and a store that lacks one of them fails.
   */
  readonly provides: readonly CapabilityName[];
  /** A store that is empty and shares nothing with the others. */
  readonly open: (environment: StoreEnvironment) => Promise<Store>;
  /**
   * Opens what `store`, already closed, held; `null` for a driver that keeps everything in memory.
   */
  readonly reopen: ((store: Store, environment: StoreEnvironment) => Promise<Store>) | null;
  /** `records` unless it is said. */
  readonly expiry?: ExpiryUnit;
  /** A slow driver, or another arrangement of one, plays so many of the random games. */
  readonly gamesMax?: number;
  /** Case name to the reason why this driver may fail it. */
  readonly waivers?: Readonly<Record<string, string>>;
};

export const conformanceCases: readonly ConformanceCase[] = [
  ...storeCases,
  ...mailboxCases,
  ...modelCases,
  ...replayCases,
  ...receiptsCases,
  ...ledgerCases,
  ...logCases,
];

/** What the program hands to an external plugin, for tests that open one themselves. */
export const pluginKit: PluginKit = { StoreError, fault };

/** An environment whose clock runs, and which fails the case when the store gives up. */
export function testEnvironment(): StoreEnvironment & { readonly fatals: string[] } {
  const fatals: string[] = [];
  return { now: Date.now, log: () => {}, fatal: (reason) => fatals.push(reason), fatals };
}

/** The plugin of a module, made as the program makes it. */
export function pluginOf(module: PluginModule): StoragePlugin {
  return typeof module === "function" ? module(pluginKit) : module;
}

/** All random games for all drivers and arrangements. */
const isWhole = process.env["WAYPOST_TEST_WHOLE"] === "1";

/** A hang, not a slow machine. */
const caseMsMax = 120_000;

/** Registers every case that concerns the target as a test. */
export function runConformance(target: ConformanceTarget): void {
  const waivers = target.waivers ?? {};
  describe(`conformance of ${target.name}`, () => {
    const gamesMax = isWhole ? undefined : target.gamesMax;
    const skipped = new Set(modelCases.slice(gamesMax ?? modelCases.length));
    for (const one of conformanceCases) {
      if (skipped.has(one) || (one.lasting && target.reopen === null)) continue;
      if (one.capability !== null && !target.provides.includes(one.capability)) continue;
      const reason = waivers[one.name];
      if (reason === undefined) test(one.name, () => runCase(target, one), caseMsMax);
      else test(`${one.name} (waived: ${reason})`, () => expectFailure(target, one), caseMsMax);
    }
    test("every waiver names a case and gives a reason", () => {
      const names = conformanceCases.map(({ name }) => name);
      expect(new Set(names).size).toBe(names.length);
      for (const [name, reason] of Object.entries(waivers)) {
        expect(names).toContain(name);
        expect(reason.length).toBeGreaterThan(10);
      }
    });
  });
}

/** Runs one case over a fresh store. Throws when a law is broken. */
export async function runCase(target: ConformanceTarget, one: ConformanceCase): Promise<void> {
  const environment = testEnvironment();
  let store = await target.open(environment);
  try {
    for (const [name, capability] of Object.entries(store.capabilities))
      for (const method of Object.keys(capabilityMethods[name as CapabilityName]))
        expect([name, method, typeof Reflect.get(capability, method)]).toEqual([
          name,
          method,
          "function",
        ]);
    expect(Object.keys(store.capabilities)).toEqual(expect.arrayContaining([...target.provides]));
    if (one.capability !== null && !target.provides.includes(one.capability)) return;
    const reopenStore = target.reopen;
    const reopen =
      reopenStore === null
        ? null
        : async () => {
            await store.close();
            store = await reopenStore(store, environment);
            return store;
          };
    await one.run({ store, reopen, expiry: target.expiry ?? "records" });
    expect(environment.fatals).toEqual([]);
  } finally {
    await store.close();
  }
}

async function expectFailure(target: ConformanceTarget, one: ConformanceCase): Promise<void> {
  const failed = await runCase(target, one).then(
    () => false,
    () => true,
  );
  if (!failed) throw new Error("this case passes now: remove its waiver");
}
