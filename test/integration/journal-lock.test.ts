/**
 * The journal of received messages while another process has it open: busy while that lives, and free when it has died.
 */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { openJournal } from "../../src/cli/files/journal.ts";
import { ClientError } from "../../src/client/http.ts";
import { scratchPaths } from "../support/scratch.ts";

const freshFolder = scratchPaths("journal");

test("a run that died leaves its journal to the next", async () => {
  const state = freshFolder();
  const script = `
    import { openJournal } from ${JSON.stringify(join(import.meta.dir, "../../src/cli/files/journal.ts"))};
    await openJournal(${JSON.stringify(state)}, Date.now());
    console.log("open");
    await new Promise(() => setInterval(() => {}, 1_000));`;
  const other = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
  const { value } = await other.stdout.getReader().read();
  expect(new TextDecoder().decode(value)).toContain("open");
  const error = await openJournal(state, Date.now()).catch((cause: unknown) => cause);
  expect(error instanceof ClientError && error.code).toBe("busy");
  other.kill("SIGKILL");
  await other.exited;
  await (await openJournal(state, Date.now())).close();
});
