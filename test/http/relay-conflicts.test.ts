/**
 * Someone learns the id of a message and puts something else under it before the message comes,
 * also at a Cache elsewhere: the sender gets to know it, by every way that the message takes.
 */
import { afterEach, describe, expect, test } from "bun:test";
import type { Did } from "../../src/core/codec/did.ts";
import type { JsonObject } from "../../src/core/codec/json.ts";
import type { Service } from "../../src/core/ledger/account.ts";
import { deriveDid } from "../../src/core/ledger/names.ts";
import {
  ackBody,
  cacheEndpoint,
  createPerson,
  envelopeTo,
  type Person,
  signedBy,
  testNowMs,
  uuidOf,
} from "../support/cache-node.ts";
import type { TestRelay } from "../support/relay-node.ts";
import {
  alice,
  cacheAt,
  cleanUp,
  inboxAt,
  inboxFor,
  knownBob,
  mallory,
  ofMallory,
  relayAt,
  relayFor,
  status,
} from "./relay-scenario.ts";

afterEach(cleanUp);

/**
 * Answers of a destination that has something else under the id: as a Cache writes a refusal, and
 * as a Relay.
 */
const conflict = () => Response.json({ code: "duplicate_conflict" }, { status: 409 });
const asRelay = () =>
  Response.json({ success: false, code: "duplicate_conflict", http_status: 409 }, { status: 409 });

describe("other content at a destination elsewhere ends the delivery with 409", () => {
  const ways: [string, (url: string) => Partial<Service>, () => Response][] = [
    ["a Cache", cacheAt, conflict],
    ["a Relay", relayAt, asRelay],
    ["an inbox", inboxAt, conflict],
  ];
  test.each(ways)("%s", async (_, serviceAt, answer) => {
    const relay = await relayFor({ withoutLocalCache: true });
    const [first, next] = [inboxFor(answer), inboxFor()];
    const bob = knownBob(relay, [
      { ...serviceAt(first.url), priority: 1 },
      { ...cacheAt(next.url), priority: 2 },
    ]);
    const result = await relay.send(envelopeTo(bob, 1));
    expect(result).toMatchObject({ success: false, http_status: 409, code: "duplicate_conflict" });
    expect([first.bodies.length, next.bodies.length, relay.sleeps]).toEqual([1, 0, []]);
    // Nothing of it is remembered: the destination may have room for it later.
    first.answer = () => new Response("taken", { status: 503 });
    expect((await relay.send(envelopeTo(bob, 1))).code).not.toBe("duplicate_conflict");
  });

  test("another 409, or one whose text says nothing, is a refusal like others", async () => {
    const relay = await relayFor({ withoutLocalCache: true });
    const first = inboxFor(() => Response.json({ code: "chunk_conflict" }, { status: 409 }));
    const next = inboxFor(() =>
      Response.json({ accepted: true, message_id: uuidOf(1), deduped: false }, { status: 202 }),
    );
    const bob = knownBob(relay, [
      { ...cacheAt(first.url), priority: 1 },
      { ...cacheAt(next.url), priority: 2 },
    ]);
    expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
    knownBob(relay, [inboxAt(inboxFor(status(409)).url)]);
    expect((await relay.send(envelopeTo(bob, 2))).code).toBe("not_deliverable");
  });
});

describe("a mailbox in which another has used the id", () => {
  /**
   * Bob's Cache is at another provider than the Relay that Alice sends by; Bob may publish that
   * provider's Relay too.
   */
  async function twoProviders(services: (relay: string, cache: string) => Partial<Service>[]) {
    const door = inboxFor();
    const endpoint = door.url.replace("/in", "");
    const there = await relayFor({ cache: { public_endpoints: [endpoint, cacheEndpoint] } });
    door.answer = () => there.cache.store(JSON.parse(door.bodies.at(-1)!));
    const here = await relayFor({ withoutLocalCache: true });
    const bob = createPerson(1, services(there.serve(), endpoint));
    for (const relay of [here, there]) {
      relay.recipients.add(bob);
      relay.recipients.add(alice);
    }
    return { here, there, bob };
  }

  const garbage = (there: TestRelay, bob: Person) => ofMallory(there, envelopeTo(bob, 1));

  async function store(there: TestRelay, envelope: JsonObject): Promise<string> {
    const answer = await there.cache.store(envelope);
    const { code, deduped } = (await answer.json()) as { code?: string; deduped?: boolean };
    return `${answer.status} ${code ?? deduped}`;
  }

  test("answers 409 to every caller, and also once the recipient has acknowledged it", async () => {
    const { there, bob } = await twoProviders(() => [cacheAt(cacheEndpoint)]);
    expect(await store(there, garbage(there, bob))).toBe("202 false");
    const own = signedBy(alice, envelopeTo(bob, 1));
    for (let round = 0; round < 2; round++) {
      expect(await store(there, own)).toBe("409 duplicate_conflict");
      expect(await store(there, envelopeTo(bob, 1))).toBe("409 duplicate_conflict");
      expect((await there.send(own)).code).toBe("duplicate_conflict");
      const anew = signedBy(mallory, envelopeTo(bob, 1, { payload: { anew: round } }));
      expect(await store(there, anew)).toBe("202 true");
      const timestamp = new Date(testNowMs).toISOString();
      await there.cache.ack(ackBody(bob, [uuidOf(1)], { timestamp }));
    }
  });

  test("a signature that can't be verified is no licence: its next content is a conflict, its repeat is not", async () => {
    const { there, bob } = await twoProviders(() => [cacheAt(cacheEndpoint)]);
    // Self-certifying, of a Directory that can't be asked.
    const did: Did = deriveDid(new Uint8Array(32), new Uint8Array(32));
    const remote: Person = { ...createPerson(7), did, keyId: `${did}#k1` };
    const one = signedBy(remote, envelopeTo(bob, 1));
    expect(await store(there, one)).toBe("202 false");
    expect(await store(there, one)).toBe("202 true");
    const other = signedBy(remote, envelopeTo(bob, 1, { payload: { x: 1 } }));
    expect(await store(there, other)).toBe("409 duplicate_conflict");
    expect(await store(there, envelopeTo(bob, 1))).toBe("409 duplicate_conflict");
  });

  test.each([
    // The endpoint in the end is one that only the other provider knows.
    ["by its Relay", (relay: string) => [relayAt(relay), cacheAt(cacheEndpoint)]],
    ["by its Cache", (_: string, cache: string) => [cacheAt(cache)]],
    ["by either", (relay: string, cache: string) => [relayAt(relay), cacheAt(cache)]],
  ])("is refused through another provider %s", async (_, services) => {
    const { here, there, bob } = await twoProviders(services);
    await store(there, garbage(there, bob));
    const result = await here.send(signedBy(alice, envelopeTo(bob, 1)));
    expect([result.http_status, result.code]).toEqual([409, "duplicate_conflict"]);
  });
});
