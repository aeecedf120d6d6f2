/**
 * A process that writes the ledger is killed at random moments: nothing that was answered is lost
 * or doubled.
 */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Did } from "../../src/core/codec/did.ts";
import { lmdbPlugin } from "../../src/plugins/lmdb/lmdb.ts";
import { optionsOf } from "../conformance/options.ts";

const rounds = 12;
const path = mkdtempSync(join(tmpdir(), "waypost-ledger-crash-"));
afterAll(() => rmSync(path, { recursive: true, force: true }));

type Answered = { readonly txHash: string; readonly did: Did };

/** Lets the writer run until it was killed `lifeMs` after its first answer. */
async function killedWriter(lifeMs: number): Promise<Answered[]> {
  const writer = Bun.spawn([process.execPath, join(import.meta.dir, "ledger-writer.ts"), path], {
    stdout: "pipe",
    stderr: "inherit",
  });
  let said = "";
  let begun = false;
  for await (const chunk of writer.stdout) {
    said += new TextDecoder().decode(chunk);
    if (!begun) setTimeout(() => writer.kill("SIGKILL"), lifeMs);
    begun = true;
  }
  await writer.exited;
  expect(writer.signalCode).toBe("SIGKILL");
  // A last line without its end was not said whole.
  const lines = said.split("\n").slice(0, -1);
  return lines
    .map((line) => line.split(" ") as [string, Did])
    .map(([txHash, did]) => ({ txHash, did }));
}

test(`of what was answered before ${rounds} kills everything is finalized, once`, async () => {
  const answered: Answered[] = [];
  // On a busy machine a writer says less in its time.
  for (let round = 0; round < rounds || answered.length <= rounds * 16; round++)
    answered.push(...(await killedWriter(20 + Math.random() * 250)));
  const environment = {
    now: Date.now,
    log: () => {},
    fatal: (reason: string) => expect(reason).toBe(""),
  };
  // Calls live for 64 blocks from the start of a store: 8 s, which a busy machine keeps.
  const store = await lmdbPlugin.open(
    optionsOf(lmdbPlugin, { path, block_time_ms: 120 }),
    environment,
  );
  try {
    const ledger = store.capabilities.ledger!;
    const calls = new Map<Did, number>();
    for (const { txHash, did } of answered) {
      let state = (await ledger.submission(txHash))?.state;
      for (
        const end = Date.now() + 60_000;
        state === "pending" && Date.now() < end;
        await Bun.sleep(2)
      ) {
        state = (await ledger.submission(txHash))?.state;
      }
      expect(state).toBe("finalized");
      calls.set(did, (calls.get(did) ?? 0) + 1);
    }
    for (const [did, count] of calls) {
      const { record } = await ledger.account(did);
      // The kill may have come between the taking of a second call and its answer.
      expect([count, 2]).toContain(Number(record?.version));
      for (const alias of record?.aliases ?? []) expect(await ledger.aliasHolder(alias)).toBe(did);
    }
  } finally {
    await store.close();
  }
}, 120_000);
