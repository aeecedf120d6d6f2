/**
 * The chat app in headless Chromium, by two people with a profile each: they meet by a link and
 * talk through a restart of the nodes, a loss of network, a second tab and a reload; closed and
 * opened without any server it shows the same.
 */
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../support/executable.ts";
import { relayAt } from "../support/nodes.ts";
import { pause } from "../support/wait.ts";
import {
  choose,
  isArrived,
  linkOf,
  linkSecond,
  newPerson,
  openRow,
  personAt,
  savedFile,
  saveTo,
  twoPeople,
} from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest, sharedPeople } from "./app-suite.ts";
import { type Network, openNetwork } from "./network.ts";

/**
 * How long the network is lost: `WAYPOST_TEST_LOSS_MS=30000` for the half minute that no one waits
 * for each time.
 */
const lossMs = Number(process.env["WAYPOST_TEST_LOSS_MS"] ?? 5_000);
/** `WAYPOST_TEST_FILE_MB=50` for a file that takes a while. */
const fileBytes = Number(process.env["WAYPOST_TEST_FILE_MB"] ?? 2) * 1_000_000;
/** The nodes listen on one port, and are reached through a network that can be lost on another. */
const publicPort = freePort();
const suite = appSuite(appPlace({ isKept: true, publicPort }));
const { node, app, scratch, start } = suite;
let network: Network;

beforeAll(() => {
  network = openNetwork(publicPort, suite.nodePort);
});
afterAll(() => network.close());

const two = (names: readonly [string, string], browser = suite.browser) =>
  twoPeople(browser, app, names, scratch);
const together = sharedPeople(suite, ["Gil", "Hal"]);

appTest(
  "two people meet by a link and talk through a restart, a loss of network and a second tab, each message once",
  async () => {
    const browser = suite.browser.heard();
    const { alice, bob } = await two(["Alice", "Bob"], browser);
    const named = "document.querySelector('.conversation .name')?.textContent === 'Alice'";
    await bob.page.until(named, "the name that the link gave", 60_000);
    await alice.say("hello Bob");
    await bob.sees("hello Bob");

    await suite.nodes.stop();
    await alice.say("said while the nodes are away");
    await alice.sees("said while the nodes are away");
    const isConnecting = "document.querySelector('.people .state').textContent === 'Connecting…'";
    await alice.page.until(isConnecting, "that it says so", 60_000);
    suite.nodes = await start();
    await bob.sees("said while the nodes are away");
    await alice.page.until(`!(${isConnecting})`, "that it is connected", 120_000);

    network.lose();
    await alice.say("said while the network is lost");
    await bob.say("said from the other side");
    await pause(lossMs, "nothing comes through while the network is lost");
    network.restore();
    await bob.sees("said while the network is lost");
    await alice.sees("said from the other side");
    // Alice has answered by then: of a stranger's message no one says that it arrived.
    await bob.page.until(isArrived("said from the other side"), "the receipt", 60_000);

    // A headless browser refuses to keep what is stored.
    await alice.page.until(
      "document.querySelector('.banner')?.textContent.includes('Make a backup')",
      "the remark",
    );

    const second = personAt(
      await browser.open(`${app}/${await bob.page.evaluate("location.hash")}`, bob.profile),
    );
    await second.sees("said while the network is lost");
    await alice.say("for both tabs");
    await Promise.all([bob.sees("for both tabs"), second.sees("for both tabs")]);
    await second.say("from the second tab");
    await Promise.all([alice.sees("from the second tab"), bob.sees("from the second tab")]);

    const heard = [
      "hello Alice",
      ">hello Bob",
      ">said while the nodes are away",
      ">said while the network is lost",
      "said from the other side",
      ">for both tabs",
      "from the second tab",
    ];
    expect((await alice.messages()).toSorted()).toEqual(heard.toSorted());
    const asked = [...alice.page.requests, ...bob.page.requests, ...second.page.requests];
    expect(new Set(asked.map((url) => new URL(url).origin))).toEqual(new Set([app, node]));
    const broken = [...alice.page.console, ...bob.page.console].filter((line) =>
      /Security Policy|Trusted/.test(line),
    );
    expect(broken).toEqual([]);
  },
  300_000,
);

