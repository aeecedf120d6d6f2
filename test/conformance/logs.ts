/** The laws of logs: the ledger's own, which all nodes over a store share, and copies of others. */
import { expect } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { sha256 } from "../../src/core/codec/crypto.ts";
import { isFault } from "../../src/core/fault.ts";
import { encodeOldHead, keyOfDid } from "../../src/core/trust/log.ts";
import { readMapProof } from "../../src/core/trust/map.ts";
import {
  decodeBundle,
  hashLeaf,
  verifyConsistency,
  verifyInclusion,
} from "../../src/core/trust/tree.ts";
import type { Logs } from "../../src/storage/logs.ts";
import { identityOf, registrationOf } from "../support/identity.ts";
import { TestLog, testKey } from "../support/logs.ts";
import type { ConformanceCase, Subject } from "./kit.ts";

const leaf = (label: string) => ({
  key: sha256(utf8(`key ${label}`)),
  value: sha256(utf8(`value ${label}`)),
});
const logsOf = (store: Subject["store"]): Logs => store.capabilities.logs!;

async function headOf(logs: Logs) {
  const head = await logs.head("");
  if (head === null) throw new Error("the ledger has no log");
  return head;
}

/** Waits until the ledger's log has grown to a size. */
async function headFrom(logs: Logs, size: number) {
  for (const end = Date.now() + 60_000; ; await Bun.sleep(5)) {
    const head = await headOf(logs);
    if (head.size >= size) return head;
    if (Date.now() > end) throw new Error("the log did not grow");
  }
}

/** Registers people, and returns the head that has them. */
async function grow({ store }: Subject, count: number) {
  const [logs, ledger] = [logsOf(store), store.capabilities.ledger!];
  const before = await headOf(logs);
  const people = Array.from({ length: count }, () => identityOf(crypto.randomUUID()));
  const timestamp = new Date().toISOString();
  const accepted = people.map((one) =>
    ledger.submit(registrationOf(one, { timestamp }), "register"),
  );
  expect((await Promise.all(accepted)).filter(isFault)).toEqual([]);
  return { people, before, now: await headFrom(logs, before.size + count + 1) };
}

const valueAt = async (logs: Logs, key: Uint8Array, size: number) => {
  const shown = await logs.inMap(key, size);
  return shown === null ? "unknown" : (readMapProof(shown, key)?.value?.toHex() ?? null);
};

