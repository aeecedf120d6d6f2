/** The log: masked addresses, and a reader that is stuck. */
import { describe, expect, test } from "bun:test";
import { createLog, maskAddress } from "../../../../src/nodes/http/log.ts";

describe("the log", () => {
  test.each([
    ["192.0.2.77", "192.0.2.0/24"],
    ["::ffff:192.0.2.77", "192.0.2.0/24"],
    ["2001:db8:1:2::3", "2001:db8:1::/48"],
    ["2001:db8::1", "2001:db8:0::/48"],
    ["::1", "0:0:0::/48"],
    ["unix", "unix"],
  ])("%s is masked as %s", (address, masked) => expect(maskAddress(address)).toBe(masked));

  test("a log whose reader is stuck drops lines and says how many", async () => {
    const stuck = Promise.withResolvers<void>();
    const written: string[] = [];
    const sink = createLog({
      level: "info",
      now: () => 0,
      write: async (text) => {
        written.push(text);
        await stuck.promise;
      },
    });
    sink.log("debug", "not at this level");
    sink.log("info", "first");
    void sink.flush();
    for (let i = 0; i < 3_000; i++) sink.log("info", "x".repeat(1_000));
    stuck.resolve();
    await sink.flush();
    expect(written[0]).toBe('{"time":"1970-01-01T00:00:00.000Z","level":"info","message":"first"}\n');
    const last = JSON.parse(written.join("").trimEnd().split("\n").at(-1) as string) as { dropped: number };
    expect(last.dropped).toBeGreaterThan(1_900);
  });
});
