/**
 * A push in headless Chromium, whose debugging protocol hands it to the service worker: a
 * notification shows, a token goes to the page, and what is no push of ours shows one too.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { type Browser, chromiumPath, type Page, startChromium } from "./chromium.ts";

let browser: Browser;
let pages: ReturnType<typeof Bun.serve>;
let page: Page;

if (chromiumPath === null) console.log("SKIPPED: a push in Chromium, which is not on this machine");

beforeAll(async () => {
  if (chromiumPath === null) return;
  const built = await Bun.build({
    entrypoints: [join(import.meta.dir, "push-worker.ts")],
    target: "browser",
  });
  const script = await built.outputs[0]?.text();
  pages = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request) =>
      new URL(request.url).pathname === "/worker.js"
        ? new Response(script ?? "", { headers: { "content-type": "text/javascript" } })
        : new Response("<!doctype html><title>page</title>", {
            headers: { "content-type": "text/html" },
          }),
  });
  browser = await startChromium();
  const origin = `http://127.0.0.1:${pages.port}`;
  page = await browser.open(origin);
  await page.call("Browser.grantPermissions", { origin, permissions: ["notifications"] });
  await page.call("ServiceWorker.enable", {});
  await page.evaluate(`window.told = []; window.done = 0; window.channels = [
    Object.assign(new BroadcastChannel("waypost.push"), { onmessage: ({ data }) => told.push(data) }),
    Object.assign(new BroadcastChannel("done"), { onmessage: () => done++ })]; navigator.serviceWorker.register("/worker.js"); 0`);
  const active =
    "navigator.serviceWorker.ready.then(({ active }) => active?.state === 'activated')";
  await page.until(active, "the worker is active");
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await pages?.stop(true);
});

/**
 * Resolves when the worker's work is done: Chromium forgets a notification that is asked for before
 * it shows.
 */
async function deliver(data: string): Promise<void> {
  const before = Number(await page.evaluate("window.done"));
  const origin = `http://127.0.0.1:${pages.port}`;
  await page.call("ServiceWorker.deliverPushMessage", { origin, registrationId: "0", data });
  await page.until(`window.done > ${before}`, "the worker has done its work");
}

const shown =
  "navigator.serviceWorker.ready.then((own) => own.getNotifications()).then((all) => all.map(({ title, body, tag, data }) => ({ title, body, tag, data })))";

test.skipIf(chromiumPath === null)(
  "a push shows the notification that its device asked for, and the next one replaces it",
  async () => {
    const notification = {
      title: "New message",
      body: "in Waypost",
      navigate: "https://app.example/inbox",
    };
    await deliver(JSON.stringify({ web_push: 8030, notification }));
    expect(await page.evaluate(shown)).toEqual([
      {
        title: "New message",
        body: "in Waypost",
        tag: "waypost",
        data: "https://app.example/inbox",
      },
    ]);
    await deliver("no JSON");
    expect(await page.evaluate(shown)).toEqual([
      { title: "New message", body: "", tag: "waypost", data: "/" },
    ]);
  },
  60_000,
);

test.skipIf(chromiumPath === null)(
  "the token of the first push reaches the page",
  async () => {
    await deliver(JSON.stringify({ waypost: { id: "phone", token: "secret" } }));
    await page.until("window.told.length === 1", "the token came");
    expect(await page.evaluate("window.told")).toEqual([{ id: "phone", token: "secret" }]);
  },
  60_000,
);
