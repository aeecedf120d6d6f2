/**
 * The Directory's own rules about aliases, over a store in memory: reserved names, members alone,
 * and time between changes.
 */
import { expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs } from "../../../../src/core/codec/time.ts";
import { isFault } from "../../../../src/core/fault.ts";
import { type AliasRules, createAliasRules } from "../../../../src/nodes/directory/aliases.ts";
import { memoryPlugin } from "../../../../src/plugins/memory/memory.ts";
import { optionsOf } from "../../../conformance/options.ts";

const startMs = Date.parse("2026-05-01T12:00:00Z");
const [member, stranger, operator] = ["1", "2", "3"].map(
  (digit) => `did:svc:${digit.repeat(20)}` as Did,
) as [Did, Did, Did];

async function open(given: {
  readonly aliases?: "any" | "members";
  readonly alias_interval?: number;
}): Promise<AliasRules> {
  const environment = { now: () => startMs, log: () => undefined, fatal: () => undefined };
  const store = await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment);
  const { receipts } = store.capabilities;
  if (receipts === undefined) throw new Error("the memory driver has receipts");
  const known = { did: member, sinceMs: startMs, invitation: null, lastSeen: null };
  return createAliasRules({
    settings: Object.assign(given, {
      aliases: given.aliases ?? "any",
      reserved_aliases: ["Admin"],
      alias_interval: given.alias_interval ?? 0,
    }),
    operator: { did: operator },
    receipts,
    members: { of: async (did) => (did === member ? known : null) },
  });
}

const codeOf = (outcome: unknown) => (isFault(outcome) ? outcome.code : "claimed");

test("a reserved name is the operator's alone, in whatever case", async () => {
  const rules = await open({});
  expect([member, operator].map((did) => rules.check(did, "ADMIN")?.code ?? null)).toEqual([
    "alias_reserved",
    null,
  ]);
  expect(rules.check(member, "administer")).toBeNull();
  expect(codeOf(await rules.claim(member, "admin", startMs))).toBe("alias_reserved");
});

test("who is no member gets no alias where members alone do", async () => {
  const outcomes = async (aliases: "any" | "members") => {
    const rules = await open({ aliases });
    return [
      codeOf(await rules.claim(member, "ann", startMs)),
      codeOf(await rules.claim(stranger, "bob", startMs)),
    ];
  };
  expect(await outcomes("members")).toEqual(["claimed", "policy_denied"]);
  expect(await outcomes("any")).toEqual(["claimed", "claimed"]);
});

test("one DID changes once in the interval, and a change that was taken back is none", async () => {
  const rules = await open({ alias_interval: 30 * dayMs });
  const takeBack = await rules.claim(member, "ann", startMs);
  if (isFault(takeBack)) throw new Error(takeBack.detail);
  await takeBack();
  expect(codeOf(await rules.claim(member, "anna", startMs))).toBe("claimed");
  const refused = await rules.claim(member, "annie", startMs + dayMs);
  expect([codeOf(refused), isFault(refused) && refused.extra.retryAfterSeconds]).toEqual([
    "alias_changed",
    29 * 86_400,
  ]);
  expect(codeOf(await rules.claim(stranger, "bob", startMs))).toBe("claimed");
  expect(codeOf(await rules.claim(member, "annie", startMs + 30 * dayMs))).toBe("claimed");
});

test("a shorter interval counts at once, and a change by a clock that was ahead as one of now", async () => {
  const settings = { alias_interval: 30 * dayMs };
  const rules = await open(settings);
  await rules.claim(member, "ann", startMs);
  settings.alias_interval = dayMs;
  expect(codeOf(await rules.claim(member, "anna", startMs + 2 * dayMs))).toBe("claimed");
  const yearsMs = 3_650 * dayMs;
  await rules.claim(stranger, "bob", startMs + yearsMs);
  const waits = [];
  for (const afterMs of [0, dayMs / 2, dayMs]) {
    const outcome = await rules.claim(stranger, "bobby", startMs + afterMs);
    waits.push(isFault(outcome) ? outcome.extra.retryAfterSeconds : "claimed");
  }
  expect(waits).toEqual([86_400, 43_200, "claimed"]);
});
