/**
 * Somebody is reported in the app, in headless Chromium: chosen messages reach the operator with
 * their signatures, the author is blocked on the way, and the app names the operator's contact and
 * rules. Where the server names no one, it says so.
 */
import { expect } from "bun:test";
import { join } from "node:path";
import { fileKeys } from "../../src/cli/files/files.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { run } from "../support/executable.ts";
import { waiting } from "../support/people.ts";
import { didOf, type Person, twoPeople } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { appSuite, appTest } from "./app-suite.ts";

const place = appPlace({ isKept: true });
const suite = appSuite(place, { isWithoutWorker: true });
const { node, app, scratch } = suite;
const keys = join(scratch, "operator");

/** Opens what can be done with the message of this text. */
const more = ({ page }: Person, text: string) =>
  page.evaluate(
    `[...document.querySelectorAll('article')].find((one) => one.textContent.includes(${JSON.stringify(text)}))
      .querySelector('button.more').click()`,
  );
const dialogHas = (text: string) =>
  `document.querySelector('dialog')?.textContent.includes(${JSON.stringify(text)})`;

appTest(
  "chosen messages are reported to the operator, and their author is blocked",
  async () => {
    const { alice, bob } = await twoPeople(suite.browser, app, ["Rea", "Ulf"], scratch);
    await bob.say("an insult");
    await bob.say("a threat");
    await alice.sees("a threat");
    await more(alice, "an insult");
    await alice.press("Report");
    await alice.page.until(dialogHas("takes no reports here"), "that there is no operator");
    await alice.close();

    const operator = await Waypost.open({ url: node, keys: fileKeys(keys), waiting });
    await operator.close();
    await suite.nodes.stop();
    const contact = "mailto:operator@example.org";
    const rules = "https://example.org/rules";
    suite.nodes = await place.start({ operator: { did: operator.did, contact, rules } });

    await more(alice, "an insult");
    await alice.press("Report");
    await alice.page.until("document.querySelector('dialog legend')", "the messages");
    const links = "[...document.querySelectorAll('dialog a')].map((one) => one.href)";
    expect(await alice.page.evaluate(links)).toEqual([contact, rules]);
    const ticked = `[...document.querySelectorAll('dialog fieldset label')]
      .filter((one) => one.querySelector('input').checked).map((one) => one.textContent)`;
    expect(await alice.page.evaluate(ticked)).toEqual([expect.stringContaining("an insult")]);
    await alice.page.evaluate(
      `[...document.querySelectorAll('dialog fieldset label')].find((one) => one.textContent.includes("a threat"))
        .querySelector('input').click()`,
    );
    await alice.tick("Block this person, too");
    await alice.fill("dialog input:not([type=checkbox])", "he threatens me");
    await alice.press("Send the report");
    await alice.page.until("document.querySelector('dialog') === null", "the end of the form");
    await alice.page.until(
      "document.querySelector('main').textContent.includes('You have blocked')",
      "the block",
    );

    const report = await firstReport();
    expect(report).toMatchObject({ reporter: await didOf(alice), reason: "he threatens me" });
    const author = await didOf(bob);
    expect(report["messages"]).toMatchObject([
      { from: author, content: "an insult", signature: "holds" },
      { from: author, content: "a threat", signature: "holds" },
    ]);
  },
  240_000,
);

type Answer = Readonly<Record<string, unknown>>;

async function firstReport(): Promise<Answer> {
  const reports = async (...words: string[]): Promise<Answer> => {
    const command = ["reports", ...words, "--keys", keys, "--url", node, "--json"];
    return JSON.parse((await run(command, { cwd: scratch })).stdout) as Answer;
  };
  for (;;) {
    const [found] = (await reports("list"))["reports"] as Answer[];
    if (found !== undefined) return reports("show", String(found["id"]));
    await Bun.sleep(100);
  }
}
