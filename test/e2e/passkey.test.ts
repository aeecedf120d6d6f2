/**
 * Keys that a passkey of Chromium's virtual authenticator unlocks, after a reload too; and an
 * authenticator that derives no keys, or that is gone: then the passphrase opens them.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { type Browser, chromiumPath, type Page, startChromium } from "./chromium.ts";

let browser: Browser;
let pages: ReturnType<typeof Bun.serve>;

if (chromiumPath === null)
  console.log("SKIPPED: passkeys in Chromium, which is not on this machine");

beforeAll(async () => {
  if (chromiumPath === null) return;
  const built = await Bun.build({
    entrypoints: [join(import.meta.dir, "passkey-page.ts")],
    target: "browser",
  });
  const script = await built.outputs[0]?.text();
  const page =
    '<!doctype html><title>page</title><body><script type="module" src="/page.js"></script>';
  pages = Bun.serve({
    hostname: "localhost",
    port: 0,
    fetch: (request) =>
      new URL(request.url).pathname === "/page.js"
        ? new Response(script ?? "", { headers: { "content-type": "text/javascript" } })
        : new Response(page, { headers: { "content-type": "text/html" } }),
  });
  browser = await startChromium();
}, 120_000);
afterAll(async () => {
  await browser?.close();
  await pages?.stop(true);
});

async function pageWith(
  hasPrf: boolean,
): Promise<{ readonly page: Page; readonly authenticator: unknown }> {
  const page = await browser.open(`http://localhost:${pages.port}/`);
  await page.until("typeof globalThis.read === 'function'", "the page is there");
  await page.call("WebAuthn.enable", {});
  const options = {
    ...{ protocol: "ctap2", ctap2Version: "ctap2_1", transport: "internal", hasResidentKey: true },
    ...{ hasUserVerification: true, isUserVerified: true, hasPrf },
  };
  const { authenticatorId } = await page.call("WebAuthn.addVirtualAuthenticator", { options });
  return { page, authenticator: authenticatorId };
}

test.skipIf(chromiumPath === null)(
  "a passkey unlocks the keys, also after a reload, and the passphrase when it is gone",
  async () => {
    const { page, authenticator } = await pageWith(true);
    expect(await page.evaluate("setUp()")).toBe("ok");
    expect([
      await page.evaluate("read('passkey')"),
      await page.evaluate("read('passphrase')"),
    ]).toEqual(["secret text", "secret text"]);
    await page.evaluate("globalThis.isFormer = true, location.reload(), 0");
    await page.until(
      "typeof globalThis.read === 'function' && !globalThis.isFormer",
      "the page is there again",
    );
    expect(await page.evaluate("read('passkey')")).toBe("secret text");
    await page.call("WebAuthn.clearCredentials", { authenticatorId: authenticator as string });
    expect(await page.evaluate("read('passkey')")).toBe("passkey_refused");
    expect(await page.evaluate("read('passphrase')")).toBe("secret text");
    await page.evaluate("indexedDB.deleteDatabase('waypost'), 0");
  },
  120_000,
);

test.skipIf(chromiumPath === null)(
  "a passkey that derives no keys is refused as such, and the passphrase goes on working",
  async () => {
    const { page } = await pageWith(false);
    await page.evaluate(
      "new Promise((end) => { indexedDB.deleteDatabase('waypost').onsuccess = () => end(0); })",
    );
    expect(await page.evaluate("setUp()")).toBe("no_prf");
    expect(await page.evaluate("read('passkey')")).toBe("wrong_passphrase");
    expect(await page.evaluate("read('passphrase')")).toBe("secret text");
  },
  120_000,
);
