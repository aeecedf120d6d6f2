/**
 * Files out of a local store, when the process dies between any two steps: each message is one
 * whole file.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { receivedFiles } from "../../src/cli/files/received.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { scratchPaths } from "../support/scratch.ts";

const freshFolder = scratchPaths("received");
let nodes: TestNodes;
let friend: Waypost;
beforeAll(async () => {
  nodes = await startTestNodes();
  friend = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
});
afterAll(async () => {
  await friend.close();
  await nodes.stop();
});

/** Has received a file of 200 KB; `breaks` decides which operation of its store fails. */
async function received(breaks: { write: boolean; read: boolean }) {
  const store = memoryStore();
  const failing =
    <A extends unknown[], R>(kind: "write" | "read", work: (...args: A) => Promise<R>) =>
    async (...args: A) => {
      if (breaks[kind] && (kind === "write" || JSON.stringify(args).includes("/f/")))
        throw new Error("a dead process");
      return work(...args);
    };
  const driver = {
    ...store,
    apply: failing("write", store.apply),
    read: failing("read", store.read),
  };
  const me = await Waypost.open({
    url: nodes.url,
    keys: memoryKeys(),
    store: driver,
    acknowledge: "by-hand",
  });
  await friend.send(me.did, new Uint8Array(200_000).fill(7), { name: "note.bin" });
  expect(await me.receiveWaiting()).toEqual({ isComplete: true, unreachable: [], failed: [] });
  const folder = freshFolder();
  const write = () => Array.fromAsync(receivedFiles(me, folder)).then((files) => files.length);
  const died = () =>
    write().then(
      () => false,
      () => true,
    );
  return { me, folder, write, died };
}

test.each(["write", "read"] as const)(
  "a failed %s leaves one whole file to the next run, and nothing beside it",
  async (kind) => {
    const breaks = { write: false, read: false };
    const { me, folder, write, died } = await received(breaks);
    breaks[kind] = true;
    expect(await died()).toBe(true);
    expect(readdirSync(folder).filter((name) => name.endsWith(".part")).length).toBe(
      kind === "write" ? 1 : 0,
    );
    breaks[kind] = false;
    // After a write that failed the file has its name already.
    expect(await write()).toBe(kind === "read" ? 1 : 0);
    expect(readdirSync(folder)).toEqual(["note.bin"]);
    expect(readFileSync(join(folder, "note.bin")).equals(Buffer.alloc(200_000, 7))).toBe(true);
    expect(statSync(join(folder, "note.bin")).mode & 0o777).toBe(0o600);
    expect([await write(), await me.store.messages(friend.did)]).toEqual([0, []]);
    await me.close();
  },
);

test("a message that can't be written holds up no other", async () => {
  const breaks = { write: false, read: false };
  const { me, folder, write, died } = await received(breaks);
  await friend.send(me.did, "hello", { name: "hello.txt" });
  await me.receiveWaiting();
  breaks.read = true;
  expect([await died(), readdirSync(folder)]).toEqual([true, ["hello.txt"]]);
  breaks.read = false;
  expect([await write(), readdirSync(folder).sort()]).toEqual([1, ["hello.txt", "note.bin"]]);
  await me.close();
});
