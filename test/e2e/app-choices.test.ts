/**
 * What is chosen in a conversation of the app, in headless Chromium: pinned, muted, put away, and
 * how long messages last; whom a message calls, and who has it; words that are passed on; and sound
 * that is recorded, heard first, sent and played.
 */
import { afterAll, beforeAll, expect } from "bun:test";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import { axeFindings, didOf, linkSecond, newPerson, type Person } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest, inWindows } from "./app-suite.ts";
import { chromiumPath } from "./chromium.ts";

const suite = appSuite(appPlace(), {
  flags: ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"],
  isWithoutWorker: true,
});
const { node, app, scratch } = suite;
let bob: Waypost;
let carol: Waypost;

const open = () =>
  Waypost.open({ url: node, keys: memoryKeys(), store: memoryStore(), receipts: true });
beforeAll(async () => {
  if (chromiumPath === null) return;
  [bob, carol] = await Promise.all([open(), open()]);
  for (const one of [bob, carol]) await one.store.saveProfile({ isOpen: true });
});
afterAll(() => Promise.all([bob?.close(), carol?.close()]));

/** Meets a program by its link, and calls it so. */
async function meet(person: Person, other: Waypost, name: string): Promise<void> {
  const hash = new URLSearchParams({ to: other.did, name });
  await person.page.evaluate(`(location.hash = ${JSON.stringify(`${hash}`)}, true)`);
  await person.press("Open conversation");
  await person.say(`hello ${name}`);
  await person.sees(`hello ${name}`);
  const did = await didOf(person);
  await other.store.savePerson(did, { isKnown: true });
}

const has = ({ page }: Person, selector: string, text: string) =>
  page.until(
    `[...document.querySelectorAll(${JSON.stringify(selector)})].some((one) => one.textContent.includes(${JSON.stringify(text)}))`,
    `${text} in ${selector}`,
    60_000,
  );
const rows = `[...document.querySelectorAll('.people .scroll > section .row .name')].map((one) => one.textContent)`;
const untilRows = ({ page }: Person, wanted: readonly string[]) =>
  page.until(`${rows}.join() === ${JSON.stringify(wanted.join())}`, `rows ${wanted}`, 60_000);
const go = async (person: Person, title: string) => {
  await has(person, ".row .name", title);
  await person.page.evaluate(
    `[...document.querySelectorAll('.row')].find((one) => one.querySelector('.name').textContent === ${JSON.stringify(title)}).click()`,
  );
  await has(person, "header .name", title);
};
const choose = (person: Person, selector: string, value: string) =>
  person.page.until(
    `(() => { const one = document.querySelector(${JSON.stringify(selector)}); if (one === null) return false;
      one.value = ${JSON.stringify(value)}; one.dispatchEvent(new Event('change', { bubbles: true })); return true })()`,
    selector,
    60_000,
  );

