/** Deleted DIDs over a store that is slow. */
import { expect, test } from "bun:test";
import type { Did } from "../../src/core/codec/did.ts";
import { followDeletions } from "../../src/nodes/operations/erase.ts";
import { openLocalBus } from "../../src/plugins/bus/local.ts";
import { memoryPlugin } from "../../src/plugins/memory/memory.ts";
import type { Receipts } from "../../src/storage/contract.ts";
import { optionsOf, withMethods } from "../conformance/options.ts";
import { pause } from "../support/wait.ts";

const environment = { now: Date.now, log: () => undefined, fatal: () => undefined };

test("a slow store is looked at once at a time, and after that again", async () => {
  const { mailbox, receipts } = (await memoryPlugin.open(optionsOf(memoryPlugin, {}), environment))
    .capabilities;
  if (receipts === undefined || mailbox === undefined)
    throw new Error("the memory driver has both");
  const [slow, looks] = [Promise.withResolvers<void>(), { begun: 0 }];
  const scan: Receipts["scan"] = async (...asked) => {
    looks.begun += 1;
    await slow.promise;
    return receipts.scan(...asked);
  };
  const blocks = {
    change: () => Promise.resolve({ added: 0, replaced: 0, removed: 0, missing: [] }),
  } as never;
  const { expect: follow, close } = followDeletions({
    ...environment,
    blocks,
    bus: openLocalBus({ log: environment.log }),
    directory: null,
    members: { forget: () => Promise.resolve() },
    tiers: { forget: () => Promise.resolve() },
    cache: { mailbox, receipts: withMethods("receipts", receipts, { scan }) },
    results: { forget: () => undefined },
    lifeOf: () => Promise.resolve(0),
  });
  try {
    await follow("did:svc:2NEpo7TZRRrLZSi2U" as Did);
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
