/**
 * Schedules of own devices and groups over the real rules, without sockets
 * (`test/model/own-world.ts`).
 *
 * `bun test/campaigns/own-world.ts --schedules 10000 [--from 0]` names each seed that breaks a law.
 */
import { parseArgs } from "node:util";
import { runSchedule } from "../model/own-world.ts";

const { values } = parseArgs({
  options: {
    schedules: { type: "string", default: "10000" },
    from: { type: "string", default: "0" },
  },
});
const [first, count] = [Number(values.from), Number(values.schedules)];
const startedMs = performance.now();
let broken = 0;
for (let seed = first; seed < first + count; seed++) {
  const wrong = runSchedule(seed);
  if (wrong.length > 0) console.log(`seed ${seed}: ${wrong.join(", ")}`);
  broken += wrong.length > 0 ? 1 : 0;
}
const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
console.log(`${count} schedules in ${seconds} s, ${broken} break a law`);
process.exitCode = broken === 0 && count > 0 ? 0 : 1;
