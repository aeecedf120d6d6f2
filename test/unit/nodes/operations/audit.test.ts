/**
 * The audit of the admin socket: newest first, repetitions in one record, bounded for each kind and
 * user, and never in the way of an action.
 */
import { expect, test } from "bun:test";
import { dayMs, minuteMs } from "../../../../src/core/codec/time.ts";
import {
  type Audit,
  type AuditedAction,
  type AuditSearch,
  createAudit,
} from "../../../../src/nodes/operations/audit.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import { type Receipts, StoreError } from "../../../../src/storage/contract.ts";
import { optionsOf, withMethods } from "../../../conformance/options.ts";

const startMs = Date.parse("2026-05-01T12:00:00Z");

async function openReceipts(): Promise<Receipts> {
  const environment = { now: () => startMs, log: () => undefined, fatal: () => undefined };
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  return receipts;
}

type Opened = { readonly audit: Audit; nowMs: number; readonly logged: string[] };

function auditOver(receipts: Receipts, max = 1_000): Opened {
  const logged: string[] = [];
  const opened = { nowMs: startMs, logged };
  const log = (_level: string, message: string) => void logged.push(message);
  const bounds = { changes: max, looks: max, refused: max };
  const audit = createAudit({ receipts, bounds, now: () => opened.nowMs, log });
  return Object.assign(opened, { audit });
}

const action = (about: string): AuditedAction => ({
  user: "alice",
  uid: 1_001,
  action: "members.show",
  about: [about],
  said: [],
  outcome: "done",
});
const all: AuditSearch = { user: null, action: null, about: null, limit: 10_000 };

test("the same action again within a minute counts in its record, and later makes another", async () => {
  const opened = auditOver(await openReceipts());
  const { audit } = opened;
  await Promise.all([audit.add(action("bob")), audit.add(action("bob"))]);
  opened.nowMs += minuteMs - 1;
  await audit.add(action("bob"));
  opened.nowMs += 1;
  await audit.add(action("bob"));
  await audit.add({ ...action("bob"), outcome: "policy_denied" });
  expect((await audit.list(all)).map(({ times, outcome }) => [times, outcome])).toContainEqual([
    3,
    "done",
  ]);
  expect(await audit.list(all)).toHaveLength(3);
});

test("records are found by user, action, area and what they concern, the newest first", async () => {
  const opened = auditOver(await openReceipts());
  for (const about of ["bob", "carol"]) {
    await opened.audit.add(action(about));
    opened.nowMs += 1;
  }
  const aboutsOf = async (sought: Partial<AuditSearch>) =>
    (await opened.audit.list({ ...all, ...sought })).map(({ about }) => about);
  expect(await aboutsOf({})).toEqual([["carol"], ["bob"]]);
  expect(await aboutsOf({ limit: 1 })).toEqual([["carol"]]);
  expect(
    await Promise.all(["members", "members.show"].map((name) => aboutsOf({ action: name }))),
  ).toEqual([
    [["carol"], ["bob"]],
    [["carol"], ["bob"]],
  ]);
  expect(await aboutsOf({ action: "members.sh" })).toEqual([]);
});

test("beyond its share the oldest of a user go, never another's, and after 400 days all", async () => {
  const receipts = await openReceipts();
  const opened = auditOver(receipts, 200);
  await opened.audit.add({ ...action("carol"), user: "root", uid: 0 });
  for (let n = 0; n < 200; n++) {
    opened.nowMs += 1;
    await opened.audit.add(action(`member ${n}`));
  }
  const kept = (await opened.audit.list(all)).map(({ about }) => about[0]);
  expect([kept.length, kept[0], kept.at(-2), kept.at(-1)]).toEqual([
    51,
    "member 199",
    "member 150",
    "carol",
  ]);
  opened.nowMs += 400 * dayMs;
  expect(await opened.audit.list(all)).toEqual([]);
});

