/**
 * Reports at the operator's mailbox: members for a week have places of their own there, so that
 * newcomers of their network, however many and by whichever invitation, do not silence them.
 * Newcomers have those of any mailbox.
 */
import { describe, expect, test } from "bun:test";
import { type MailboxKey, mailboxOf } from "../../src/core/codec/did.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import { dayMs } from "../../src/core/codec/time.ts";
import type { SeenMember } from "../../src/nodes/parties/members.ts";
import { StoreError } from "../../src/storage/contract.ts";
import { connectionFrom, respond } from "../support/app.ts";
import {
  cachesKnowing,
  createPerson,
  envelopeTo,
  outcomeOf,
  signedBy,
  type TestCache,
  testNowMs,
} from "../support/cache-node.ts";

const operator = createPerson(1);
const bob = createPerson(2);
const member = createPerson(3);
const second = createPerson(4);
const newcomer = createPerson(5);
const stranger = createPerson(6);
const network = "198.51.100.7";
const caches = cachesKnowing(operator, bob, member, second, newcomer, stranger);

const since = new Map([
  [member.did, testNowMs - 7 * dayMs],
  [second.did, testNowMs - 300 * dayMs],
  [newcomer.did, testNowMs - 7 * dayMs + 1],
]);
const members = {
  seen: () => undefined,
  of: async (did: SeenMember["did"]): Promise<SeenMember | null> => {
    const sinceMs = since.get(did);
    return sinceMs === undefined ? null : { did, sinceMs, invitation: null, lastSeen: null };
  },
  counts: async () => ({ all: 20, day: 0, week: 0, month: 0 }),
};

/** Floors of 160 entries for 20 members, rounded up to 24; a rest of 100, as for newcomers. */
const open = (known: Partial<typeof members> = {}): Promise<TestCache> =>
  caches({
    recipient_entries_max: 400,
    stranger_share: 40,
    reporting: { members: { ...members, ...known }, operator: { did: operator.did } },
  });
const store = (node: TestCache, envelope: JsonObject): Promise<string> => {
  const request = new Request("http://cache.example/cache/store", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(envelope),
  });
  return outcomeOf(respond(node.app, request, connectionFrom(network)));
};
let used = 0;
/** Until it is refused; how many were taken. */
async function fill(node: TestCache, to = operator, author = newcomer): Promise<number> {
  for (let taken = 0; ; taken++) {
    const outcome = await report(node, author, to);
    if (outcome !== "202 ok") return taken;
  }
}
const report = (node: TestCache, author: typeof newcomer, to = operator) =>
  store(node, signedBy(author, envelopeTo(to, ++used)));

describe("the operator's mailbox", () => {
  test("keeps a place for each who has been a member for a week, whatever newcomers of the network fill", async () => {
    const node = await open();
    expect(await fill(node)).toBe(2 + 51);
    expect(await report(node, stranger)).toBe("507 mailbox_full");
    expect(await store(node, envelopeTo(operator, ++used))).toBe("507 mailbox_full");
    expect(await report(node, member)).toBe("202 ok");
    expect(await report(node, second)).toBe("202 ok");
  });

  test("leaves a member its place whatever another one fills", async () => {
    const node = await open();
    expect(await fill(node, operator, member)).toBe(6 + 51);
    for (let i = 0; i < 6; i++) expect(await report(node, second)).toBe("202 ok");
  });

  test("says the same before a report comes", async () => {
    const node = await open();
    const { sendingOf } = node.cache.explained;
    const [own, others] = [mailboxOf(operator.did, 0), mailboxOf(bob.did, 0)];
    const known = async (mailbox: MailboxKey, author: typeof member) =>
      (await sendingOf(mailbox, author.did, testNowMs)).isKnown;
    expect([
      await known(own, member),
      await known(own, newcomer),
      await known(own, stranger),
      await known(others, member),
    ]).toEqual([true, false, false, false]);
  });

  test("takes all for newcomers where the list can't be read", async () => {
    const of = async () => {
      throw new StoreError("unavailable", "the list is away");
    };
    const node = await open({ of });
    await fill(node);
    expect(await report(node, member)).toBe("507 mailbox_full");
  });
});

test("members have no such place in other mailboxes", async () => {
  const node = await open();
  await fill(node, bob);
  expect(await report(node, member, bob)).toBe("507 mailbox_full");
});
