/**
 * The app at hand, in headless Chromium: nothing typed is lost, nothing leaves before it was seen,
 * what was read counts as read, and the next version comes by a press.
 */
import { expect } from "bun:test";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import { didOf, linkOf, newPerson, type Person } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest, sharedPeople } from "./app-suite.ts";

const suite = appSuite(appPlace({}), { isWithoutWorker: true });
const { app, scratch } = suite;
const together = sharedPeople(suite, ["Ada", "Bea"]);

const fieldText = "document.querySelector('.composer textarea')?.value";
const shows = (person: Person, text: string) =>
  person.page.until(`${fieldText} === ${JSON.stringify(text)}`, `the field with ${text}`, 60_000);
/** Of the field, as a browser makes it. */
const event = (kind: string, how: string, more = "") => `(() => {
  const field = document.querySelector('.composer textarea');
  const one = new ${kind}(${how});
  ${more}
  field.dispatchEvent(one);
  return one.defaultPrevented;
})()`;
const png = `Uint8Array.fromBase64("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")`;

appTest(
  "what was typed is there after a reload, and gone when it was sent",
  () =>
    together(async ({ alice, bob }) => {
      await alice.fill("textarea", "half a sen");
      await alice.page.call("Page.reload", {});
      await shows(alice, "half a sen");
      await alice.fill("textarea", "a whole sentence");
      await alice.page.press("Enter");
      await bob.sees("a whole sentence");
      await alice.sees("a whole sentence");
      await alice.page.call("Page.reload", {});
      await alice.sees("a whole sentence");
      await shows(alice, "");
    }),
  240_000,
);

appTest(
  "the Enter of an input method sends nothing; a person's does",
  () =>
    together(async ({ alice, bob }) => {
      await alice.fill("textarea", "nihon");
      const key = (keyCode: number, isComposing: boolean) =>
        event(
          "KeyboardEvent",
          `'keydown', { key: 'Enter', keyCode: ${keyCode}, isComposing: ${isComposing}, bubbles: true, cancelable: true }`,
        );
      expect(await alice.page.evaluate(key(229, false))).toBe(false);
      expect(await alice.page.evaluate(key(13, true))).toBe(false);
      await shows(alice, "nihon");
      expect(await alice.page.evaluate(key(13, false))).toBe(true);
      await bob.sees("nihon");
    }),
  240_000,
);

appTest(
  "cells stay text; pictures are shown first, and one that can't be read drops no other",
  () =>
    together(async ({ alice, bob }) => {
      const paste = (text: string, files: string) =>
        event(
          "ClipboardEvent",
          "'paste', { bubbles: true, cancelable: true, clipboardData: new DataTransfer() }",
          `${text === "" ? "" : `one.clipboardData.setData('text/plain', ${JSON.stringify(text)});`}
         for (const file of ${files}) one.clipboardData.items.add(file);`,
        );
      const picture = `new File([${png}], 'cells.png', { type: 'image/png' })`;
      // The browser itself puts the text into the field.
      expect(await alice.page.evaluate(paste("12\t34", `[${picture}]`))).toBe(false);
      const chosen =
        "[...document.querySelectorAll('.chosen li bdi')].map((one) => one.textContent)";
      expect(await alice.page.evaluate(chosen)).toEqual([]);

      expect(await alice.page.evaluate(paste("", `[${picture}]`))).toBe(true);
      await alice.page.until(
        "document.querySelector('.chosen img')?.naturalWidth === 1",
        "the picture",
        60_000,
      );
      await alice.fill("textarea", "the sum");
      expect(await alice.messages()).not.toContain(">cells.png");
      await alice.page.press("Enter");
      await bob.sees("the sum");
      await alice.page.until("!document.querySelector('.chosen')", "that nothing is chosen");
      await bob.page.until(
        "document.querySelector('.others .picture img')?.naturalWidth === 1",
        "the picture",
        60_000,
      );

      const file = (name: string) => `new File(['${name}'], '${name}.txt')`;
      const unread = `Object.assign(${file("two")}, { slice: () => ({ arrayBuffer: async () => { throw new Error('gone') } }) })`;
      // A transfer would copy the file, so the one that can't be read is given as the page would
      // get it.
      await alice.page.evaluate(`(() => {
      const one = new ClipboardEvent('paste', { bubbles: true, cancelable: true, clipboardData: new DataTransfer() });
      Object.defineProperty(one, 'clipboardData', { value: { getData: () => '', files: [${file("one")}, ${unread}, ${file("three")}, ${file("four")}] } });
      document.querySelector('.composer textarea').dispatchEvent(one);
    })()`);
      await alice.press("Send");
      for (const name of ["one.txt", "three.txt", "four.txt"]) await bob.sees(name);
      await alice.page.until(
        "document.querySelector('.toast')?.textContent === \"This can't be read and was not sent: two.txt\"",
        "the name of the one that was not sent",
        60_000,
      );
    }),
  240_000,
);

