/** The Relay and the Cache of its process, as the only destination and as one of several. */
import { afterEach, describe, expect, test } from "bun:test";
import type { JsonObject } from "../../src/core/codec/json.ts";
import type { Service } from "../../src/core/ledger/account.ts";
import { type Mailbox, StoreError, type StoreOutcome } from "../../src/storage/contract.ts";
import {
  cacheEndpoint,
  createPerson,
  envelopeTo,
  signedBy,
  uuidOf,
} from "../support/cache-node.ts";
import { held, type TestRelay, type TestRelayOptions } from "../support/relay-node.ts";
import {
  alice,
  cacheAt,
  cleanUp,
  inboxAt,
  inboxFor,
  knownBob,
  mallory,
  relayFor,
  status,
} from "./relay-scenario.ts";

afterEach(cleanUp);

describe("the Cache of the process answers alike as the only destination and after another", () => {
  const bob = createPerson(1);
  const changed = envelopeTo(bob, 1, { payload: { changed: true } });
  const signed = (envelope: JsonObject) => signedBy(alice, envelope);
  const other = signedBy(mallory, changed);
  const chunkOf = (id: number, total: number) =>
    envelopeTo(bob, id, {
      message_group_id: uuidOf(9),
      sequence_number: 0,
      total_chunks: total,
      delivery_hint: "chunked",
    });
  const kinds = (outcome: Partial<Mailbox>): TestRelayOptions => ({
    cache: { wrap: () => outcome },
  });
  const storing = (outcome: StoreOutcome) => kinds({ store: async () => outcome });
  const failing = (code: StoreError["code"]) =>
    kinds({
      store: async () => {
        throw new StoreError(code, "no");
      },
    });
  type Case = {
    readonly name: string;
    /** In turn; a list at the same moment. */
    readonly sent: readonly (JsonObject | readonly JsonObject[])[];
    readonly codes: readonly string[];
    readonly given?: TestRelayOptions;
    readonly before?: (relay: TestRelay) => Promise<unknown>;
  };
  const one = envelopeTo(bob, 1);
  const cases: Case[] = [
    {
      name: "stored, repeated, and other content of someone else",
      sent: [one, one, other],
      codes: ["cached", "cached +", "duplicate_conflict"],
    },
    {
      name: "sealed anew, unsigned both",
      sent: [one, changed, other, changed],
      codes: ["cached", "cached +", "duplicate_conflict", "cached +"],
    },
    {
      name: "sealed anew and signed by one sender",
      sent: [signed(one), signed(changed), other, changed],
      codes: ["cached", "cached +", "duplicate_conflict", "duplicate_conflict"],
    },
    {
      name: "at one moment, equal and other",
      sent: [[one, one, other], one],
      codes: ["cached", "cached +", "duplicate_conflict", "cached +"],
    },
    {
      name: "held by a store of the sender",
      sent: [one, changed, other],
      codes: ["cached +", "cached +", "duplicate_conflict"],
      before: (relay) => relay.cache.store(one),
    },
    {
      name: "another chunk in its place, refused and then other content",
      sent: [chunkOf(2, 2), chunkOf(1, 2), signed(chunkOf(1, 3))],
      codes: ["cached", "not_deliverable chunk_conflict", "duplicate_conflict"],
    },
    {
      name: "a full mailbox",
      sent: [one, other],
      given: { cache: { recipient_entries_max: 1 } },
      codes: ["cache_unavailable mailbox_full", "duplicate_conflict"],
      before: (relay) => relay.cache.store(envelopeTo(bob, 7)),
    },
    {
      name: "a full store",
      sent: [one],
      given: storing({ kind: "full", scope: "store" }),
      codes: ["cache_unavailable storage_full"],
    },
    {
      name: "a used up pool",
      sent: [one],
      given: storing({ kind: "full", scope: "pool", label: "new-rest" }),
      codes: ["cache_unavailable mailbox_full"],
    },
    {
      name: "a used up share of the store",
      sent: [one],
      given: storing({ kind: "full", scope: "store_share", label: "via:a" }),
      codes: ["cache_unavailable storage_full"],
    },
    {
      name: "a store that fails",
      sent: [one, one, other],
      given: failing("unavailable"),
      codes: [
        "cache_unavailable service_unavailable",
        "cache_unavailable service_unavailable",
        "duplicate_conflict",
      ],
    },
    {
      name: "a disk without room",
      sent: [one],
      given: failing("full"),
      codes: ["cache_unavailable storage_full"],
    },
    { name: "signed", sent: [signed(one), signed(one)], codes: ["cached", "cached +"] },
    {
      name: "a Cache that wants signatures",
      sent: [one, signed(one)],
      given: { cache: { require_sender_signature: true } },
      codes: ["not_deliverable sender_signature_invalid", "duplicate_conflict"],
    },
    {
      name: "a hint against Caches",
      sent: [envelopeTo(bob, 1, { delivery_hint: "direct" })],
      codes: ["not_deliverable"],
    },
  ];

  async function walk({ sent, given, before }: Case, services: Partial<Service>[]) {
    const relay = await relayFor(given);
    relay.recipients.add(alice);
    relay.recipients.add(mallory);
    knownBob(relay, services);
    await before?.(relay);
    const results = [];
    for (const step of sent) {
      const together = Array.isArray(step) ? (step as JsonObject[]) : [step as JsonObject];
      results.push(...(await Promise.all(together.map((envelope) => relay.send(envelope)))));
    }
    const text = await relay.metrics.render();
    const counted = text
      .split("\n")
      .filter((line) => /^waypost_relay_results_total.*cache/.test(line));
    return {
      results,
      held: await held(relay, bob.did),
      counted,
      left: relay.relay.stats().inFlight,
    };
  }

  test.each(cases)("$name", async (given) => {
    const alone = await walk(given, [cacheAt(cacheEndpoint)]);
    const after = await walk(given, [inboxAt(inboxFor(status(410)).url), cacheAt(cacheEndpoint)]);
    const codes = alone.results.map(({ code, details, success, cache_result }) => {
      const more = success
        ? details["deduped"] === true
          ? ["+"]
          : []
        : [cache_result?.["code"] ?? []].flat();
      return [code, ...more].join(" ");
    });
    expect(codes).toEqual([...given.codes]);
    for (const { code, message } of alone.results)
      if (code === "cache_unavailable") expect(message).toContain("was reached");
    // The receipt of a repeat is the first one from a record, and that of the repeat from the
    // Cache.
    const members = (walked: typeof alone) =>
      walked.results.map(({ ndr, details, cache_result, ...result }) => {
        const { request_id, ...rest } = details;
        const receipt = cache_result === null ? null : { ...cache_result, deduped: null };
        return {
          ...result,
          receipt,
          final: ndr?.final,
          details: rest,
          refused: request_id !== undefined,
        };
      });
    expect(members(after)).toEqual(members(alone));
    expect({ ...after, results: [] }).toEqual({ ...alone, results: [] });
    expect(alone.left).toBe(0);
  });
});

test("other content for a Cache elsewhere at two nodes: what the Cache knew already is a conflict", async () => {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const receipt = { accepted: true, message_id: uuidOf(1) };
  const elsewhere = inboxFor(async () => {
    const isFirst = elsewhere.bodies.length === 1;
    if (isFirst) await released;
    return Response.json({ ...receipt, deduped: isFirst }, { status: 202 });
  });
  const relay = await relayFor({ withoutLocalCache: true });
  const other = await relayFor({
    withoutLocalCache: true,
    beside: relay,
    receipts: relay.receipts,
  });
  const bob = knownBob(relay, [cacheAt(elsewhere.url)]);
  relay.recipients.add(mallory);
  const late = other.send(signedBy(mallory, envelopeTo(bob, 1, { payload: { changed: true } })));
  while (elsewhere.bodies.length === 0) await Bun.sleep(1);
  expect((await relay.send(envelopeTo(bob, 1))).code).toBe("cached");
  release();
  expect((await late).code).toBe("duplicate_conflict");
});
