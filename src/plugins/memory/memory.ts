/**
 * The memory driver: every capability of the contract, exact and bounded, and gone with the process.
 * For development, tests, and operators who prefer losing messages to writing them on a disk.
 */
import { z } from "zod";
import {
  type Receipts,
  type Replay,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
} from "../../storage/contract.ts";
import { openLedger } from "../embedded.ts";
import { checkReceipt, checkText, parseWith } from "../options.ts";
import { ExpiringMap } from "./expiring.ts";
import { openMemoryMailbox } from "./mailbox.ts";
import { openMemoryTable } from "./table.ts";

const optionsSchema = z.strictObject({
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(1_000_000)
    .describe("Message ids that are held, remembered or kept at a time; about 110 bytes each"),
  mailbox_bytes_max: z
    .int()
    .min(1)
    .default(1024 ** 3)
    .describe("Bytes of all envelopes together"),
  records_max: z.int().min(1).default(1_000_000).describe("Replay claims, and as many receipts, at a time"),
  ledger_bytes_max: z
    .int()
    .min(1)
    .default(1024 ** 3)
    .describe("Bytes of the embedded ledger"),
  block_time_ms: z.int().min(10).max(3_600_000).default(6_000).describe("Milliseconds between two blocks"),
});

export type MemoryOptions = z.output<typeof optionsSchema>;

export const memoryPlugin: StoragePlugin<MemoryOptions> = {
  name: "memory",
  provides: ["mailbox", "replay", "receipts", "ledger"],
  parseOptions: (input) => parseWith(optionsSchema, input),
  open: openMemory,
};

async function openMemory(options: MemoryOptions, environment: StoreEnvironment): Promise<Store> {
  let open = true;
  const table = openMemoryTable({ bytesMax: options.ledger_bytes_max });
  const ledger = await openLedger(table, options.block_time_ms, environment);
  const checked = <T extends object>(capability: T) => closing(capability, () => open);
  return {
    plugin: "memory",
    durability: "volatile",
    capabilities: {
      mailbox: checked(openMemoryMailbox({ rowsMax: options.message_ids_max, bytesMax: options.mailbox_bytes_max })),
      replay: checked(openMemoryReplay(options.records_max)),
      receipts: checked(openMemoryReceipts(options.records_max)),
      ledger,
    },
    async probe() {
      if (!open) throw new StoreError("closed", "the store is closed");
    },
    async close() {
      open = false;
      await ledger.close();
      table.close();
    },
  };
}

/** The same operations, which throw `closed` once the store is. */
function closing<T extends object>(capability: T, isOpen: () => boolean): T {
  const guarded = new WeakMap<object, unknown>();
  return new Proxy(capability, {
    get(target, name, receiver) {
      const operation = Reflect.get(target, name, receiver);
      if (typeof operation !== "function") return operation;
      const known = guarded.get(operation);
      if (known !== undefined) return known;
      const made = async (...input: unknown[]) => {
        if (!isOpen()) throw new StoreError("closed", "the store is closed");
        return operation.apply(target, input);
      };
      guarded.set(operation, made);
      return made;
    },
  });
}

function openMemoryReplay(recordsMax: number): Replay {
  const claims = new ExpiringMap<true>(recordsMax);
  return {
    async claim(tag, untilMs, nowMs) {
      checkText("tag", tag);
      if (claims.get(tag, nowMs) !== null) return false;
      claims.set(tag, true, untilMs);
      return true;
    },
    async expire(nowMs, limit) {
      return claims.expire(nowMs, limit);
    },
  };
}

function openMemoryReceipts(recordsMax: number): Receipts {
  const receipts = new ExpiringMap<Uint8Array>(recordsMax);
  return {
    async put(key, value, untilMs) {
      checkReceipt(key, value);
      receipts.set(key, value.slice(), untilMs);
    },
    async putIfAbsent(key, value, untilMs, nowMs) {
      checkReceipt(key, value);
      const standing = receipts.get(key, nowMs);
      if (standing !== null) return standing.slice();
      receipts.set(key, value.slice(), untilMs);
      return null;
    },
    async get(key, nowMs) {
      return receipts.get(key, nowMs)?.slice() ?? null;
    },
    async remove(key) {
      receipts.remove(key);
    },
    async expire(nowMs, limit) {
      return receipts.expire(nowMs, limit);
    },
  };
}
