/** The session of a command: which of two failures a person is told. */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import { clientCommand } from "../../../src/cli/command.ts";
import { fileKeys } from "../../../src/cli/files/files.ts";
import { createIdentity, renderIdentity } from "../../../src/client/keys/keys.ts";
import { failureOf } from "../../conformance/samples.ts";
import { scratchPaths } from "../../support/scratch.ts";

const newFolder = scratchPaths("session");

test("a failure is told as it is, also when the last look at the identity fails", async () => {
  const folder = newFolder();
  await fileKeys(folder).save("alice", renderIdentity(createIdentity("alice")));
  const run = (work: () => void) => {
    const command = new Command("test");
    clientCommand(command, async (session) => {
      await session.identity();
      writeFileSync(join(folder, "alice.json"), "damaged");
      work();
    });
    return failureOf(() => command.parseAsync(["--keys", folder], { from: "user" }));
  };
  const own = new Error("the command's own");
  const failure = await run(() => {
    throw own;
  });
  expect(failure).toBe(own);
});
