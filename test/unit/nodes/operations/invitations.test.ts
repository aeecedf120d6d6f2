/** Invitations over a store in memory: what a list and an erasure read. */
import { expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { isFault } from "../../../../src/core/fault.ts";
import { createInvitations } from "../../../../src/nodes/operations/invitations.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import { optionsOf } from "../../../conformance/options.ts";

const startMs = Date.parse("2026-05-01T12:00:00Z");

test("a list and an erasure read the uses that there are, in pages, and no free place", async () => {
  const environment = { now: () => startMs, log: () => undefined, fatal: () => undefined };
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  let reads = 0;
  const counting = new Proxy(receipts, {
    get: (target, name) => {
      if (name === "get" || name === "scan") reads += 1;
      const member: unknown = Reflect.get(target, name);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  const invitations = createInvitations({ receipts: counting, now: () => startMs });
  const codes: string[] = [];
  for (let n = 0; n < 20; n++) {
    const made = await invitations.create({ uses: 500, lifeMs: dayMs, note: null });
    if (isFault(made)) throw new Error(made.detail);
    codes.push(made.code);
  }
  const users = ["1", "2", "3"].map((digit) => `did:svc:${digit.repeat(20)}` as Did);
  for (const did of users) expect(await invitations.claim(codes[7] ?? "", did)).toBeNull();
  reads = 0;
  expect(await invitations.erase(users[1] as Did)).toBe(1);
  const listed = await invitations.list();
  const used = listed.filter(({ uses }) => uses.length > 0);
  expect(used.map(({ uses }) => new Set(uses.map(({ did }) => did)))).toEqual([
    new Set([users[0] ?? null, null, users[2] ?? null]),
  ]);
  expect(reads).toBeLessThan(10);
});

test("an erased DID that was invited as a device is in no record of invitations", async () => {
  const environment = { now: () => startMs, log: () => undefined, fatal: () => undefined };
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  const invitations = createInvitations({ receipts, now: () => startMs });
  const [member, device] = ["1", "2"].map((digit) => `did:svc:${digit.repeat(20)}` as Did);
  const made = await invitations.createForDevice(member as Did);
  if (isFault(made)) throw new Error(made.detail);
  expect(await invitations.claim(made.code, device as Did)).toBeNull();
  const named = async () => {
    const all = await receipts.scan("/", { after: null, limit: 100, nowMs: startMs });
    const shown = all.map(([key, value]) => `${key} ${new TextDecoder().decode(value)}`);
    return shown.filter((one) => one.includes(device as Did)).length;
  };
  expect(await named()).toBe(2);
  expect(await invitations.erase(device as Did)).toBe(1);
  expect(await named()).toBe(0);
});
