/**
 * The SDK's local store in a file, in a process that is killed between saving a message and
 * acknowledging it, and at any other moment: afterwards each message is in the store once, and was
 * handed over once.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { times } from "../support/whole.ts";

const kills = Number(process.env["WAYPOST_TEST_KILLS"] ?? times(6, 12));
const base = mkdtempSync(join(tmpdir(), "waypost-store-"));
const one = join(base, "one");
let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
  rmSync(base, { recursive: true, force: true });
});

/** Runs the reader in a folder until it dies, or until it has printed a line that is wanted. */
async function run(
  dies: number,
  isWanted: (line: string) => boolean,
  { folder = one, row = "/m/" }: { readonly folder?: string; readonly row?: string } = {},
): Promise<string[]> {
  const program = join(import.meta.dir, "client-store-reader.ts");
  const child = Bun.spawn([process.execPath, program, nodes.url, folder, String(dies), row], {
    stdout: "pipe",
  });
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    text += decoder.decode(chunk, { stream: true });
    if (text.split("\n").slice(0, -1).some(isWanted)) child.kill("SIGKILL");
  }
  await child.exited;
  return text.split("\n").filter((line) => line !== "");
}

test(
  `each of ${2 * kills} messages is stored and handed over once, over ${kills} kills before an acknowledgement`,
  async () => {
    const waiting = { timeoutMs: 60_000, intervalMs: 20 };
    const alice = await Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting });
    const [first = ""] = await run(0, (line) => line.startsWith("did "));
    const did = first.slice("did ".length);
    const texts = Array.from({ length: 2 * kills }, (_, i) => String(i));
    const printed: string[] = [];
    for (let kill = 0; kill < kills; kill++) {
      for (const text of texts.slice(2 * kill, 2 * kill + 2)) await alice.send(did, text);
      printed.push(...(await run(1 + (kill % 2), () => false)));
    }
    const last = `got ${texts.at(-1)}`;
    await alice.send(did, "end");
    printed.push(...(await run(0, (line) => line === "got end")));
    expect(printed).toContain(last);
    const store = fileStore(join(one, "store.sqlite"));
    const bob = await Waypost.open({
      url: nodes.url,
      keys: fileKeys(join(one, "keys")),
      store,
      waiting,
    });
    const stored = (await bob.store.messages(alice.did, { limit: 3 * kills })).map(
      ({ text }) => text,
    );
    expect(stored).toEqual([...texts, "end"]);
    const got = printed
      .filter((line) => line.startsWith("got "))
      .map((line) => line.slice("got ".length));
    // One that the loop had when the process died is handed over again; none else.
    expect(got.filter((text, i) => got.indexOf(text) === i)).toEqual([...texts, "end"]);
    expect(got.length - texts.length - 1).toBeLessThanOrEqual(1);
    expect(statSync(join(one, "store.sqlite")).mode & 0o077).toBe(0);
    const busy = Bun.spawn(
      [process.execPath, join(import.meta.dir, "client-store-reader.ts"), nodes.url, one, "0"],
      {
        stdout: "ignore",
        stderr: "pipe",
      },
    );
    expect(await new Response(busy.stderr).text()).toContain("busy");
    await bob.close();
  },
  15_000 * kills,
);

test(
  `a second device gets each of ${2 * kills} messages once, over ${kills} kills of the first between saving, telling and acknowledging`,
  async () => {
    const waiting = { timeoutMs: 60_000, intervalMs: 20 };
    const folder = join(base, "first");
    const options = { url: nodes.url, waiting };
    const alice = await Waypost.open({ ...options, keys: memoryKeys() });
    const firstOptions = () => {
      const [keys, store] = [
        fileKeys(join(folder, "keys")),
        fileStore(join(folder, "store.sqlite")),
      ];
      return { ...options, keys, store };
    };
    const first = await Waypost.open(firstOptions());
    const { did } = first;
    const [keys, secondStore] = [memoryKeys(), memoryStore()];
    const linking = await Waypost.link({ ...options, keys, store: secondStore });
    await first.devices.acceptLink(linking.code);
    const second = await linking.opened;
    await first.close();
    await second.close();
    const texts = Array.from({ length: 2 * kills }, (_, i) => String(i));
    for (let kill = 0; kill < kills; kill++) {
      for (const text of texts.slice(2 * kill, 2 * kill + 2)) await alice.send(did, text);
      // After a message was saved, or after it was noted that the other device was told.
      const row = kill % 2 === 0 ? "/m/" : "/d/";
      await run(1, () => false, { folder, row });
    }
    await alice.send(did, "end");
    const again = await Waypost.open(firstOptions());
    const stored = async (me: Waypost) =>
      (await me.store.messages(alice.did, { limit: 3 * kills })).map(({ text }) => text);
    const isDone = async () =>
      (await stored(again)).includes("end") &&
      (await again.devices.list()).every(({ isCurrent }) => isCurrent);
    for (const endMs = performance.now() + 60_000; performance.now() < endMs && !(await isDone()); )
      await Bun.sleep(50);
    expect(await stored(again)).toEqual([...texts, "end"]);
    const [cache] = await cachesOf(again.client, again.identity);
    for (const endMs = performance.now() + 60_000; performance.now() < endMs; await Bun.sleep(50))
      if ((await cache?.summary())?.count === 0) break;
    expect((await cache?.summary())?.count).toBe(0);
    await again.close();
    // All of it is at the other device's own Cache.
    const back = await Waypost.open({ ...options, keys, store: secondStore });
    for (const endMs = performance.now() + 60_000; performance.now() < endMs; await Bun.sleep(50))
      if ((await stored(back)).length > texts.length) break;
    expect(await stored(back)).toEqual([...texts, "end"]);
    await back.close();
  },
  20_000 * kills,
);
