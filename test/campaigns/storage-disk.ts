/**
 * A disk that fails under the LMDB driver: syncs that fail (EIO), writes that fail (ENOSPC), syncs
 * that do not return, one write of a first page that fails or is torn. The writer must end by
 * itself within the watchdog's time and by no signal, the store must open again, and what was
 * answered must be there.
 *
 * `bun test/campaigns/storage-disk.ts --rounds 20` prints the figures. Needs Linux and a C
 * compiler.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { errorText } from "../../src/core/fault.ts";
import { findings, openStore, Said, writerEnded } from "../crash/store-rig.ts";
import { buildShim } from "./storage-shim.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "20" } } });
const rounds = Number(values.rounds);
const lifeMs = 20_000;
const base = mkdtempSync(join(tmpdir(), "waypost-disk-"));
const wrong: string[] = [];

async function findingsIn(path: string, said: Said): Promise<string[]> {
  try {
    const store = await openStore(path);
    return await findings(store, said).finally(() => store.close());
  } catch (error) {
    return [`the store does not open: ${errorText(error)}`];
  }
}

try {
  const shim = buildShim(base);
  for (const kind of ["eio", "enospc", "hang", "meta", "torn"] as const) {
    const ends: Record<string, number> = {};
    let answered = 0;
    for (let round = 0; round < rounds; round++) {
      const [path, said] = [join(base, `${kind} ${round}`), new Said()];
      // Early, while the file grows: then the page that was not written leads behind the last page
      // of its former state.
      const [first, span] = kind === "meta" || kind === "torn" ? [12, 30] : [20, 200];
      const from = first + Math.floor(Math.random() * span);
      const environment = { LD_PRELOAD: shim, WAYPOST_SHIM_FAIL: `${kind}:${from}` };
      const end = await writerEnded({ path, seed: round, mode: "safe", lifeMs, environment }, said);
      ends[end] = (ends[end] ?? 0) + 1;
      // 9 is how the writer ends when its store fails.
      if (end !== "9") wrong.push(`${kind} ${round}: the writer ended with ${end}`);
      const found = await findingsIn(path, said);
      wrong.push(...found.map((finding) => `${kind} ${round}: ${finding}`));
      answered += said.of("did store").size;
      rmSync(path, { recursive: true });
    }
    console.log(
      `${kind}: ${rounds} rounds, ended with ${JSON.stringify(ends)}, ${answered} stores answered before`,
    );
  }
  console.log(`lost, doubled or wrong: ${wrong.length}`);
  for (const finding of wrong.slice(0, 20)) console.log(`  ${finding}`);
} finally {
  rmSync(base, { recursive: true, force: true });
}
process.exit(wrong.length === 0 ? 0 : 1);
