/**
 * Maintenance, by the command: writes are refused with a code and a time, reads and
 * acknowledgements go on, what the SDK sends waits for the end, and it outlives a restart.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort, run, scratchFolder } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting, waitingCount } from "../support/people.ts";

const folder = scratchFolder();
const url = `http://127.0.0.1:${freePort()}`;
const socket = join(folder.path, "admin.sock");
const start = (): Promise<TestNodes> =>
  startTestNodes({
    server: {
      listen: [url.slice("http://".length)],
      admin_listen: [`unix:${socket}`],
      drain_timeout: "2s",
    },
    stores: { main: { plugin: "lmdb", path: join(folder.path, "store"), block_time_ms: 20 } },
    relay: relayAt(url),
    cache: { enabled: true, public_endpoints: [url] },
  });

let nodes: TestNodes;
let [alice, bob]: Waypost[] = [];
const [keys, store] = [memoryKeys(), memoryStore()];
const openAlice = () => Waypost.open({ url, keys, store, waiting });
beforeAll(async () => {
  nodes = await start();
  alice = await openAlice();
  bob = await Waypost.open({ url, keys: memoryKeys(), waiting });
}, 60_000);
afterAll(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
  await nodes.stop();
  folder.remove();
});

const maintenance = (...words: string[]) =>
  run(["maintenance", ...words, "--socket", socket], { cwd: folder.path });
const shown = async () =>
  ((await (await fetch(`${url}/node`)).json()) as { maintenance: unknown }).maintenance;

test("refuses what writes with code, message and time, and shows itself", async () => {
  expect(await shown()).toBeNull();
  const begun = await maintenance("on", "--message", "new disks until six");
  expect([begun.code, begun.stdout]).toEqual([0, expect.stringContaining("refused since 20")]);
  expect(await shown()).toMatchObject({ message: "new disks until six" });
  const writes = ["POST /register-did", "POST /relay", "POST /cache/store"];
  for (const write of writes) {
    const [method = "", path = ""] = write.split(" ");
    const headers = { "content-type": "application/json" };
    const reply = await fetch(url + path, { method, headers, body: "{}" });
    const body = (await reply.json()) as Record<string, unknown>;
    expect([write, reply.status, body["code"], reply.headers.get("retry-after")]).toEqual([
      write,
      503,
      "maintenance",
      "60",
    ]);
    expect(body["detail"] ?? body["message"]).toBe("new disks until six");
  }
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
  const { stdout } = await run(["explain", alice!.did, "--socket", socket], { cwd: folder.path });
  expect(stdout).toContain("this node refuses writes until `waypost maintenance off`");
}, 60_000);

test("lets mail be read and acknowledged, and what is written meanwhile is sent afterwards", async () => {
  await maintenance("off");
  await alice!.send(bob!.did, "before");
  await maintenance("on");
  expect(await takenBy(bob!)).toBe("before");
  await alice!.send(bob!.did, "meanwhile");
  await nodes.stop();
  nodes = await start();
  expect(await shown()).toMatchObject({ message: null });
  expect(await waitingCount(bob!)).toBe(0);
  expect((await maintenance("off")).stdout).toBe("writes are taken\n");
  // As the app does when the network is back: nothing waits for the end of its pause.
  await alice!.close();
  alice = await openAlice();
  expect(await takenBy(bob!)).toBe("meanwhile");
}, 120_000);

/** The next message, acknowledged. */
async function takenBy(me: Waypost): Promise<string | null> {
  for await (const message of me.messages()) {
    await message.ack();
    return message.text;
  }
  return null;
}

test("has a command say that it waits for maintenance, and end in time", async () => {
  await maintenance("off");
  const client = async (...words: string[]) => {
    const named = ["--url", url, "--keys", join(folder.path, "keys")];
    return run([...words, ...named], { cwd: folder.path });
  };
  expect((await client("did", "create", "--name", "carol")).code).toBe(0);
  writeFileSync(join(folder.path, "note.txt"), "hi");
  await maintenance("on", "--message", "until 23:00");
  const said = "the node refuses writes for maintenance: until 23:00";
  const refused = await client("did", "create", "--name", "dora");
  expect([refused.code, refused.stderr]).toEqual([1, `${said} (maintenance)\n`]);
  const send = ["send", "--as", "carol", "--to", bob!.did, "--file", "note.txt"];
  const late = await client(...send, "--timeout", "5s", "--json");
  const lines = late.stderr.trim().split("\n");
  expect([late.code, ...lines.map((line) => JSON.parse(line))]).toEqual([
    2,
    { type: "maintenance", message: `${said}; waiting` },
    expect.objectContaining({
      ok: false,
      code: "timed_out",
      message: `not sent within 5 s: ${said}`,
    }),
  ]);
  await maintenance("off");
  expect((await client(...send)).code).toBe(0);
}, 60_000);
