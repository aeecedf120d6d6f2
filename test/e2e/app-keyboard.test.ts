/**
 * The app without a pointer, in German, in headless Chromium: each view that opens is reached by
 * Tab, used by keys alone, closed by Escape, and has nothing that axe finds serious. And what lies
 * over a conversation: another address, a history that is awaited.
 */
import { afterAll, beforeAll, expect } from "bun:test";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import { german } from "../../src/web/words/german.ts";
import { relayAt } from "../support/nodes.ts";
import { axeFindings, type Person, personAt } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";
import { chromiumPath } from "./chromium.ts";

const place = appPlace({ isKept: true });
const suite = appSuite(place, { isWithoutWorker: true });
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

// -------------------------------------------------------------------------------------------- keys

const codes = { Tab: 9, Enter: 13, Escape: 27, " ": 32, ArrowUp: 38, ArrowDown: 40 } as const;
type Key = keyof typeof codes;
const shiftKey = 8;

async function key({ page }: Person, name: Key, modifiers = 0): Promise<void> {
  const text = { Enter: "\r", " ": " " }[name as string];
  const code = name === " " ? "Space" : name;
  const event = { key: name, code, windowsVirtualKeyCode: codes[name], modifiers };
  const typed = text === undefined ? {} : { text };
  await page.call("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...typed });
  await page.call("Input.dispatchKeyEvent", { type: "keyUp", ...event });
}

/** The name of what has the focus, as a screen reader says it. */
const focused = `(() => {
  const one = document.activeElement ?? document.createElement('p');
  const text = (element) => [...element.childNodes].map((part) => part.nodeType === 3 ? part.data
    : part.nodeType === 1 && part.ariaHidden !== 'true' && !part.matches('select') ? text(part) : '').join(' ');
  return (one.ariaLabel ?? text(one.closest('label') ?? one)).replace(/\\s+/g, ' ').trim();
})()`;

/** Goes on by Tab until something with this name has the focus. */
async function reach(person: Person, name: string, modifiers = 0): Promise<void> {
  const met: unknown[] = [];
  for (const endMs = Date.now() + 60_000; Date.now() < endMs; ) {
    await key(person, "Tab", modifiers);
    const now = String(await person.page.evaluate(focused));
    if (now === name || now.startsWith(`${name} `)) return;
    met.push(now);
  }
  throw new Error(`Tab never comes to "${name}", only to ${[...new Set(met)].join(" | ")}`);
}

async function use(person: Person, name: string, by: Key = "Enter"): Promise<void> {
  await reach(person, name);
  await key(person, by);
}

const shows = ({ page }: Person, selector: string, text: string) =>
  page.until(
    `[...document.querySelectorAll(${JSON.stringify(selector)})].some((one) => one.textContent.includes(${JSON.stringify(text)}))`,
    `${text} in ${selector}`,
    60_000,
  );
const closed = async (person: Person) => {
  await key(person, "Escape");
  await person.page.until("!document.querySelector('dialog')", "the end of the dialog");
};

// ------------------------------------------------------------------------------------------ people

/** By a link, with the name that it proposes. */
async function meet(person: Person, other: Waypost, name: string): Promise<void> {
  const hash = new URLSearchParams({ to: other.did, name });
  await person.page.evaluate(`(location.hash = ${JSON.stringify(`${hash}`)}, true)`);
  await person.page.until("document.activeElement?.closest('dialog') !== null", "the dialog");
  await reach(person, german.openConversation);
  await key(person, "Enter");
  await reach(person, german.messageTo(name));
  await person.page.type(`Hallo ${name}`);
  await key(person, "Enter");
  await person.sees(`Hallo ${name}`);
}

/**
 * Accepts the one who has written, other than by a group that they are both in, and returns who
 * that is.
 */
async function knowing(other: Waypost): Promise<Waypost["did"]> {
  const isOurs = (did: string) => did === bob.did || did === carol.did;
  const writers = async () =>
    (await other.store.people()).filter(({ did, isKnown }) => !isKnown && !isOurs(did));
  while ((await writers()).length === 0) await Bun.sleep(50);
  const [writer] = await writers();
  if (writer === undefined) throw new Error("nobody has written");
  await other.store.savePerson(writer.did, { isKnown: true });
  return writer.did;
}

/** A page in German, begun without a pointer. */
async function germanPerson(name: string, browser = suite.browser) {
  const profile = await browser.profile(scratch);
  const person = { ...personAt(await browser.open(app, profile)), profile };
  await person.page.until("document.querySelector('.welcome')", "the first page", 60_000);
  await person.page.evaluate("(localStorage.setItem('language', 'de'), location.reload(), true)");
  await person.page.until("document.documentElement.lang === 'de'", "German", 60_000);
  await reach(person, german.yourNameShown);
  await person.page.type(name);
  await key(person, "Enter");
  await person.page.until("document.querySelector('.people')", "the app", 60_000);
  return person;
}

appTest(
  "groups, calls, readers, forwarding, timers, media, handing over, devices and new keys work by keys alone, in German",
  async () => {
    const ada = await germanPerson("Ada");
    const found: string[] = [];
    const look = async (what: string) => found.push(...(await axeFindings(ada, what)));
    await ada.page.evaluate("(globalThis.confirm = () => true, true)");
    await meet(ada, bob, "Bob");
    await meet(ada, carol, "Carol");
    const own = await knowing(bob);
    await knowing(carol);

    // A group.
    await use(ada, german.addSomebody);
    await look("inviting");
    await use(ada, german.makeGroup);
    await reach(ada, german.nameOfGroup);
    await ada.page.type("Wandern");
    await use(ada, "Bob", " ");
    await use(ada, "Carol", " ");
    await look("making a group");
    await use(ada, german.makeTheGroup);
    await shows(ada, "header .name", "Wandern");

    // Calling: by the first letters, and by going to one of those who may be meant.
    await reach(ada, german.messageTo("Wandern"));
    await ada.page.type("@");
    await shows(ada, ".callable", "@Carol");
    await look("calling");
    await reach(ada, german.messageTo("Wandern"));
    await reach(ada, "@ Carol", shiftKey);
    await key(ada, "Enter");
    const field = "document.querySelector('.composer textarea')";
    await ada.page.until(`${field}.value === '@Carol '`, "the name", 60_000);
    await ada.page.until(`document.activeElement === ${field}`, "the focus in the field");
    await ada.page.type("wohin?");
    await key(ada, "Enter");
    await ada.sees("@Carol wohin?");

    // Who has it.
    await use(ada, german.moreAbout);
    await use(ada, german.whoHasIt);
    await shows(ada, ".readers li", "Carol: ");
    await look("who has it");

    // Passing it on.
    await use(ada, german.moreAbout);
    await use(ada, german.forward);
    await ada.page.until("document.querySelector('dialog .row')", "whom to forward to", 60_000);
    await look("forwarding");
    await use(ada, "Bob");
    await shows(ada, "header .name", "Bob");
    await shows(ada, ".own .mark", german.forwarded);

    // How long messages last.
    await use(ada, german.checkWho);
    await ada.page.until("document.querySelector('dialog .cells')", "the fingerprint", 60_000);
    await reach(ada, german.lasting);
    await key(ada, "ArrowDown");
    await shows(ada, ".day", "verschwinden nach");
    await look("about a person");
    await closed(ada);
    const focus = await ada.page.evaluate(focused);
    expect(focus).toBe(german.checkWho);

    // Sound in its place.
    await bob.send(own, new Uint8Array(400), { name: "lied.wav", mediaType: "audio/wav" });
    await ada.sees("lied.wav");
    await use(ada, german.playFile("lied.wav"));
    await ada.page.until("document.querySelector('.message audio, .gone')", "the sound", 60_000);
    await look("playing");

    // Handing the group over.
    await ada.page.evaluate("document.activeElement.blur()");
    await reach(ada, german.addSomebody);
    await reach(ada, "Wandern");
    await key(ada, "Enter");
    await shows(ada, "header .name", "Wandern");
    await use(ada, german.aboutGroup);
    await shows(ada, "dialog", german.mustHandOver);
    await look("about a group");
    await use(ada, german.makeAdminOf("Carol"));
    await shows(ada, "dialog p", "verwaltet die Gruppe, sobald");
    await look("handing over");
    await closed(ada);

    // Devices and new keys.
    await use(ada, german.settings);
    await use(ada, german.addDevice);
    await reach(ada, german.codeShown);
    await look("a new device");
    await use(ada, german.replaceKeys);
    await shows(ada, "dialog legend", german.whatStays);
    await shows(ada, "dialog fieldset", "Sofortige Zustellung (Relay) bei http");
    await shows(ada, "dialog fieldset", "Briefkasten (Cache) bei http");
    await look("what stays");
    await use(ada, german.makeNewKeys);
    await shows(ada, ".toast", "Du hast neue Schlüssel.");
    await closed(ada);
    expect(found).toEqual([]);
  },
  240_000,
);

appTest(
  "a device whose other one is away says what it waits for, and goes on without it by a key",
  async () => {
    const other = await open();
    await other.store.savePerson(bob.did, { isKnown: true, name: "Bob" });
    await (await other.send(bob.did, "from the first")).delivered;
    await knowing(bob);
    const profile = await suite.browser.profile(scratch);
    const ada = { ...personAt(await suite.browser.open(app, profile)), profile };
    await ada.page.until("document.querySelector('.welcome')", "the first page", 60_000);
    await use(ada, "I use it on another device");
    await ada.page.until("document.querySelector('.welcome .qr')", "the code", 60_000);
    await ada.page.evaluate(
      "(navigator.clipboard.writeText = async (text) => { globalThis.copied = text }, true)",
    );
    await use(ada, "Copy the code");
    await other.devices.acceptLink(String(await ada.page.evaluate("globalThis.copied")), "tablet");
    await other.close();
    await shows(ada, ".banner", "Open your other device");
    expect(await axeFindings(ada, "a history that is awaited")).toEqual([]);
    await bob.send(other.did, "while it waits");
    await use(ada, "Go on without them");
    await ada.page.until("document.querySelector('.row')", "the conversation", 60_000);
    await reach(ada, "Add somebody");
    await key(ada, "Tab");
    await ada.click(".row");
    await ada.sees("while it waits");
    expect(await ada.page.evaluate("document.querySelectorAll('.banner').length")).toBe(0);
  },
  240_000,
);

appTest(
  "another address of the node is a banner, and a key has the messages come there",
  async () => {
    const ada = await germanPerson("Ada", suite.browser.withWorkers());
    await meet(ada, bob, "Bob");
    const own = await knowing(bob);
    // The node gets another address, at which the app is told to ask; its own stays.
    const moved = node.replace("127.0.0.1", "localhost");
    await suite.nodes.stop();
    const cache = { enabled: true, public_endpoints: [moved] };
    suite.nodes = await place.start({ relay: relayAt(moved), cache });
    await ada.page.until(
      "navigator.serviceWorker.getRegistration().then((one) => one?.update().then(() => true))",
      "the look for another version",
      60_000,
    );
    await use(ada, german.loadIt);
    // The page before may show the banner too, and what is begun there ends with it.
    const relay = "JSON.parse(document.querySelector('meta[name=waypost-node]').content).relayUrl";
    await ada.page.until(
      `document.querySelector('meta[name=waypost-node]') && ${relay} === ${JSON.stringify(moved)}`,
      "the new version",
      60_000,
    );
    await shows(ada, ".banner", german.addressDiffers);
    expect(await axeFindings(ada, "another address")).toEqual([]);
    await use(ada, german.moveHere);
    await ada.page.until(
      `![...document.querySelectorAll('.banner')].some((one) => one.textContent.includes(${JSON.stringify(german.addressDiffers)}))`,
      "the end of the banner",
      60_000,
    );
    const { document } = await bob.client.directory.resolve(own);
    expect(JSON.stringify(document)).toContain(moved);
    await bob.send(own, "an der neuen Adresse");
    await ada.sees("an der neuen Adresse");
  },
  240_000,
);
