/**
 * The cases of logs prove themselves: each store below is the memory driver's with one bug planted
 * in its logs, and at least one case must catch it.
 */
import { describe, expect, test } from "bun:test";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { StoreEnvironment } from "../../src/storage/contract.ts";
import type { Logs } from "../../src/storage/logs.ts";
import { conformanceCases, runCase } from "./kit.ts";
import { optionsOf } from "./options.ts";

const headOf = async (real: Logs) => (await real.head(""))?.size ?? 0;

const bugs: Readonly<Record<string, (real: Logs) => Partial<Logs>>> = {
  "says that it has copied what is not part of the tree": (real) => ({
    copy: async (log, batches) =>
      (await real.copy(log, batches)) ?? {
        size: batches.after + batches.entries.length,
        root: batches.within.root,
      },
  }),
  "takes the same batches twice": (real) => ({
    copy: async (log, batches) => {
      const copied = await real.copy(log, batches);
      const head = await real.head(log);
      return copied ?? (head?.size === batches.after + batches.entries.length ? head : null);
    },
  }),
  "serves tiles wider than the log": (real) => ({
    tile: async (log, place) => (await real.tile(log, place)) ?? new Uint8Array(place.width * 32),
  }),
  "serves no partial bundle": (real) => ({
    tile: async (log, place) =>
      place.level === "entries" && place.width < 256 ? null : real.tile(log, place),
  }),
  "proves another entry": (real) => ({
    inclusion: (log, index, size) => real.inclusion(log, Math.max(0, index - 1), size),
  }),
  "proves entries behind the end": (real) => ({
    inclusion: async (log, index, size) => (await real.inclusion(log, index, size)) ?? [],
  }),
  "proves that it follows another size": (real) => ({
    consistency: (log, from, to) => real.consistency(log, Math.max(1, from - 1), to),
  }),
  "shows the present map for every size": (real) => ({
    inMap: async (key) => real.inMap(key, await headOf(real)),
  }),
  "has forgotten what the map was": (real) => ({
    inMap: async (key, size) => (size === (await headOf(real)) ? real.inMap(key, size) : null),
  }),
  "replaces a note whatever was there": (real) => ({
    keepNote: async (log, _before, note) => real.keepNote(log, await real.note(log), note),
  }),
  "decides about a note before it writes": (real) => ({
    keepNote: async (log, before, note) => {
      if ((await real.note(log)) !== before) return false;
      await Bun.sleep(0);
      return real.keepNote(log, await real.note(log), note);
    },
  }),
  "has one note for all logs": (real) => ({
    note: () => real.note("one"),
    keepNote: (_log, before, note) => real.keepNote("one", before, note),
  }),
  "is silent about lost entries that don't lead to the signed head": (real) => ({
    adopt: (from, entries, signed) => real.adopt(from, entries, signed).catch(() => undefined),
  }),
  "leaves the lost entries out": () => ({ adopt: async () => undefined }),
  "names another head when it begins anew": (real) => ({
    restart: (lost) => real.restart({ ...lost, size: lost.size - 1 }),
  }),
};

describe("the cases of logs catch a store that", () => {
  for (const [bug, of] of Object.entries(bugs)) {
    test(bug, async () => {
      const open = async (environment: StoreEnvironment) => {
        const store = await memoryPlugin.open(
          optionsOf(memoryPlugin, { block_time_ms: 10 }),
          environment,
        );
        const logs = store.capabilities.logs!;
        return {
          ...store,
          capabilities: { ...store.capabilities, logs: { ...logs, ...of(logs) } },
        };
      };
      const cases = conformanceCases.filter((one) => one.capability === "logs" && !one.lasting);
      const caught: string[] = [];
      const target = { name: bug, provides: ["ledger", "logs"] as const, open, reopen: null };
      for (const one of cases) await runCase(target, one).catch(() => caught.push(one.name));
      expect(caught).not.toEqual([]);
      // Something still passes: it is the bug that is caught, not the disguise.
      expect(caught.length).toBeLessThan(cases.length);
    }, 120_000);
  }
});
