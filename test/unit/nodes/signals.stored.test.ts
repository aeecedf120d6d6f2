/** The signal of stored envelopes: what one process stores wakes the streams of the others, by mailbox. */
import { expect, test } from "bun:test";
import type { MailboxKey } from "../../../src/core/codec/did.ts";
import { createStoredSignal } from "../../../src/nodes/signals.ts";
import { openLocalBus } from "../../../src/plugins/bus/local.ts";

const mailbox = "did:svc:11111111111111111111" as MailboxKey;
const turn = () => Bun.sleep(5);

test("an envelope that one process stored wakes the followers of its mailbox in the others, and not its own", async () => {
  const bus = openLocalBus({ log: () => {} });
  const [here, there] = [createStoredSignal(bus), createStoredSignal(bus)];
  const woken = { here: 0, there: 0, other: 0 };
  await here.follow(mailbox, () => woken.here++);
  const stop = await there.follow(mailbox, () => woken.there++);
  await there.follow("did:svc:other" as MailboxKey, () => woken.other++);
  here.send(mailbox);
  await turn();
  expect(woken).toEqual({ here: 0, there: 1, other: 0 });
  there.send(mailbox);
  await turn();
  expect(woken).toEqual({ here: 1, there: 1, other: 0 });
  stop();
  here.send(mailbox);
  await turn();
  expect(woken.there).toBe(1);
  expect(bus.stats().subscriptions).toBe(2);
  await bus.close();
});
