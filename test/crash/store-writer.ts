/**
 * The child of the crash test: until it is killed, many callers at once store, acknowledge, claim
 * and write receipts. It prints each operation before it begins and as soon as it is answered, one
 * line each. With `unsafe` it answers before the commit, which the rig must notice.
 */
import { appendFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { type Disk, openDisk } from "../../src/plugins/lmdb/space.ts";
import { openLmdb } from "../../src/plugins/lmdb/store.ts";
import type { Mailbox } from "../../src/storage/contract.ts";
import { optionsOf } from "../conformance/options.ts";
import { did, id, quota, seeded } from "../conformance/samples.ts";
import { crashEntry, crashReceipt, crashTimes, recipientsMax } from "./store-facts.ts";

const [path, firstText, seedText, mode] = process.argv.slice(2) as [string, string, string, string];
const environment = { now: Date.now, log: () => {}, fatal: () => process.exit(9) };
const options = optionsOf(lmdbPlugin, { path, reserve_bytes: 8 * 1024 * 1024 });
// A block that is freed and still needed is missed before the kill.
const log = process.env.WAYPOST_SHIM_LOG;
const disk = log === undefined ? {} : { disk: notedDisk(join(path, "data.mdb"), log) };
// A sync that does not return is noticed within the life of the writer.
const isHanging = process.env.WAYPOST_SHIM_FAIL?.startsWith("hang") === true;
const store = await openLmdb(options, environment, {
  ...disk,
  ...(isHanging ? { commitMsMax: 8_000 } : {}),
});
const { mailbox, replay, receipts } = store.capabilities;
const random = seeded(Number(seedText));
let next = Number(firstText);

/**
 * The disk, which notes each length of the file as the shim notes writes: as one of no bytes at the
 * new end.
 */
function notedDisk(file: string, log: string): Disk {
  let opened: Disk | null = null;
  // The file exists once it is asked for.
  const real = () => (opened ??= openDisk(file));
  return {
    get reserves() {
      return real().reserves;
    },
    freeBytes: () => real().freeBytes(),
    fileBytes: () => real().fileBytes(),
    usedBytes: () => real().usedBytes(),
    extend(to) {
      const note = Buffer.alloc(17);
      note.write("W");
      note.writeBigInt64LE(BigInt(to), 1);
      if (real().fileBytes() < to) appendFileSync(log, note);
      return real().extend(to);
    },
    close: () => real().close(),
  };
}

function say(line: string): void {
  writeSync(1, `${line}\n`);
}

/** The careful driver's promise, or none at all. */
async function answered(work: Promise<unknown>): Promise<unknown> {
  if (mode !== "unsafe") return work;
  work.catch(() => {});
  return undefined;
}

/** Ids that this run stored, for acknowledging; some stay for later runs to find. */
const held: number[] = [];

async function storeOne(mailbox: Mailbox): Promise<void> {
  const n = next++;
  say(`try store ${n}`);
  await answered(mailbox.store(crashEntry(n), quota()));
  say(`did store ${n}`);
  held.push(n);
}

/** Both are in one commit, with what others store after them. */
async function storeAndAck(mailbox: Mailbox): Promise<void> {
  const n = next++;
  say(`try store ${n}`);
  say(`try ack ${n}`);
  const stored = answered(mailbox.store(crashEntry(n), quota()));
  const acked = answered(mailbox.remove(did(n % recipientsMax), [id(n)], crashTimes.nowMs));
  await Promise.all([stored, acked]);
  say(`did store ${n}`);
  say(`did ack ${n}`);
}

async function ackSome(mailbox: Mailbox): Promise<void> {
  const some = held.splice(0, 1 + Math.floor(random() * 8));
  for (let r = 0; r < recipientsMax; r++) {
    const mine = some.filter((n) => n % recipientsMax === r);
    if (mine.length === 0) continue;
    for (const n of mine) say(`try ack ${n}`);
    await answered(mailbox.remove(did(r), mine.map(id), crashTimes.nowMs));
    for (const n of mine) say(`did ack ${n}`);
  }
}

/** As a recipient with a proof does: the claim and the removal stand together, or neither does. */
async function ackProven(mailbox: Mailbox): Promise<void> {
  const n = held.shift();
  if (n === undefined) return;
  say(`try ack ${n}`);
  say(`try proof ${n}`);
  const claim = { tag: `proof ${n}`, untilMs: crashTimes.expiresAtMs };
  await answered(mailbox.claimAndRemove(claim, did(n % recipientsMax), [id(n)], crashTimes.nowMs));
  say(`did ack ${n}`);
}

async function claimOne(): Promise<void> {
  const n = next++;
  await answered(replay!.claim(`tag ${n}`, crashTimes.expiresAtMs, crashTimes.nowMs));
  say(`did claim ${n}`);
}

async function keepReceipt(): Promise<void> {
  const n = next++;
  await answered(receipts!.put(`key ${n}`, crashReceipt(n), crashTimes.expiresAtMs));
  say(`did put ${n}`);
  if (random() < 0.5) return;
  say(`try forget ${n}`);
  await answered(receipts!.remove(`key ${n}`));
  say(`did forget ${n}`);
}

async function work(): Promise<never> {
  for (;;) {
    const roll = random();
    if (roll < 0.5) await storeOne(mailbox!);
    else if (roll < 0.6) await storeAndAck(mailbox!);
    else if (roll < 0.75) await ackSome(mailbox!);
    else if (roll < 0.8) await ackProven(mailbox!);
    else if (roll < 0.88) await claimOne();
    else if (roll < 0.97) await keepReceipt();
    // Sweeps what a share of the entries leaves behind.
    else await mailbox!.expire(crashTimes.nowMs, 20);
    if (mode === "unsafe") await Bun.sleep(1);
  }
}

say("ready");
await Promise.all(Array.from({ length: 24 }, work));
