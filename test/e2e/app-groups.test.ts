/**
 * A group in the chat app, in headless Chromium: three people make it, write, see who writes and
 * has read, and leave it.
 */
import { expect } from "bun:test";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import { axeFindings, linkOf, newPerson, openRow, type Person, twoPeople } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const suite = appSuite(appPlace(), { isWithoutWorker: true });
const { node, app, scratch } = suite;

const has = ({ page }: Person, selector: string, text: string) =>
  page.until(
    `[...document.querySelectorAll(${JSON.stringify(selector)})].some((one) => one.textContent.includes(${JSON.stringify(text)}))`,
    `${text} in ${selector}`,
    60_000,
  );
/** Opens the conversation of this title. */
const go = async (person: Person, title: string) => {
  await has(person, ".row .name", title);
  await person.page.evaluate(
    `[...document.querySelectorAll('.row')].find((one) => one.querySelector('.name').textContent === ${JSON.stringify(title)}).click()`,
  );
  await has(person, "header .name", title);
};
const tick = async (person: Person, name: string) => {
  await has(person, "dialog .check", name);
  await person.page.evaluate(
    `[...document.querySelectorAll('dialog .check')].find((one) => one.textContent.includes(${JSON.stringify(name)})).querySelector('input').click()`,
  );
};
const about = (person: Person) =>
  person.page.evaluate("document.querySelector('button.who').click()");

appTest(
  "three people make a group, write, see who writes and who has read, and two of them go",
  async () => {
    const { alice, bob } = await twoPeople(suite.browser, app, ["Ada", "Ben"], scratch);
    const carol = await newPerson(suite.browser, await linkOf(alice), "Cleo", scratch);
    await carol.press("Open conversation");
    await carol.say("hello, it is Cleo");
    await go(alice, "~Cleo");
    await alice.press("Accept");
    await alice.page.until("document.querySelector('.composer')", "the field to write");

    await alice.press("Add somebody");
    await alice.press("Make a group");
    await alice.fill("dialog input", "Hiking");
    await tick(alice, "Ben");
    await tick(alice, "Cleo");
    const found = await axeFindings(alice, "new group");
    await alice.press("Make the group");
    await has(alice, "header .name", "Hiking");
    await alice.page.until("!document.querySelector('dialog')", "the end of the dialog");
    await alice.say("where to?");
    for (const person of [bob, carol]) {
      await go(person, "Hiking");
      await person.sees("where to?");
    }
    await has(carol, ".day", "Ada made the group “Hiking” with 3 people");
    await has(alice, ".own footer", "read");
    await has(alice, ".own footer", "read by 2 of 2");
    // They don't know one another, and see what the other says of themselves.
    await bob.say("to the lake");
    await carol.sees("to the lake");
    await has(carol, ".sender", "~Ben");
    await has(alice, ".sender", "Ben");
    await carol.fill("textarea", "I am wri");
    await has(alice, ".writing", "Cleo is writing");
    await carol.page.press("Enter");
    await alice.sees("I am wri");
    await alice.page.until(
      "document.querySelector('.writing').textContent === ''",
      "that she has written",
    );
    found.push(...(await axeFindings(alice, "group")));

    await about(alice);
    await alice.fill("dialog input", "Swimming");
    await tick(alice, "Cleo");
    await alice.press("Save");
    await has(bob, ".row .name", "Swimming");
    await has(carol, ".request", "You are no longer in this group.");
    expect(await carol.page.evaluate("document.querySelector('.composer') === null")).toBe(true);
    for (const { page } of [alice, bob]) await page.evaluate("globalThis.confirm = () => true");
    await about(alice);
    found.push(...(await axeFindings(alice, "about an own group")));
    // Only who made it decides who is in it, until they hand it over; and leaves then.
    await has(alice, "dialog", "Before you can leave, make someone else the admin.");
    await alice.close();
    await about(bob);
    await has(bob, "dialog .check", "Adaadmin");
    found.push(...(await axeFindings(bob, "about a group")));
    expect(await bob.page.evaluate("document.querySelector('dialog form') === null")).toBe(true);
    await bob.close();
    await about(alice);
    // The button says to a screen reader whom it is about.
    await alice.press("Make admin: Ben");
    await has(alice, "dialog .check", "Benadmin");
    await alice.close();
    await has(alice, ".day", "Ben took over the group");
    await has(bob, ".day", "You took over the group");
    await about(alice);
    await alice.press("Leave the group");
    await has(bob, ".day", "Ada left the group");
    await alice.page.until("document.querySelector('.composer') === null", "that she is out");
    expect(found).toEqual([]);
  },
  240_000,
);

appTest(
  "a stranger's group asks first, whatever it and its maker call themselves, and their picture is not shown",
  async () => {
    const person = await newPerson(suite.browser, app, "Dora", scratch);
    const did = new URLSearchParams(new URL(await linkOf(person)).hash.slice(1)).get("to") ?? "";
    const stranger = await Waypost.open({ url: node, keys: memoryKeys(), store: memoryStore() });
    const markup = "\u202e<img src=x onerror='globalThis.ran=1'>";
    const picture = new Blob([new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])]);
    await stranger.store.saveProfile({ name: markup, picture });
    const other = await Waypost.open({ url: node, keys: memoryKeys(), store: memoryStore() });
    const group = await stranger.groups.create(markup, [did, other.did]);
    await group.send("come in");
    await openRow(person);
    await person.sees("come in");
    await has(person, ".request", "invites you to a group of 3 people.");
    const shown =
      "document.body.textContent.includes('\\u202e') || document.querySelector('.avatar img, [onerror]') !== null";
    expect(await person.page.evaluate(shown)).toBe(false);
    expect(await person.page.evaluate("globalThis.ran ?? null")).toBeNull();
    expect(await axeFindings(person, "request of a group")).toEqual([]);
    await person.press("Accept");
    await person.say("here I am");
    let all: (string | null)[] = [];
    for (; !all.includes("here I am"); await Bun.sleep(50))
      all = (await group.messages()).map(({ text }) => text);
    await stranger.close();
    await other.close();
  },
  120_000,
);
