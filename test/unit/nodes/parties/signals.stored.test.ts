/**
 * The bell: what a Cache stored for a DID rings at its live sessions in every process, and at those
 * of no one else.
 */
import { expect, test } from "bun:test";
import type { Did } from "../../../../src/core/codec/did.ts";
import { createBell } from "../../../../src/nodes/parties/signals.ts";
import { LocalBus, openLocalBus } from "../../../../src/plugins/bus/local.ts";

const did = "did:svc:11111111111111111111" as Did;
const turn = () => Bun.sleep(5);

test("an envelope that one process stored rings for its DID in all of them, and when rings may have been lost", async () => {
  const bus = new LocalBus(() => {});
  const [here, there] = [createBell(bus), createBell(bus)];
  const rung = { here: 0, there: 0, other: 0 };
  here.listen(did, () => rung.here++);
  const stop = there.listen(did, () => rung.there++);
  there.listen("did:svc:other" as Did, () => rung.other++);
  here.ring(did);
  await turn();
  expect(rung).toEqual({ here: 1, there: 1, other: 0 });
  stop();
  there.ring(did);
  await turn();
  expect(rung).toEqual({ here: 2, there: 1, other: 0 });
  bus.reportMissed();
  await turn();
  expect(rung).toEqual({ here: 3, there: 1, other: 1 });
  await bus.close();
});

test("is heard while somebody listens", async () => {
  const bus = openLocalBus({ log: () => {} });
  const bell = createBell(bus);
  expect(bell.isHeard(did)).toBe(false);
  const stop = bell.listen(did, () => undefined);
  expect(bell.isHeard(did)).toBe(true);
  stop();
  expect(bell.isHeard(did)).toBe(false);
  await bus.close();
});
