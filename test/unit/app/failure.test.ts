/**
 * What libraries print becomes one bounded line of the log, without stacks and without tokens of
 * addresses.
 */
import { expect, test } from "bun:test";
import { logLibraryOutput } from "../../../src/app/failure.ts";

/** What the log shows of a line that a library printed. */
function printedText(parts: readonly unknown[]): string {
  const lines: unknown[] = [];
  const log = (_level: string, _message: string, fields?: Readonly<Record<string, unknown>>) =>
    lines.push(fields?.["text"]);
  const giveBack = logLibraryOutput({
    log,
    flush: async () => undefined,
    setLevel: () => undefined,
  });
  console.error(...parts);
  giveBack();
  return String(lines[0]);
}

const texts: [name: string, parts: unknown[], text: string][] = [
  ["an error is its message", [new Error("Input/output error")], "Input/output error"],
  ["parts are joined", ["API/INIT:", 5, null], "API/INIT: 5 null"],
  ["lines are joined", ["a\n\t b\r\nc "], "a b c"],
  [
    "an address is cut to its host",
    ["disconnected from wss://node.example:9944/key/s3cret?apikey=t0ken: 1006:: Abnormal Closure"],
    "disconnected from wss://node.example:9944 1006:: Abnormal Closure",
  ],
  [
    "a token before the host is cut",
    ["at wss://user:s3cret@node.example now"],
    "at wss://node.example now",
  ],
];
for (const [name, parts, text] of texts) test(name, () => expect(printedText(parts)).toBe(text));

test("no text is longer than 500 characters, and a cut address shows no token", () => {
  expect(printedText(["x".repeat(10_000_000)]).length).toBe(500);
  const address = `wss://user:${"s3cret".repeat(50)}@node.example`;
  for (const before of [0, 400, 499, 1_600, 1_900, 1_999])
    for (const start of ["x", "wss://a.example/"])
      expect(printedText([`${start.padEnd(before, "x")} ${address}`])).not.toContain("s3cret");
});

test("the console is the log's until it is given back", () => {
  const { error, warn } = console;
  const lines: unknown[] = [];
  const log = (level: string, message: string, fields?: Readonly<Record<string, unknown>>) =>
    lines.push([level, message, fields]);
  const giveBack = logLibraryOutput({
    log,
    flush: async () => undefined,
    setLevel: () => undefined,
  });
  console.error(new Error("first"));
  console.warn("second");
  giveBack();
  expect(lines).toEqual([
    ["warn", "a library printed a message", { text: "first" }],
    ["warn", "a library printed a message", { text: "second" }],
  ]);
  expect([console.error === error, console.warn === warn]).toEqual([true, true]);
});
