/**
 * What people of the chat app do besides writing, in headless Chromium: they lock it, react, block,
 * remove a device, are notified, and search.
 */
import { expect } from "bun:test";
import { join } from "node:path";
import {
  choose,
  didOf,
  fillStore,
  linkSecond,
  openRow,
  type Person,
  personAt,
  twoPeople,
} from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest, inWindows, sharedPeople } from "./app-suite.ts";

const suite = appSuite(appPlace({ host: "localhost" }), { isWithoutWorker: true });
const { node, app, scratch } = suite;

/**
 * No message waits in the Cache for anybody: each was acknowledged. A busy store shows no figure.
 */
async function untilNothingWaits(): Promise<void> {
  const none = /^waypost_mailbox_entries\{store="main"\} 0$/m;
  while (!none.test(await (await fetch(`${node}/metrics`)).text())) await Bun.sleep(50);
}

const two = (names: readonly [string, string], browser = suite.browser) =>
  twoPeople(browser, app, names, scratch);
const together = sharedPeople(suite, ["Ida", "Jon"]);
const isLocked = "document.querySelector('.welcome h1')?.textContent === 'Locked'";
const problem = (
  text: string,
) => `[...document.querySelectorAll('[role=alert], .toast')].some((one) =>
  one.textContent === ${JSON.stringify(text)})`;

appTest(
  "a lock seals the keys at once and in all tabs, and is opened by the passphrase, or by a passkey until that is gone",
  async () => {
    const { alice, bob } = await two(["Lea", "Max"]);
    await alice.page.call("WebAuthn.enable", {});
    const options = {
      ...{
        protocol: "ctap2",
        ctap2Version: "ctap2_1",
        transport: "internal",
        hasResidentKey: true,
      },
      ...{ hasUserVerification: true, isUserVerified: true, hasPrf: true },
    };
    const { authenticatorId } = await alice.page.call("WebAuthn.addVirtualAuthenticator", {
      options,
    });
    const second = personAt(await suite.browser.open(app, alice.profile));
    await second.page.until("document.querySelector('.row')", "the second tab", 60_000);

    await alice.press("Settings");
    await alice.page.until("document.querySelector('dialog summary')", "the lock");
    await alice.click("dialog summary");
    const [typed, again] = ["dialog details input", "dialog details label + label input"];
    await alice.fill(typed, "correct horse");
    await alice.fill(again, "correct house");
    await alice.press("Lock");
    await alice.page.until(problem("The two are not the same."), "why not");
    await alice.fill(again, "correct horse");
    await alice.press("Lock");
    await Promise.all([alice, second].map(({ page }) => page.until(isLocked, "the lock", 60_000)));
    const kept = `new Promise((resolve) => { indexedDB.open("waypost").onsuccess = ({ target }) => {
      const names = target.result.transaction("identities").objectStore("identities");
      names.getAllKeys().onsuccess = ({ target: { result: keys } }) => names.getAll().onsuccess = ({ target: { result: all } }) =>
        resolve(keys.filter((key, i) => !key.includes("/") && !all[i].includes("waypost-locked:v1"))) } })`;
    expect(await alice.page.evaluate(kept)).toEqual([]);

    const unlock = async (person: Person, passphrase: string) => {
      await person.fill("input[type=password]", passphrase);
      await person.press("Unlock");
    };
    await unlock(alice, "wrong horse");
    await alice.page.until(problem("The passphrase is wrong."), "why not", 60_000);
    await unlock(alice, "correct horse");
    await alice.sees("hello Lea");
    await bob.say("to somebody locked");
    await alice.sees("to somebody locked");

    // A page in sight only.
    await alice.page.call("Page.bringToFront", {});
    await alice.press("Settings");
    await alice.press("Open with a passkey too");
    await alice.page.until(
      "document.querySelector('dialog').textContent.includes('Remove the passkey')",
      "the passkey",
    );
    await alice.press("Lock now");
    await alice.page.until(isLocked, "the lock", 60_000);
    await alice.press("Use the passkey");
    await alice.sees("to somebody locked");
    await alice.press("Settings");
    await alice.press("Lock now");
    await alice.page.until(isLocked, "the lock", 60_000);
    await alice.page.call("WebAuthn.clearCredentials", {
      authenticatorId: authenticatorId as string,
    });
    await alice.press("Use the passkey");
    await alice.page.until(
      problem("The passkey was not used. Use your passphrase instead."),
      "why not",
      60_000,
    );
    await unlock(alice, "correct horse");
    await alice.sees("to somebody locked");
  },
  240_000,
);

