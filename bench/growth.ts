/**
 * What waiting messages cost the `lmdb` driver: rates and processor time of a store, a page of 20
 * and an acknowledgement of 20, on an empty store and again with `--messages` waiting over
 * `--recipients`, and how long the full store takes to open. `bun bench/growth.ts [--messages
 * 5000000] [--recipients 10000] [--bytes 1300] [--dir folder] [--out file]`. 5 million messages of
 * 1.3 KiB take 8 GB and, on two cores, five minutes and more.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { MailboxKey, Uuid } from "../src/core/codec/did.ts";
import { isFault } from "../src/core/fault.ts";
import { lmdbPlugin } from "../src/plugins/lmdb/lmdb.ts";
import type { Mailbox, MailboxEntry, Store } from "../src/storage/contract.ts";
import { shortDigest } from "../src/storage/mailbox-rules.ts";
import type { MailboxQuota } from "../src/storage/quota.ts";
import { writeReport } from "./report.ts";

const { values: flags } = parseArgs({
  options: {
    messages: { type: "string", default: "5000000" },
    recipients: { type: "string", default: "10000" },
    bytes: { type: "string", default: "1300" },
    seconds: { type: "string", default: "3" },
    dir: { type: "string", default: tmpdir() },
    out: { type: "string" },
    /**
     * Opens this store and says what that took: what the measurement itself does in a second
     * process.
     */
    open: { type: "string" },
  },
});
const messages = Number(flags.messages);
const recipients = Number(flags.recipients);
const lapMs = Number(flags.seconds) * 1_000;
const laps = 5;
const callers = 256;
const pageEntries = 20;
const envelope = new Uint8Array(Number(flags.bytes)).fill(0x61);
const digest = shortDigest(envelope);
const folder = flags.open ?? mkdtempSync(join(flags.dir, "waypost-growth-"));
const quota: MailboxQuota = {
  recipientEntriesMax: 1e9,
  recipientBytesMax: 1e15,
  places: [],
  storeEntriesMax: 1e9,
  storeBytesMax: 1e15,
  storeShare: null,
};
const nowMs = Date.now();

function recipientAt(n: number): MailboxKey {
  return `did:svc:${"Growth".padEnd(20, "x")}${String(1_000_000 + n).replaceAll("0", "z")}` as MailboxKey;
}

function someRecipient(): MailboxKey {
  return recipientAt(Math.floor(Math.random() * recipients));
}

function newEntry(): MailboxEntry {
  return {
    recipient: someRecipient(),
    messageId: crypto.randomUUID() as Uuid,
    chunk: null,
    storedAtMs: nowMs,
    expiresAtMs: nowMs + 86_400_000,
    keptUntilMs: nowMs + 86_400_000,
    onExpiry: "DeleteOnExpiry",
    headerPreview: null,
    labels: ["new"],
    envelope,
    digest,
  };
}

function openStore(): Promise<Store> {
  const parsed = lmdbPlugin.parseOptions({
    path: folder,
    message_ids_max: 2 * messages + 10_000_000,
  });
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
  const fatal = (reason: string) => {
    throw new Error(reason);
  };
  return lmdbPlugin.open(parsed.options, { now: Date.now, log: () => {}, fatal });
}

/** Runs `operation` by all callers until `done` says so; answers how many were made. */
async function repeat(
  operation: () => Promise<unknown>,
  done: (made: number) => boolean,
): Promise<number> {
  let made = 0;
  const work = async (): Promise<void> => {
    while (!done(made)) {
      made++;
      await operation();
    }
  };
  await Promise.all(Array.from({ length: callers }, work));
  return made;
}

type Cost = { readonly perSecond: number; readonly cpuMicros: number };

/** The best rate and the least processor time of a few laps: a busy machine only adds to both. */
async function measure(operation: () => Promise<unknown>): Promise<Cost> {
  let best: Cost = { perSecond: 0, cpuMicros: Number.POSITIVE_INFINITY };
  for (let lap = 0; lap < laps; lap++) {
    const cpu = process.cpuUsage();
    const begunMs = performance.now();
    const made = await repeat(operation, () => performance.now() - begunMs >= lapMs);
    const { user, system } = process.cpuUsage(cpu);
    best = {
      perSecond: Math.max(best.perSecond, (made * 1_000) / (performance.now() - begunMs)),
      cpuMicros: Math.min(best.cpuMicros, (user + system) / made),
    };
  }
  return { perSecond: Math.round(best.perSecond), cpuMicros: Math.round(best.cpuMicros * 10) / 10 };
}