appTest(
  "a conversation is pinned, muted and put away; a message is passed on; and what was read lasts as long as both have it",
  async () => {
    const ada = await newPerson(suite.browser, app, "Ada", scratch);
    await meet(ada, bob, "Bob");
    await meet(ada, carol, "Carol");
    const did = await didOf(ada);
    await untilRows(ada, ["Carol", "Bob"]);
    await go(ada, "Bob");
    await ada.press("Check who this is");
    await ada.tick("Pin it to the top");
    await untilRows(ada, ["Bob", "Carol"]);
    const found = await axeFindings(ada, "choices");
    await ada.close();

    await go(ada, "Carol");
    await ada.press("Check who this is");
    await ada.tick("Put it away until something comes");
    await untilRows(ada, ["Bob"]);
    await has(ada, ".people details summary", "Put away 1");
    await ada.close();
    await carol.send(did, "the lake is at the end of the path");
    await untilRows(ada, ["Bob", "Carol"]);

    await ada.sees("the lake is at the end of the path");
    await ada.page.evaluate(
      "[...document.querySelectorAll('.others .more, .others + .more')].at(-1).click()",
    );
    await ada.press("Forward");
    await ada.page.until("document.querySelector('dialog .row')", "whom to forward to", 60_000);
    found.push(...(await axeFindings(ada, "forward")));
    await ada.page.evaluate(
      "[...document.querySelectorAll('dialog .row')].find((one) => one.textContent.includes('Bob')).click()",
    );
    await has(ada, "header .name", "Bob");
    await has(ada, ".own .mark", "Forwarded");
    const passed = async () =>
      (await bob.store.messages(did)).find(({ text }) => text?.startsWith("the lake"));
    for (let tries = 0; (await passed()) === undefined && tries < 600; tries++)
      await Bun.sleep(100);
    expect((await passed())?.isForwarded).toBe(true);

    await ada.press("Check who this is");
    await choose(ada, "dialog select", "10");
    await has(ada, ".day", "You set messages to disappear after 10 seconds");
    await ada.close();
    await ada.say("for ten seconds");
    await ada.sees("for ten seconds");
    await has(ada, ".own footer", "disappears after 10 seconds");
    await ada.page.until(
      "![...document.querySelectorAll('.text')].some((one) => one.textContent === 'for ten seconds')",
      "the end of the message",
      60_000,
    );
    await ada.sees("hello Bob");
    expect(await bob.store.chosen(did)).toMatchObject({ lastsSeconds: 10 });
    expect(found).toEqual([]);
  },
  240_000,
);

appTest(
  "in a group a member is called by @, who is called hears it though it is muted, and one sees who has read",
  () =>
    inWindows(async (browser) => {
      const ada = await newPerson(browser, app, "Ada", scratch);
      await meet(ada, bob, "Bob");
      await meet(ada, carol, "Carol");
      const did = await didOf(ada);
      await ada.press("Add somebody");
      await ada.press("Make a group");
      await ada.fill("dialog input", "Hiking");
      for (const name of ["Bob", "Carol"]) {
        await has(ada, "dialog .check", name);
        await ada.tick(name);
      }
      await ada.press("Make the group");
      await has(ada, "header .name", "Hiking");
      await ada.fill("textarea", "@bo");
      await has(ada, ".callable", "@Bob");
      await ada.page.press("Enter");
      await ada.page.until(
        "document.querySelector('.composer textarea').value === '@Bob '",
        "the name",
        60_000,
      );
      await ada.page.type("where to?");
      await ada.page.press("Enter");
      await ada.sees("@Bob where to?");
      const group = (await ada.page.evaluate(
        "new URLSearchParams(location.hash.slice(1)).get('c')",
      )) as string;
      const called = async () =>
        (await bob.store.messages(group)).find(({ text }) => text === "@Bob where to?");
      for (let tries = 0; (await called()) === undefined && tries < 600; tries++)
        await Bun.sleep(100);
      expect((await called())?.mentions).toEqual([bob.did]);
      await bob.store.markRead(group);
      await ada.page.evaluate("[...document.querySelectorAll('.own .more')].at(-1).click()");
      await ada.press("Who has it");
      await has(ada, ".readers li", "Bob: read");
      await has(ada, ".readers li", "Carol: ");
      const found = await axeFindings(ada, "readers");

      // Muted: of two messages the one that calls her is heard.
      await ada.press("About this group");
      await ada.tick("Mute it: only who calls you by @ is heard");
      await ada.page.until("document.querySelector('.row .size .icon')", "the sign of a mute");
      await ada.close();
      await ada.page.call("Browser.grantPermissions", {
        origin: app,
        browserContextId: ada.profile,
        permissions: ["notifications"],
      });
      await ada.page.evaluate(
        `(localStorage.setItem('notifies', 'yes'), document.hasFocus = () => false, globalThis.shown = [],
        ServiceWorkerRegistration.prototype.showNotification = async (title, { body }) => void shown.push(title + ' ' + body), true)`,
      );
      await ada.page.until(
        "navigator.serviceWorker.getRegistration().then((one) => one?.active?.state === 'activated')",
        "the worker",
      );
      const theirs = await bob.groups.get(group);
      await theirs?.send("to no one");
      await ada.sees("to no one");
      await theirs?.send("@Ada, and you?", { mentions: [did as Waypost["did"]] });
      await ada.sees("@Ada, and you?");
      await ada.page.until("shown.length > 0", "the notification", 60_000);
      await has(ada, ".bubble.calls", "@Ada, and you?");
      expect(await ada.page.evaluate("shown")).toEqual(["Hiking has written to you"]);
      expect(found).toEqual([]);
    }),
  240_000,
);