appTest(
  "a file goes on after a reload in the middle, and is saved as it was; closed and opened without a server all is there",
  async () => {
    const { alice, bob } = await two(["Ann", "Ben"]);
    const bytes = crypto.getRandomValues(new Uint8Array(65_536));
    const digest = new Bun.CryptoHasher("sha256");
    for (let at = 0; at < fileBytes; at += bytes.length)
      digest.update(bytes.subarray(0, Math.min(bytes.length, fileBytes - at)));
    const path = join(scratch, "holiday.raw");
    const writer = Bun.file(path).writer();
    for (let at = 0; at < fileBytes; at += bytes.length)
      writer.write(bytes.subarray(0, Math.min(bytes.length, fileBytes - at)));
    await writer.end();
    await choose(bob, ".composer input[type=file]", path);
    await bob.press("Send");
    await bob.sees("holiday.raw");
    await bob.page.call("Page.reload", {});
    await bob.sees("holiday.raw");
    await alice.sees("holiday.raw", 240_000);
    const saved = mkdtempSync(join(scratch, "saved-"));
    await saveTo(alice, saved);
    await alice.click(".file");
    const found = await savedFile(saved, "holiday.raw", fileBytes);
    expect(found.length).toBe(fileBytes);
    expect(new Bun.CryptoHasher("sha256").update(found).digest("hex")).toBe(digest.digest("hex"));

    await alice.page.until(
      "navigator.serviceWorker.getRegistration().then((one) => one?.active?.state === 'activated')",
      "the worker",
    );
    const before = await alice.messages();
    const place = await alice.page.evaluate("location.hash");
    await alice.page.call("Page.close", {});
    await suite.nodes.stop();
    const again = personAt(await suite.browser.open(`${app}/${place}`, alice.profile));
    await again.sees("hello Ann");
    expect(await again.messages()).toEqual(before);
    await again.say("written offline");
    await again.sees("written offline");
    suite.nodes = await start();
    await bob.sees("written offline");
  },
  480_000,
);

appTest(
  "a backup makes the same person elsewhere, and no other passphrase opens it",
  async () => {
    const dora = await newPerson(suite.browser, app, "Dora", scratch);
    const did = new URL(await linkOf(dora)).hash.match(/did[^&]*/)?.[0];
    const saved = mkdtempSync(join(scratch, "backup-"));
    await saveTo(dora, saved);
    await dora.press("Settings");
    await dora.fill("dialog input[type=password]", "a long passphrase");
    await dora.press("Save backup");
    await savedFile(saved, "waypost.backup", 1);
    await dora.page.call("Page.close", {});
    const again = personAt(await suite.browser.open(app, await suite.browser.profile(scratch)));
    await again.press("I have a backup");
    await choose(again, "input[type=file]", join(saved, "waypost.backup"));
    await again.fill("input[type=password]", "another passphrase");
    await again.press("Restore");
    await again.page.until(
      "document.querySelector('[role=alert]')?.textContent === 'The passphrase is wrong.'",
      "why not",
      60_000,
    );
    await again.fill("input[type=password]", "a long passphrase");
    await again.press("Restore");
    await again.page.until("document.querySelector('.people')", "the list", 60_000);
    expect(new URL(await linkOf(again)).hash.match(/did[^&]*/)?.[0]).toBe(did);
  },
  120_000,
);

appTest(
  "a new version is taken as a whole when no page shows the old one, of which nothing is left",
  async () => {
    const fay = await newPerson(suite.browser, app, "Fay", scratch);
    const active =
      "navigator.serviceWorker.getRegistration().then((one) => one?.active?.state === 'activated')";
    await fay.page.until(active, "the worker");
    await fay.page.call("Page.reload", {});
    await fay.page.until("navigator.serviceWorker.controller !== null", "the page from the worker");
    const shown = "JSON.parse(document.querySelector('meta[name=waypost-node]').content).relayUrl";
    await suite.nodes.stop();
    suite.nodes = await start({ relay: relayAt(`${node}/`) });
    await fay.page.evaluate(
      "navigator.serviceWorker.getRegistration().then((one) => one.update())",
    );
    const waiting =
      "navigator.serviceWorker.getRegistration().then((one) => one.waiting?.state === 'installed')";
    await fay.page.until(waiting, "the new version");
    await fay.page.call("Page.reload", {});
    await fay.page.until("document.querySelector('.people')", "the app");
    expect(await fay.page.evaluate(shown)).toBe(node);
    // A page that is opened before the browser has put the former one away is one of the old
    // version.
    do {
      await fay.page.call("Page.navigate", { url: "about:blank" });
      await fay.page.until("location.href === 'about:blank'", "another page");
      await fay.page.call("Page.navigate", { url: app });
      await fay.page.until("document.querySelector('.people')", "the app", 60_000);
    } while ((await fay.page.evaluate(shown)) === node);
    expect(await fay.page.evaluate(shown)).toBe(`${node}/`);
    expect(await fay.page.evaluate("caches.keys().then((names) => names.length)")).toBe(1);
    // A page of the old one that asks the new worker for its scripts becomes one of the new
    // version.
    await fay.page.evaluate("(globalThis.isOld = true, void import('/main-of-the-old-one.js'))");
    await fay.page.until("globalThis.isOld === undefined", "that it is loaded anew", 60_000);
    await fay.page.until("document.querySelector('.people')", "the app", 60_000);
  },
  120_000,
);

