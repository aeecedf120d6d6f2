/** The laws of logs: the ledger's own, which all nodes over a store share, and copies of others. */
import { expect } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { isFault } from "../../src/core/fault.ts";
import { keyOfDid } from "../../src/core/trust/log.ts";
import { readMapProof } from "../../src/core/trust/map.ts";
import { decodeBundle, hashLeaf, verifyConsistency, verifyInclusion } from "../../src/core/trust/tree.ts";
import type { Logs } from "../../src/storage/contract.ts";
import { identityOf, registrationOf } from "../support/identity.ts";
import { TestLog, testKey } from "../support/logs.ts";
import type { ConformanceCase, Subject } from "./kit.ts";

const leaf = (label: string) => ({ key: sha256(utf8(`key ${label}`)), value: sha256(utf8(`value ${label}`)) });
const logsOf = (store: Subject["store"]): Logs => store.capabilities.logs!;

async function headOf(logs: Logs) {
  const head = await logs.head("");
  if (head === null) throw new Error("the ledger has no log");
  return head;
}

export const logCases: readonly ConformanceCase[] = [
  {
    name: "the log has what blocks have changed, and proves it as of each size since",
    capability: "logs",
    async run({ store }) {
      const [logs, ledger] = [logsOf(store), store.capabilities.ledger!];
      const before = await headOf(logs);
      const people = Array.from({ length: 60 }, () => identityOf(crypto.randomUUID()));
      const accepted = people.map((one) =>
        ledger.submit(registrationOf(one, { timestamp: new Date().toISOString() }), "register"),
      );
      expect((await Promise.all(accepted)).filter(isFault)).toEqual([]);
      let now = before;
      for (const end = Date.now() + 60_000; now.size < before.size + 61; now = await headOf(logs)) {
        if (Date.now() > end) throw new Error("the log did not grow");
        await Bun.sleep(5);
      }
      const index = Math.floor((now.size - 1) / 256);
      const bundle = await logs.tile("", { level: "entries", index, width: now.size - index * 256 });
      const mapRoot = decodeBundle(bundle ?? new Uint8Array(0))?.at(-1) as Uint8Array;
      expect(mapRoot.length).toBe(32);
      const inclusion = (await logs.inclusion("", now.size - 1, now.size)) ?? [];
      expect(verifyInclusion(hashLeaf(mapRoot), now.size - 1, now, inclusion)).toBe(true);
      const proof = (await logs.consistency("", before.size, now.size)) ?? [];
      expect(verifyConsistency(before, now, proof)).toBe(true);
      for (const { did } of people.slice(0, 3)) {
        const key = keyOfDid(did);
        const [present, past] = await Promise.all([logs.inMap(key, now.size), logs.inMap(key, before.size)]);
        const shown = present === null ? null : readMapProof(present, key);
        expect([shown?.root.toHex(), shown?.value?.length]).toEqual([mapRoot.toHex(), 32]);
        expect(past === null ? "unknown" : readMapProof(past, key)?.value).toBeNull();
      }
    },
  },
  {
    name: "a copy takes whole batches that follow, once, and serves them",
    capability: "logs",
    async run({ store }) {
      const logs = logsOf(store);
      const origin = "copy.example/log";
      const of = new TestLog(testKey(origin, "log"));
      for (let i = 0; i < 3; i++) of.append(Array.from({ length: 200 }, (_, n) => leaf(`${i} ${n}`)));
      expect([await logs.head(origin), await logs.note(origin)]).toEqual([null, ""]);
      const within = { size: of.size, root: of.root(), proof: [] as Uint8Array[] };
      const first = { after: 0, entries: of.entries.slice(0, 201), within: { ...within, proof: of.consistency(201) } };
      expect(await logs.copy(origin, { ...first, within })).toBeNull();
      expect(await logs.copy(origin, { ...first, entries: of.entries.slice(0, 200) })).toBeNull();
      expect(await logs.head(origin)).toBeNull();
      const both = await Promise.all([logs.copy(origin, first), logs.copy(origin, first)]);
      expect(both.filter((one) => one !== null).map((one) => one?.size)).toEqual([201]);
      const rest = { after: 201, entries: of.entries.slice(201), within };
      expect((await logs.copy(origin, rest))?.root).toEqual(of.root());
      const bundle = await logs.tile(origin, { level: "entries", index: 1, width: 256 });
      expect(decodeBundle(bundle ?? new Uint8Array(0))).toEqual(of.entries.slice(256, 512));
      expect(await logs.tile(origin, { level: 0, index: 2, width: of.size - 512 })).toEqual(of.tile(0, 2, of.size));
      expect(await logs.tile(origin, { level: 1, index: 0, width: 2 })).toEqual(of.tile(1, 0, of.size));
      expect(await logs.tile(origin, { level: 0, index: 2, width: of.size - 511 })).toBeNull();
      expect(await logs.consistency(origin, 201, of.size)).toEqual(of.consistency(201));
    },
  },
  {
    name: "of notes that replace the same one, one stays",
    capability: "logs",
    async run({ store }) {
      const logs = logsOf(store);
      const notes = ["a", "b", "c"];
      const kept = await Promise.all(notes.map((note) => logs.keepNote("note.example/log", "", note)));
      expect(kept.filter(Boolean).length).toBe(1);
      const winner = notes[kept.indexOf(true)] as string;
      expect(await logs.note("note.example/log")).toBe(winner);
      expect(await logs.keepNote("note.example/log", "z", "y")).toBe(false);
      expect(await logs.keepNote("note.example/log", winner, "y")).toBe(true);
    },
  },
];
