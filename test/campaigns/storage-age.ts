/**
 * An LMDB store that ages: millions of messages of odd sizes are stored and acknowledged at full
 * rate, with receipts and claims next to them and sweeps of what has expired, so that the library's
 * list of free pages is split and joined all the time. After each round the store is closed,
 * verified, opened again, and compared with what was stored.
 *
 * `bun test/campaigns/storage-age.ts --messages 2000000 --rounds 4` prints the figures.
 */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { verifyStore } from "../../src/plugins/lmdb/maintenance.ts";
import type { Store } from "../../src/storage/contract.ts";
import { bytesOf, did, entry, id, listAll, pageOf, quota, seeded } from "../conformance/samples.ts";
import { openStore } from "../crash/store-rig.ts";

const { values } = parseArgs({
  options: {
    messages: { type: "string", default: "2000000" },
    rounds: { type: "string", default: "4" },
    seed: { type: "string", default: "1" },
  },
});
const perRound = Math.ceil(Number(values.messages) / Number(values.rounds));
const random = seeded(Number(values.seed));
const below = (n: number) => Math.floor(random() * n);
const callers = 200;
const recipients = 50;
const heldMax = 4_000;
const nowMs = 2_000;
/** Mostly small, some beyond a page, few of many pages. */
const sizes = () =>
  (random() < 0.7 ? below(700) : random() < 0.9 ? below(9_000) : below(60_000)) + 1;

/** What waits: the size of each message by its number. */
const waiting = new Map<number, number>();
let next = 0;

async function storeOne({ capabilities }: Store): Promise<void> {
  const n = next++;
  const size = sizes();
  const isShort = n % 5 === 0;
  const times = isShort
    ? { expiresAtMs: nowMs + 1 + below(1_000), keptUntilMs: 9e12 }
    : { expiresAtMs: 8e12, keptUntilMs: 9e12 };
  await capabilities.mailbox!.store(
    entry(n, { recipient: did(n % recipients), envelope: bytesOf(n, size), ...times }),
    quota(),
  );
  if (!isShort) waiting.set(n, size);
  if (n % 3 === 0)
    await capabilities.receipts!.put(`key ${n}`, bytesOf(n, 1 + below(900)), nowMs + below(1_000));
  if (n % 4 === 0) await capabilities.replay!.claim(`tag ${n}`, nowMs + 1 + below(1_000), nowMs);
}

async function ackSome({ capabilities }: Store): Promise<void> {
  const r = below(recipients);
  const mine = [...waiting.keys()]
    .filter((n) => n % recipients === r && random() < 0.8)
    .slice(0, 200);
  for (const n of mine) waiting.delete(n);
  await capabilities.mailbox!.remove(did(r), mine.map(id), nowMs);
}

async function age(store: Store, until: number): Promise<void> {
  const work = async () => {
    while (next < until) {
      if (waiting.size > heldMax) await ackSome(store);
      else await storeOne(store);
    }
  };
  await Promise.all(Array.from({ length: callers }, work));
  const { mailbox, replay, receipts } = store.capabilities;
  for (const expiring of [mailbox!, replay!, receipts!])
    while ((await expiring.expire(nowMs + 2_000, 2_000)) > 0);
}

/** What differs from what was stored. */
async function differences(store: Store): Promise<string[]> {
  const wrong: string[] = [];
  const found = new Set<string>();
  for (let r = 0; r < recipients; r++) {
    for (const { messageId, envelope } of await listAll(
      store.capabilities.mailbox!,
      did(r),
      pageOf({ nowMs }),
    )) {
      found.add(`${messageId} ${Bun.hash(envelope)}`);
    }
  }
  for (const [n, size] of waiting)
    if (!found.delete(`${id(n)} ${Bun.hash(bytesOf(n, size))}`)) wrong.push(`lost ${n}`);
  for (const more of found) wrong.push(`not stored ${more}`);
  return wrong;
}

const path = mkdtempSync(join(tmpdir(), "waypost-age-"));
const wrong: string[] = [];
try {
  for (let round = 1; round <= Number(values.rounds); round++) {
    const startedMs = performance.now();
    const aging = await openStore(path);
    await age(aging, round * perRound);
    await aging.close();
    const seconds = (performance.now() - startedMs) / 1_000;
    const { records, problems } = await verifyStore(path);
    const store = await openStore(path);
    wrong.push(...problems, ...(await differences(store)));
    await store.close();
    const mebibytes = (statSync(join(path, "data.mdb")).size / 2 ** 20).toFixed(0);
    console.log(
      `${next} messages, ${(perRound / seconds).toFixed(0)} a second, ${records} records in ${mebibytes} MiB`,
    );
    if (wrong.length > 0) break;
  }
  console.log(`damaged, lost or wrong: ${wrong.length}`);
  for (const finding of wrong.slice(0, 20)) console.log(`  ${finding}`);
} finally {
  rmSync(path, { recursive: true, force: true });
}
process.exit(wrong.length === 0 ? 0 : 1);
