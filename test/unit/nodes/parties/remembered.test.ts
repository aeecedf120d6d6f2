/**
 * What is remembered of a ledger that is away: minutes, and never what a change may have replaced.
 */
import { expect, test } from "bun:test";
import { utf8 } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { minuteMs } from "../../../../src/core/codec/time.ts";
import type { RecipientSource, Subject } from "../../../../src/nodes/parties/recipients.ts";
import { rememberRecipients } from "../../../../src/nodes/parties/remembered.ts";
import { changedSubject } from "../../../../src/nodes/parties/signals.ts";
import { type LocalBus, openLocalBus } from "../../../../src/plugins/bus/local.ts";
import { StoreError } from "../../../../src/storage/contract.ts";

const alice = "did:svc:alice" as Did;
const subjectOf = (life: number): Subject => ({
  did: alice,
  document: null,
  deactivated: false,
  links: null,
  life,
});

function stage() {
  const at = { nowMs: 0, life: 1, away: false, reads: 0 };
  const read = async <T>(value: T): Promise<T> => {
    at.reads++;
    if (at.away) throw new StoreError("unavailable", "away");
    return value;
  };
  const source: RecipientSource = {
    subject: () => read(subjectOf(at.life)),
    policy: () => read(null),
    persona: () => read(null),
    blockTimeMs: () => read(6_000),
    servesGuests: async () => true,
  };
  const bus = openLocalBus({ log: () => {} });
  const remembered = rememberRecipients(source, {
    bus,
    changeMs: 2 * minuteMs,
    now: () => at.nowMs,
  });
  const announce = async (did: Did) => {
    bus.publish(changedSubject, utf8(did));
    // Handlers run in later turns.
    for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  return { at, bus, remembered, announce };
}

const lifeOf = (source: RecipientSource) =>
  source.subject(alice).then(
    (subject) => subject?.life ?? null,
    (error: unknown) => (error as StoreError).code,
  );

test("while the ledger is away, what was read is the answer for five minutes, and then none", async () => {
  const { at, remembered } = stage();
  expect(await lifeOf(remembered)).toBe(1);
  expect(await remembered.policy("recipient", alice)).toBeNull();
  expect(await remembered.blockTimeMs()).toBe(6_000);
  at.life = 2;
  expect(await lifeOf(remembered)).toBe(2);
  at.away = true;
  at.nowMs = 5 * minuteMs;
  expect(await lifeOf(remembered)).toBe(2);
  expect(await remembered.policy("recipient", alice)).toBeNull();
  expect(await remembered.blockTimeMs()).toBe(6_000);
  await expect(remembered.persona(alice)).rejects.toThrow("away");
  at.nowMs++;
  expect(await lifeOf(remembered)).toBe("unavailable");
  // Each question asks the ledger first.
  expect(at.reads).toBe(9);
});

test("after a change was announced nothing older is the answer, also when it is read again before the change is final", async () => {
  const { at, remembered, announce } = stage();
  expect(await lifeOf(remembered)).toBe(1);
  await announce(alice);
  expect(await lifeOf(remembered)).toBe(1);
  at.away = true;
  expect(await lifeOf(remembered)).toBe("unavailable");
  at.away = false;
  at.nowMs = 2 * minuteMs;
  at.life = 2;
  expect(await lifeOf(remembered)).toBe(2);
  at.away = true;
  expect(await lifeOf(remembered)).toBe(2);
});

test("announcements that are too many count as changes of everything", async () => {
  const { at, remembered, announce } = stage();
  expect(await lifeOf(remembered)).toBe(1);
  for (let n = 0; n <= 10_000; n++) void announce(`did:svc:other${n}` as Did);
  await announce("did:svc:last" as Did);
  at.away = true;
  expect(await lifeOf(remembered)).toBe("unavailable");
  at.away = false;
  expect(await lifeOf(remembered)).toBe(1);
  at.away = true;
  expect(await lifeOf(remembered)).toBe("unavailable");
});

test("after announcements may have been lost, nothing is remembered for half a minute", async () => {
  const { at, bus, remembered } = stage();
  expect(await lifeOf(remembered)).toBe(1);
  (bus as LocalBus).reportMissed();
  at.away = true;
  expect(await lifeOf(remembered)).toBe("unavailable");
  for (const [nowMs, answer] of [
    [29_999, "unavailable"],
    [30_000, 1],
  ] as const) {
    at.away = false;
    at.nowMs = nowMs;
    expect(await lifeOf(remembered)).toBe(1);
    at.away = true;
    expect(await lifeOf(remembered)).toBe(answer);
  }
});
