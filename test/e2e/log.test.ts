/**
 * Go's own packages for transparency logs verify a Directory's log: its note, a witness's
 * cosignature, tiles, entries and proofs.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { type LogPair, startLogPair } from "../support/log-nodes.ts";
import { keyFiles, vkeyOf } from "../support/logs.ts";

const verifier = join(import.meta.dir, "go-log");
const go = Bun.which("go");
const hasModule =
  go !== null &&
  Bun.spawnSync([go, "mod", "download"], { cwd: verifier, stderr: "ignore" }).success;
if (!hasModule)
  console.log(
    "SKIPPED: Go's verification of the log, for want of go and its module golang.org/x/mod",
  );

const files = keyFiles();
let made: LogPair;
beforeAll(async () => {
  made = await startLogPair("gopher", files.fileOf);
});
afterAll(async () => {
  await Promise.all([made.nodes.stop(), made.witness.stop()]);
  files.remove();
});

async function verify(key: string, size: number): Promise<string> {
  const args = [`${made.nodes.url}/log`, vkeyOf(made.log), key, String(size)];
  const run = Bun.spawn([go ?? "", "run", ".", ...args], {
    cwd: verifier,
    stdout: "pipe",
    stderr: "pipe",
  });
  const [text, problems] = await Promise.all([
    new Response(run.stdout).text(),
    new Response(run.stderr).text(),
  ]);
  return (await run.exited) === 0 ? text : `${text}${problems}`;
}

test.skipIf(!hasModule)(
  "Go verifies every entry, an earlier head and the cosignature, and refuses another witness",
  async () => {
    const waiting = { timeoutMs: 60_000, intervalMs: 20 };
    for (let i = 0; i < 6; i++)
      await Waypost.open({ url: made.nodes.url, keys: memoryKeys(), waiting, alias: `go-${i}` });
    const size = async () =>
      Number((await (await fetch(`${made.nodes.url}/log/checkpoint`)).text()).split("\n")[1]);
    for (const end = Date.now() + 60_000; (await size()) < 12; await Bun.sleep(50))
      if (Date.now() > end) throw new Error("the log did not grow");
    const verified = JSON.parse(await verify(vkeyOf(made.cosigner), 3)) as {
      size: number;
      time: number;
    };
    expect(verified.size).toBeGreaterThanOrEqual(12);
    expect(Math.abs(verified.time - Date.now() / 1_000)).toBeLessThan(300);
    const [name, id, base64] = vkeyOf(made.cosigner).split("+") as [string, string, string];
    const other = Uint8Array.fromBase64(base64);
    const forged = other.with(5, (other[5] as number) ^ 1).toBase64();
    expect(await verify(`${name}+${id}+${forged}`, 3)).toContain("FAILED");
  },
  180_000,
);
