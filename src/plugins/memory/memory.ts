/**
 * The memory driver: every capability of the contract, exact and bounded, and gone with the process. For
 * development, tests, and operators who prefer losing messages to writing them on a disk. It is also the
 * example for authors of plugins: `mailbox.ts` and the claims and receipts of this file are all that a driver without
 * a ledger needs.
 */
import TinyQueue from "tinyqueue";
import { z } from "zod";
import { equalBytes } from "../../core/codec/bytes.ts";
import {
  type ReceiptPage,
  type Receipts,
  type Replay,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
  type TagClaim,
} from "../../storage/contract.ts";
import { openLogs } from "../../storage/embedded-log.ts";
import { checkPrefix, checkReceipt, checkText, isScanned, openLedger, parseWith } from "../drivers.ts";
import { MemoryMailbox } from "./mailbox.ts";
import { MemoryTable, placeOf } from "./table.ts";

export const memoryOptions = z.strictObject({
  message_ids_max: z
    .int()
    .min(1)
    .max(100_000_000)
    .default(1_000_000)
    .describe("Most message ids that are held, remembered or kept at a time; about 1 KiB each, without the envelope"),
  mailbox_bytes_max: z
    .int()
    .min(1)
    .default(1024 ** 3)
    .describe("Bytes of all envelopes together"),
  records_max: z.int().min(1).default(1_000_000).describe("Most replay claims, and most receipts, at a time"),
  ledger_bytes_max: z
    .int()
    .min(1)
    .default(1024 ** 3)
    .describe("Bytes of the embedded ledger"),
  block_time_ms: z.int().min(10).max(3_600_000).default(6_000).describe("Milliseconds between two blocks"),
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
  const table = new MemoryTable(options.ledger_bytes_max);
  const ledger = await openLedger(table, options.block_time_ms, environment);
  const claims = new ExpiringMap<true>(options.records_max);
  const claim = (one: TagClaim, nowMs: number) => claimTag(claims, one, nowMs);
  const room = { entries: options.message_ids_max, bytes: options.mailbox_bytes_max };
  return {
    plugin: "memory",
    durability: "volatile",
    capabilities: {
      mailbox: new MemoryMailbox({ room, checkOpen, claim }),
      replay: openReplay(claims, checkOpen),
      receipts: openReceipts(new ExpiringMap(options.records_max), checkOpen),
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
    },
  };
}

function openReplay(claims: ExpiringMap<true>, checkOpen: () => void): Replay {
  return {
    async claim(tag, untilMs, nowMs) {
      checkOpen();
      return claimTag(claims, { tag, untilMs }, nowMs);
    },
    async expire(nowMs, limit) {
      checkOpen();
      return claims.expire(nowMs, limit);
    },
  };
}

function claimTag(claims: ExpiringMap<true>, { tag, untilMs }: TagClaim, nowMs: number): boolean {
  checkText("tag", tag);
  if (untilMs <= claims.freedUntilMs || claims.get(tag, nowMs) !== null) return false;
  claims.set(tag, true, untilMs);
  return true;
}

function openReceipts(receipts: ExpiringMap<Uint8Array>, checkOpen: () => void): Receipts {
  return {
    async put(key, value, untilMs) {
      checkOpen();
      checkReceipt(key, value);
      receipts.set(key, value.slice(), untilMs);
    },
    async putIfAbsent(key, value, untilMs, nowMs) {
      checkOpen();
      checkReceipt(key, value);
      const standing = receipts.get(key, nowMs);
      if (standing !== null) return standing.slice();
      receipts.set(key, value.slice(), untilMs);
      return null;
    },
    async get(key, nowMs) {
      checkOpen();
      return receipts.get(key, nowMs)?.slice() ?? null;
    },
    async remove(key, value) {
      checkOpen();
      if (value === undefined || equalBytes(receipts.peek(key) ?? new Uint8Array(), value)) receipts.remove(key);
    },
    async scan(prefix, page) {
      checkOpen();
      checkPrefix(prefix);
      return receipts.scan(prefix, page).map(([key, value]) => [key, value.slice()] as const);
    },
    async expire(nowMs, limit) {
      checkOpen();
      return receipts.expire(nowMs, limit);
    },
  };
}

// --------------------------------------------------------------------------------------------- what ends at a time

type Pair<V> = { readonly key: string; readonly value: V; readonly untilMs: number };

const bySoonestEnd = (a: Pair<unknown>, b: Pair<unknown>): number => a.untilMs - b.untilMs;

/** A pair that has ended is absent at once; `expire` frees it, the soonest end first. */
class ExpiringMap<V> {
  private readonly pairs = new Map<string, Pair<V>>();
  /** Also has pairs that were replaced or removed, until there are more of them than of the others. */
  private ends = new TinyQueue<Pair<V>>([], bySoonestEnd);
  /** The keys that a scan finds, sorted. Cost of one that comes or goes: its search, and a move of those behind it. */
  private readonly scanned: string[] = [];
  /** The latest end of a pair that `expire` has freed. */
  freedUntilMs = 0;

  constructor(private readonly pairsMax: number) {}

  get(key: string, nowMs: number): V | null {
    const pair = this.pairs.get(key);
    return pair !== undefined && pair.untilMs > nowMs ? pair.value : null;
  }

  set(key: string, value: V, untilMs: number): void {
    if (!this.pairs.has(key) && this.pairs.size >= this.pairsMax) {
      throw new StoreError("full", `the memory store is full: it has ${this.pairsMax} records`);
    }
    if (isScanned(key) && !this.pairs.has(key)) this.scanned.splice(placeOf(this.scanned, key), 0, key);
    const pair = { key, value, untilMs };
    this.pairs.set(key, pair);
    this.ends.push(pair);
    if (this.ends.length > 2 * this.pairs.size + 1024) {
      this.ends = new TinyQueue([...this.pairs.values()], bySoonestEnd);
    }
  }

  /** Also after its end. */
  peek(key: string): V | null {
    return this.pairs.get(key)?.value ?? null;
  }

  remove(key: string): void {
    if (this.pairs.delete(key) && isScanned(key)) this.scanned.splice(placeOf(this.scanned, key), 1);
  }

  scan(prefix: string, { after, limit, nowMs }: ReceiptPage): [string, V][] {
    const found: [string, V][] = [];
    const start = placeOf(this.scanned, after !== null && after >= prefix ? `${after}\0` : prefix);
    for (let at = start; found.length < limit && this.scanned[at]?.startsWith(prefix) === true; at++) {
      const key = this.scanned[at] as string;
      const value = this.get(key, nowMs);
      if (value !== null) found.push([key, value]);
    }
    return found;
  }

  expire(nowMs: number, limit: number): number {
    let freed = 0;
    for (let pair = this.ends.peek(); pair !== undefined && pair.untilMs <= nowMs; pair = this.ends.peek()) {
      const isCurrent = this.pairs.get(pair.key) === pair;
      if (isCurrent && freed === limit) break;
      this.ends.pop();
      if (!isCurrent) continue;
      this.remove(pair.key);
      this.freedUntilMs = Math.max(this.freedUntilMs, pair.untilMs);
      freed++;
    }
    return freed;
  }
}
