/**
 * Languages of the app in headless Chromium: German by the browser and by choice, and a page that
 * reads from right to left.
 */
import { expect } from "bun:test";
import { type Person, personAt, twoPeople } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const suite = appSuite(appPlace({}), { isWithoutWorker: true });
const { app, scratch } = suite;

/** Loads the page anew in a browser that wants these languages. */
async function speak({ page }: Person, languages: string): Promise<void> {
  const userAgent = String(await page.evaluate("navigator.userAgent"));
  await page.call("Emulation.setUserAgentOverride", { userAgent, acceptLanguage: languages });
  await page.call("Page.reload", {});
}
const shows = ({ page }: Person, text: string) =>
  page.until(`document.body.textContent.includes(${JSON.stringify(text)})`, text, 60_000);
/** What a reader sees or a screen reader says. */
const said = ({ page }: Person) =>
  page.evaluate(`[document.body.innerText, ...[...document.querySelectorAll(
    '[aria-label], [title], [placeholder]')].flatMap((one) => [one.ariaLabel, one.title, one.placeholder])].join(" | ")`);
const language = "[document.documentElement.lang, document.documentElement.dir].join()";

appTest(
  "a browser in German gets German words, dates and numbers; English stays where it is chosen",
  async () => {
    const profile = await suite.browser.profile(scratch);
    const ada = { ...personAt(await suite.browser.open(app, profile)), profile };
    await ada.page.until("document.querySelector('.welcome')", "the first page", 60_000);
    await speak(ada, "de-AT,en");
    await shows(ada, "Keine Telefonnummer");
    expect(await ada.page.evaluate(language)).toBe("de,ltr");
    await ada.fill(".welcome input", "Ada");
    await ada.press("Los geht’s");
    await ada.press("Einstellungen");
    await shows(ada, "belegt.");
    const english = /\b(?:the|your|you|with|Settings|Devices|Messages|Search)\b/;
    expect(String(await said(ada))).not.toMatch(english);
    expect(String(await said(ada))).toMatch(/\d\s(?:Byte|kB|MB) von \d,\d\sGB/);
    // A choice is for this browser, whatever it wants.
    const choose = (value: string) =>
      ada.page.evaluate(`(() => { const one = document.querySelector('dialog select');
        one.value = ${JSON.stringify(value)}; one.dispatchEvent(new Event('change', { bubbles: true })); return true })()`);
    await choose("en");
    await shows(ada, "Invite somebody");
    expect(await ada.page.evaluate(language)).toBe("en,ltr");
    await ada.press("Settings");
    await ada.page.until("document.querySelector('dialog select')", "the languages", 60_000);
    await choose("");
    await shows(ada, "Jemanden einladen");
  },
  240_000,
);

const box = (selector: string) => `(() => { const { left, right } =
  document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect(); return [left, right] })()`;
const widths = "[document.scrollingElement.scrollWidth, innerWidth]";
/** Elements that stand out of the window. */
const outside = `[...document.querySelectorAll('main *, nav *, dialog *')].filter((one) => {
  const { left, right, width } = one.getBoundingClientRect();
  return one.checkVisibility() && width > 1 && (left < -0.5 || right > innerWidth + 0.5) && !one.closest('.hidden');
}).map((one) => one.outerHTML.slice(0, 80))`;

appTest(
  "a page from right to left has everything on its other side and nothing outside, and words keep their own direction",
  async () => {
    const { alice, bob } = await twoPeople(suite.browser, app, ["Rina", "Sami"], scratch);
    await bob.say("שלום Rina, מה שלומך?");
    await alice.say("Fine, thanks!");
    await alice.sees("שלום Rina, מה שלומך?");
    await bob.sees("Fine, thanks!");
    const direction = (text: string) => `getComputedStyle([...document.querySelectorAll('.text')]
      .find((one) => one.textContent === ${JSON.stringify(text)})).direction`;
    expect(await alice.page.evaluate(direction("שלום Rina, מה שלומך?"))).toBe("rtl");
    const side = async (selector: string) => (await alice.page.evaluate(box(selector))) as number[];
    const size = async (width: number) => {
      const metrics = { width, height: 780, deviceScaleFactor: 1, mobile: false };
      await alice.page.call("Emulation.setDeviceMetricsOverride", metrics);
    };
    await size(1_000);
    const [listLeft = 0] = await side(".people");
    expect(listLeft).toBe(0);
    await alice.page.evaluate("(document.documentElement.dir = 'rtl', true)");
    const [, listRight] = await side(".people");
    expect(listRight).toBe(1_000);
    const [, mainRight = 0] = await side(".conversation");
    expect(mainRight).toBeLessThan(1_000);
    // Own messages stand at the end of a line, which is on the left now.
    const [ownLeft = 0] = await side(".own .bubble");
    const [othersLeft = 0] = await side(".others .bubble");
    expect(ownLeft).toBeLessThan(othersLeft);
    expect(await alice.page.evaluate(direction("Fine, thanks!"))).toBe("ltr");
    const [sendLeft = 0] = await side(".composer .filled");
    const [attachLeft = 0] = await side(".composer > .round");
    expect(sendLeft).toBeLessThan(attachLeft);
    for (const width of [1_000, 320]) {
      await size(width);
      expect(await alice.page.evaluate(widths)).toEqual([width, width]);
      expect(await alice.page.evaluate(outside)).toEqual([]);
      await alice.press("Check who this is");
      await alice.page.until("document.querySelector('dialog .cells')", "the fingerprint", 60_000);
      expect(await alice.page.evaluate(outside)).toEqual([]);
      await alice.close();
    }
  },
  240_000,
);
