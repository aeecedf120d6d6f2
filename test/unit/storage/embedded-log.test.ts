/**
 * The log that the embedded ledger keeps, over a table in memory: what each block appends, and what
 * comes after a loss.
 */

import { describe, expect, test } from "bun:test";
import { sha256 } from "../../../src/core/codec/crypto.ts";
import { encodeWith } from "../../../src/core/codec/scale.ts";
import { recordCodec } from "../../../src/core/ledger/account.ts";
import {
  genesisOfLog,
  keyOfAlias,
  keyOfDid,
  valueOfAlias,
  valueOfRecord,
} from "../../../src/core/trust/log.ts";
import { readMapProof } from "../../../src/core/trust/map.ts";
import { type NoteKey, noteKey } from "../../../src/core/trust/note.ts";
import {
  decodeBundle,
  hashLeaf,
  verifyConsistency,
  verifyInclusion,
} from "../../../src/core/trust/tree.ts";
import { MemoryTable } from "../../../src/plugins/memory/table.ts";
import type { StoreError } from "../../../src/storage/contract.ts";
import { openEmbeddedLedger } from "../../../src/storage/embedded.ts";
import { openLogs } from "../../../src/storage/embedded-log.ts";
import type { Logs } from "../../../src/storage/logs.ts";
import type { OrderedTable } from "../../../src/storage/table.ts";
import {
  addAlias,
  alice,
  bob,
  registration,
  settled,
  signed,
  stage,
  startMs,
} from "../../support/embedded-stage.ts";
import { operatorAccount } from "../../support/world.ts";

const headOf = async (logs: Logs, log = "") => {
  const head = await logs.head(log);
  if (head === null) throw new Error("no log");
  return { size: head.size, root: head.root };
};
const entriesOf = async (logs: Logs, from: number, log = "") => {
  const { size } = await headOf(logs, log);
  const bundle = await logs.tile(log, { level: "entries", index: 0, width: size });
  return (decodeBundle(bundle ?? new Uint8Array(0)) ?? []).slice(from);
};

/** The value of a key as of a size, proven by the root that the last entry there names. */
async function shownAt(
  logs: Logs,
  key: Uint8Array,
  { size, root }: { size: number; root: Uint8Array },
) {
  const proof = await logs.inMap(key, size);
  if (proof === null) return "unknown";
  const shown = readMapProof(proof, key);
  const [mapRoot] = (await entriesOf(logs, size - 1)) as [Uint8Array];
  expect(shown?.root).toEqual(mapRoot);
  const inclusion = (await logs.inclusion("", size - 1, size)) ?? [];
  expect(verifyInclusion(hashLeaf(mapRoot), size - 1, { size, root }, inclusion)).toBe(true);
  return shown?.value?.toHex() ?? null;
}

function copyOf(table: OrderedTable): MemoryTable {
  const copied = new MemoryTable(1 << 30);
  const pairs = table.range("", { limit: 1_000_000 });
  void copied.commit((view) => {
    for (const [key, value] of pairs) view.put(key, value);
  });
  return copied;
}

