/**
 * What sealing and opening a message of 1 KB cost a client, in processor time: `bun
 * bench/sealing.ts`. The second version must stay below 5 ms for each. Signing outside is part of
 * it, as in every message; looking keys up is not. `--browser` measures the second version in
 * headless Chromium too (`sealing-page.ts`), where a group of 64 must never keep a page for 50 ms.
 */
import { join } from "node:path";
import { expandSeed } from "../src/client/keys/xwing.ts";
import { openEnvelope } from "../src/client/mail/retrieve.ts";
import { buildEnvelope, type SendPlan } from "../src/client/mail/send.ts";
import type { JsonObject } from "../src/core/codec/json.ts";
import { chromiumPath, type Page, startChromium } from "../test/e2e/chromium.ts";
import { plan, readerSecret } from "../test/support/send-plan.ts";

const rounds = 300;
const costMsMax = 5;
const blockedMsMax = 50;
const data = new Uint8Array(1_000);
const seed = new Uint8Array(32).fill(1);
const { publicKey } = await expandSeed(seed);
const file = { ...plan.file, sizeBytes: data.length };

async function costMs(times: number, work: (n: number) => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  for (let n = 0; n < times; n++) await work(n);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000 / times;
}

async function measure(version: 1 | 2): Promise<{ sealMs: number; openMs: number }> {
  const recipient = version === 1 ? plan.recipient : { keyId: "a-key", publicKey };
  const one: SendPlan = { ...plan, chunkBytes: 2_000, file, recipient };
  const secret = version === 1 ? readerSecret : seed;
  const reader = { did: plan.to, secretsOf: () => [secret], senderOf: async () => null };
  const sealed: JsonObject[] = [];
  const seal = async (n: number) => {
    const { body } = await buildEnvelope({ ...one, seed: new Uint8Array(32).fill(n) }, 0, data);
    sealed.push(JSON.parse(new TextDecoder().decode(body)));
  };
  const open = (n: number) => openEnvelope(sealed[n] as JsonObject, reader);
  await costMs(50, seal);
  await costMs(50, open);
  return { sealMs: await costMs(rounds, seal), openMs: await costMs(rounds, open) };
}

for (const version of [1, 2] as const) {
  const { sealMs, openMs } = await measure(version);
  console.log(`version ${version}: seal ${sealMs.toFixed(2)} ms, open ${openMs.toFixed(2)} ms`);
  if (version === 2 && Math.max(sealMs, openMs) > costMsMax) process.exitCode = 1;
}

type PageCosts = {
  readonly sealMs: number;
  readonly openMs: number;
  /** The longest time in which a timer of the page got no turn. */
  readonly blockedMs: number;
};

/** Of the page's process, all threads. */
async function processMs(page: Page): Promise<number> {
  const { metrics } = (await page.call("Performance.getMetrics", {})) as {
    metrics: readonly { readonly name: string; readonly value: number }[];
  };
  const seconds = metrics.find(({ name }) => name === "ProcessTime")?.value;
  if (seconds === undefined) throw new Error("this Chromium does not say its processor time");
  return seconds * 1_000;
}

/** Processor time of one, once all is compiled. */
async function pageCostMs(page: Page, work: string): Promise<number> {
  await page.evaluate(work);
  const beforeMs = await processMs(page);
  const times = (await page.evaluate(work)) as number;
  return ((await processMs(page)) - beforeMs) / times;
}

async function measurePage(): Promise<PageCosts> {
  const entry = join(import.meta.dir, "sealing-page.ts");
  const built = await Bun.build({ entrypoints: [entry], target: "browser", minify: true });
  const script = await built.outputs[0]?.text();
  const pages = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    routes: {
      "/costs.js": () => new Response(script, { headers: { "Content-Type": "text/javascript" } }),
      "/": () =>
        new Response('<script type="module" src="/costs.js"></script>', {
          headers: { "Content-Type": "text/html" },
        }),
    },
  });
  const browser = await startChromium();
  try {
    const page = await browser.open(`http://127.0.0.1:${pages.port}/`);
    await page.until("typeof sealAll === 'function'", "the script of the page");
    await page.call("Performance.enable", {});
    return {
      sealMs: await pageCostMs(page, "sealAll()"),
      openMs: await pageCostMs(page, "openAll()"),
      blockedMs: (await page.evaluate("groupBlocks()")) as number,
    };
  } finally {
    await browser.close();
    await pages.stop(true);
  }
}

if (process.argv.includes("--browser")) {
  if (chromiumPath === null) console.log("SKIPPED: Chromium, which is not on this machine");
  else {
    const { sealMs, openMs, blockedMs } = await measurePage();
    const [seal, open, blocked] = [sealMs, openMs, blockedMs].map((ms) => ms.toFixed(2));
    console.log(`Chromium: seal ${seal} ms, open ${open} ms, kept by a group ${blocked} ms`);
    if (Math.max(sealMs, openMs) > costMsMax || blockedMs > blockedMsMax) process.exitCode = 1;
  }
}
