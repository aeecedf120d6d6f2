/**
 * Flipped bits in the file of the LMDB driver, half of them in the headers of its pages. For each,
 * one process opens the store, answers about everything in it and writes, and another one verifies
 * it. The flip must be refused at the opening, be found by `storage verify`, or change no answer; a
 * wrong answer or a death that nothing reports is a finding.
 *
 * `bun test/campaigns/storage-bitrot.ts --flips 500 --seed 1` prints the figures.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { checkDataFile } from "../../src/plugins/lmdb/data-file.ts";
import { verifyStore } from "../../src/plugins/lmdb/maintenance.ts";
import type { StoreError } from "../../src/storage/contract.ts";
import { bytesOf, did, entry, listAll, pageOf, quota, seeded } from "../conformance/samples.ts";
import { openStore } from "../crash/store-rig.ts";

const entriesMax = 600;
const recordsMax = 400;
const pageBytes = 4_096;
/** A page's header, and the first of its pointers. */
const headerBytes = 32;

async function fill(path: string): Promise<void> {
  const store = await openStore(path);
  const { mailbox, replay, receipts } = store.capabilities;
  const far = { expiresAtMs: 4e12, keptUntilMs: 8e12 };
  const writes: Promise<unknown>[] = [];
  for (let n = 0; n < entriesMax; n++) {
    writes.push(
      mailbox!.store(
        entry(n, { recipient: did(n % 9), ...far, envelope: bytesOf(n, 400) }),
        quota(),
      ),
    );
  }
  for (let n = 0; n < recordsMax; n++) {
    writes.push(
      replay!.claim(`tag ${n}`, 4e12, 1_000),
      receipts!.put(`key ${n}`, bytesOf(n, 80), 4e12),
    );
  }
  await Promise.all(writes);
  await store.close();
}

/** Everything that the store answers, as one number. */
async function answers(path: string): Promise<string> {
  const store = await openStore(path);
  const { mailbox, replay, receipts } = store.capabilities;
  const given: unknown[] = [await mailbox!.stats(2_000)];
  const textOf = (error: StoreError) => error.code;
  for (let r = 0; r < 9; r++) {
    const held = await listAll(mailbox!, did(r), pageOf());
    given.push(held.map(({ messageId, envelope }) => `${messageId} ${Bun.hash(envelope)}`));
  }
  for (let n = 0; n < recordsMax; n++) {
    const value = await receipts!.get(`key ${n}`, 2_000).catch(textOf);
    given.push(value instanceof Uint8Array ? Bun.hash(value).toString() : value);
    given.push(await replay!.claim(`tag ${n}`, 4e12, 2_000).catch(textOf));
  }
  for (let r = 0; r < 9; r++)
    given.push(await mailbox!.store(entry(entriesMax + r, { recipient: did(r) }), quota()));
  await store.close();
  return Bun.hash(JSON.stringify(given)).toString();
}

/** In another process: what it printed, or how it ended. */
async function saidApart(work: "ask" | "verify", path: string): Promise<string> {
  const child = Bun.spawn([process.execPath, import.meta.path, `--${work}`, path], {
    stdout: "pipe",
    stderr: "ignore",
  });
  const text = await new Response(child.stdout).text();
  await child.exited;
  return child.signalCode === null ? text.trim() : `signal ${child.signalCode}`;
}

async function campaign(flips: number, seed: number): Promise<number> {
  const base = mkdtempSync(join(tmpdir(), "waypost-bitrot-"));
  const path = join(base, "store");
  const counts = { refused: 0, reported: 0, harmless: 0, wrong: 0, signal: 0 };
  try {
    mkdirSync(path);
    await fill(path);
    const data = join(path, "data.mdb");
    const sound = readFileSync(data);
    const end = checkDataFile(data) ?? 0;
    const expected = await saidApart("ask", path);
    const random = seeded(seed);
    if (!/^\d+$/.test(expected)) throw new Error(`the sound store answers ${expected}`);
    for (let flip = 0; flip < flips; flip++) {
      const bytes = Buffer.from(sound);
      const page = Math.floor((random() * end) / pageBytes) * pageBytes;
      const isAimed = random() < 0.5;
      const at = page + Math.floor(random() * (isAimed ? headerBytes : pageBytes));
      bytes[at]! ^= 1 << Math.floor(random() * 8);
      writeFileSync(data, bytes);
      const isReported = (await saidApart("verify", path)) !== "sound";
      // The report may have left another state of the library's own file behind.
      rmSync(join(path, "lock.mdb"), { force: true });
      const answer = await saidApart("ask", path);
      if (answer.startsWith("signal") && isReported) counts.signal++;
      else if (answer.startsWith("refused")) counts.refused++;
      else if (answer === expected) counts.harmless++;
      else if (isReported) counts.reported++;
      else counts.wrong++;
      if (answer !== expected && !isReported && !answer.startsWith("refused"))
        console.log(`flip ${flip} at byte ${at}: ${answer}`);
      rmSync(join(path, "lock.mdb"), { force: true });
    }
    console.log(`${flips} flipped bits of ${sound.length} bytes: ${JSON.stringify(counts)}`);
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
  return counts.wrong;
}

const { values } = parseArgs({
  options: {
    flips: { type: "string", default: "500" },
    seed: { type: "string", default: "1" },
    ask: { type: "string" },
    verify: { type: "string" },
  },
});
const refused = (error: StoreError) => `refused ${error.code}`;
if (values.ask !== undefined) console.log(await answers(values.ask).catch(refused));
else if (values.verify !== undefined) {
  const { problems } = await verifyStore(values.verify);
  console.log(problems[0] ?? "sound");
} else process.exit((await campaign(Number(values.flips), Number(values.seed))) === 0 ? 0 : 1);
