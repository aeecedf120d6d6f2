/**
 * The app in a window as small as the smallest phone's: nothing covers what comes next, nothing is
 * cut off.
 */
import { expect } from "bun:test";
import { newPerson, type Person, personAt, twoPeople } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const suite = appSuite(appPlace({}), { isWithoutWorker: true });
const { app, scratch } = suite;

/** 320 pixels is the width of WCAG 1.4.10. */
const shrink = ({ page }: Pick<Person, "page">) =>
  page.call("Emulation.setDeviceMetricsOverride", {
    width: 320,
    height: 568,
    deviceScaleFactor: 1,
    mobile: false,
  });

/**
 * What is wrong in a dialog, or else in the first page. Words of buttons are for a finger: they
 * stand 0.2rem out.
 */
const faults = `(() => {
  const root = document.querySelector('dialog .sheet') ?? document.querySelector('.welcome');
  const shown = [...root.querySelectorAll('*')].filter((one) => one.checkVisibility());
  const rect = (one) => one.getBoundingClientRect();
  const end = rect(root).right - parseFloat(getComputedStyle(root).paddingRight);
  const text = (one) => (one.textContent || one.outerHTML).slice(0, 60);
  return [
    ...[...root.children].flatMap((one) => {
      const next = one.nextElementSibling;
      return next?.checkVisibility() && rect(one).bottom > rect(next).top + 1 && getComputedStyle(one).position !== 'sticky'
        ? ['covers what comes next: ' + text(one)] : [];
    }),
    ...shown.filter((one) => one.matches('label, button, p, h2, h3') && one.closest('header') === null)
      .filter((one) => (one.matches('label') && one.scrollWidth > one.clientWidth) || rect(one).right > end + 4)
      .map((one) => 'is cut off: ' + text(one)),
    ...shown.filter((one) => one.matches('.fingerprint > *') && rect(one).height > 40)
      .map((one) => 'is broken: ' + text(one)),
  ];
})()`;

appTest(
  "on the smallest phone no part of a page covers another or is cut off",
  async () => {
    const found: unknown[] = [];
    const look = async ({ page }: Pick<Person, "page">, what: string, ready: string) => {
      await page.until(`document.querySelector(${JSON.stringify(ready)})`, what);
      found.push([what, await page.evaluate(faults)]);
    };
    const eve = personAt(await suite.browser.open(app, await suite.browser.profile(scratch)));
    await shrink(eve);
    await look(eve, "welcome", ".welcome input");
    await eve.press("I use it on another device");
    await look(eve, "another device", ".welcome .qr");
    await eve.press("Back");
    await eve.press("I have a backup");
    await look(eve, "a backup", ".welcome input[type=file]");
    const dave = await newPerson(suite.browser, app, "Dave", scratch);
    await shrink(dave);
    await dave.press("Add somebody");
    await look(dave, "add somebody", "dialog .qr");
    await dave.close();
    await dave.press("Settings");
    await dave.page.until("document.querySelector('dialog .danger')", "all of the settings");
    await look(dave, "settings", "dialog select");
    await dave.close();
    const { alice } = await twoPeople(suite.browser, app, ["Alice", "Bob"], scratch);
    await shrink(alice);
    await alice.press("Check who this is");
    await look(alice, "a person", "dialog .cells");
    expect(found).toEqual(
      ["welcome", "another device", "a backup", "add somebody", "settings", "a person"].map(
        (what) => [what, []],
      ),
    );
  },
  240_000,
);
