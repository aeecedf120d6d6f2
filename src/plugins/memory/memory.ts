/**
 * The memory driver: every capability of the contract, exact and bounded, and gone with the process. For
 * development, tests, and operators who prefer losing messages to writing them on a disk. It is also the
 * example for authors of plugins: the contract in maps, with nothing in it for speed.
 */
import { z } from "zod";
import {
  type Mailbox,
  type Receipts,
  type Replay,
  type StoragePlugin,
  type Store,
  type StoreEnvironment,
  StoreError,
  type TagClaim,
} from "../../storage/contract.ts";
import { checkReceipt, checkText, ledgerImport, openLedger, parseWith } from "../drivers.ts";
import { MemoryMailbox } from "./mailbox.ts";
import { Heap, openMemoryTable } from "./table.ts";

const optionsSchema = z.strictObject({
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

type MemoryOptions = z.output<typeof optionsSchema>;

export const memoryPlugin: StoragePlugin<MemoryOptions> = {
  name: "memory",
  provides: ["mailbox", "replay", "receipts", "ledger"],
  parseOptions: (input) => parseWith(optionsSchema, input),
  open: openMemory,
};

async function openMemory(options: MemoryOptions, environment: StoreEnvironment): Promise<Store> {
  let open = true;
  const table = openMemoryTable({ bytesMax: options.ledger_bytes_max });
  const { ledger, followHead } = await openLedger(table, options.block_time_ms, environment);
  const checkOpen = () => {
    if (!open) throw new StoreError("closed", "the store is closed");
  };
  const limits = { rowsMax: options.message_ids_max, bytesMax: options.mailbox_bytes_max };
  const claims = new ExpiringMap<true>(options.records_max);
  return {
    plugin: "memory",
    durability: "volatile",
    capabilities: {
      mailbox: mailboxOf(new MemoryMailbox(limits), claims, checkOpen),
      replay: openReplay(claims, checkOpen),
      receipts: openReceipts(new ExpiringMap(options.records_max), checkOpen),
      ledger,
    },
    importLedger: ledgerImport(table),
    followHead,
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

/** The operations of a synchronous capability, asynchronous as the contract wants them, until the store is closed. */
function mailboxOf(box: MemoryMailbox, claims: ExpiringMap<true>, checkOpen: () => void): Mailbox {
  const run = async <T>(operation: () => T): Promise<T> => {
    checkOpen();
    return operation();
  };
  return {
    store: (entry, quota) => run(() => box.store(entry, quota)),
    list: (recipient, page) => run(() => box.list(recipient, page)),
    summary: (recipient, page) => run(() => box.summary(recipient, page)),
    read: (recipient, messageIds, nowMs) => run(() => box.read(recipient, messageIds, nowMs)),
    group: (recipient, groupId, page) => run(() => box.group(recipient, groupId, page)),
    message: (recipient, messageId, nowMs) => run(() => box.message(recipient, messageId, nowMs)),
    remove: (recipient, messageIds, nowMs) => run(() => box.remove(recipient, messageIds, nowMs)),
    claimAndRemove: (claim, recipient, messageIds, nowMs) =>
      run(() => (claimTag(claims, claim, nowMs) ? box.remove(recipient, messageIds, nowMs) : null)),
    expire: (nowMs, limit) => run(() => box.expire(nowMs, limit)),
    stats: (nowMs) => run(() => box.stats(nowMs)),
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
  if (claims.get(tag, nowMs) !== null) return false;
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
    async remove(key) {
      checkOpen();
      receipts.remove(key);
    },
    async expire(nowMs, limit) {
      checkOpen();
      return receipts.expire(nowMs, limit);
    },
  };
}

// ----------------------------------------------------------------------------------------------------- expiry

type Pair<V> = { readonly value: V; readonly untilMs: number };
type Turn = { readonly key: string; readonly untilMs: number };

/**
 * A bounded map whose pairs end at a time. A pair that has ended is absent at once, and `expire` frees it, in order of
 * time. Cost: O(log n).
 */
class ExpiringMap<V> {
  private readonly pairs = new Map<string, Pair<V>>();
  /** By time. A turn whose pair was replaced or removed is stale and passed over. */
  private readonly turns = new Heap<Turn>((a, b) => a.untilMs < b.untilMs);

  constructor(private readonly pairsMax: number) {}

  get(key: string, nowMs: number): V | null {
    const pair = this.pairs.get(key);
    return pair !== undefined && pair.untilMs > nowMs ? pair.value : null;
  }

  set(key: string, value: V, untilMs: number): void {
    if (!this.pairs.has(key) && this.pairs.size >= this.pairsMax) {
      throw new StoreError("full", `the memory store is full: it holds ${this.pairsMax} records`);
    }
    this.pairs.set(key, { value, untilMs });
    this.turns.push({ key, untilMs });
    if (this.turns.size > 2 * this.pairs.size + 1024) this.dropStale();
  }

  remove(key: string): void {
    this.pairs.delete(key);
  }

  expire(nowMs: number, limit: number): number {
    let freed = 0;
    for (let turn = this.turns.first(); freed < limit && turn !== undefined && turn.untilMs <= nowMs; ) {
      this.turns.pop();
      if (this.current(turn)) {
        this.pairs.delete(turn.key);
        freed++;
      }
      turn = this.turns.first();
    }
    return freed;
  }

  private current(turn: Turn): boolean {
    return this.pairs.get(turn.key)?.untilMs === turn.untilMs;
  }

  /** Replacing a pair leaves a turn behind; they are dropped when they outnumber the pairs. */
  private dropStale(): void {
    this.turns.replace([...this.pairs].map(([key, { untilMs }]) => ({ key, untilMs })));
  }
}
