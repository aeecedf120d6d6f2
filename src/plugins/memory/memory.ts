/**
 * The memory driver: every capability of the contract, exact and bounded, and gone with the
 * process. For development, tests, and operators who prefer losing messages to writing them
 * on a disk. It is also the example for authors of plugins.
 */
import { z } from "zod";
import { Claims } from "../../storage/claims.ts";
import {
  type Replay,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
} from "../../storage/contract.ts";
import { openLogs } from "../../storage/embedded-log.ts";
import { TableReceipts } from "../../storage/records.ts";
import { openLedger, parseWith, sizeOption } from "../shared/drivers.ts";
import { MemoryMailbox } from "./mailbox.ts";
import { MemoryTable } from "./table.ts";

export const memoryOptions = z.strictObject({
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(1_000_000)
    .describe(
      "Most message ids that are held, remembered or kept at a time; about 1 KiB each, without the envelope",
    ),
  mailbox_bytes_max: sizeOption(1024 ** 3, 1).describe("Bytes of all envelopes together"),
  claims_max: z.int().min(1).default(1_000_000).describe("Most replay claims at a time"),
  table_bytes_max: sizeOption(1024 ** 3, 1).describe(
    "Bytes of the embedded ledger, and as many of receipts",
  ),
  block_time_ms: z
    .int()
    .min(10)
    .max(3_600_000)
    .default(6_000)
    .describe("Milliseconds between two blocks"),
});

type MemoryOptions = z.output<typeof memoryOptions>;

export const memoryPlugin: StoragePlugin<MemoryOptions> = {
  name: "memory",
  migrate: null,
  maintenance: null,
  provides: ["mailbox", "replay", "receipts", "ledger", "logs"],
  parseOptions: (input) => parseWith(memoryOptions, input),
  open: openMemory,
};

async function openMemory(options: MemoryOptions, environment: StoreEnvironment): Promise<Store> {
  let open = true;
  const checkOpen = () => {
    if (!open) throw new StoreError("closed", "the store is closed");
  };
  const table = new MemoryTable(options.table_bytes_max);
  const receipts = new MemoryTable(options.table_bytes_max);
  const ledger = await openLedger(table, options.block_time_ms, environment);
  const claims = new Claims(options.claims_max);
  const { removableMs = () => Number.POSITIVE_INFINITY } = environment;
  const room = { entries: options.message_ids_max, bytes: options.mailbox_bytes_max };
  return {
    plugin: "memory",
    capabilities: {
      mailbox: new MemoryMailbox({ room, checkOpen, claims, removableMs }),
      replay: openReplay(claims, checkOpen),
      receipts: new TableReceipts(receipts),
      ledger,
      logs: openLogs(table),
    },
    async probe() {
      checkOpen();
    },
    async close() {
      open = false;
      await ledger.close();
      table.close();
      receipts.close();
    },
  };
}

function openReplay(claims: Claims, checkOpen: () => void): Replay {
  return {
    async claim(tag, untilMs, nowMs) {
      checkOpen();
      return claims.claim({ tag, untilMs }, nowMs);
    },
    async expire(nowMs, limit) {
      checkOpen();
      return claims.expire(nowMs, limit);
    },
  };
}
