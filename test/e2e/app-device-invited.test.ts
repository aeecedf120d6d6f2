/**
 * Own devices on a server that takes only who is invited, in headless Chromium: the first device
 * shows a link that lets one in, by opening or by pasting it, and who has none is told where to get
 * it.
 */
import { expect } from "bun:test";
import { join } from "node:path";
import type { ConfigInput } from "../../src/config/schema.ts";
import { newPerson, type Person, personAt } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const place = appPlace();
const socket = join(place.scratch, "admin.sock");
const server: ConfigInput["server"] = {
  listen: [place.node, place.app].map((url) => new URL(url).host),
  app: new URL(place.app).host,
  admin_listen: [`unix:${socket}`],
  drain_timeout: "1s",
};
const directory: ConfigInput["directory"] = {
  enabled: true,
  registration: "invite",
  rate_limit_loopback: false,
};
const suite = appSuite(
  { ...place, start: () => place.start({ server, directory }) },
  { isWithoutWorker: true },
);
const { app, scratch } = suite;

/** The operator's, for one person. */
async function invitation(): Promise<string> {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ uses: 1, life_seconds: 600, note: null });
  const asked = { method: "POST", headers, body, unix: socket };
  const answer = await fetch("http://localhost/operations/invitations", asked);
  return ((await answer.json()) as { code: string }).code;
}

const says = ({ page }: Person, text: string) =>
  page.until(`document.body.textContent.includes(${JSON.stringify(text)})`, text, 60_000);

/** What the button copies. */
async function copied({ page, press }: Person, button: string): Promise<string> {
  await page.evaluate(
    "(navigator.clipboard.writeText = async (text) => { globalThis.copied = text }, true)",
  );
  await press(button);
  return String(await page.evaluate("globalThis.copied"));
}

const opened = async (url: string): Promise<Person> =>
  personAt(await suite.browser.open(url, await suite.browser.profile(scratch)));

const accept = async (first: Person, next: Person) => {
  await next.page.until("document.querySelector('.welcome .qr')", "its code", 60_000);
  const code = await copied(next, "Copy the code");
  await first.fill("dialog input[placeholder='Paste it here']", code);
  await first.press("Link");
  await next.page.until("document.querySelector('.people')", "the person's app", 90_000);
};
/** The list is that of when the settings were opened. */
const count = async ({ page, close, press }: Person, devices: number) => {
  await close();
  await press("Settings");
  await page.until(`document.querySelectorAll('.devices li').length === ${devices}`, "devices");
};

appTest(
  "a member links devices by links that the first one shows, each good for one",
  async () => {
    const first = await newPerson(
      suite.browser,
      `${app}/#invite=${await invitation()}`,
      "A",
      scratch,
    );
    const second = await opened(app);
    await second.press("I use it on another device");
    await says(second, "This server takes only people with an invitation");

    await first.press("Settings");
    await first.press("Add a device");
    const link = await copied(first, "Copy link");
    expect(link).toMatch(/^http:\/\/[^#]+\/#link=[1-9A-HJ-NP-Za-km-z]+$/);
    await second.fill(".welcome input[placeholder='Paste it here']", link);
    await second.press("Link");
    await accept(first, second);
    await count(first, 2);

    const late = await opened(link);
    await says(late, "This invitation is no longer valid.");
    await first.press("Add a device");
    const third = await opened(await copied(first, "Copy link"));
    await accept(first, third);
    await count(first, 3);
    expect(await third.page.evaluate("location.hash")).toBe("");
  },
  240_000,
);
