/**
 * The comparison of the tests' host with the library's, which runs on every call of the smoke test,
 * finds what differs.
 */
import { expect, test } from "bun:test";
import { compareWithLibrary } from "./compared.ts";
import { type Called, callRuntime, nowhere } from "./host.ts";
import { specificationFile } from "./start.ts";

const { genesis } = await Bun.file(specificationFile).json();
const code: string = genesis.raw.top["0x3a636f6465"];
const callback = {
  ...nowhere,
  offchainGetStorage: async () => undefined,
  offchainTimestamp: async () => 0,
  offchainRandomSeed: async () => "0x00" as const,
  offchainSubmitTransaction: async () => false,
};
const call = { code, method: "Core_version", args: [] };

test("a call of the host has the library's outcome", async () => {
  const called = await callRuntime(call, nowhere);
  expect(called.result.length).toBeGreaterThan(200);
  await compareWithLibrary(call, callback, called);
  const missing = { ...call, method: "Core_nothing" };
  const failure = await callRuntime(missing, nowhere).catch((error: Error) => error);
  expect(failure).toBeInstanceOf(Error);
  await compareWithLibrary(missing, callback, failure);
});

const planted: [what: string, plant: (called: Called) => Called | Error][] = [
  [
    "another answer",
    (called) => ({ ...called, result: `${called.result.slice(0, -2)}ff` as "0x" }),
  ],
  ["a change too many", (called) => ({ ...called, storageDiff: [["0x00", null]] })],
  ["a failure", () => new Error("planted")],
];
test.each(planted)("%s is found", async (_what, plant) => {
  const called = plant(await callRuntime(call, nowhere));
  await expect(compareWithLibrary(call, callback, called)).rejects.toThrow("another outcome");
});
