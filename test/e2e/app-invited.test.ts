/**
 * An invited friend is no stranger, in headless Chromium: who comes by the link is accepted by
 * itself, once or as often as it says; and the operator's invitation passes on with it.
 */
import { expect } from "bun:test";
import { invitationOf, newPerson, personAt } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const suite = appSuite(appPlace({}), { isWithoutWorker: true });
const { app, scratch } = suite;

const rows = (count: number) => `document.querySelectorAll('.row').length === ${count}`;
const requests = "[...document.querySelectorAll('section h2')].map((one) => one.textContent)";

appTest(
  "the first who comes by a link is accepted without a question, the second asks",
  async () => {
    const alice = await newPerson(suite.browser, app, "Ann", scratch);
    const link = await invitationOf(alice);
    const bob = await newPerson(suite.browser, link, "Ben", scratch);
    await bob.press("Open conversation");
    await bob.say("hello Ann");
    await alice.page.until(`${rows(1)} && !${requests}.includes('Requests')`, "Ben, accepted");
    await alice.click(".row");
    await alice.sees("hello Ann");
    // She may answer at once.
    await alice.say("hello Ben");
    await bob.sees("hello Ben");
    const carol = await newPerson(suite.browser, link, "Cleo", scratch);
    await carol.press("Open conversation");
    await carol.say("me too");
    await alice.page.until(`${requests}.includes('Requests')`, "Cleo's request");
  },
  240_000,
);

appTest(
  "a link for everybody accepts each; and a secret that somebody made up accepts no one",
  async () => {
    const alice = await newPerson(suite.browser, app, "Ada", scratch);
    await alice.press("Add somebody");
    await alice.page.until("document.querySelector('dialog select')", "the choice");
    const choose = (value: string) =>
      alice.page.evaluate(
        `(() => { const one = document.querySelector('dialog select'); one.value = '${value}';
          one.dispatchEvent(new Event('change', { bubbles: true })); return true })()`,
      );
    const shown = "document.querySelector('dialog .joinedfield input').value";
    await choose("none");
    await alice.page.until(`!${shown}.includes('&s=')`, "a link without a secret");
    await choose("all");
    await alice.page.until(`${shown}.includes('&s=')`, "a link with a secret");
    const link = String(await alice.page.evaluate(shown));
    await alice.close();
    for (const name of ["Bob", "Cem"]) {
      const person = await newPerson(suite.browser, link, name, scratch);
      await person.press("Open conversation");
      await person.say(`I am ${name}`);
    }
    await alice.page.until(`${rows(2)} && !${requests}.includes('Requests')`, "both, accepted");
    // The same with one character of the proof changed.
    const last = link.at(-1) === "0" ? "1" : "0";
    const other = await newPerson(suite.browser, `${link.slice(0, -1)}${last}`, "Dan", scratch);
    await other.press("Open conversation");
    await other.say("I am Dan");
    await alice.page.until(`${requests}.includes('Requests')`, "Dan's request");
  },
  240_000,
);

appTest(
  "the operator's invitation by which somebody came is in their link, and fills the field of the next one",
  async () => {
    const code = "1111111111111111111111";
    const alice = await newPerson(suite.browser, `${app}/#invite=${code}`, "Eve", scratch);
    const link = await invitationOf(alice);
    expect(new URLSearchParams(link.slice(link.indexOf("#") + 1)).get("invite")).toBe(code);
    const profile = await suite.browser.profile(scratch);
    const next = personAt(await suite.browser.open(link, profile));
    const filled = `[...document.querySelectorAll('.welcome input')].some((one) => one.value === '${code}')`;
    await next.page.until(filled, "the invitation");
    expect(await next.page.evaluate("document.querySelector('.welcome p').textContent")).toContain(
      "Eve invites you",
    );
  },
  240_000,
);
