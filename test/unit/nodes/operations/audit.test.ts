/** The audit of the admin socket: newest first, repetitions in one record, bounded, and never in the way of an action. */
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

function auditOver(receipts: Receipts, recordsMax = 1_000): Opened {
  const logged: string[] = [];
  const opened = { nowMs: startMs, logged };
  const log = (_level: string, message: string) => void logged.push(message);
  const audit = createAudit({ receipts, recordsMax, now: () => opened.nowMs, log });
  return Object.assign(opened, { audit });
}

const action = (about: string): AuditedAction => ({
  user: "alice",
  uid: 1_001,
  action: "members.show",
  about,
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
  expect(await aboutsOf({})).toEqual(["carol", "bob"]);
  expect(await aboutsOf({ limit: 1 })).toEqual(["carol"]);
  expect(
    await Promise.all(["members", "members.show"].map((name) => aboutsOf({ action: name }))),
  ).toEqual([
    ["carol", "bob"],
    ["carol", "bob"],
  ]);
  expect(await aboutsOf({ action: "members.sh" })).toEqual([]);
});

test("beyond its bound the oldest go, and after 400 days all", async () => {
  const receipts = await openReceipts();
  const opened = auditOver(receipts, 50);
  for (let n = 0; n <= 200; n++) {
    opened.nowMs += 1;
    await opened.audit.add(action(`member ${n}`));
  }
  const kept = await opened.audit.list(all);
  expect([kept.length, kept[0]?.about, kept.at(-1)?.about]).toEqual([
    50,
    "member 200",
    "member 151",
  ]);
  opened.nowMs += 400 * dayMs;
  expect(await opened.audit.list(all)).toEqual([]);
});

test("a store that fails costs the record, which the log has, and not the action", async () => {
  const receipts = await openReceipts();
  const put = () => Promise.reject(new StoreError("full", "there is no room"));
  const opened = auditOver(withMethods("receipts", receipts, { put }));
  await opened.audit.add(action("bob"));
  expect(opened.logged).toEqual(["an action is missing in the audit"]);
});
