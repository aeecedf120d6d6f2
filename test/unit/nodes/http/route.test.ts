/** What a client gets for what a handler threw, and how often the log says so. */
import { expect, test } from "bun:test";
import { joinOutages, type Log } from "../../../../src/nodes/http/log.ts";
import { faultOf } from "../../../../src/nodes/http/route.ts";
import { StoreError } from "../../../../src/storage/contract.ts";

const route = { path: "/dids/:did/nonces", codes: ["chain_unavailable"] } as const;

test("an outage is one line a minute without a stack, another reason its own", () => {
  const lines: string[] = [];
  let nowMs = 0;
  const log = joinOutages(
    (level, message, fields) => lines.push(`${level} ${message} ${fields?.["error"]}`),
    () => nowMs,
  );
  const away = new StoreError("unavailable", "no endpoint answers");
  const ask = (atMs: number, error: unknown = away) => {
    nowMs = atMs;
    return faultOf(log, error, { requestId: "r", route }).code;
  };
  for (let i = 0; i < 600; i++) expect(ask(i * 100)).toBe("chain_unavailable");
  expect(lines).toEqual(["warn requests fail no endpoint answers"]);
  ask(59_900, new StoreError("full", "no room"));
  expect(lines.length).toBe(2);
  ask(60_000);
  expect(lines.length).toBe(3);
  ask(0);
  expect(lines.length).toBe(3);
});

test("each bug is a line with its stack", () => {
  const lines: string[] = [];
  const log: Log = (level, message, fields) =>
    lines.push(`${level} ${message} ${fields?.["error"]}`);
  for (let i = 0; i < 3; i++)
    expect(faultOf(log, new Error("a bug"), { requestId: "r", route }).code).toBe("internal_error");
  expect(lines.length).toBe(3);
  expect(
    lines.every(
      (line) => line.startsWith("error a request failed") && line.includes("route.test.ts"),
    ),
  ).toBe(true);
});
