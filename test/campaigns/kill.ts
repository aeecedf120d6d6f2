/**
 * The compiled executable under a mixed load over all nodes (registrations, changes, stores, Relay
 * with live sessions and fallback, pulls, acknowledgements) is killed with SIGKILL at a random
 * moment, started again, and compared with the model outside (`model.ts`), again and again on one
 * store.
 *
 * `bun test/campaigns/kill.ts --kills 1000 --people 8` prints the figures, and ends with 1 when
 * something was lost, doubled, back, or taken twice.
 */
import { parseArgs } from "node:util";
import { openLoad } from "./model.ts";
import { Findings, residentMib } from "./stage.ts";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "300" },
    people: { type: "string", default: "8" },
  },
});
const kills = Number(values.kills);
const findings = new Findings();

const { stage, model } = await openLoad(Number(values.people), findings);
let startsMs = 0;

for (let kill = 1; kill <= kills; kill++) {
  model.start();
  await Bun.sleep(Math.random() < 0.3 ? Math.random() * 60 : Math.random() * 1_500);
  const rssMib = residentMib(stage.node().pid);
  await stage.node().kill("SIGKILL");
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
console.log(`${kills} kills; a start took ${Math.round(startsMs / kills)} ms on average`);
console.log(`answered: ${JSON.stringify(model.counts)}`);
console.log(`not answered, or refused: ${JSON.stringify(model.refusals)}`);
model.close();
await stage.close();
findings.exit();
