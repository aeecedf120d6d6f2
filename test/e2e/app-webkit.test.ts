/**
 * The chat app in WebKitGTK, the third engine: a page that is left among traffic opens again each
 * time, nothing of it is lost, and what is typed stays. `WAYPOST_TEST_WHOLE=1` leaves it 20 times.
 * Skipped where WebKitGTK is not installed.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { memoryKeys, memoryStore, Waypost } from "../../src/client/package.ts";
import type { TestNodes } from "../support/nodes.ts";
import { times } from "../support/whole.ts";
import { didOf, personAt, welcome } from "./app-page.ts";
import { appPlace } from "./app-place.ts";
import { startWebKit, webkitLacks } from "./webkit.ts";

if (webkitLacks !== null)
  console.log(`SKIPPED: the chat app in WebKitGTK, since this machine lacks ${webkitLacks}`);

const place = appPlace();
let nodes: TestNodes;
let bob: Waypost;
let webkit: Awaited<ReturnType<typeof startWebKit>>;
beforeAll(async () => {
  if (webkitLacks !== null) return;
  [nodes, webkit] = await Promise.all([place.start(), startWebKit()]);
  bob = await Waypost.open({
    url: place.node,
    keys: memoryKeys(),
    store: memoryStore(),
    receipts: true,
  });
}, 120_000);
afterAll(async () => {
  await bob?.close();
  await webkit?.close();
  await nodes?.stop();
  place.remove();
});

/** Of each kind two at least: with words under way, with a draft, with neither. */
const reloads = times(6, 20);
/**
 * So many messages are on their way to the page: a machine that is busy falls behind no further.
 */
const underWayMax = 8;
/** Own messages are written before each fourth one. */
const ownTexts = Array.from({ length: Math.ceil(reloads / 4) }, (_, n) => `own ${4 * n}`);
const field = "document.querySelector('.composer textarea')?.value";

test.skipIf(webkitLacks !== null)(
  `${reloads} reloads among traffic, ${reloads} of ${reloads} open, and nothing is lost`,
  async () => {
    await webkit.go(place.app);
    const ada = personAt(webkit.page);
    await welcome(ada, "Ada");
    const did = await didOf(ada);
    await bob.store.savePerson(did, { isKnown: true });
    const link = new URLSearchParams({ to: bob.did, name: "Bob" });
    await webkit.page.evaluate(`(location.hash = ${JSON.stringify(`${link}`)}, true)`);
    await ada.press("Open conversation");
    await ada.say("hello Bob");
    await ada.sees("hello Bob");
    const texts: string[] = [];
    const sent: string[] = [];
    const isThere = async (id: string) =>
      ["received", "read"].includes((await bob.store.message(id))?.delivery?.state ?? "");
    const isFarAhead = async () => {
      while (sent[0] !== undefined && (await isThere(sent[0]))) sent.shift();
      return sent.length >= underWayMax;
    };
    let isOver = false;
    const traffic = (async () => {
      for (let i = 0; !isOver; i++) {
        texts.push(`number ${i}`);
        sent.push((await bob.send(did, `number ${i}`)).id);
        await Bun.sleep(200);
        while (!isOver && (await isFarAhead())) await Bun.sleep(50);
      }
    })();
    const openedMs: number[] = [];
    const reloadOften = async () => {
      for (let i = 0; i < reloads; i++) {
        // Whatever is being written then is left in its middle.
        await Bun.sleep((i * 73) % 900);
        if (i % 4 === 0) await ada.say(`own ${i}`);
        if (i % 4 === 2) await ada.fill("textarea", `half a sentence ${i}`);
        await webkit.page
          .evaluate("(globalThis.isFormer = true, location.reload(), true)")
          .catch(() => undefined);
        const startMs = performance.now();
        await webkit.page.until(
          "globalThis.isFormer === undefined && document.querySelector('.message')",
          `the conversation after reload ${i}`,
        );
        openedMs.push(performance.now() - startMs);
        if (i % 4 === 0) {
          // What was being kept in that moment is a message, or words to send again.
          const text = `own ${i}`;
          const isShown = `[...document.querySelectorAll('.own .text')].some((one) => one.textContent === '${text}')`;
          await webkit.page.until(`${field} === '${text}' || ${isShown}`, "the words");
          const isDraft = await webkit.page.evaluate(`${field} === '${text}' && !${isShown}`);
          if (isDraft === true) await ada.say(text);
          await ada.sees(text);
          await webkit.page.until(`${field} === ''`, "an empty field");
        }
        if (i % 4 === 2)
          await webkit.page.until(`${field} === 'half a sentence ${i}'`, "the draft");
      }
    };
    // What fails here ends with the traffic.
    await reloadOften().finally(async () => {
      isOver = true;
      await traffic;
    });
    expect(openedMs).toHaveLength(reloads);
    console.log(`opened within ${Math.round(Math.max(...openedMs))} ms at most`);
    await ada.sees(texts.at(-1) ?? "");
    const got = (await ada.messages()).filter((text) => text.startsWith("number "));
    expect(got).toEqual(texts.slice(-got.length));
    const own = async () =>
      (await bob.store.messages(did, { limit: 1_000 })).map(({ text }) => text);
    const last = ownTexts.at(-1) ?? "";
    for (let tries = 0; !(await own()).includes(last) && tries < 300; tries++) await Bun.sleep(100);
    expect((await own()).filter((text) => text?.startsWith("own "))).toEqual(ownTexts);
  },
  300_000,
);
