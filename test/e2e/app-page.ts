/** The chat app as a person uses it: buttons by their names, words into the field that is theirs, and what is to be seen. */
import type { Browser, Page } from "./chromium.ts";

export type Person = ReturnType<typeof personAt>;

export function personAt(page: Page) {
  const find = (name: string) =>
    `[...document.querySelectorAll('button')].find((one) => one.checkVisibility() &&
      (one.getAttribute('aria-label') ?? one.textContent).trim() === ${JSON.stringify(name)})`;
  const press = async (name: string) => {
    const ready = `(() => { const one = ${find(name)}; if (!one || one.disabled) return false; one.click(); return true })()`;
    await page.until(ready, `the button ${name}`, 60_000);
  };
  const close = async () => {
    await press("Close");
    await page.until("!document.querySelector('dialog')", "the end of the dialog");
  };
  const key = async (code: string, text?: string) => {
    const event = { key: code, code, windowsVirtualKeyCode: code === "Enter" ? 13 : code === "Escape" ? 27 : 9 };
    await page.call("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...(text === undefined ? {} : { text }) });
    await page.call("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  };
  const fill = async (selector: string, text: string) => {
    await page.until(`document.querySelector(${JSON.stringify(selector)})`, selector, 60_000);
    await page.evaluate(`(() => { const field = document.querySelector(${JSON.stringify(selector)});
      field.focus(); field.select(); })()`);
    await page.call("Input.insertText", { text });
  };
  const say = async (text: string) => {
    await fill("textarea", text);
    await key("Enter", "\r");
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
  return { page, press, close, key, fill, say, messages, sees };
}

/** A new person: from the first page to the list of conversations. */
export async function newPerson(browser: Browser, url: string, name: string, downloads: string) {
  const profile = await browser.profile(downloads);
  const person = personAt(await browser.open(url, profile));
  await person.fill(".welcome input", name);
  await person.press("Start");
  await person.page.until("document.querySelector('.people, dialog')", `${name} is in`, 60_000);
  return { ...person, profile };
}

/** The link by which others write to this person. */
export async function linkOf({ page, press, close }: Person): Promise<string> {
  await press("Add somebody");
  await page.until("document.querySelector('dialog .joinedfield input')", "the link");
  const link = await page.evaluate("document.querySelector('dialog .joinedfield input').value");
  await close();
  return String(link);
}
