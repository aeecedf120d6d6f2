/** Bounds of the bus of one process; its laws are in `test/conformance/bus.ts`. */
import { expect, test } from "bun:test";
import { LocalBus } from "../../../../src/plugins/bus/local.ts";

test("the largest message is delivered and answered, and one byte more is dropped or unanswered", async () => {
  const bus = new LocalBus(() => undefined);
  const sizes: number[] = [];
  bus.subscribe("s", (message) => {
    sizes.push(message.length);
    return new Uint8Array(1);
  });
  const largest = new Uint8Array(bus.messageBytesMax);
  const larger = new Uint8Array(bus.messageBytesMax + 1);
  expect(await bus.request("s", largest, 20_000)).toEqual(new Uint8Array(1));
  expect(await bus.request("s", larger, 20_000)).toBe("unanswered");
  bus.publish("s", larger);
  expect(bus.stats().dropped).toBe(1);
  expect(sizes).toEqual([bus.messageBytesMax]);
  await bus.close();
});
