/**
 * `examples/vite`: pages that are built by Vite, with React and with Svelte, over the packed SDK.
 * Each opens an identity with a store in the browser, says hello to itself and shows it, and comes
 * back with it after a reload; with React effects run twice. And the other entries for browsers in
 * one page: parts, and what a service worker needs.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { type Browser, chromiumPath, startChromium } from "./chromium.ts";
import { command, findRuntimes, installPackedSdk, type PackedSdk } from "./packed-sdk.ts";

const examples = join(import.meta.dir, "..", "..", "examples", "vite");
const modules = join(import.meta.dir, "..", "runtimes", "node_modules");
const vite = join(modules, "vite", "bin", "vite.js");
const node = findRuntimes().find(({ name }) => name === "node 22")?.command ?? null;
const isPossible = chromiumPath !== null && node !== null && existsSync(vite);
if (!isPossible)
  console.log("SKIPPED: pages built by Vite, for want of Chromium or of test/runtimes");

let sdk: PackedSdk;
let nodes: TestNodes;
let browser: Browser;
beforeAll(async () => {
  if (!isPossible) return;
  [sdk, nodes, browser] = await Promise.all([
    installPackedSdk(),
    startTestNodes(),
    startChromium({ isLight: true }),
  ]);
}, 240_000);
afterAll(async () => {
  await browser?.close();
  await nodes?.stop();
  sdk?.remove();
});

const frameworks = {
  react: ["react", "react-dom", "@vitejs/plugin-react"],
  svelte: ["svelte", "@sveltejs/vite-plugin-svelte"],
};

for (const [name, packages] of Object.entries(frameworks))
  test.skipIf(!isPossible)(
    `a page with ${name}, built by Vite, says hello and keeps it over a reload`,
    async () => {
      for (const one of [...packages, "vite"]) {
        const place = join(sdk.folder, "node_modules", one);
        mkdirSync(join(place, ".."), { recursive: true });
        if (!existsSync(place)) symlinkSync(join(modules, one), place);
      }
      cpSync(examples, join(sdk.folder, "vite"), { recursive: true });
      const folder = join(sdk.folder, "vite", name);
      await command([...(node ?? []), vite, "build"], folder);
      const server = Bun.serve({
        hostname: "127.0.0.1",
        port: 0,
        fetch: async (request) => {
          const { pathname } = new URL(request.url);
          const file = Bun.file(join(folder, "dist", pathname === "/" ? "index.html" : pathname));
          return (await file.exists()) ? new Response(file) : new Response(null, { status: 404 });
        },
      });
      const page = await browser
        .heard()
        .open(`http://127.0.0.1:${server.port}/?node=${nodes.url}`, await browser.profile(folder));
      const texts = "[...document.querySelectorAll('li')].map((one) => one.textContent).join()";
      await page.until("!!document.querySelector('button')", "the page", 60_000);
      // What it sends to itself it has twice: as what was said, and as what came.
      await page.evaluate("document.querySelector('button').click()");
      await page.until(`${texts}.startsWith('hello')`, "hello", 60_000);
      await page.call("Page.reload", {});
      await page.until(`${texts}.startsWith('hello')`, "hello after a reload", 60_000);
      const failed = page.console.filter((line) => line.includes("exceptionThrown"));
      expect(failed).toEqual([]);
      await server.stop(true);
    },
    240_000,
  );

test.skipIf(!isPossible)(
  "the entries for browsers load in a page",
  async () => {
    const entry = join(sdk.folder, "entries-page.js");
    const names = ["@waypost/client", "@waypost/client/parts", "@waypost/client/pushed"];
    const imports = names.map((name, i) => `import * as entry${i} from ${JSON.stringify(name)};`);
    const counts = names.map((_, i) => `Object.keys(entry${i}).length`).join(", ");
    await Bun.write(entry, `${imports.join("\n")}\nglobalThis.found = [${counts}];`);
    const built = await Bun.build({ entrypoints: [entry], target: "browser", format: "iife" });
    const text = (await built.outputs[0]?.text()) ?? "";
    const page = await browser.open("about:blank");
    await page.evaluate(`${text}; undefined`);
    const found = (await page.evaluate("globalThis.found")) as number[];
    expect(found.map((count) => count > 0)).toEqual([true, true, true]);
  },
  60_000,
);