test("many users together stay within the bound, and those with few records keep them", async () => {
  const opened = auditOver(await openReceipts(), 40);
  await opened.audit.add({ ...action("carol"), uid: 0 });
  for (let n = 0; n < 400; n++) {
    opened.nowMs += 1;
    await opened.audit.add({ ...action(`member ${n}`), uid: n % 8 });
  }
  await opened.audit.add({ ...action("dave"), uid: 9 });
  const kept = (await opened.audit.list(all)).map(({ about }) => about[0]);
  expect(kept).toContain("dave");
  // Beyond it are those that came since the last look.
  expect(kept.length).toBeLessThan(40 + 100);
});

test("what a user does often pushes out nothing that the same user does seldom", async () => {
  const opened = auditOver(await openReceipts(), 40);
  await opened.audit.add({ ...action("an invitation"), action: "invitations.create" });
  for (let n = 0; n < 300; n++) {
    opened.nowMs += 1;
    await opened.audit.add({ ...action(`+ did:svc:${n}`), action: "blocks.change" });
  }
  const made = await opened.audit.list({ ...all, action: "invitations.create" });
  expect(made.map(({ about }) => about)).toEqual([["an invitation"]]);
  // A quarter for the user: the last of these records was followed by a look at the bound.
  expect((await opened.audit.list(all)).length).toBe(10);
});

test("after a clock that was ahead, nothing counts into the record of the future", async () => {
  const opened = auditOver(await openReceipts());
  opened.nowMs += 500 * dayMs;
  await opened.audit.add(action("bob"));
  opened.nowMs -= 500 * dayMs;
  await opened.audit.add(action("bob"));
  const [, latest] = await opened.audit.list(all);
  expect(latest).toMatchObject({ atMs: startMs, untilMs: startMs, times: 1 });
});

test("refused requests count together and push out nothing, nor do looks", async () => {
  const opened = auditOver(await openReceipts(), 8);
  await opened.audit.add({ ...action("a change"), action: "blocks.change" });
  for (let n = 0; n < 300; n++)
    await opened.audit.add({ ...action(`did:svc:${n}`), outcome: "policy_denied" });
  for (let n = 0; n < 300; n++) await opened.audit.add(action(`member ${n}`));
  const found = await opened.audit.list(all);
  expect(found.filter(({ about }) => about[0] === "a change")).toHaveLength(1);
  const refused = found.filter(({ outcome }) => outcome === "policy_denied");
  expect(refused.map(({ about, times }) => [about, times])).toEqual([[["did:svc:0"], 300]]);
});

test("an action is found by all that it concerned, and by no words of its user", async () => {
  const { audit } = auditOver(await openReceipts());
  const about = Array.from({ length: 250 }, (_, n) => `+ did:svc:number-${n}.`);
  await audit.add({ ...action(""), action: "blocks.change", about, said: ["+ did:svc:forged"] });
  const countOf = async (text: string) => (await audit.list({ ...all, about: text })).length;
  const counts = about.map((one) => countOf(one));
  expect(new Set(await Promise.all(counts))).toEqual(new Set([1]));
  expect(await countOf("did:svc:forged")).toBe(0);
  expect(await audit.list(all)).toHaveLength(3);
});

test("a store that fails costs the record, which the log has, and not the action", async () => {
  const receipts = await openReceipts();
  const put = () => Promise.reject(new StoreError("full", "there is no room"));
  const opened = auditOver(withMethods("receipts", receipts, { put }));
  await opened.audit.add(action("bob"));
  expect(opened.logged).toEqual(["an action is missing in the audit"]);
});

test("what failed in the middle may have changed something, so it has the share of changes", async () => {
  const opened = auditOver(await openReceipts(), 3);
  const failed = { ...action("a change"), action: "members.erase" } as const;
  await opened.audit.add({ ...failed, outcome: "internal_error" });
  const refused = ["members.list", "members.erase", "invitations.create", "audit.list"] as const;
  for (let n = 0; n < 50; n++) {
    opened.nowMs += minuteMs;
    for (const name of refused)
      await opened.audit.add({ ...action(`${n}`), action: name, outcome: "policy_denied" });
  }
  const found = await opened.audit.list(all);
  expect(found.length).toBeLessThan(150);
  expect(found.filter(({ outcome }) => outcome === "internal_error")).toHaveLength(1);
});
