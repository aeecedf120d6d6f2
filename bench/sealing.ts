/**
 * What sealing and opening a message of 1 KB cost a client, in processor time: `bun bench/sealing.ts`. The second version must
 * stay below 5 ms for each. Signing outside is part of it, as in every message; looking keys up is not.
 */
import { expandSeed } from "../src/client/keys/xwing.ts";
import { openEnvelope } from "../src/client/mail/retrieve.ts";
import { buildEnvelope, type SendPlan } from "../src/client/mail/send.ts";
import type { JsonObject } from "../src/core/codec/json.ts";
import { plan, readerSecret } from "../test/support/send-plan.ts";

const rounds = 300;
const costMsMax = 5;
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
