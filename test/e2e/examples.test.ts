/**
 * The examples for clients, run unchanged against running nodes: the echo bot, which a stranger's
 * garbage does not stop, and the clients in Python and Go, which also read each other's messages.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { freePort } from "../support/executable.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { command } from "./packed-sdk.ts";

const root = join(import.meta.dir, "..", "..");
const scratch = mkdtempSync(join(tmpdir(), "waypost-examples-"));
const python = Bun.which("python3");
const go = Bun.which("go");
const hasCryptography =
  python !== null &&
  Bun.spawnSync([python, "-c", "from cryptography.hazmat.primitives import hpke"], {
    stderr: "ignore",
  }).success;
if (!hasCryptography)
  console.log("SKIPPED: the Python client, for want of python3 with cryptography 47 or later");
if (go === null) console.log("SKIPPED: the Go client, for want of go");

const hybridVectors = join(root, "test/vectors/sealed/hybrid.json");

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(async () => {
  await nodes.stop();
  rmSync(scratch, { recursive: true, force: true });
});

const post = (path: string, body: object) =>
  fetch(`${nodes.url}${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

test("two providers exchange messages, replies and receipts while one of them dies and comes back", async () => {
  const folder = mkdtempSync(join(scratch, "providers-"));
  const ports = new Map([
    ["7410", freePort()],
    ["7420", freePort()],
  ]);
  for (const name of ["north", "south"]) {
    const text = await Bun.file(join(root, `examples/providers/${name}.toml`)).text();
    await Bun.write(
      join(folder, `${name}.toml`),
      text.replaceAll(/74[12]0/g, (port) => String(ports.get(port))),
    );
  }
  const child = Bun.spawn(
    [process.execPath, join(root, "examples/providers/exchange.ts"), folder],
    {
      cwd: root,
      env: { ...process.env, WAYPOST: `${process.execPath} ${join(root, "src/main.ts")}` },
      stdout: "pipe",
      stderr: "pipe",
    },
  );
  const [out, errors, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  expect([code, errors]).toEqual([0, ""]);
  const lines = out.trim().split("\n");
  const texts = [
    "bob: hello from the north",
    "alice: hello from the south",
    "bob: are you back?",
    "alice: here I am",
  ];
  expect(lines.filter((line) => line.includes("verified"))).toEqual(
    texts.map((text) => `${text} (verified, proven)`),
  );
  expect(new Set(lines.filter((line) => line.endsWith("receipt")))).toEqual(
    new Set(["alice: a receipt", "bob: a receipt"]),
  );
}, 120_000);

test("the echo bot has at most 15 lines, answers, and goes on after a stranger's garbage", async () => {
  const source = await Bun.file(join(root, "examples/echo-bot.ts")).text();
  expect(source.trim().split("\n").length).toBeLessThanOrEqual(15);
  const bot = Bun.spawn([process.execPath, join(root, "examples/echo-bot.ts")], {
    cwd: root,
    env: { ...process.env, WAYPOST_URL: nodes.url, BOT_KEYS: join(scratch, "keys") },
    stdout: "pipe",
    stderr: "pipe",
  });
  try {
    const reader = bot.stdout.getReader();
    const did = new TextDecoder().decode((await reader.read()).value).trim();
    expect(did).toStartWith("did:svc:");
    const me = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
    const garbage = (payload: object) => ({
      message_id: crypto.randomUUID(),
      to: did,
      timestamp: new Date().toISOString(),
      payload,
    });
    expect((await post("/cache/store", garbage({ ciphertext_b64: "AAAA" }))).status).toBe(202);
    expect((await post("/cache/store", garbage({}))).status).toBe(202);
    await me.send(did, "from nobody", { anonymous: true });
    await me.send(did, "are you there?");
    for await (const message of me.messages()) {
      await message.ack();
      expect([message.text, message.from === did, message.verified]).toEqual([
        "are you there?",
        true,
        true,
      ]);
      break;
    }
    expect(bot.exitCode).toBeNull();
  } finally {
    bot.kill();
    await bot.exited;
  }
}, 60_000);

test.skipIf(!hasCryptography)(
  "the Python client makes the whole journey, and reads the sealed vectors",
  async () => {
    const client = join(root, "examples/clients/waypost.py");
    const printed = await command([python ?? "", client, nodes.url], scratch);
    expect(JSON.parse(printed)).toMatchObject({
      text: "Meet me at noon.",
      chunks: 20,
      bytes: 5_242_880,
    });
    const vectors = join(root, "test/vectors/sealed/payloads.json");
    expect(await command([python ?? "", client, nodes.url, "vectors", vectors], scratch)).toBe(
      "vectors hold\n",
    );
    expect(await command([python ?? "", client, nodes.url, "hybrid", hybridVectors], scratch)).toBe(
      "10 of 40 open\n",
    );
  },
  120_000,
);

test.skipIf(!hasCryptography).each([false, true])(
  "what Python seals and signs the SDK opens and verifies, and the other way round; both announce bundles: %p",
  async (announce) => {
    const me = await Waypost.open({ url: nodes.url, keys: memoryKeys(), announce });
    const program = `
import sys; sys.path.insert(0, ${JSON.stringify(join(root, "examples/clients"))})
import json, time, waypost
from waypost import Identity
me, eve = Identity(sys.argv[1], announces=sys.argv[3] == "2"), Identity(sys.argv[1])
me.register(), eve.register()
# What is sealed by one and signed by another has no author.
kept, call = [], waypost.call
def hold(method, url, body=None, *more, **named):
    if "/relay/" not in url: return call(method, url, body, *more, **named)
    kept.append(json.loads(body))
    return {"success": True}
waypost.call = hold
me.send(sys.argv[2], b"mine")
assert ("xwing" in kept[0]["payload"]["profile"]) == (sys.argv[3] == "2"), "another version"
waypost.call = call
stolen = kept[0] | {"from": eve.did, "sender_key_id": eve.key_id}
stolen["sender_signature"] = eve.sign(waypost.signed_text(stolen))
call("POST", f"{sys.argv[1]}/relay/{waypost.quote(sys.argv[2])}", json.dumps(stolen).encode())
me.send(sys.argv[2], bytes(range(256)) * 300, name="py.bin", media_type="application/octet-stream", chunk_bytes=30000)
while True:
    got = list(me.receive())
    if got: break
    time.sleep(0.2)
facts, data, sender, ids = got[0]
me.ack(ids)
print(data.decode(), sender)`;
    const version = announce ? "2" : "1";
    const python3 = command([python ?? "", "-c", program, nodes.url, me.did, version], scratch);
    for await (const message of me.messages()) {
      // In the second version it does not even open.
      if (message.text === "mine") {
        expect(message.verified).toBe(false);
        await message.ack();
        continue;
      }
      expect([message.name, message.sizeBytes, message.verified]).toEqual(["py.bin", 76_800, true]);
      expect(message.bytes().every((byte, i) => byte === i % 256)).toBe(true);
      await message.ack();
      await message.reply("from TypeScript");
      break;
    }
    expect((await python3).trim()).toBe(`from TypeScript ${me.did}`);
  },
  60_000,
);

test.skipIf(go === null)(
  "the Go client makes the whole journey, and reads the vectors of the second version",
  async () => {
    const folder = join(root, "examples/clients/go");
    expect(await command([go ?? "", "run", ".", "-", "hybrid", hybridVectors], folder)).toBe(
      "10 of 40 open\n",
    );
    const printed = await command([go ?? "", "run", ".", nodes.url], folder);
    expect(JSON.parse(printed)).toEqual({
      text: "Meet me at noon.",
      chunks: 20,
      bytes: 5_242_880,
    });
  },
  300_000,
);
