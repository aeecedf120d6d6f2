/**
 * A device of an identity is away for days, by a clock that moves for nodes and devices alike,
 * while another one stays connected live: everything expires at the Caches meanwhile, and
 * afterwards the device shows all that was received and sent, in order, each once.
 *
 * `bun test/campaigns/away.ts --messages 1000 --hours 72` ends with 1 on a finding, with 2 without
 * libfaketime.
 */
import { parseArgs } from "node:util";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { StoredMessage } from "../../src/client/store/shown.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import { scratchFolder } from "../support/executable.ts";
import { shiftClock } from "./shifted-clock.ts";
import { Findings, openStage } from "./stage.ts";

const { values } = parseArgs({
  options: {
    messages: { type: "string", default: "1000" },
    hours: { type: "string", default: "72" },
  },
});
const findings = new Findings();
const scratch = scratchFolder();
const clock = shiftClock(scratch.path);
const wide = {
  directory: ["rate_limit_loopback = false"],
  relay: ["rate_limit_loopback = false", "recipient_rate = 100000"],
  cache: ["rate_limit_loopback = false"],
};
const stage = await openStage({ lines: wide, env: clock.environment });
const pageMax = 1_000;
const waiting = { timeoutMs: minuteMs, intervalMs: 20 };
const place = () => ({ url: stage.url, keys: memoryKeys(), store: memoryStore(), waiting });

async function textsOf(me: Waypost, conversation: string): Promise<string[]> {
  const all: StoredMessage[] = [];
  for (;;) {
    const [before] = all;
    const page = await me.store.messages(conversation, {
      limit: pageMax,
      ...(before && { before }),
    });
    all.unshift(...page);
    if (page.length < pageMax) break;
  }
  return all.map(({ text }) => text ?? "");
}

/** Waits until as many are there, or none has come for a while. */
async function shows(
  me: Waypost,
  who: string,
  conversation: string,
  texts: readonly string[],
): Promise<void> {
  let found = await textsOf(me, conversation);
  for (let calm = 0; found.length < texts.length && calm < 600; calm++) {
    await Bun.sleep(100);
    const next = await textsOf(me, conversation);
    if (next.length > found.length) calm = 0;
    found = next;
  }
  findings.expect(
    Bun.deepEquals(found, [...texts]),
    `${who} shows ${found.length} of ${texts.length}; missing ${texts.filter((text) => !found.includes(text)).slice(0, 5)}; doubled ${found.filter((text, i) => found.indexOf(text) !== i).slice(0, 5)}; in order until ${found[texts.findIndex((text, i) => text !== found[i])]}`,
  );
}

/**
 * The `Date` of an answer is up to a second old, and what is answered until then would seem hours
 * late.
 */
async function pass(ms: number): Promise<void> {
  clock.setOffset(clock.offsetMs() + ms);
  await Bun.sleep(1_500);
}

const alice = await Waypost.open({ url: stage.url, keys: memoryKeys(), waiting });
const phone = await Waypost.open(place());
const away = place();
const linking = await Waypost.link(away);
await phone.devices.acceptLink(linking.code, "laptop");
const laptop = await linking.opened;
await alice.send(phone.did, "before");
await shows(laptop, "the laptop", alice.did, ["before"]);
await laptop.close();

const texts = ["before"];
const parts = 10;
for (let part = 0; part < parts; part++) {
  for (let i = 0; i < Number(values.messages) / parts; i++) {
    const text = `${part}.${i}`;
    await alice.send(phone.did, text);
    texts.push(text);
  }
  await (await phone.send(alice.did, `mine ${part}`)).delivered;
  texts.push(`mine ${part}`);
  await pass((Number(values.hours) * hourMs) / parts);
}
await shows(phone, "the phone", alice.did, texts);
console.log(`${texts.length} messages in ${values.hours} hours`);

// More than the longest life of an envelope.
await pass(49 * hourMs);
const device = await Waypost.open({
  url: stage.url,
  keys: away.keys,
  waiting,
  name: "default.device",
});
const [cache] = await cachesOf(device.client, device.identity);
const countLeft = async () => (await cache?.summary())?.count;
// What the phone could not send before the clock moved, it sends then.
for (let tries = 0; (await countLeft()) !== 0 && tries < 3; tries++) await pass(49 * hourMs);
const left = await countLeft();
findings.expect(left === 0, `${left} envelopes are left at the Cache of the device`);
await device.close();

const back = await Waypost.open(away);
await shows(back, "the laptop, back,", alice.did, texts);
const isCurrent = async () => (await phone.devices.list()).every((one) => one.isCurrent);
for (let tries = 0; tries < 300 && !(await isCurrent()); tries++) await Bun.sleep(100);
findings.expect(await isCurrent(), "the phone does not know that the laptop has all");
await Promise.all([alice, phone, back].map((me) => me.close()));
await stage.close();
scratch.remove();
findings.exit();
