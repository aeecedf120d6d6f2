/**
 * The chat page in headless Chromium, from another origin than the nodes and under a content
 * security policy without `unsafe-eval`: two tabs talk through a restart of the nodes and a loss of
 * network, and no message is lost or doubled.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../support/executable.ts";
import { relayAt, startTestNodes, type TestNodes } from "../support/nodes.ts";
import { pause } from "../support/wait.ts";
import { type Browser, chromiumPath, type Page, startChromium } from "./chromium.ts";
import { type Network, openNetwork } from "./network.ts";

const root = join(import.meta.dir, "..", "..");
const policy =
  "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; connect-src http://127.0.0.1:* ws://127.0.0.1:*";
/**
 * How long the network is lost: `WAYPOST_TEST_LOSS_MS=30000` for the half minute that no one waits
 * for each time.
 */
const lossMs = Number(process.env["WAYPOST_TEST_LOSS_MS"] ?? 5_000);
const scratch = mkdtempSync(join(tmpdir(), "waypost-browser-"));
/**
 * The nodes listen on one port, and are reached through a network that can be lost on the other.
 */
const [nodePort, publicPort] = [freePort(), freePort()];
const url = `http://127.0.0.1:${publicPort}`;
let network: Network;
let nodes: TestNodes;
let browser: Browser;
let pages: ReturnType<typeof Bun.serve>;

/** On disk, so that a restart finds the identities and what waits again. */
const start = () =>
  startTestNodes({
    server: { listen: [`127.0.0.1:${nodePort}`], drain_timeout: "1s" },
    stores: { main: { plugin: "lmdb", path: join(scratch, "data"), block_time_ms: 50 } },
    relay: relayAt(url),
    cache: { enabled: true, public_endpoints: [url] },
  });

if (chromiumPath === null)
  console.log("SKIPPED: the chat page in Chromium, which is not on this machine");

beforeAll(async () => {
  if (chromiumPath === null) return;
  const built = await Bun.build({
    entrypoints: [join(root, "examples/chat/chat.ts")],
    target: "browser",
    minify: true,
  });
  const script = await built.outputs[0]?.text();
  pages = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request) => {
      const isScript = new URL(request.url).pathname === "/chat.js";
      const body = isScript ? script : Bun.file(join(root, "examples/chat/index.html"));
      const type = isScript ? "text/javascript" : "text/html";
      return new Response(body, {
        headers: { "Content-Type": type, "Content-Security-Policy": policy },
      });
    },
  });
  network = openNetwork(publicPort, nodePort);
  [nodes, browser] = await Promise.all([start(), startChromium({ isLight: true })]);
}, 60_000);
afterAll(async () => {
  await browser?.close();
  await pages?.stop(true);
  await nodes?.stop();
  network?.close();
  rmSync(scratch, { recursive: true, force: true });
});

async function tab(name: string): Promise<Page> {
  const page = await browser
    .heard()
    .open(`http://127.0.0.1:${pages.port}/?node=${encodeURIComponent(url)}&name=${name}`);
  await page.until(
    "document.getElementById('did').textContent.startsWith('did:svc:')",
    `${name} has a DID`,
  );
  await page.until(
    "document.getElementById('status').textContent === 'connected'",
    `${name} is connected`,
  );
  return page;
}

const say = (page: Page, words: string) =>
  page.evaluate(`document.getElementById('words').value = ${JSON.stringify(words)};
    document.getElementById('send').requestSubmit(); true`);
const lines = (page: Page, kind: string) =>
  page.evaluate(`[...document.querySelectorAll('li.${kind}')].map((item) => item.textContent)`);
const heard = (page: Page, words: string) =>
  page.until(
    `[...document.querySelectorAll('li.received')].some((item) => item.textContent === ${JSON.stringify(words)})`,
    words,
    60_000,
  );

test.skipIf(chromiumPath === null)(
  "two tabs talk from another origin, through a restart and a loss of network, each message once",
  async () => {
    const [alice, bob] = await Promise.all([tab("alice"), tab("bob")]);
    const did = await bob.evaluate("document.getElementById('did').textContent");
    await alice.evaluate(`document.getElementById('to').value = ${JSON.stringify(did)}; true`);
    await say(alice, "hello bob");
    await heard(bob, "hello bob");
    await say(bob, "hello alice");
    await heard(alice, "hello alice");

    await nodes.stop();
    await say(alice, "said while the nodes are away");
    await pause(1_000, "attempts fail while the nodes are away");
    nodes = await start();
    await heard(bob, "said while the nodes are away");

    await bob.setOffline(true);
    await say(alice, "said while bob is offline");
    await alice.until("document.querySelectorAll('li.sent').length === 3", "the message was sent");
    await pause(2_000, "the session ends while he is offline");
    await bob.setOffline(false);
    await heard(bob, "said while bob is offline");

    network.lose();
    await say(alice, "said while the network is lost");
    await say(bob, "said from the other side");
    await pause(lossMs, "nothing comes through while the network is lost");
    network.restore();
    await heard(bob, "said while the network is lost");
    await heard(alice, "said from the other side");
    await say(bob, "all there");
    await heard(alice, "all there");

    expect(await lines(bob, "received")).toEqual([
      "hello bob",
      "said while the nodes are away",
      "said while bob is offline",
      "said while the network is lost",
    ]);
    expect(await lines(alice, "received")).toEqual([
      "hello alice",
      "said from the other side",
      "all there",
    ]);
    expect([await lines(alice, "problem"), await lines(bob, "problem")]).toEqual([[], []]);
    const refused = [...alice.console, ...bob.console].filter((line) =>
      /Content Security Policy|unsafe-eval|CORS/.test(line),
    );
    expect(refused).toEqual([]);

    // The identity stays in the browser: the same DID after a reload.
    const again = await tab("bob");
    expect(await again.evaluate("document.getElementById('did').textContent")).toBe(did);
    for (const page of [alice, bob, again]) await page.call("Page.close", {});
  },
  180_000,
);

test.skipIf(chromiumPath === null)(
  "two tabs at a first visit are one identity, which stays after a reload",
  async () => {
    const did = "document.getElementById('did').textContent";
    const visit = (name: string) =>
      browser.open(`http://127.0.0.1:${pages.port}/?node=${encodeURIComponent(url)}&name=${name}`);
    for (let round = 0; round < 5; round++) {
      const name = `visitor${round}`;
      const tabs = await Promise.all([visit(name), visit(name)]);
      for (const page of tabs)
        await page.until(`${did}.startsWith('did:svc:')`, `${name} has a DID`);
      const [one, other] = await Promise.all(tabs.map((page) => page.evaluate(did)));
      expect(other).toBe(one);
      const again = await visit(name);
      await again.until(`${did}.startsWith('did:svc:')`, `${name} has a DID`);
      expect(await again.evaluate(did)).toBe(one);
      // A browser has six connections to one origin, and each tab follows a stream.
      for (const page of [...tabs, again]) await page.call("Page.close", {});
    }
  },
  180_000,
);
