/**
 * Measures the mailboxes: stores at 1, 64 and 512 concurrent callers, lists and acknowledgements,
 * and opening a full store, for memory and lmdb; beside them, the obvious layout on the same
 * library with the same settings: two random keys a message. Only ratios within one run mean
 * anything. `bun bench/storage.ts [--json] [--short] [--entries N]`; data lies in a temporary
 * folder of `--dir`.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open } from "lmdb";
import type { MailboxKey, Uuid } from "../src/core/codec/did.ts";
import { isFault } from "../src/core/fault.ts";
import { lmdbPlugin } from "../src/plugins/lmdb/lmdb.ts";
import { memoryPlugin } from "../src/plugins/memory/memory.ts";
import type { Mailbox, MailboxEntry, StoragePlugin, Store } from "../src/storage/contract.ts";
import { shortDigest } from "../src/storage/mailbox-rules.ts";
import type { MailboxQuota } from "../src/storage/quota.ts";

const argument = (name: string) => process.argv[process.argv.indexOf(`--${name}`) + 1];
const flag = (name: string) => process.argv.includes(`--${name}`);
const short = flag("short");
const seconds = short ? 0.5 : 1;
/**
 * Contenders take turns, so that a noisy moment of the disk hits all of them; the median of the
 * rounds counts.
 */
const rounds = short ? 1 : 5;
const entriesToOpen = flag("entries") ? Number(argument("entries")) : short ? 20_000 : 1_000_000;
const base = mkdtempSync(join(flag("dir") ? argument("dir")! : tmpdir(), "waypost-bench-"));

const quota: MailboxQuota = {
  recipientEntriesMax: 1e9,
  recipientBytesMax: 1e15,
  places: [],
  storeEntriesMax: 1e9,
  storeBytesMax: 1e15,
  storeShare: null,
};
const environment = {
  now: Date.now,
  log: () => {},
  fatal: (reason: string) => console.error(reason),
};
const recipients = 1_000;

function recipient(n: number): MailboxKey {
  return `did:svc:${"Bench".padEnd(12, "x")}${(1_000_000 + (n % recipients)).toString().replaceAll("0", "z")}` as MailboxKey;
}

let serial = 0;
function entry(bytes: Uint8Array): MailboxEntry {
  const n = serial++;
  return {
    recipient: recipient(Math.imul(n, 2654435761) >>> 0),
    messageId: crypto.randomUUID() as Uuid,
    chunk: null,
    storedAtMs: 1_000,
    expiresAtMs: 1e12 + n,
    keptUntilMs: 2e12,
    onExpiry: "DeleteOnExpiry",
    headerPreview: null,
    labels: [],
    envelope: bytes,
    digest: shortDigest(bytes),
  };
}

type Contender = {
  readonly name: string;
  open(): Promise<{ store(bytes: Uint8Array): Promise<unknown>; close(): Promise<void> }>;
};

