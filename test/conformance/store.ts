/**
 * Laws of a store as a whole: its description, its probe, its end.
 */
import { expect } from "bun:test";
import { StoreError } from "../../src/storage/contract.ts";
import type { ConformanceCase } from "./kit.ts";
import { alice, entry, failureOf, id, quota } from "./samples.ts";

export const storeCases: readonly ConformanceCase[] = [
  {
    name: "a store offers at least one capability, and is ready",
    capability: null,
    async run({ store }) {
      expect(Object.values(store.capabilities).filter(Boolean).length).toBeGreaterThan(0);
      await store.probe();
    },
  },
  {
    name: "a closed store throws closed from every operation, and closing again is not an error",
    capability: null,
    async run({ store }) {
      await store.close();
      await store.close();
      const { mailbox, replay, receipts, ledger } = store.capabilities;
      const operations = [
        () => store.probe(),
        mailbox && (() => mailbox.store(entry(1), quota())),
        mailbox &&
          (() => mailbox.list(alice, { after: null, entriesMax: 1, bytesMax: 1, nowMs: 0 })),
        mailbox && (() => mailbox.read(alice, [id(1)], 0)),
        mailbox && (() => mailbox.message(alice, id(1), 0)),
        mailbox && (() => mailbox.remove(alice, [id(1)], 0)),
        mailbox && (() => mailbox.claimAndRemove({ tag: "tag", untilMs: 2 }, alice, [id(1)], 0)),
        mailbox && (() => mailbox.expire(0, 1)),
        mailbox && (() => mailbox.stats(0)),
        replay && (() => replay.claim("tag", 2, 1)),
        replay && (() => replay.expire(1, 1)),
        receipts && (() => receipts.put("key", new Uint8Array(1), 2)),
        receipts && (() => receipts.get("key", 1)),
        receipts && (() => receipts.remove("key")),
        ledger && (() => ledger.head()),
      ];
      for (const operation of operations) {
        if (!operation) continue;
        const error = await failureOf(operation);
        expect(error).toBeInstanceOf(StoreError);
        expect((error as StoreError).code).toBe("closed");
      }
    },
  },
  {
    name: "operations that were begun before the close settle, and what they answered stands",
    capability: "mailbox",
    lasting: true,
    async run({ store, reopen }) {
      const mailbox = store.capabilities.mailbox!;
      const outcomes = Array.from({ length: 20 }, (_, i) =>
        mailbox.store(entry(i), quota()).then(
          (outcome) => outcome.kind,
          (error) => (error as StoreError).code,
        ),
      );
      const again = await reopen!();
      const answered = await Promise.all(outcomes);
      for (const [i, outcome] of answered.entries()) {
        expect(["stored", "closed"]).toContain(outcome);
        const { state } = await again.capabilities.mailbox!.message(alice, id(i), 1_000);
        if (outcome === "stored") expect(state).toBe("active");
      }
    },
  },
];