appTest(
  "reactions show on both sides, change and go; who is blocked is not heard, and is heard again afterwards",
  () =>
    together(async ({ alice, bob }) => {
      const react = async (reaction: string) => {
        await alice.press("More about this message");
        await alice.press(reaction);
      };
      const shown = (...reactions: string[]) =>
        `JSON.stringify([...document.querySelectorAll('.reactions span')].map((one) => one.textContent)) === ${JSON.stringify(JSON.stringify(reactions))}`;
      const both = (...reactions: string[]) =>
        Promise.all(
          [alice, bob].map(({ page }) => page.until(shown(...reactions), `${reactions}`, 60_000)),
        );
      await react("👍");
      await both("👍");
      await react("❤️");
      await both("❤️");
      await bob.press("More about this message");
      await bob.press("😂");
      await Promise.all(
        [alice, bob].map(({ page }) =>
          page.until("document.querySelectorAll('.reactions span').length === 2", "two", 60_000),
        ),
      );
      await react("❤️");
      await both("😂");

      await alice.press("Check who this is");
      await alice.press("Block");
      await alice.close();
      await alice.page.until(
        "document.querySelector('.request')?.textContent.includes('blocked')",
        "the block",
      );
      await alice.page.until(
        "document.querySelectorAll('.row, .composer').length === 0",
        "that nothing of him is shown",
      );
      await untilNothingWaits();
      await bob.say("said to a closed door");
      await bob.page.until(
        "[...document.querySelectorAll('.own')].at(-1)?.querySelector('.text').textContent === 'said to a closed door' && [...document.querySelectorAll('.own footer .hidden')].at(-1).textContent === 'sent'",
        "that it was sent",
        60_000,
      );
      // A block is for what arrives, so one under way would be heard. Her device acknowledges what
      // it throws away.
      await untilNothingWaits();
      await alice.press("Settings");
      await alice.press("Unblock");
      await alice.close();
      await alice.page.until("document.querySelector('.composer')", "the field to write");
      await bob.say("said to an open one");
      await alice.sees("said to an open one");
      expect(await alice.messages()).toEqual(["hello Ida", "said to an open one"]);
    }),
  240_000,
);

appTest(
  "a device that was removed hears so and nothing else, and the other goes on",
  async () => {
    const { alice, bob } = await two(["Kim", "Lou"]);
    const second = await linkSecond(suite.browser, app, alice, scratch);
    await openRow(second);
    await bob.say("to both devices");
    await Promise.all([alice.sees("to both devices"), second.sees("to both devices")]);
    await alice.press("Settings");
    await alice.page.evaluate("globalThis.confirm = () => true");
    await alice.press("Remove");
    await second.page.until(
      "[...document.querySelectorAll('.banner')].some((one) => one.textContent.includes('replaced elsewhere'))",
      "the news",
      90_000,
    );
    await alice.close();
    await bob.say("to the one that stays");
    await alice.sees("to the one that stays");
    await alice.say("from the one that stays");
    await bob.sees("from the one that stays");
    expect((await second.messages()).includes("to the one that stays")).toBe(false);
  },
  240_000,
);

appTest(
  "a page that is out of sight notifies with a name and no words; a push without a page does too",
  () =>
    inWindows(async (browser) => {
      const { alice, bob } = await two(["Mia", "Noa"], browser);
      const origin = { origin: app, browserContextId: alice.profile };
      await alice.page.call("Browser.grantPermissions", {
        ...origin,
        permissions: ["notifications"],
      });
      await alice.page.until(
        "navigator.serviceWorker.getRegistration().then((one) => one?.active?.state === 'activated')",
        "the worker",
      );
      await alice.press("Settings");
      await alice.tick("Notify me of new messages");
      await alice.page.until("localStorage.getItem('notifies') === 'yes'", "that it is on");
      await alice.close();
      await alice.page.evaluate("document.hasFocus = () => false");
      const notes =
        "navigator.serviceWorker.getRegistration().then((one) => one.getNotifications()).then((all) => all.map(({ title, body }) => title + ' ' + body))";
      // A busy Chromium takes a notification at times and shows none: the next one counts.
      const untilShown = async (note: string, cause: () => Promise<unknown>) => {
        for (let tries = 0; tries < 6; tries++) {
          await cause();
          const shown = alice.page.until(
            `${notes}.then((all) => all.includes(${JSON.stringify(note)}))`,
            note,
            10_000,
          );
          if (await shown.then(() => true).catch(() => false)) return;
        }
        throw new Error(`never shown: ${note}`);
      };
      await untilShown("Noa has written to you", async () => {
        await bob.say("some words");
        await alice.sees("some words");
      });
      expect(await alice.page.evaluate(notes)).toEqual(["Noa has written to you"]);
      await alice.page.call("ServiceWorker.enable", {});
      const notification = { title: "New message", navigate: app };
      const data = JSON.stringify({ web_push: 8030, notification });
      await untilShown("New message ", () =>
        alice.page.call("ServiceWorker.deliverPushMessage", {
          origin: app,
          registrationId: "0",
          data,
        }),
      );
      await alice.page.evaluate("document.hasFocus = () => true");
    }),
  120_000,
);

