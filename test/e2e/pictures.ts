/**
 * Makes the picture of the README, `docs/app.png`: two people of the app in Chromium, a wide light
 * window and a narrow dark one. `bun test/e2e/pictures.ts`.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import { choose, linkOf, newPerson, type Person } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { type Page, startChromium } from "./chromium.ts";

const place = appPlace();
const { node: url, app, scratch } = place;
const nodes = await place.start();
const browser = await startChromium({
  flags: [
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    // A mouse, which a headless browser says it lacks.
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
  ],
});

const window = async (
  { page }: Person,
  width: number,
  height: number,
  scheme: "light" | "dark",
) => {
  await page.call("Emulation.setDeviceMetricsOverride", {
    width,
    height,
    deviceScaleFactor: 1.5,
    mobile: false,
  });
  const features = [{ name: "prefers-color-scheme", value: scheme }];
  await page.call("Emulation.setEmulatedMedia", { features });
};
const picture = async (page: Page) =>
  String((await page.call("Page.captureScreenshot", { format: "png" }))["data"]);

/** A landscape, drawn in a page. */
async function landscape(page: Page): Promise<string> {
  const data = await page.evaluate(`(() => {
    const canvas = document.createElement("canvas"); canvas.width = 660; canvas.height = 330;
    const c = canvas.getContext("2d"); const sky = c.createLinearGradient(0, 0, 0, 400);
    sky.addColorStop(0, "#f6c8a0"); sky.addColorStop(0.6, "#e98f77"); c.fillStyle = sky; c.fillRect(0, 0, 660, 400);
    c.fillStyle = "#fff1d6"; c.beginPath(); c.arc(470, 170, 46, 0, 7); c.fill();
    [["#9b5d6e", 230, 60, 0.011], ["#5f4a68", 285, 44, 0.016], ["#2f3a56", 335, 26, 0.023]].forEach(([color, y, high, wide], n) => {
      c.fillStyle = color; c.beginPath(); c.moveTo(0, 400);
      for (let x = 0; x <= 660; x += 4) c.lineTo(x, y - high * Math.sin(x * wide + n * 2) - 8 * Math.sin(x * 0.07 + n));
      c.lineTo(660, 400); c.fill(); });
    return canvas.toDataURL("image/png").split(",")[1] })()`);
  const path = join(scratch, "evening.png");
  writeFileSync(path, Buffer.from(String(data), "base64"));
  return path;
}

async function befriend(alice: Person, name: string): Promise<void> {
  await alice.page.until(
    "document.querySelector('[aria-label=Requests] .row')",
    "the request",
    60_000,
  );
  await alice.page.evaluate("document.querySelector('[aria-label=Requests] .row').click()");
  await alice.fill(".request input", name);
  await alice.press("Accept");
  await alice.page.until("document.querySelector('.composer')", "the field to write");
}

try {
  const alice = await newPerson(browser, app, "Alice", scratch);
  await window(alice, 860, 690, "light");
  const link = await linkOf(alice);
  const did = new URLSearchParams(new URL(link).hash.slice(1)).get("to") ?? "";
  const others = [
    ["Mira", "Lecture notes are in the folder"],
    ["Grandpa", "Which train are you on?"],
    ["Jonas", "Thanks, got the keys"],
  ] as const;
  for (const [name, text] of others) {
    const other = await Waypost.open({ url, keys: memoryKeys(), store: memoryStore() });
    await (await other.send(did, text)).delivered;
    await befriend(alice, name);
    await other.close();
  }
  const bob = await newPerson(browser, link, "Bob", scratch);
  await window(bob, 330, 690, "dark");
  await bob.press("Open conversation");
  await bob.page.until("document.querySelector('.composer')", "the field to write");
  await choose(bob, ".composer input[type=file]", await landscape(bob.page));
  await bob.press("Send");
  await befriend(alice, "Bob");
  await bob.say("This evening, from the ridge");
  await alice.sees("This evening, from the ridge");
  await alice.say("Beautiful! Still on for Saturday?");
  await bob.sees("Beautiful! Still on for Saturday?");
  await bob.say("Yes. 9:40 at the harbour, I bring the map.");
  await alice.sees("Yes. 9:40 at the harbour, I bring the map.");
  await alice.say("See you there!");
  await bob.sees("See you there!");
  for (const { page } of [alice, bob]) {
    await page.evaluate(
      "document.querySelectorAll('.banner .round').forEach((one) => one.click()); document.activeElement.blur()",
    );
    await page.until(
      "[...document.querySelectorAll('.picture img')].every((one) => one.naturalWidth > 0)",
      "the picture",
    );
  }
  await bob.page.evaluate("document.querySelector('.messages').scrollTop = 1e6");
  await alice.page.until("document.querySelectorAll('.own .icon').length > 1", "receipts");
  // Until nothing moves: scrolling, and toasts that go.
  await Bun.sleep(1_500);
  const [wide, narrow] = [await picture(alice.page), await picture(bob.page)];
  const both = await browser.open("about:blank");
  await both.call("Emulation.setDeviceMetricsOverride", {
    width: 1280,
    height: 770,
    deviceScaleFactor: 1,
    mobile: false,
  });
  const style = "border-radius:14px;box-shadow:0 10px 34px #0003,0 0 0 1px #0001";
  await both.evaluate(`document.body.style.cssText = "margin:0;height:770px;display:flex;gap:30px;align-items:center;justify-content:center;background:#e9e6df";
    document.body.innerHTML = '<img style="${style};width:860px" src="data:image/png;base64,${wide}"><img style="${style};width:330px" src="data:image/png;base64,${narrow}">';
    Promise.all([...document.images].map((one) => one.decode())).then(() => true)`);
  writeFileSync(
    join(import.meta.dir, "..", "..", "docs", "app.png"),
    Buffer.from(await picture(both), "base64"),
  );
} finally {
  await browser.close();
  await nodes.stop();
  place.remove();
}
process.exit();