appTest(
  "what arrives late and stands above the last message is read too",
  async () => {
    const ada = await newPerson(suite.browser, app, "Ada", scratch);
    const bob = await Waypost.open({
      url: suite.node,
      keys: memoryKeys(),
      store: memoryStore(),
      receipts: true,
    });
    const hash = new URLSearchParams({ to: bob.did, name: "Bob" });
    await ada.page.evaluate(`(location.hash = ${JSON.stringify(`${hash}`)}, true)`);
    await ada.press("Open conversation");
    await ada.say("the last one");
    await ada.sees("the last one");
    const did = await didOf(ada);
    await bob.store.savePerson(did, { isKnown: true });
    const now = Date.now;
    // Sealed ten seconds ago, as by a program that was without a network since.
    Date.now = () => now() - 10_000;
    const sent = await bob.send(did, "written before it");
    await sent.delivered;
    Date.now = now;
    await ada.sees("written before it");
    expect((await ada.messages()).slice(-2)).toEqual(["written before it", ">the last one"]);
    await ada.page.until("document.title === 'Waypost'", "that it is read", 60_000);
    const state = async () => (await bob.store.message(sent.id))?.delivery?.state;
    for (let tries = 0; (await state()) !== "read" && tries < 600; tries++) await Bun.sleep(50);
    expect(await state()).toBe("read");
    await bob.close();
  },
  240_000,
);

appTest(
  "what comes into sight by scrolling is read",
  () =>
    together(async ({ alice, bob }) => {
      const tall = (n: number) => `line ${n}\n`.repeat(12).trim();
      for (let i = 0; i < 10; i++) await bob.say(tall(i));
      await alice.sees(tall(9));
      await alice.page.evaluate("document.querySelector('.messages').scrollTo(0, -1500)");
      await bob.say("below the fold");
      await alice.page.until("document.title === '(1) Waypost'", "that one is unread", 60_000);
      await alice.page.evaluate("document.querySelector('.messages').scrollTo(0, 0)");
      await alice.page.until("document.title === 'Waypost'", "that it is read", 60_000);
      await bob.page.until(
        `[...document.querySelectorAll('.own')].some((one) => one.querySelector('.text')?.textContent === 'below the fold'
        && one.querySelector('footer .read'))`,
        "that Bob is told",
        60_000,
      );
    }),
  240_000,
);

appTest(
  "a message is changed and taken back for both, by its author alone",
  () =>
    together(async ({ alice, bob }) => {
      await alice.say("at noon");
      await bob.sees("at noon");
      const more = (person: Person, text: string) =>
        person.page.until(
          `(() => { const one = [...document.querySelectorAll('.message')].find((one) =>
            one.querySelector('.text')?.textContent === ${JSON.stringify(text)});
            one?.querySelector('.more').click(); return !!one })()`,
          `the actions of ${text}`,
        );
      const actions =
        "[...document.querySelectorAll('.actions button')].map((one) => one.textContent)";
      await more(bob, "at noon");
      await bob.page.until(`${actions}.includes('Delete here')`, "Bob's actions");
      for (const own of ["Edit", "Delete for everybody"])
        expect(await bob.page.evaluate(actions)).not.toContain(own);
      await more(alice, "at noon");
      await alice.press("Edit");
      await alice.fill(".editing textarea", "at one");
      await alice.page.press("Enter");
      for (const person of [alice, bob]) {
        await person.sees("at one");
        await person.page.until(
          "[...document.querySelectorAll('.message footer')].some((one) => one.textContent.includes('edited'))",
          "that it was edited",
        );
      }
      await alice.page.evaluate("(globalThis.confirm = () => true)");
      await more(alice, "at one");
      await alice.press("Delete for everybody");
      for (const person of [alice, bob]) {
        await person.sees("This message was deleted.");
        expect(await person.messages()).not.toContain("at one");
      }
      await bob.page.until(
        "[...document.querySelectorAll('.row .last')].some((one) => one.textContent.includes('Message deleted'))",
        "the list",
      );
    }),
  240_000,
);

appTest(
  "stars are bold, arrow keys go from row to row, and all requests are deleted at once",
  () =>
    together(async ({ alice, bob }) => {
      await bob.say("this is *important*: `bun test`");
      await alice.page.until(
        "document.querySelector('.text b')?.textContent === 'important' && document.querySelector('.text code')?.textContent === 'bun test'",
        "what is bold, and code",
      );
      const link = await linkOf(alice);
      for (const name of ["Yan", "Zoe"]) {
        const stranger = await newPerson(suite.browser, link, name, scratch);
        await stranger.press("Open conversation");
        await stranger.say(`I am ${name}`);
      }
      await alice.page.until("document.querySelectorAll('.row').length === 3", "two requests");
      await alice.page.evaluate("document.querySelector('.row').focus()");
      const focused = "[...document.querySelectorAll('.row')].indexOf(document.activeElement)";
      for (const [key, at] of [
        ["ArrowDown", 1],
        ["ArrowDown", 2],
        ["ArrowDown", 2],
        ["ArrowUp", 1],
      ] as const) {
        await alice.page.evaluate(
          `document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: '${key}', bubbles: true, cancelable: true }))`,
        );
        expect(await alice.page.evaluate(focused)).toBe(at);
      }
      await alice.page.evaluate("(globalThis.confirm = () => true)");
      await alice.press("Delete all requests");
      await alice.page.until(
        "document.querySelectorAll('.row').length === 1 && document.querySelector('.row .name').textContent.includes('Bea')",
        "Bea alone",
      );
    }),
  240_000,
);
