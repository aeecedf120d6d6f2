/**
 * The compiled executable under a mixed load over all nodes (registrations, changes, stores, Relay with live
 * sessions and fallback, pulls, acknowledgements) is killed with SIGKILL at a random moment, started again,
 * and compared with the model outside (`model.ts`), again and again on one store. With `--workers` above 1 every second
 * time one worker thread is ended alone, upon which the process must end by itself with 1.
 *
 * `bun test/campaigns/kill.ts --kills 1000 --people 8 --workers 3` prints the figures, and ends with 1 when something
 * was lost, doubled, back, or taken twice.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { late, withDeadline } from "../../src/core/std/bounded.ts";
import { openLoad } from "./model.ts";
import { endingThreads, endThread, Findings, residentMib } from "./stage.ts";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "300" },
    people: { type: "string", default: "8" },
    workers: { type: "string", default: "1" },
  },
});
const [kills, workers] = [Number(values.kills), Number(values.workers)];
const findings = new Findings();

const folder = mkdtempSync(join(tmpdir(), "waypost-kill-"));

const { stage, model } = await openLoad(Number(values.people), findings, {
  server: [`workers = ${workers}`],
  env: workers > 1 ? endingThreads(folder) : {},
});
let startsMs = 0;
let threads = 0;

const endsWithinMs = 20_000;

async function endWorker(): Promise<void> {
  threads++;
  process.kill(stage.node().pid, endThread);
  const code = await withDeadline(stage.node().ended(), endsWithinMs);
  findings.expect(code === 1, `the process ends with ${code === late ? "nothing" : code} when a worker ends`);
  if (code === late) await stage.node().kill("SIGKILL");
}
for (let kill = 1; kill <= kills; kill++) {
  model.start();
  await Bun.sleep(Math.random() < 0.3 ? Math.random() * 60 : Math.random() * 1_500);
  const rssMib = residentMib(stage.node().pid);
  if (workers > 1 && kill % 2 === 0) await endWorker();
  else await stage.node().kill("SIGKILL");
  await model.stop();
  const beginMs = performance.now();
  await stage.start();
  startsMs += performance.now() - beginMs;
  await model.audit();
  if (kill % 25 === 0) {
    console.log(
      `${kill} kills, ${findings.list.length} findings, ${rssMib} MiB; answered ${JSON.stringify(model.counts)}`,
    );
  }
}
console.log(
  `${kills} kills, ${threads} of them of one thread; a start took ${Math.round(startsMs / kills)} ms on average`,
);
console.log(`answered: ${JSON.stringify(model.counts)}`);
console.log(`not answered, or refused: ${JSON.stringify(model.refusals)}`);
model.close();
await stage.close();
rmSync(folder, { recursive: true });
findings.exit();
