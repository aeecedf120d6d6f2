/** A change that a Directory announces, and processes that remember its answers. */
import { expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { createMemo } from "../../../../src/nodes/parties/memo.ts";
import { directoryRecipients } from "../../../../src/nodes/parties/recipients.ts";
import { announceChange } from "../../../../src/nodes/parties/signals.ts";
import { openLocalBus } from "../../../../src/plugins/bus/local.ts";

const did = "did:svc:1111111111111111111111" as Did;
const other = "did:svc:2222222222222222222222" as Did;

/** The bus delivers in the next turn of the event loop. */
const delivered = () => new Promise<void>((resolve) => void setImmediate(resolve));

function stage() {
  const bus = openLocalBus({ log: () => {} });
  let [asked, nowMs] = [0, 0];
  const source = directoryRecipients("https://directory.net", {
    bus,
    now: () => nowMs,
    fetch: async () => {
      asked++;
      return Response.json({
        did,
        document: null,
        deactivated: false,
        delivery_policy_links: null,
      });
    },
  });
  /** How often the Directory was asked by one question after so many milliseconds. */
  const askAfter = async (ms: number, about = did): Promise<number> => {
    nowMs += ms;
    const before = asked;
    await source.subject(about);
    return asked - before;
  };
  return { announce: announceChange(bus), askAfter };
}

test("a DID that changes is asked for again at once, and then every two seconds for two minutes", async () => {
  const { announce, askAfter } = stage();
  expect([await askAfter(0), await askAfter(0)]).toEqual([1, 0]);
  announce({ name: "set_alias", did, alias: "someone" });
  await delivered();
  expect([await askAfter(0), await askAfter(1_999), await askAfter(1)]).toEqual([1, 0, 1]);
  expect([await askAfter(118_000), await askAfter(1_999), await askAfter(28_001)]).toEqual([
    1, 0, 1,
  ]);
});

test("other DIDs are remembered on", async () => {
  const { announce, askAfter } = stage();
  expect(await askAfter(0, other)).toBe(1);
  announce({ name: "set_alias", did, alias: "someone" });
  await delivered();
  expect([await askAfter(29_999, other), await askAfter(1, other)]).toEqual([0, 1]);
});

test("an answer that was on its way when its question was forgotten is not remembered", async () => {
  const gates: PromiseWithResolvers<string>[] = [];
  const memo = createMemo<string>({
    load: () => {
      const gate = Promise.withResolvers<string>();
      gates.push(gate);
      return gate.promise;
    },
    valueMs: () => 1_000,
    failureMs: 100,
    entriesMax: 3,
    loadsMax: 3,
    now: () => 0,
  });
  const old = memo.get("a");
  await null;
  memo.forget("a");
  const fresh = memo.get("a");
  await null;
  gates[1]?.resolve("new");
  gates[0]?.resolve("old");
  expect([await old, await fresh]).toEqual(["old", "new"]);
  expect(await memo.get("a")).toBe("new");
});