appTest(
  "a voice message is recorded, heard before it is sent, and plays in its place; what is no sound does not",
  async () => {
    const ada = await newPerson(suite.browser, app, "Ada", scratch);
    await meet(ada, bob, "Bob");
    const did = await didOf(ada);
    await ada.press("Record a voice message");
    await has(ada, ".recording", "0:01");
    await ada.press("Throw it away");
    await ada.page.until("!document.querySelector('.recording, .chosen')", "that nothing is left");
    await ada.press("Record a voice message");
    await has(ada, ".recording", "0:02");
    const found = await axeFindings(ada, "recording");
    await ada.press("Stop recording");
    await ada.page.until("document.querySelector('.chosen audio')?.readyState > 0", "the sound");
    await ada.press("Send");
    await ada.sees("Voice message.webm");
    const sent = async () =>
      (await bob.store.messages(did)).find(({ name }) => name === "Voice message.webm");
    for (let tries = 0; (await sent()) === undefined && tries < 600; tries++) await Bun.sleep(100);
    expect((await sent())?.mediaType).toBe("audio/webm");

    await ada.press("Play Voice message.webm");
    const played = "document.querySelector('.message audio')";
    await ada.page.until(`${played}?.readyState > 0`, "the sound in its place", 60_000);
    expect(await ada.page.evaluate(`[${played}.paused, ${played}.src.slice(0, 5)]`)).toEqual([
      true,
      "blob:",
    ]);
    await ada.page.evaluate(`${played}.play()`);
    await ada.page.until(`${played}.currentTime > 0`, "that it plays", 60_000);
    found.push(...(await axeFindings(ada, "playing")));

    const page = new TextEncoder().encode("<script>globalThis.ran = 1</script>");
    await bob.send(did, page, { name: "song.mp3", mediaType: "audio/mpeg" });
    await ada.sees("song.mp3");
    await ada.press("Play song.mp3");
    await has(ada, ".gone", "This browser can't play this file.");
    expect(await ada.page.evaluate("typeof globalThis.ran")).toBe("undefined");

    // Without a microphone, and without a recorder, it says so.
    await ada.page.evaluate(
      "(navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('no')), true)",
    );
    await ada.press("Record a voice message");
    await has(ada, ".toast", "The browser does not let this page use the microphone.");
    await ada.page.evaluate("(delete globalThis.MediaRecorder, true)");
    await ada.press("Record a voice message");
    await has(ada, ".toast", "This browser can't record sound.");
    expect(found).toEqual([]);
  },
  240_000,
);

appTest(
  "what is typed on one device shows on the other, and what was chosen there",
  async () => {
    const ada = await newPerson(suite.browser, app, "Ada", scratch);
    await meet(ada, bob, "Bob");
    const second = await linkSecond(suite.browser, app, ada, scratch);
    await go(second, "Bob");
    await ada.fill("textarea", "half a sentence");
    const field = "document.querySelector('.composer textarea').value";
    await second.page.until(`${field} === 'half a sentence'`, "the words", 60_000);
    await second.page.evaluate("document.querySelector('.composer textarea').focus()");
    await second.page.press("Enter");
    await ada.sees("half a sentence");
    await ada.page.until(`${field} === ''`, "that they are gone here too", 60_000);
    await second.press("Check who this is");
    await second.tick("Mute it: only who calls you by @ is heard");
    await ada.page.until(
      "!!document.querySelector('.row .size .icon')",
      "the sign of a mute",
      60_000,
    );
  },
  240_000,
);