async function readPage(mailbox: Mailbox, recipient: MailboxKey): Promise<void> {
  const page = await mailbox.list(recipient, {
    after: null,
    entriesMax: pageEntries,
    bytesMax: 1 << 20,
    nowMs,
  });
  if (isFault(page)) throw new Error(page.detail);
}

/**
 * Entries that are there to be read and acknowledged, in mailboxes of their own beside the others.
 */
async function measureAll(mailbox: Mailbox, prefix: number): Promise<Record<string, Cost>> {
  const store = await measure(() => mailbox.store(newEntry(), quota));
  const own = Array.from({ length: 2_000 }, (_, n) => recipientAt(prefix + n));
  const waiting: MailboxEntry[] = own.flatMap((recipient) =>
    Array.from({ length: pageEntries }, () => ({ ...newEntry(), recipient })),
  );
  const idsOf = new Map<MailboxKey, Uuid[]>(own.map((recipient) => [recipient, []]));
  for (const { recipient, messageId } of waiting) idsOf.get(recipient)?.push(messageId);
  // Stored in the order of a crowd, so that the mail of one recipient lies scattered.
  waiting.sort(() => Math.random() - 0.5);
  await repeat(
    async () => {
      const entry = waiting.pop();
      if (entry !== undefined) await mailbox.store(entry, quota);
    },
    () => waiting.length === 0,
  );
  const page = await measure(() =>
    readPage(mailbox, own[Math.floor(Math.random() * own.length)] as MailboxKey),
  );
  const acknowledgement = await measureOnce(own.length, async (n) => {
    const recipient = own[n] as MailboxKey;
    await mailbox.remove(recipient, idsOf.get(recipient) ?? [], nowMs);
  });
  return { store, "page of 20": page, "acknowledgement of 20": acknowledgement };
}

/** What is there only once can be measured only once. */
async function measureOnce(
  count: number,
  operation: (n: number) => Promise<unknown>,
): Promise<Cost> {
  let next = 0;
  const cpu = process.cpuUsage();
  const begunMs = performance.now();
  await repeat(
    async () => {
      const n = next++;
      if (n < count) await operation(n);
    },
    () => next >= count,
  );
  const { user, system } = process.cpuUsage(cpu);
  return {
    perSecond: Math.round((count * 1_000) / (performance.now() - begunMs)),
    cpuMicros: Math.round((user + system) / count),
  };
}

function residentMegabytes(): number {
  const kilobytes = /VmRSS:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  return Math.round(Number(kilobytes ?? Number.NaN) / 1024);
}

/** In a process of its own, whose memory holds nothing else. */
function openElsewhere(): unknown {
  const child = Bun.spawnSync([
    process.execPath,
    import.meta.path,
    "--messages",
    flags.messages,
    "--open",
    folder,
  ]);
  return JSON.parse(child.stdout.toString());
}

async function printOpening(): Promise<void> {
  const before = process.cpuUsage();
  const begunMs = performance.now();
  const store = await openStore();
  const { user, system } = process.cpuUsage(before);
  const ms = Math.round(performance.now() - begunMs);
  console.log(
    JSON.stringify({
      ms,
      cpuMs: Math.round((user + system) / 1_000),
      residentMb: residentMegabytes(),
    }),
  );
  await store.close();
}

if (flags.open !== undefined) {
  await printOpening();
  process.exit(0);
}
try {
  const store = await openStore();
  const { mailbox } = store.capabilities;
  if (mailbox === undefined) throw new Error("the store has no mailbox");
  await measureAll(mailbox, 10_000_000);
  const empty = await measureAll(mailbox, 20_000_000);
  let filled = (await mailbox.stats(nowMs)).entries;
  await repeat(
    async () => {
      filled++;
      await mailbox.store(newEntry(), quota);
    },
    () => filled >= messages,
  );
  const full = await measureAll(mailbox, 30_000_000);
  const { entries } = await mailbox.stats(nowMs);
  await store.close();
  const opening = openElsewhere();
  const ratios = Object.fromEntries(
    Object.entries(full).map(([name, cost]) => [
      name,
      {
        rate: Math.round((100 * cost.perSecond) / (empty[name]?.perSecond ?? Number.NaN)) / 100,
        cpu: Math.round((100 * (empty[name]?.cpuMicros ?? Number.NaN)) / cost.cpuMicros) / 100,
      },
    ]),
  );
  const results = { messages: entries, recipients, empty, full, ratios, opening };
  console.log(JSON.stringify(results, null, 2));
  if (flags.out !== undefined) writeReport(flags.out, results);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(0);
