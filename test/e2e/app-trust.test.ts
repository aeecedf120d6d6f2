/**
 * Trust that one sees, in headless Chromium: devices with their names and times, keys that are
 * replaced by a press, what two people compare, and a stranger with a friend's name.
 */
import { expect } from "bun:test";
import { axeFindings, linkOf, linkSecond, newPerson, twoPeople } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest, sharedPeople } from "./app-suite.ts";

const suite = appSuite(appPlace({}), { isWithoutWorker: true });
const { app, scratch } = suite;
const together = sharedPeople(suite, ["Hana", "Ivo"]);

appTest(
  "each device has its name, its time and who added it; and keys are replaced by a press",
  async () => {
    const { alice, bob } = await twoPeople(suite.browser, app, ["Dora", "Emil"], scratch);
    const second = await linkSecond(suite.browser, app, alice, scratch);
    await second.press("Settings");
    await second.page.until("document.querySelectorAll('.devices li').length === 2", "both");
    const lines = (await second.page.evaluate(
      "[...document.querySelectorAll('.devices .lines')].map((one) => [...one.children].map((part) => part.textContent))",
    )) as string[][];
    expect(lines).toEqual([
      [expect.stringMatching(/^Chrome on Linux$/), "This device"],
      ["Chrome on Linux", expect.stringMatching(/^Added .*\d/)],
    ]);
    await second.close();
    await alice.press("Settings");
    await alice.page.until("document.querySelectorAll('.devices li').length === 2", "both");
    const added = await alice.page.evaluate(
      "document.querySelectorAll('.devices .lines')[1].textContent",
    );
    expect(added).toMatch(/^DeviceAdded .*, by this device$/);
    await alice.page.evaluate("(globalThis.confirm = () => true)");
    await alice.fill("input[autocomplete=new-password]", "orange kettle");
    await alice.press("Save backup");
    await alice.page.until(
      "document.querySelector('input[autocomplete=new-password]').value === ''",
      "the backup",
    );
    await alice.press("Somebody may have my keys");
    await alice.page.until("document.querySelectorAll('dialog fieldset .check').length > 2", "it");
    const staying = await alice.page.evaluate(
      "[...document.querySelectorAll('dialog fieldset .check')].map((one) => one.textContent)",
    );
    expect(staying).toEqual([
      expect.stringMatching(/^DeviceAdded .*, by this device$/),
      expect.stringMatching(/^Delivery at once \(Relay\) at http:\/\/[^,]*$/),
      expect.stringMatching(/^Mailbox \(Cache\) at http:\/\/[^,]*$/),
    ]);
    expect(await axeFindings(alice, "what stays under new keys")).toEqual([]);
    await alice.press("Make new keys");
    await alice.page.until(
      "document.querySelector('.toast')?.textContent.startsWith('You have new keys')",
      "the new keys",
      60_000,
    );
    await alice.page.until(
      "[...document.querySelectorAll('.banner')].some((one) => one.textContent.includes('Your last backup is from before'))",
      "that the backup is old",
    );
    await alice.close();
    // Both devices and the other person go on.
    await alice.say("under new keys");
    await bob.sees("under new keys");
    await second.click(".row");
    await second.sees("under new keys");
    await second.say("from the second");
    await bob.sees("from the second");
  },
  240_000,
);

appTest(
  "a stranger who takes a friend's name is told apart",
  () =>
    together(async ({ alice }) => {
      const other = await newPerson(suite.browser, await linkOf(alice), "I\u200bvo", scratch);
      await other.press("Open conversation");
      await other.say("it's me");
      const names = "[...document.querySelectorAll('.row .name')].map((one) => one.textContent)";
      await alice.page.until(`${names}.length === 2`, "the request");
      await alice.page.until(
        `${names}.every((one) => /^~?Ivo \\(wp.*…/.test(one)) && new Set(${names}).size === 2`,
        "two names",
      );
    }),
  240_000,
);

appTest(
  "both see the same numbers and picture, and what was compared is remembered",
  () =>
    together(async ({ alice, bob }) => {
      const shown = async (person: typeof alice) => {
        await person.press("Check who this is");
        await person.page.until("document.querySelector('.cells')", "the picture");
        return person.page.evaluate(
          "[document.querySelector('.fingerprint').textContent, document.querySelector('.cells').innerHTML]",
        );
      };
      expect(await shown(alice)).toEqual(await shown(bob));
      await alice.press("We have compared them");
      const said =
        "document.querySelector('dialog .good')?.textContent.includes('no key has changed')";
      await alice.page.until(said, "that they were compared");
      await alice.close();
      await alice.press("Check who this is");
      await alice.page.until(said, "that they were compared");
      await bob.page.until(`!${said}`, "that Bob has not");
    }),
  240_000,
);
