/**
 * The README against the executable: the journey runs line by line in an empty folder and prints the text of the
 * README, except ids, keys, times and paths.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { executable, freePort, type RunningNode, run, scratchFolder, startNode } from "../support/executable.ts";

const readme = await Bun.file(join(import.meta.dir, "..", "..", "README.md")).text();
const scratch = scratchFolder();
const cwd = scratch.path;
const port = freePort();
const url = `http://127.0.0.1:${port}`;
let node: RunningNode;

beforeAll(async () => {
  await executable();
  node = await startNode(["dev", "--port", String(port)], { cwd, url });
}, 120_000);
afterAll(async () => {
  await node.kill("SIGKILL");
  scratch.remove();
});

/** What differs from run to run, made the same. */
function plain(text: string): string {
  return text
    .replaceAll(String(port), "7400")
    .replaceAll(cwd, "…")
    .replace(/did:svc:[1-9A-HJ-NP-Za-km-z]+/g, "<did>")
    .replace(/\bz[1-9A-HJ-NP-Za-km-z]{40,}/g, "<key>")
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "<time>")
    .replace(/[0-9a-f]{64}/g, "<sha256>")
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>");
}

const block = /```console\n([\s\S]*?)```/.exec(readme)?.[1] ?? "";
const steps = block
  .split(/^\$ /m)
  .slice(1)
  .map((step) => [step.slice(0, step.indexOf("\n")), step.slice(step.indexOf("\n") + 1)] as const);

test("the journey of the README prints what stands there", async () => {
  expect(steps.length).toBeGreaterThan(5);
  const prefix = "npx -y bun@1.4.5 run waypost ";
  for (const [line, expected] of steps) {
    if (line.startsWith(prefix)) {
      const ran = await run(line.slice(prefix.length).split(" "), { cwd, env: { WAYPOST_URL: url } });
      expect([line, ran.code, plain(ran.stdout), ran.stderr]).toEqual([line, 0, plain(expected), ""]);
    } else {
      const shell = Bun.spawn(["sh", "-c", line], { cwd, stdout: "pipe" });
      expect([line, await shell.exited, await new Response(shell.stdout).text()]).toEqual([line, 0, expected]);
    }
  }
});