export const logCases: readonly ConformanceCase[] = [
  {
    name: "the log has what blocks have changed, and proves it as of each size since",
    capability: "logs",
    async run(subject) {
      const logs = logsOf(subject.store);
      const { people, before, now } = await grow(subject, 60);
      const index = Math.floor((now.size - 1) / 256);
      const bundle = await logs.tile("", {
        level: "entries",
        index,
        width: now.size - index * 256,
      });
      const mapRoot = decodeBundle(bundle ?? new Uint8Array(0))?.at(-1) as Uint8Array;
      expect(mapRoot.length).toBe(32);
      const inclusion = (await logs.inclusion("", now.size - 1, now.size)) ?? [];
      expect(verifyInclusion(hashLeaf(mapRoot), now.size - 1, now, inclusion)).toBe(true);
      expect(await logs.inclusion("", now.size, now.size)).toBeNull();
      const proof = (await logs.consistency("", before.size, now.size)) ?? [];
      expect(verifyConsistency(before, now, proof)).toBe(true);
      for (const { did } of people.slice(0, 3)) {
        const key = keyOfDid(did);
        const [present, past] = await Promise.all([
          logs.inMap(key, now.size),
          logs.inMap(key, before.size),
        ]);
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
      for (let i = 0; i < 3; i++)
        of.append(Array.from({ length: 200 }, (_, n) => leaf(`${i} ${n}`)));
      expect([await logs.head(origin), await logs.note(origin)]).toEqual([null, ""]);
      const within = { size: of.size, root: of.root(), proof: [] as Uint8Array[] };
      const first = {
        after: 0,
        entries: of.entries.slice(0, 201),
        within: { ...within, proof: of.consistency(201) },
      };
      expect(await logs.copy(origin, { ...first, within })).toBeNull();
      expect(await logs.copy(origin, { ...first, entries: of.entries.slice(0, 200) })).toBeNull();
      expect(await logs.head(origin)).toBeNull();
      const both = await Promise.all([logs.copy(origin, first), logs.copy(origin, first)]);
      expect(both.filter((one) => one !== null).map((one) => one?.size)).toEqual([201]);
      const rest = { after: 201, entries: of.entries.slice(201), within };
      expect((await logs.copy(origin, rest))?.root).toEqual(of.root());
      const entryBytes = of.entries.reduce((sum, entry) => sum + entry.length, 0);
      // The map holds each key with its value, in pages that chance splits: 2.2 to 2.8 times the
      // entries here.
      expect(await logs.copiedBytes(origin)).toBeGreaterThan(entryBytes + 600 * 64);
      expect(await logs.copiedBytes(origin)).toBeLessThan(4 * entryBytes);
      expect(await logs.copiedBytes("none.example/log")).toBe(0);
      const bundle = await logs.tile(origin, { level: "entries", index: 1, width: 256 });
      expect(decodeBundle(bundle ?? new Uint8Array(0))).toEqual(of.entries.slice(256, 512));
      expect(await logs.tile(origin, { level: 0, index: 2, width: of.size - 512 })).toEqual(
        of.tile(0, 2, of.size),
      );
      expect(await logs.tile(origin, { level: 1, index: 0, width: 2 })).toEqual(
        of.tile(1, 0, of.size),
      );
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
      const kept = await Promise.all(
        notes.map((note) => logs.keepNote("note.example/log", "", note)),
      );
      expect(kept.filter(Boolean).length).toBe(1);
      const winner = notes[kept.indexOf(true)] as string;
      expect(await logs.note("note.example/log")).toBe(winner);
      expect(await logs.keepNote("note.example/log", "z", "y")).toBe(false);
      expect(await logs.keepNote("note.example/log", winner, "y")).toBe(true);
      expect([await logs.note("note.example/log"), await logs.note("")]).toEqual(["y", ""]);
    },
  },
  {
    name: "entries that were signed and lost come back, and then what the store holds instead",
    capability: "logs",
    async run(subject) {
      const logs = logsOf(subject.store);
      const { people, now } = await grow(subject, 3);
      const lost = new TestLog(testKey("lost.example/log", "log")).append([]);
      const begun = lost.size;
      lost.append(Array.from({ length: 300 }, (_, n) => leaf(`lost ${n}`)));
      const [entries, signed] = [lost.entries.slice(begun), { size: lost.size, root: lost.root() }];
      for (const wrong of [
        entries.slice(1),
        entries.toReversed(),
        entries.with(0, sha256(utf8("another"))),
      ])
        expect(await logs.adopt(begun, wrong, signed).catch(({ code }) => code)).toBe("corrupt");
      expect(await headOf(logs)).toEqual(now);
      await logs.adopt(begun, entries, signed);
      const head = await headOf(logs);
      expect(head.size).toBeGreaterThan(signed.size);
      expect(
        verifyConsistency(signed, head, (await logs.consistency("", signed.size, head.size)) ?? []),
      ).toBe(true);
      expect(await valueAt(logs, leaf("lost 0").key, head.size)).toBeNull();
      expect((await valueAt(logs, keyOfDid(people[0]!.did), head.size))?.length).toBe(64);
    },
  },
  {
    name: "a log that begins anew names the lost head first, and has what the store holds",
    capability: "logs",
    async run(subject) {
      const logs = logsOf(subject.store);
      const { people, now } = await grow(subject, 3);
      const lost = { size: now.size + 9, root: sha256(utf8("lost")) };
      await logs.restart(lost);
      const head = await headOf(logs);
      expect(
        verifyInclusion(
          hashLeaf(encodeOldHead(lost)),
          0,
          head,
          (await logs.inclusion("", 0, head.size)) ?? [],
        ),
      ).toBe(true);
      expect((await valueAt(logs, keyOfDid(people[0]!.did), head.size))?.length).toBe(64);
    },
  },
];
