/**
 * What `waypost receive` says to the Cache of those who wrote, and how much of the mailbox they may
 * use then.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { executable, freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const freshFolder = scratchPaths("receive-commands");
const address = `127.0.0.1:${freePort()}`;
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes({
    server: { listen: [address] },
    // A newcomer's network may fill 3 MiB of it, and the one known sender 9.
    cache: {
      enabled: true,
      public_endpoints: [`http://${address}`],
      recipient_bytes_max: "64MiB",
    },
    relay: {
      enabled: true,
      public_id: "test",
      public_endpoints: [`http://${address}`],
      allow_http: true,
      allow_private: ["127.0.0.0/8"],
      rate_limit_loopback: false,
    },
  });
});
afterAll(async () => {
  await nodes.stop();
});

const main = await executable();

async function waypost(folder: string, ...words: string[]) {
  const given = [...words, "--keys", folder, "--url", nodes.url, "--json"];
  const child = Bun.spawn([main, ...given], { stdout: "pipe", stderr: "pipe" });
  const [out, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  const text = out === "" ? errors.trimEnd().split("\n").at(-1)! : out;
  return { code: await child.exited, said: JSON.parse(text) as Record<string, unknown> };
}

test("a stranger's large file waits at the sender until `receive --accept` has taken something of it", async () => {
  const folder = freshFolder();
  const waiting = { timeoutMs: 60_000, intervalMs: 20 };
  for (const name of ["alice", "bob"]) {
    const keys = fileKeys(folder);
    await (await Waypost.open({ url: nodes.url, keys, name, waiting })).close();
  }
  const note = `${folder}-note.txt`;
  writeFileSync(note, "hello");
  // Each time another one: the same command would go on with the chunks that are missing.
  const large = (n: number) => {
    writeFileSync(`${folder}-${n}.bin`, Buffer.alloc(6_000_000, n));
    return `${folder}-${n}.bin`;
  };
  const send = async (file: string) => {
    const given = ["--as", "alice", "--to", "bob", "--file", file, "--retries", "0"];
    const { code, said } = await waypost(folder, "send", ...given);
    return code === 0 ? "sent" : said["code"];
  };
  const receive = async (...more: string[]) => {
    const given = ["--as", "bob", "--out", join(folder, "in"), ...more];
    const { said } = await waypost(folder, "receive", ...given);
    return (said["received"] as { size_bytes: number }[]).map(({ size_bytes }) => size_bytes);
  };
  const purge = () => waypost(folder, "purge", "--as", "bob", "--all", "--yes");

  expect(await send(note)).toBe("sent");
  expect(await receive()).toEqual([5]);
  expect(await send(large(1))).toBe("mailbox_full");
  // Nor does it accept anyone to remove what waits unread.
  expect((await purge()).said["removed"]).toBeGreaterThan(0);
  expect(await send(large(2))).toBe("mailbox_full");
  await purge();
  expect(await send(note)).toBe("sent");
  expect(await receive("--accept")).toEqual([5]);
  expect(await send(large(3))).toBe("sent");
  expect(await receive()).toEqual([6_000_000]);
}, 120_000);
