/** Deleted DIDs over a store that is slow, and with an envelope that is stored late. */
import { expect, test } from "bun:test";
import { utf8 } from "../../src/core/codec/bytes.ts";
import { type Did, mailboxOf } from "../../src/core/codec/did.ts";
import { hourMs, minuteMs } from "../../src/core/codec/time.ts";
import { keyOfKnown } from "../../src/nodes/cache/known.ts";
import { followDeletions } from "../../src/nodes/operations/erase.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Receipts } from "../../src/storage/contract.ts";
import { optionsOf, withMethods } from "../conformance/options.ts";
import { entry, kinds, quota } from "../conformance/samples.ts";
import { pause, until } from "../support/wait.ts";

const blocks = {
  change: () => Promise.resolve({ added: 0, replaced: 0, removed: 0, missing: [] }),
} as never;
const deleted = "did:svc:2NEpo7TZRRrLZSi2U" as Did;

async function openStores() {
  const { mailbox, receipts } = (await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment))
    .capabilities;
  if (receipts === undefined || mailbox === undefined)
    throw new Error("the memory driver has both");
  return { mailbox, receipts };
}

const environment = { now: Date.now, log: () => undefined, fatal: () => undefined };
const nothing = { forget: () => Promise.resolve() };

/** Of a node with these stores; `scan` is how it looks at its receipts. */
function deletionsOf(
  { mailbox, receipts }: Awaited<ReturnType<typeof openStores>>,
  scan: Receipts["scan"],
  parts: Partial<Parameters<typeof followDeletions>[0]> = {},
) {
  return followDeletions({
    ...environment,
    blocks,
    bus: openLocalBus({ log: environment.log }),
    directory: null,
    members: nothing,
    tiers: nothing,
    cache: { mailbox, receipts: withMethods("receipts", receipts, { scan }) },
    results: { forget: () => undefined },
    lifeOf: () => Promise.resolve(0),
    ...parts,
  });
}

test("a slow store is looked at once at a time, and after that again", async () => {
  const stores = await openStores();
  const { receipts } = stores;
  const [slow, looks] = [Promise.withResolvers<void>(), { begun: 0 }];
  const scan: Receipts["scan"] = async (...asked) => {
    looks.begun += 1;
    await slow.promise;
    return receipts.scan(...asked);
  };
  const { expect: follow, close } = deletionsOf(stores, scan);
  try {
    await follow(deleted);
    while (looks.begun === 0) await Bun.sleep(10);
    await pause(2_200, "it would be looked at twice more, once a second");
    expect(looks.begun).toBe(1);
    slow.resolve();
    while (looks.begun === 1) await Bun.sleep(10);
    expect(looks.begun).toBe(2);
  } finally {
    close();
  }
});

test("an envelope that was admitted before the end and stored after a look found nothing is removed too", async () => {
  const stores = await openStores();
  const { mailbox, receipts } = stores;
  let [life, nowMs, looks] = [0, Date.now(), 0];
  const own = mailboxOf(deleted, 0);
  const scan: Receipts["scan"] = async (...asked) => {
    looks += 1;
    return receipts.scan(...asked);
  };
  const { expect: follow, close } = deletionsOf(stores, scan, {
    now: () => nowMs,
    lifeOf: () => Promise.resolve(life),
  });
  const twoLooks = async () => {
    const begun = looks;
    await until(() => looks >= begun + 2);
  };
  const records = () => receipts.scan("/deleted/", { after: null, limit: 9, nowMs });
  try {
    await follow(deleted);
    life = 1;
    await twoLooks();
    const late = entry(1, { recipient: own, storedAtMs: nowMs, expiresAtMs: nowMs + hourMs });
    expect(kinds([await mailbox.store(late, quota())])).toEqual({ stored: 1 });
    await until(async () => (await mailbox.stats(nowMs)).entries === 0);
    // What an acknowledgement or another late request may have left of the owner.
    await receipts.put(keyOfKnown(own), utf8("[]"), nowMs + hourMs);
    expect((await records()).length).toBe(1);
    nowMs += minuteMs;
    await until(async () => (await records()).length === 0);
    expect(await receipts.get(keyOfKnown(own), nowMs)).toBeNull();
  } finally {
    close();
  }
}, 30_000);

test("who is created anew after a deletion stays a member with a tier, also when the node starts again", async () => {
  const stores = await openStores();
  const { receipts } = stores;
  let [life, nowMs, looks] = [0, Date.now(), 0];
  const scan: Receipts["scan"] = async (...asked) => {
    looks += 1;
    return receipts.scan(...asked);
  };
  const forgotten: string[] = [];
  const forget = (what: string) => async () => void forgotten.push(what);
  const begin = () =>
    deletionsOf(stores, scan, {
      now: () => nowMs,
      members: { forget: forget("member") },
      tiers: { forget: forget("tier") },
      lifeOf: () => Promise.resolve(life),
    });
  const looksMore = async (count: number) => {
    const begun = looks;
    await until(() => looks >= begun + count);
  };
  const records = () => receipts.scan("/deleted/", { after: null, limit: 9, nowMs });
  let deletions = begin();
  try {
    await deletions.expect(deleted);
    life = 1;
    await until(() => forgotten.length === 2);
    await looksMore(1);
    deletions.close();
    deletions = begin();
    await looksMore(2);
    nowMs += minuteMs;
    await until(async () => (await records()).length === 0);
    expect(forgotten).toEqual(["member", "tier"]);
  } finally {
    deletions.close();
  }
}, 30_000);