appTest(
  "a new version says that it is there, and is taken by a press, with what was typed",
  () =>
    together(async ({ alice: gil }) => {
      await gil.page.call("Page.reload", {});
      await gil.page.until(
        "navigator.serviceWorker.controller !== null",
        "the page from the worker",
      );
      await gil.fill("textarea", "in the middle of");
      const shown =
        "JSON.parse(document.querySelector('meta[name=waypost-node]').content).relayUrl";
      const before = String(await gil.page.evaluate(shown));
      const after = before.endsWith("/") ? before.slice(0, -1) : `${before}/`;
      await suite.nodes.stop();
      suite.nodes = await start({ relay: relayAt(after) });
      await gil.page.evaluate(
        "navigator.serviceWorker.getRegistration().then((one) => one.update())",
      );
      await gil.press("Load it");
      await gil.page.until(`${shown} === ${JSON.stringify(after)}`, "the new version", 60_000);
      const field = "document.querySelector('.composer textarea')?.value === 'in the middle of'";
      await gil.page.until(field, "what was typed", 60_000);
    }),
  120_000,
);

appTest(
  "a version of which one file is of another is not taken, and the page works without it",
  async () => {
    /** The app, as a server in the middle of an update gives it. */
    const mixed = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      fetch: async (request) => {
        const { pathname } = new URL(request.url);
        const response = await fetch(app + pathname);
        const body = pathname.endsWith(".webmanifest")
          ? `${await response.text()} `
          : await response.bytes();
        return new Response(body, {
          headers: { "content-type": response.headers.get("content-type") ?? "" },
        });
      },
    });
    const page = await suite.browser.open(
      `http://127.0.0.1:${mixed.port}/`,
      await suite.browser.profile(scratch),
    );
    await page.until("document.querySelector('.welcome')", "the first page");
    const registered = `navigator.serviceWorker.register("/worker.js").then((one) => new Promise((resolve) => {
      const worker = one.installing ?? one.waiting ?? one.active;
      worker.addEventListener("statechange", () => resolve(worker.state));
      if (worker.state !== "installing") resolve(worker.state) }))`;
    expect(await page.evaluate(registered)).toBe("redundant");
    expect(await page.evaluate("caches.keys()")).toEqual([]);
    await mixed.stop(true);
  },
  60_000,
);

appTest(
  "a second device is linked by its code, gets what was said and a large file when it asks, and speaks as the same person",
  () =>
    together(async ({ alice, bob }) => {
      const bytes = crypto.getRandomValues(new Uint8Array(65_521));
      // More than devices give each other unasked.
      const large = new Uint8Array(8_400_000).map((_, i) => bytes[i % bytes.length] ?? 0);
      await Bun.write(join(scratch, "large.raw"), large);
      await choose(bob, ".composer input[type=file]", join(scratch, "large.raw"));
      await bob.press("Send");
      await alice.sees("large.raw", 240_000);
      const second = await linkSecond(suite.browser, app, alice, scratch);
      await openRow(second);
      await second.sees("hello Gil");

      const offers = (text: string) =>
        `document.querySelector('.file .size')?.textContent.endsWith('· ${text}')`;
      await second.page.until(offers("Load from your other device"), "that it is elsewhere");
      await second.click(".file");
      await second.page.until(offers("Save"), "that it came", 240_000);
      const saved = mkdtempSync(join(scratch, "large-"));
      await saveTo(second, saved);
      await second.click(".file");
      expect(Bun.hash(await savedFile(saved, "large.raw", large.length))).toBe(Bun.hash(large));

      await second.say("from the second device");
      await Promise.all([bob.sees("from the second device"), alice.sees("from the second device")]);
      expect((await alice.messages()).toSorted()).toEqual([
        ">from the second device",
        "hello Gil",
        "large.raw",
      ]);
      await bob.say("to both devices");
      await Promise.all([alice.sees("to both devices"), second.sees("to both devices")]);
    }),
  600_000,
);
