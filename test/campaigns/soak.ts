/**
 * A day of mixed load over all nodes of the compiled executable, with the model outside
 * (`model.ts`): memory and descriptors must stay flat, nothing may be lost, doubled or back, and
 * the node must end in order when it is asked to. The size of the data file is printed: it holds
 * what the ledger keeps of each change. Memory is read every few seconds; a line through the last
 * seven tenths says how fast it grows.
 *
 * `bun test/campaigns/soak.ts --minutes 1440` prints a line every tenth of the time, and ends with
 * 1 on a finding; `--store memory` runs over that driver.
 */
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openLoad } from "./model.ts";
import { Findings, fitLine, ownMib, residentMib } from "./stage.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "1440" },
    people: { type: "string", default: "8" },
    store: { type: "string", default: "lmdb" },
  },
});
const store = values.store === "memory" ? "memory" : "lmdb";
const minutes = Number(values.minutes);
const findings = new Findings();
const parts = 10;
const minuteMs = 60_000;
/** Above what the node held after the first tenth, when its caches are full. */
const growthMibMax = 128;
const descriptorsMoreMax = 200;

const { stage, model } = await openLoad(Number(values.people), findings, { store });

type Size = {
  readonly ownMib: number;
  readonly rssMib: number;
  readonly descriptors: number;
  readonly dataMib: number;
};

function sizeNow(): Size {
  const { pid } = stage.node();
  const data =
    statSync(join(stage.folder, "data", "data.mdb"), { throwIfNoEntry: false })?.size ?? 0;
  return {
    ownMib: ownMib(pid),
    rssMib: residentMib(pid),
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    dataMib: Math.round(data / 1024 ** 2),
  };
}

const hourMs = 60 * minuteMs;
const beganMs = performance.now();
/** Until then caches fill, and the collector finds its pace. */
const warmParts = 3;
const samplesEach = 12;
const samples: { readonly x: number; readonly y: number }[] = [];
let first: Size | null = null;
for (let part = 1; part <= parts; part++) {
  model.start();
  for (let sample = 0; sample < samplesEach; sample++) {
    await Bun.sleep((minutes * minuteMs) / parts / samplesEach);
    const x = (performance.now() - beganMs) / hourMs;
    if (part > warmParts) samples.push({ x, y: ownMib(stage.node().pid) });
  }
  const busy = sizeNow();
  await model.stop();
  await model.audit();
  first ??= busy;
  findings.expect(
    busy.ownMib - first.ownMib <= growthMibMax,
    `memory grew from ${first.ownMib} to ${busy.ownMib} MiB`,
  );
  findings.expect(
    busy.descriptors - first.descriptors <= descriptorsMoreMax,
    `${busy.descriptors} descriptors`,
  );
  console.log(
    `${part} of ${parts}: ${JSON.stringify(busy)}; answered ${JSON.stringify(model.counts)}`,
  );
}
const { slope, error } = fitLine(samples);
console.log(
  `memory of its own, a line through ${samples.length} samples: ${slope.toFixed(1)} ± ${error.toFixed(1)} MiB an hour`,
);
console.log(`refused: ${JSON.stringify(model.refusals)}`);
model.close();
const code = await stage.node().kill("SIGTERM");
findings.expect(
  code === 0,
  `it ended with ${code}: ${(await stage.node().output()).slice(-1_000)}`,
);
await stage.close();
findings.exit();