appTest(
  "a picture that somebody chooses is cut to a small square and shown to whom they write, until it is removed; a list that grows stays at its end",
  () =>
    together(async ({ alice, bob }) => {
      const drawn = await alice.page.evaluate(`(() => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 900, height: 500 });
      canvas.getContext("2d").fillRect(0, 0, 500, 500);
      return canvas.toDataURL("image/png").split(",")[1] })()`);
      await Bun.write(join(scratch, "wide.png"), Buffer.from(String(drawn), "base64"));
      await Bun.write(join(scratch, "words.png"), "no picture");
      const field = "dialog .choose input";
      const isSmall = (
        place: string,
      ) => `(({ naturalWidth, naturalHeight } = {}) => naturalWidth === 160 &&
      naturalHeight === 160)(document.querySelector('${place} .avatar img') ?? undefined)`;
      await alice.press("Settings");
      await choose(alice, field, join(scratch, "words.png"));
      await alice.page.until(problem("The browser can't show this file as a picture."), "why not");
      await choose(alice, field, join(scratch, "wide.png"));
      await alice.page.until(isSmall("dialog"), "the picture");
      await alice.close();
      await alice.say("with a face");
      await bob.sees("with a face");
      for (const place of [".row", ".conversation header"])
        await bob.page.until(isSmall(place), `the picture in ${place}`);

      await alice.press("Settings");
      await alice.press("Remove it");
      await alice.page.until("!document.querySelector('dialog .avatar img')", "that it is gone");
      await alice.close();
      await alice.say("and without");
      await bob.sees("and without");
      await bob.page.until("!document.querySelector('.avatar img')", "that it is gone for him");

      // A picture of a message makes the list longer, at times before the scrolling to its end is
      // reported.
      const list = "document.querySelector('.messages')";
      await alice.page.evaluate(`(() => {
      const added = document.createElement("div");
      added.style.flex = "none";
      added.style.height = "2000px";
      ${list}.firstElementChild.prepend(added);
      ${list}.dispatchEvent(new Event("scroll")) })()`);
      await alice.page.until(`${list}.scrollHeight > 2000 && ${list}.scrollTop > -60`, "its end");
    }),
  120_000,
);

appTest(
  "words are found in the messages of this device, and a click shows where they stand",
  () =>
    together(async ({ alice, bob }) => {
      await bob.say("the key is under the third flowerpot");
      await alice.sees("the key is under the third flowerpot");
      await fillStore(alice, await didOf(bob), { count: 62, everyMs: 1 });
      await alice.page.call("Page.reload", {});
      await alice.page.until(
        "[...document.querySelectorAll('.message .text')].at(-1)?.textContent.startsWith('message 61 ')",
        "the last of them",
      );
      expect((await alice.messages()).length).toBe(60);
      await alice.page.evaluate("location.hash = ''");
      await bob.say("after all of them");
      const isUnread = "document.querySelector('.row .count') !== null";
      await alice.page.until(isUnread, "an unread message");
      await alice.fill(".search", "FLOWERpot");
      const hits =
        "[...document.querySelectorAll('[aria-label^=Found] .last')].map((one) => one.textContent)";
      await alice.page.until(`${hits}.length > 0`, "the message");
      expect(await alice.page.evaluate(hits)).toEqual(["the key is under the third flowerpot"]);
      await alice.click("[aria-label^=Found] button");
      await alice.sees("the key is under the third flowerpot");
      const inSight = `(() => { const one = document.querySelector('.found')?.getBoundingClientRect();
      const list = document.querySelector('.messages').getBoundingClientRect();
      return one !== undefined && one.top >= list.top && one.bottom <= list.bottom })()`;
      await alice.page.until(inSight, "it is in sight");
      await alice.fill(".search", "");
      await alice.page.until("document.querySelector('.row') !== null", "the list");
      await alice.page.until(isUnread, "it is unread still");
      await alice.press("Newest");
      await alice.page.until(
        "[...document.querySelectorAll('.message .text')].at(-1)?.textContent === 'after all of them'",
        "the newest",
      );
      await alice.fill(".search", "no such words");
      await alice.page.until(
        "document.querySelector('[aria-label^=Found]')?.textContent === 'No message with these words'",
        "none",
      );
    }),
  240_000,
);
