/**
 * The chat app as a person uses it: buttons by their names, words into the field that is theirs,
 * and what is to be seen.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "./chromium.ts";

/** Of any browser. */
export type TypedPage = Pick<Page, "evaluate" | "until" | "type" | "press">;

export type Person<P extends TypedPage = Page> = ReturnType<typeof personAt<P>>;

export function personAt<P extends TypedPage>(page: P) {
  const find = (name: string) =>
    `[...document.querySelectorAll('button')].find((one) => one.checkVisibility() &&
      (one.getAttribute('aria-label') ?? one.textContent).trim() === ${JSON.stringify(name)})`;
  const press = async (name: string) => {
    const ready = `(() => { const one = ${find(name)}; if (!one || one.disabled) return false; one.click(); return true })()`;
    await page.until(ready, `the button ${name}`, 60_000);
  };
  const click = (selector: string) =>
    page.until(
      `(() => { const one = document.querySelector(${JSON.stringify(selector)}); one?.click(); return !!one })()`,
      selector,
      60_000,
    );
  /** The switch with this text. */
  const tick = (text: string) =>
    page.until(
      `(() => { const one = [...document.querySelectorAll('.check')].find((label) => label.textContent.trim() ===
        ${JSON.stringify(text)}); one?.querySelector('input').click(); return !!one })()`,
      `the switch ${text}`,
      60_000,
    );
  const close = async () => {
    await press("Close");
    await page.until("!document.querySelector('dialog')", "the end of the dialog");
  };
  const fill = async (selector: string, text: string) => {
    // A dialog is in the document before it is shown, and takes the focus then.
    await page.until(
      `(() => { const field = document.querySelector(${JSON.stringify(selector)});
      if (!field?.checkVisibility()) return false;
      field.focus(); field.select(); return document.activeElement === field })()`,
      selector,
      60_000,
    );
    await page.type(text);
  };
  const say = async (text: string) => {
    await fill("textarea", text);
    await page.press("Enter");
  };
  /** Texts of the messages in the document, own ones behind `>`. */
  const messages = async () =>
    (await page.evaluate(
      `[...document.querySelectorAll('.message')].map((one) => (one.classList.contains('own') ? '>' : '') +
        (one.querySelector('.text, .file .name')?.textContent ?? ''))`,
    )) as string[];
  const sees = (text: string, timeoutMs = 60_000) =>
    page.until(
      `[...document.querySelectorAll('.message .text, .message .file .name')].some((one) => one.textContent === ${JSON.stringify(text)})`,
      `the message ${text.slice(0, 80)}`,
      timeoutMs,
    );
  return { page, press, click, tick, close, fill, say, messages, sees };
}

/** Chooses a file in the field that is there. */
export async function choose({ page }: Person, selector: string, path: string): Promise<void> {
  await page.until(`document.querySelector(${JSON.stringify(selector)})`, selector);
  const { root } = (await page.call("DOM.getDocument", {})) as { root: { nodeId: number } };
  const field = await page.call("DOM.querySelector", { nodeId: root.nodeId, selector });
  await page.call("DOM.setFileInputFiles", { ...field, files: [path] });
}

/**
 * The file of this name, once it is there as a whole: a browser gives it its name before its last
 * byte.
 */
export async function savedFile(
  folder: string,
  name: string,
  sizeBytes: number,
): Promise<Uint8Array> {
  const file = () => Bun.file(join(folder, name));
  for (let tries = 0; file().size < sizeBytes && tries < 600; tries++) await Bun.sleep(100);
  return file().bytes();
}

/** Where downloads of this person go from now on. */
export async function saveTo(
  { page, profile }: Person & { readonly profile: string },
  folder: string,
): Promise<void> {
  await page.call("Browser.setDownloadBehavior", {
    behavior: "allow",
    browserContextId: profile,
    downloadPath: folder,
  });
}

/** In a profile of their own. */
export async function newPerson(browser: Browser, url: string, name: string, downloads: string) {
  const profile = await browser.profile(downloads);
  const person = personAt(await browser.open(url, profile));
  await welcome(person, name);
  return { ...person, profile };
}

/** From the first page to the list of conversations. */
export async function welcome(
  { fill, press, page }: Person<TypedPage>,
  name: string,
): Promise<void> {
  await fill(".welcome input", name);
  await press("Start");
  await page.until("document.querySelector('.people, dialog')", `${name} is in`, 60_000);
}

/** The link by which others write to this person, without the secret by which they are accepted. */
export async function linkOf(person: Person<TypedPage>): Promise<string> {
  return (await invitationOf(person)).replace(/&s=[^&]*/, "");
}

