/**
 * A writer of the LMDB driver is killed at random, again and again on one store, which is compared
 * with what the writer said after each kill.
 *
 * `bun test/campaigns/storage-kill.ts --kills 1000` prints the figures.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { findings, killedWriter, openStore, Said } from "../crash/store-rig.ts";

const { values } = parseArgs({ options: { kills: { type: "string", default: "1000" } } });
const kills = Number(values.kills);
const base = mkdtempSync(join(tmpdir(), "waypost-kill-"));
const path = join(base, "store");
const said = new Said();
const wrong: string[] = [];
try {
  for (let round = 0; round < kills; round++) {
    const lifeMs = Math.random() < 0.3 ? Math.random() * 20 : Math.random() * 250;
    await killedWriter({ path, seed: round, mode: "safe", lifeMs }, said);
    const store = await openStore(path);
    wrong.push(...(await findings(store, said)).map((finding) => `kill ${round}: ${finding}`));
    await store.close();
    if ((round + 1) % 100 === 0) console.log(`${round + 1} kills, ${wrong.length} findings`);
  }
  const answered = ["store", "ack", "claim", "put"].map(
    (kind) => `${said.of(`did ${kind}`).size} ${kind}`,
  );
  console.log(
    `${kills} kills; answered: ${answered.join(", ")}; lost, doubled or wrong: ${wrong.length}`,
  );
  for (const finding of wrong.slice(0, 20)) console.log(`  ${finding}`);
} finally {
  rmSync(base, { recursive: true, force: true });
}
process.exit(wrong.length === 0 ? 0 : 1);