describe("the log of the embedded ledger", () => {
  test("has a batch for each block that changed something, and proves each state since", async () => {
    const { open, table } = stage();
    const ledger = await open();
    const logs = openLogs(table);
    const heads = [await headOf(logs)];
    expect(heads[0]?.size).toBe(1);
    for (const call of [registration(alice), addAlias(alice, "alice", 0n), registration(bob)]) {
      await settled(ledger, await ledger.submit(call, "call"));
      heads.push(await headOf(logs));
    }
    expect(heads.map(({ size }) => size)).toEqual([1, 3, 6, 8]);
    const aliasValue = valueOfAlias(alice.did).toHex();
    const shown = await Promise.all(heads.map((head) => shownAt(logs, keyOfAlias("alice"), head)));
    expect(shown).toEqual([null, null, aliasValue, aliasValue]);
    const { record } = await ledger.account(alice.did);
    const value = record === null ? null : valueOfRecord(encodeWith(recordCodec, record)).toHex();
    expect(await shownAt(logs, keyOfDid(alice.did), heads[3]!)).toBe(value);
    expect(await shownAt(logs, keyOfDid(alice.did), heads[1]!)).not.toBe(value);
    for (const [i, before] of heads.entries())
      for (const later of heads.slice(i)) {
        const proof = (await logs.consistency("", before.size, later.size)) ?? [];
        expect(verifyConsistency(before, later, proof)).toBe(true);
      }
    expect(await logs.inMap(keyOfDid(alice.did), 2)).toBeNull();
    expect(await logs.inMap(keyOfDid(alice.did), 9)).toBeNull();
    await ledger.close();
  });

  test("shows nobody under a DID that was deactivated", async () => {
    const { open, table } = stage();
    const ledger = await open();
    const logs = openLogs(table);
    await settled(ledger, await ledger.submit(registration(alice), "call"));
    expect(await shownAt(logs, keyOfDid(alice.did), await headOf(logs))).not.toBeNull();
    await settled(
      ledger,
      await ledger.submit(signed(alice, { action: "deactivate_did", did: alice.did }, 0n), "call"),
    );
    expect(await shownAt(logs, keyOfDid(alice.did), await headOf(logs))).toBeNull();
    await ledger.close();
  });

  test("is copied by whoever replays its entries, and not with others", async () => {
    const { open, table } = stage();
    const ledger = await open();
    await settled(ledger, await ledger.submit(registration(alice), "call"));
    const logs = openLogs(table);
    const entries = await entriesOf(logs, 0);
    const head = await headOf(logs);
    const from = (
      after: number,
      some: readonly Uint8Array[],
      proof: readonly Uint8Array[] = [],
    ) => ({
      after,
      entries: some,
      within: { ...head, proof },
    });
    const witness = openLogs(new MemoryTable(1 << 30));
    const forged = entries.map((entry, i) =>
      i === 1 ? entry.with(40, (entry[40] as number) ^ 1) : entry,
    );
    expect(await witness.copy("origin", from(0, forged))).toBeNull();
    expect(await witness.copy("origin", from(0, entries.slice(0, 2)))).toBeNull();
    expect(
      await witness.copy(
        "origin",
        from(0, entries.slice(0, 1), (await logs.consistency("", 1, head.size)) ?? []),
      ),
    ).not.toBeNull();
    expect(await witness.copy("origin", from(0, entries))).toBeNull();
    expect(await witness.copy("origin", from(1, entries.slice(1)))).toEqual(await headOf(logs));
    expect(await entriesOf(witness, 0, "origin")).toEqual(entries);
    await ledger.close();
  });

  test("goes on after a restore: the lost entries come back, and what they said is taken back", async () => {
    const made = stage();
    const ledger = await made.open();
    await settled(ledger, await ledger.submit(registration(alice), "call"));
    const backup = copyOf(made.table);
    const kept = await headOf(openLogs(made.table));
    await settled(ledger, await ledger.submit(addAlias(alice, "alice", 0n), "call"));
    await settled(ledger, await ledger.submit(registration(bob), "call"));
    await ledger.close();
    const signedHead = await headOf(openLogs(made.table));
    const lost = await entriesOf(openLogs(made.table), kept.size);

    const logs = openLogs(backup);
    await expect(logs.adopt(kept.size, lost.slice(1), signedHead)).rejects.toThrow();
    await expect(logs.adopt(kept.size, lost.toReversed(), signedHead)).rejects.toThrow();
    expect(await headOf(logs)).toEqual(kept);
    await logs.adopt(kept.size, lost, signedHead);
    const now = await headOf(logs);
    const proof = (await logs.consistency("", signedHead.size, now.size)) ?? [];
    expect(verifyConsistency(signedHead, now, proof)).toBe(true);
    expect(await shownAt(logs, keyOfDid(bob.did), now)).toBeNull();
    expect(await shownAt(logs, keyOfAlias("alice"), signedHead)).toBe(
      valueOfAlias(alice.did).toHex(),
    );
    expect(await shownAt(logs, keyOfAlias("alice"), now)).toBeNull();
    expect(await shownAt(logs, keyOfDid(alice.did), now)).not.toBeNull();
    expect(
      await openLogs(new MemoryTable(1 << 30)).copy("o", {
        after: 0,
        entries: await entriesOf(logs, 0),
        within: { ...now, proof: [] },
      }),
    ).toEqual(now);
  });

  test("begins anew with everything that the ledger holds, and names the head that is lost", async () => {
    const { open, table } = stage();
    const ledger = await open();
    await settled(ledger, await ledger.submit(registration(alice), "call"));
    await settled(ledger, await ledger.submit(addAlias(alice, "alice", 0n), "call"));
    const logs = openLogs(table);
    const before = await headOf(logs);
    await logs.restart(before);
    const now = await headOf(logs);
    const [first] = await entriesOf(logs, 0);
    expect(first?.toHex()).toBe(
      `${before.size.toString(16).padStart(16, "0")}${before.root.toHex()}`,
    );
    expect(await shownAt(logs, keyOfAlias("alice"), now)).toBe(valueOfAlias(alice.did).toHex());
    expect(
      await openLogs(new MemoryTable(1 << 30)).copy("o", {
        after: 0,
        entries: await entriesOf(logs, 0),
        within: { ...now, proof: [] },
      }),
    ).toEqual(now);
    await ledger.close();
  });

  test("is made for a ledger that had none", async () => {
    const made = stage();
    const ledger = await made.open();
    await settled(ledger, await ledger.submit(registration(alice), "call"));
    await ledger.close();
    await made.table.commit((view) => {
      for (const [key] of view.range("l/", { limit: 1_000 })) view.remove(key);
    });
    const again = await made.open();
    const logs = openLogs(made.table);
    expect(await shownAt(logs, keyOfDid(alice.did), await headOf(logs))).not.toBeNull();
    await again.close();
  });

  test("is named by the genesis hash of a new ledger, and not by that of an older one", async () => {
    const table = new MemoryTable(1 << 20);
    const options = {
      table,
      blockTimeMs: 1_000,
      now: () => startMs,
      log: () => {},
      operator: operatorAccount,
    };
    const [key, other] = ["a.example/log", "b.example/log"].map((name) =>
      noteKey(name, "log", sha256(new Uint8Array(0))),
    ) as [NoteKey, NoteKey];
    const nameOf = async (logKey: NoteKey | null, at = table) => {
      const ledger = await openEmbeddedLedger({
        ...options,
        table: at,
        ...(logKey === null ? {} : { logKey }),
      });
      const { genesisHash } = await ledger.proofs();
      await ledger.close();
      return genesisHash;
    };
    const named = await nameOf(key);
    const seed = await openLogs(table).genesisSeed();
    if (seed === null) throw new Error("no seed");
    expect(named).toEqual(genesisOfLog(key, seed));
    expect(await nameOf(other)).toEqual(named);
    const older = new MemoryTable(1 << 20);
    await nameOf(null, older);
    await nameOf(key, older);
    expect(await openLogs(older).genesisSeed()).toBeNull();
  });

  test("is named by a Directory that comes after a process without one", async () => {
    const table = new MemoryTable(1 << 20);
    const options = {
      table,
      blockTimeMs: 1_000,
      now: () => startMs,
      log: () => {},
      operator: operatorAccount,
    };
    const key = noteKey("a.example/log", "log", sha256(new Uint8Array(0))) as NoteKey;
    const relay = await openEmbeddedLedger({ ...options, logKey: "elsewhere" });
    expect(await relay.proofs().catch((error: StoreError) => error.code)).toBe("unavailable");
    const directory = await openEmbeddedLedger({ ...options, logKey: key });
    const seed = await openLogs(table).genesisSeed();
    expect((await relay.proofs()).genesisHash).toEqual(genesisOfLog(key, seed as Uint8Array));
    await Promise.all([relay.close(), directory.close()]);
  });
});
