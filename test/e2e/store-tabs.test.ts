/**
 * The local store in Chromium's IndexedDB: two tabs of one identity read and write it, one of them
 * receives and delivers, and the other takes over; through reloads each message is stored and
 * handed over once.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { type Browser, chromiumPath, type Page, startChromium } from "./chromium.ts";

/** `WAYPOST_TEST_RELOADS=100` for more than each run waits for. */
const reloads = Number(process.env["WAYPOST_TEST_RELOADS"] ?? 6);
let nodes: TestNodes;
let browser: Browser;
let pages: ReturnType<typeof Bun.serve>;

if (chromiumPath === null)
  console.log("SKIPPED: the local store in Chromium, which is not on this machine");

beforeAll(async () => {
  if (chromiumPath === null) return;
  const built = await Bun.build({
    entrypoints: [join(import.meta.dir, "store-page.ts")],
    target: "browser",
  });
  const script = await built.outputs[0]?.text();
  pages = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: ({ url }) => {
      const isScript = new URL(url).pathname === "/page.js";
      const type = isScript ? "text/javascript" : "text/html";
      return new Response(isScript ? script : `<script type="module" src="/page.js"></script>`, {
        headers: { "Content-Type": type },
      });
    },
  });
  [nodes, browser] = await Promise.all([startTestNodes(), startChromium({ isLight: true })]);
}, 60_000);
afterAll(async () => {
  await browser?.close();
  await pages?.stop(true);
  await nodes?.stop();
});

const address = () => `http://127.0.0.1:${pages.port}/?node=${encodeURIComponent(nodes.url)}`;
async function tab(): Promise<Page> {
  const page = await browser.open(address());
  await page.until("globalThis.page !== undefined", "the store is open");
  return page;
}
const shows = (page: Page, conversation: string, texts: readonly string[]) =>
  page.until(
    `page.texts(${JSON.stringify(conversation)}).then((all) => JSON.stringify(all) === ${JSON.stringify(JSON.stringify(texts))})`,
    `the conversation is ${texts}`,
    60_000,
  );

test.skipIf(chromiumPath === null)(
  "two tabs share a store: one receives and delivers, both read and send, and the other takes over",
  async () => {
    const alice = await Waypost.open({ url: nodes.url, keys: memoryKeys() });
    const one = await tab();
    await one.until("page.me.store.leads", "the first tab leads");
    const other = await tab();
    const did = String(await one.evaluate("page.me.did"));
    expect(await other.evaluate("[page.me.did, page.me.store.leads]")).toEqual([did, false]);
    const texts = ["first", "second"];
    for (const text of texts) await alice.send(did, text);
    for (const page of [one, other]) await shows(page, alice.did, texts);
    expect(await other.evaluate("page.changes > 0")).toBe(true);

    // The tab that doesn't lead sends too, and learns when the Relay has it.
    const sent = `page.me.send(${JSON.stringify(alice.did)}, "from the other tab").then((sent) => sent.delivered)`;
    expect(await other.evaluate(`${sent}.then(({ last }) => last.success)`)).toBe(true);
    await other.evaluate(`page.me.store.markRead(${JSON.stringify(alice.did)})`);
    expect(await one.evaluate("page.me.store.unread()")).toBe(0);

    await one.call("Page.close", {});
    await other.until("page.me.store.leads", "the other tab leads");
    await alice.send(did, "third");
    await shows(other, alice.did, [...texts, "from the other tab", "third"]);
    expect(await other.evaluate("localStorage.getItem('handed')")).toBe(
      JSON.stringify([...texts, "third"]),
    );
    await other.evaluate("localStorage.clear()");
    await other.evaluate(`page.me.store.removeConversation(${JSON.stringify(alice.did)})`);

    // Reloads at any moment, while messages come.
    const later = Array.from({ length: 3 * reloads }, (_, i) => `later ${i}`);
    const again = await tab();
    const sending = (async () => {
      for (const text of later) {
        await alice.send(did, text);
        await Bun.sleep(60);
      }
    })();
    for (let i = 0; i < reloads; i++) {
      const page = i % 2 === 0 ? other : again;
      await page.call("Page.reload", {});
      await page.until("globalThis.page !== undefined", "the page is back");
    }
    await sending;
    for (const page of [other, again]) await shows(page, alice.did, later);
    const handed = "JSON.parse(localStorage.getItem('handed') ?? '[]')";
    await again.until(
      `${handed}.includes(${JSON.stringify(later.at(-1))})`,
      "all was handed over",
      60_000,
    );
    // One that the loop had when the page went away is handed over again.
    const all = (await again.evaluate(handed)) as string[];
    expect(all.filter((text, i) => all.indexOf(text) === i)).toEqual(later);
    expect(all.length - later.length).toBeLessThanOrEqual(reloads);
    expect(await again.evaluate("page.me.store.unread()")).toBe(later.length);
  },
  180_000,
);