/** The link as it is. */
export async function invitationOf({ page, press, close }: Person<TypedPage>): Promise<string> {
  await press("Add somebody");
  await page.until("document.querySelector('dialog .joinedfield input')", "the link");
  const link = await page.evaluate("document.querySelector('dialog .joinedfield input').value");
  await close();
  return String(link);
}

/** Two people who have met: the second came by the link of the first, who has accepted. */
export async function twoPeople(
  browser: Browser,
  url: string,
  [first, second]: readonly [string, string],
  downloads: string,
) {
  const alice = await newPerson(browser, url, first, downloads);
  const bob = await newPerson(browser, await linkOf(alice), second, downloads);
  await bob.press("Open conversation");
  await bob.say(`hello ${first}`);
  await openRow(alice);
  await alice.sees(`hello ${first}`);
  await alice.fill(".request input", second);
  await alice.press("Accept");
  await alice.page.until("document.querySelector('.composer')", "the field to write");
  return { alice, bob };
}

/** The DID of the page's person, from their link. */
export async function didOf(person: Person<TypedPage>): Promise<string> {
  return new URLSearchParams(new URL(await linkOf(person)).hash.slice(1)).get("to") ?? "";
}

/**
 * Puts messages of somebody into the page's store, which takes a moment. They show after a reload.
 */
export async function fillStore(
  { page }: Person,
  from: string,
  { count, everyMs }: { readonly count: number; readonly everyMs: number },
): Promise<void> {
  const built = await Bun.build({
    entrypoints: [join(import.meta.dir, "fill-store.ts")],
    target: "browser",
    minify: true,
    format: "iife",
  });
  await page.evaluate(`${await built.outputs[0]?.text()}; undefined`);
  await page.evaluate(`fill(${JSON.stringify(from)}, ${count}, ${everyMs})`);
}

/** The first conversation. */
export async function openRow({ page, click }: Person<TypedPage>): Promise<void> {
  await click(".row");
  await page.until("document.querySelector('.message')", "its messages");
}

/** Shows the code of a new device, in a profile of its own, and has another one read it. */
export async function linkSecond(browser: Browser, url: string, old: Person, downloads: string) {
  const profile = await browser.profile(downloads);
  const second = { ...personAt(await browser.open(url, profile)), profile };
  await linkTo(second, old);
  return second;
}

export async function linkTo(second: Person<TypedPage>, old: Person<TypedPage>): Promise<void> {
  await second.press("I use it on another device");
  await second.page.until("document.querySelector('.welcome .qr')", "the code", 60_000);
  await second.page.evaluate(
    "(navigator.clipboard.writeText = async (text) => { globalThis.copied = text }, true)",
  );
  await second.press("Copy the code");
  const code = String(await second.page.evaluate("globalThis.copied"));
  await old.press("Settings");
  await old.press("Add a device");
  await old.fill("dialog input[placeholder='Paste it here']", code);
  await old.press("Link");
  await second.page.until("document.querySelector('.row')", "the conversation", 90_000);
  await old.close();
}

/** Whether a message of one's own has a receipt. */
export const isArrived = (text: string) => `[...document.querySelectorAll('.own')].some((one) =>
  one.querySelector('.text')?.textContent === ${JSON.stringify(text)} && /arrived|read/.test(one.textContent))`;

type Violation = {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly { readonly html: string }[];
};

const axe = () =>
  readFileSync(join(import.meta.dir, "..", "..", "node_modules", "axe-core", "axe.min.js"), "utf8");

/** What axe-core finds serious in light and wide, and in dark and narrow. */
export async function axeFindings({ page }: Pick<Person, "page">, what: string): Promise<string[]> {
  // A document keeps it: half a megabyte, which it would read anew each time.
  if ((await page.evaluate("typeof axe")) === "undefined") await page.evaluate(`${axe()}; 0`);
  const found: string[] = [];
  for (const [value, width] of [
    ["light", 1_000],
    ["dark", 390],
  ] as const) {
    await page.call("Emulation.setEmulatedMedia", {
      features: [{ name: "prefers-color-scheme", value }],
    });
    const metrics = { width, height: 800, deviceScaleFactor: 1, mobile: false };
    await page.call("Emulation.setDeviceMetricsOverride", metrics);
    const violations = (await page.evaluate(
      `axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.map(
        ({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map(({ html }) => ({ html })) })))`,
    )) as Violation[];
    for (const { id, impact, nodes } of violations)
      if (impact === "serious" || impact === "critical")
        found.push(`${what}, ${value}: ${id} ${nodes[0]?.html}`);
  }
  await page.call("Emulation.clearDeviceMetricsOverride", {});
  return found;
}