async function opened<Options>(plugin: StoragePlugin<Options>, input: unknown): Promise<Store> {
  const parsed = plugin.parseOptions(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  return plugin.open(parsed.options, environment);
}

let folders = 0;
const folder = () => join(base, String(folders++));
const openMemory = () =>
  opened(memoryPlugin, { message_ids_max: 100_000_000, mailbox_bytes_max: 64 * 1024 ** 3 });
const openLmdb = (path = folder()) => opened(lmdbPlugin, { path, message_ids_max: 100_000_000 });

function contender(name: string, open: () => Promise<Store>): Contender {
  return {
    name,
    async open() {
      const store = await open();
      const mailbox = store.capabilities.mailbox!;
      return { store: (bytes) => mailbox.store(entry(bytes), quota), close: () => store.close() };
    },
  };
}

/** A message under a random id, and one random index key: what one writes first. */
const twoRandomKeys: Contender = {
  name: "two random keys",
  async open() {
    const root = open({
      path: folder(),
      encoding: "binary",
      overlappingSync: false,
      maxDbs: 4,
      mapSize: 1024 ** 3,
    });
    const [bodies, index] = ["bodies", "index"].map((name) =>
      root.openDB({ name, encoding: "binary" }),
    );
    return {
      store(bytes) {
        const { recipient, messageId } = entry(bytes);
        return root.childTransaction(() => {
          const key = `${recipient}/${messageId}`;
          if (index!.get(key) !== undefined) return;
          index!.put(key, Buffer.from([1]));
          bodies!.put(messageId, Buffer.from(bytes));
        });
      },
      close: () => root.close(),
    };
  },
};

type Rate = { readonly rate: number; readonly p99Ms: number };

function median(rates: readonly Rate[]): Rate {
  return [...rates].sort((a, b) => a.rate - b.rate)[rates.length >> 1]!;
}

/** Stores a second, with so many callers that each begin again when they are answered. */
async function storesPerSecond(contender: Contender, callers: number, size: number): Promise<Rate> {
  const target = await contender.open();
  const bytes = crypto.getRandomValues(new Uint8Array(Math.min(size, 65_536)));
  const times: number[] = [];
  const begin = performance.now();
  const warmUntil = begin + 200;
  const until = warmUntil + seconds * 1_000;
  const caller = async () => {
    for (;;) {
      const from = performance.now();
      if (from >= until) return;
      await target.store(bytes);
      if (from >= warmUntil) times.push(performance.now() - from);
      // Memory answers in the same turn: without a pause its callers would never share the loop.
      if (contender.name === "memory" && times.length % 64 === 0)
        await new Promise((next) => setImmediate(next));
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  const elapsed = (performance.now() - warmUntil) / 1_000;
  await target.close();
  times.sort((a, b) => a - b);
  return {
    rate: Math.round(times.length / elapsed),
    p99Ms: Number((times[Math.floor(times.length * 0.99)] ?? 0).toFixed(2)),
  };
}

/** Fills a mailbox, lists all of it page by page, and acknowledges it by the page. */
async function pullAndAck(
  store: Store,
  count: number,
): Promise<{ listPerSecond: number; ackPerSecond: number }> {
  const mailbox = store.capabilities.mailbox!;
  const bytes = crypto.getRandomValues(new Uint8Array(1_024));
  await fill(mailbox, bytes, count);
  const pages: { recipient: MailboxKey; ids: Uuid[] }[] = [];
  const listFrom = performance.now();
  for (let r = 0; r < recipients; r++) {
    for (let after: string | null = null; ; ) {
      const page: Awaited<ReturnType<Mailbox["list"]>> = await mailbox.list(recipient(r), {
        ...{ after, entriesMax: 100, bytesMax: 1024 * 1024, nowMs: 2_000 },
      });
      if (isFault(page)) throw new Error(page.detail);
      pages.push({ recipient: recipient(r), ids: page.entries.map((one) => one.messageId) });
      if (page.next === null) break;
      after = page.next;
    }
  }
  const listed = performance.now() - listFrom;
  const ackFrom = performance.now();
  const removed = await inParallel(pages, 64, ({ recipient, ids }) =>
    mailbox.remove(recipient, ids, 2_000),
  );
  const acked = performance.now() - ackFrom;
  if (removed.flat().length !== count) throw new Error("something is missing");
  await store.close();
  const perSecond = (ms: number) => Math.round((count / ms) * 1_000);
  return { listPerSecond: perSecond(listed), ackPerSecond: perSecond(acked) };
}

async function fill(mailbox: Mailbox, bytes: Uint8Array, count: number): Promise<void> {
  const numbers = Array.from({ length: count });
  await inParallel(numbers, 1_024, () => mailbox.store(entry(bytes), quota));
}

async function inParallel<T, R>(
  items: readonly T[],
  callers: number,
  run: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const caller = async () => {
    while (next < items.length) {
      const at = next++;
      results[at] = await run(items[at] as T);
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return results;
}

/** How long a store with so many entries takes to open, and the memory that its index takes. */
async function openingTime(
  count: number,
): Promise<{ entries: number; openMs: number; indexMegabytes: number }> {
  const path = folder();
  const filled = await openLmdb(path);
  await fill(filled.capabilities.mailbox!, crypto.getRandomValues(new Uint8Array(100)), count);
  await filled.close();
  Bun.gc(true);
  const before = process.memoryUsage().rss;
  const from = performance.now();
  const store = await openLmdb(path);
  const openMs = Math.round(performance.now() - from);
  Bun.gc(true);
  const indexMegabytes = Math.round((process.memoryUsage().rss - before) / 1e6);
  const { entries } = await store.capabilities.mailbox!.stats(2_000);
  await store.close();
  return { entries, openMs, indexMegabytes };
}

const contenders = [
  contender("memory", openMemory),
  contender("lmdb", () => openLmdb()),
  twoRandomKeys,
];
const stores = [];
for (const size of [1_024, 65_536]) {
  for (const callers of [1, 64, 512]) {
    const series: Record<string, Rate[]> = {};
    for (let round = 0; round < rounds; round++) {
      // Another one begins each round.
      const turn = round % contenders.length;
      for (const contender of [...contenders.slice(turn), ...contenders.slice(0, turn)]) {
        const rate = await storesPerSecond(contender, callers, size);
        series[contender.name] = [...(series[contender.name] ?? []), rate];
        Bun.gc(true);
      }
    }
    const results = Object.fromEntries(
      Object.entries(series).map(([name, rates]) => [name, median(rates)]),
    );
    const [memory, lmdb, reference] = contenders.map(({ name }) => results[name]!.rate) as [
      number,
      number,
      number,
    ];
    const row = {
      size,
      callers,
      results,
      lmdbToReference: lmdb / reference,
      lmdbToMemory: lmdb / memory,
    };
    stores.push(row);
    if (!flag("json")) {
      const shown = Object.entries(results).map(
        ([name, { rate, p99Ms }]) => `${name} ${rate}/s (p99 ${p99Ms} ms)`,
      );
      console.log(
        `${size} bytes, ${callers} callers: ${shown.join(", ")}; lmdb is ${row.lmdbToReference.toFixed(1)} x two random keys`,
      );
    }
  }
}
const pulled = short ? 20_000 : 100_000;
const pulls = {
  memory: await pullAndAck(await openMemory(), pulled),
  lmdb: await pullAndAck(await openLmdb(), pulled),
};
const opening = await openingTime(entriesToOpen);
if (flag("json")) console.log(JSON.stringify({ stores, pulls, opening }));
else console.log(pulls, opening);
rmSync(base, { recursive: true, force: true });
