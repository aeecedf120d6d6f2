/**
 * The same in a page (`bench/sealing.ts --browser`): rounds of sealing and opening a message of 1
 * KB in the second version, and for how long the copies for a group of 64 keep everything else
 * waiting.
 */
import { expandSeed } from "../src/client/keys/xwing.ts";
import { openEnvelope } from "../src/client/mail/retrieve.ts";
import { buildEnvelope, type SendPlan } from "../src/client/mail/send.ts";
import type { JsonObject } from "../src/core/codec/json.ts";
import { plan } from "../test/support/send-plan.ts";

/** Of each kind at once. */
const rounds = 100;
const members = 64;
const data = new Uint8Array(1_000);
const seed = new Uint8Array(32).fill(1);

async function repeat(work: (n: number) => Promise<unknown>): Promise<number> {
  for (let n = 0; n < rounds; n++) await work(n);
  return rounds;
}

/** The longest wait between two timers while the work goes on. */
async function blockedBy(work: () => Promise<unknown>): Promise<number> {
  const state = { lastMs: performance.now(), longestMs: 0, isOver: false };
  const tick = () => {
    const nowMs = performance.now();
    state.longestMs = Math.max(state.longestMs, nowMs - state.lastMs);
    state.lastMs = nowMs;
    if (!state.isOver) setTimeout(tick);
  };
  setTimeout(tick);
  await work();
  state.isOver = true;
  tick();
  return state.longestMs;
}

const { publicKey } = await expandSeed(seed);
const file = { ...plan.file, sizeBytes: data.length };
const recipient = { keyId: "a-key", publicKey };
const one: SendPlan = { ...plan, chunkBytes: 2_000, file, recipient };
const reader = { did: plan.to, secretsOf: () => [seed], senderOf: async () => null };
const sealed: JsonObject[] = [];

async function seal(n: number): Promise<void> {
  const { body } = await buildEnvelope({ ...one, seed: new Uint8Array(32).fill(n) }, 0, data);
  sealed[n] = JSON.parse(new TextDecoder().decode(body));
}

const open = (n: number) => openEnvelope(sealed[n] as JsonObject, reader);
const group = () => Promise.all(Array.from({ length: members }, (_, n) => seal(n)));

Object.assign(globalThis, {
  /** How many were sealed, or opened. */
  sealAll: () => repeat(seal),
  openAll: () => repeat(open),
  /** Milliseconds. */
  groupBlocks: () => blockedBy(group),
});
