/**
 * The pools of a mailbox under attack, by the code that decides: colluding known people and
 * networks fill a mailbox as fast as they can, next to 20 known people and newcomers of a network
 * each, who send one message a minute each side. The figures of SECURITY.md and rules section 6
 * come from here.
 */
import { describe, expect, test } from "bun:test";
import { type Did, mailboxOf, type Uuid } from "../../src/core/codec/did.ts";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import {
  labelsOf,
  type MailboxSender,
  placesOf,
  storeShareOf,
} from "../../src/nodes/cache/pools.ts";
import { MemoryMailbox } from "../../src/plugins/memory/mailbox.ts";
import { Claims } from "../../src/storage/claims.ts";
import type { MailboxQuota } from "../../src/storage/quota.ts";
import { cacheDefault } from "../support/settings.ts";

const box = mailboxOf("did:svc:1111111111111111111111" as Did, 0);
const days2 = 48;

class World {
  private readonly mailbox = new MemoryMailbox({
    room: { entries: 10_000_000, bytes: 2 ** 40 },
    checkOpen: () => {},
    claims: new Claims(1),
    removableMs: () => Number.POSITIVE_INFINITY,
  });
  private waiting: Uuid[] = [];
  private sent = 0;
  nowMs = 1_700_000_000_000;

  constructor(readonly people: number) {}

  person(n: number): MailboxSender {
    const label = `from:${n}`;
    return { isKnown: true, label, who: label, people: this.people };
  }

  /** Whether the message was taken. */
  async send(sending: MailboxSender, network: string, bytes: number): Promise<boolean> {
    const origin = { client: network, network };
    const messageId = `00000000-0000-4000-8000-${(++this.sent).toString(16).padStart(12, "0")}`;
    const quota: MailboxQuota = {
      recipientEntriesMax: cacheDefault.recipient_entries_max,
      recipientBytesMax: cacheDefault.recipient_bytes_max,
      places: placesOf(sending, origin, cacheDefault),
      storeEntriesMax: cacheDefault.store_entries_max,
      storeBytesMax: cacheDefault.store_bytes_max,
      storeShare: storeShareOf(origin, cacheDefault),
    };
    const outcome = await this.mailbox.store(
      {
        recipient: box,
        messageId: messageId as Uuid,
        chunk: null,
        storedAtMs: this.nowMs,
        expiresAtMs: this.nowMs + 3 * days2 * hourMs,
        keptUntilMs: this.nowMs + 3 * days2 * hourMs,
        onExpiry: "DeleteOnExpiry",
        headerPreview: null,
        labels: labelsOf(sending, origin),
        envelope: new Uint8Array(bytes),
        digest: new Uint8Array(16),
      },
      quota,
    );
    if (outcome.kind === "stored") this.waiting.push(messageId as Uuid);
    return outcome.kind === "stored";
  }

  /** The recipient reads and acknowledges everything. */
  async read(): Promise<void> {
    const ids = this.waiting.splice(0);
    await this.mailbox.remove(box, ids, this.nowMs);
  }

  get size(): number {
    return this.waiting.length;
  }
}

type Attackers = { readonly dids: number; readonly networks: number; readonly bytes?: number };

/** All of them send, in turn, until none gets anything in. */
async function flood(world: World, { dids, networks, bytes = 400 }: Attackers): Promise<void> {
  const all = [
    ...Array.from({ length: dids }, (_, n) => [world.person(n), "203.0.113.1"] as const),
    ...Array.from(
      { length: networks },
      (_, n) => [{ isKnown: false, label: null }, `100.64.${n >> 8}.${n & 255}`] as const,
    ),
  ];
  let going = all;
  while (going.length > 0) {
    const next: typeof all = [];
    for (const one of going) if (await world.send(one[0], one[1], bytes)) next.push(one);
    going = next;
  }
}

/** Percent of what known people and newcomers send that is taken, for two days. */
async function play(
  attackers: Attackers,
  reading: "away" | "hourly",
  hours: number,
): Promise<[number, number]> {
  const honest = 20;
  // A mailbox knows at most 1,000.
  const dids = Math.min(attackers.dids, 1_000 - honest);
  const world = new World(dids + honest);
  const taken = { known: 0, newcomers: 0 };
  await flood(world, { ...attackers, dids });
  for (let minute = 0; minute < hours * 60; minute++) {
    world.nowMs += minuteMs;
    if (reading === "hourly" && minute % 60 === 0) {
      await world.read();
      await flood(world, { ...attackers, dids });
    }
    const known = world.person(10_000 + (minute % honest));
    if (await world.send(known, "198.51.100.1", 400)) taken.known++;
    const network = `10.0.${minute >> 8}.${minute & 255}`;
    if (await world.send({ isKnown: false, label: null }, network, 400)) taken.newcomers++;
  }
  const percent = (count: number) => Math.round((100 * count) / (hours * 60));
  return [percent(taken.known), percent(taken.newcomers)];
}

describe("of 20 known people and of newcomers, one message a minute each side, get through", () => {
  const cases: [string, Attackers, "away" | "hourly", number, [number, number]][] = [
    ["without an attack", { dids: 0, networks: 0 }, "away", 48, [100, 100]],
    ["2 known attackers", { dids: 2, networks: 0 }, "away", 48, [100, 100]],
    ["150 known attackers", { dids: 150, networks: 0 }, "away", 48, [16, 100]],
    ["150 known attackers", { dids: 150, networks: 0 }, "hourly", 3, [100, 100]],
    ["1,000 known attackers", { dids: 1_000, networks: 0 }, "away", 48, [3, 100]],
    ["1,000 known attackers", { dids: 1_000, networks: 0 }, "hourly", 3, [100, 100]],
    ["16 networks", { dids: 0, networks: 16 }, "away", 48, [100, 100]],
    ["200 networks", { dids: 0, networks: 200 }, "away", 48, [100, 90]],
    ["1,500 networks", { dids: 0, networks: 1_500 }, "away", 48, [100, 0]],
    ["150 and 200 together", { dids: 150, networks: 200 }, "away", 48, [16, 90]],
    ["16 networks of 1 MB", { dids: 2, networks: 16, bytes: 1e6 }, "away", 48, [100, 100]],
  ];
  for (const [who, attackers, reading, hours, expected] of cases)
    test(`beside ${who}, recipient ${reading}: ${expected.join(" and ")} %`, async () => {
      expect(await play(attackers, reading, hours)).toEqual(expected);
    });
});

test("one sender alone holds half of the rest and its floor of an absent friend's mailbox", async () => {
  const world = new World(20);
  await flood(world, { dids: 1, networks: 0 });
  expect(world.size).toBe(166 + 1_001);
  const byBytes = new World(20);
  await flood(byBytes, { dids: 1, networks: 0, bytes: 1_000_000 });
  expect(byBytes.size).toBe(4 + 27);
});

test("one network of newcomers holds half of the rest and its floor", async () => {
  const world = new World(20);
  await flood(world, { dids: 0, networks: 1 });
  expect(world.size).toBe(2 + 501);
});
