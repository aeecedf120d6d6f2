/** The log: masked addresses, and a reader that is stuck. */
import { describe, expect, test } from "bun:test";
import { createLog, joinOutages, maskAddress } from "../../../../src/nodes/http/log.ts";
import { StoreError } from "../../../../src/storage/contract.ts";

describe("the log", () => {
  test.each([
    ["192.0.2.77", "192.0.2.0/24"],
    ["::ffff:192.0.2.77", "192.0.2.0/24"],
    ["2001:db8:1:2::3", "2001:db8:1::/48"],
    ["2001:db8::1", "2001:db8:0::/48"],
    ["::1", "::1"],
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
    expect(written[0]).toBe(
      '{"time":"1970-01-01T00:00:00.000Z","level":"info","message":"first"}\n',
    );
    const last = JSON.parse(written.join("").trimEnd().split("\n").at(-1) as string) as {
      dropped: number;
    };
    expect(last.dropped).toBeGreaterThan(1_900);
  });
});

test("a flush of nothing keeps no later line back", async () => {
  const written: string[] = [];
  const write = async (text: string): Promise<void> => void written.push(text);
  const sink = createLog({ level: "info", now: () => 0, write });
  await sink.flush();
  sink.log("info", "later");
  await sink.flush();
  expect(written.length).toBe(1);
});

test("ten seconds without a store are one line, whoever needs it; a minute of silence later begins another", () => {
  let nowMs = 0;
  const lines: unknown[] = [];
  const log = joinOutages(
    (level, message, fields) => void lines.push([level, message, fields]),
    () => nowMs,
  );
  const away = (text: string) => new StoreError("unavailable", text);
  for (; nowMs < 10_000; nowMs += 1_000) {
    log("warn", "a sweep failed", { store: "main", error: away(`connection ${nowMs} refused`) });
    log("error", "no block could be made; the ledger tries again", {
      code: "unavailable",
      error: away("shutting down"),
    });
    log("warn", "requests fail; this reason is logged once per outage", {
      error: new StoreError("busy", "late"),
    });
  }
  expect(lines).toEqual([
    ["warn", "a sweep failed", { store: "main", error: "connection 0 refused" }],
  ]);
  log("error", "a sweep failed", { error: new StoreError("corrupt", "a page is damaged") });
  log("warn", "the certificate ends soon", { days: 3 });
  expect(lines.length).toBe(3);
  nowMs += 60_000;
  log("warn", "a sweep failed", { error: away("gone") });
  expect(lines.length).toBe(4);
  log("warn", "a push failed", { error: new RangeError("out of range") });
  expect(lines[4]).toEqual(["warn", "a push failed", { error: "out of range" }]);
});
