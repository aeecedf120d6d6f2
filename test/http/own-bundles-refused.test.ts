/**
 * Key bundles of an identity while its Cache takes none for a time: others can write to it soon
 * after.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { peopleAtNodes } from "../support/people.ts";
import { textsOf, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { openStored } = people;
/** So many further bundles of each mailbox are refused. */
let refusals = 0;
/** By the path of the mailbox. */
const asked = new Map<string, number>();
const { fetch: request } = globalThis;

beforeAll(() => {
  const busy = () => Response.json({ code: "busy" }, { status: 503 });
  globalThis.fetch = Object.assign(async (...args: [string | URL | Request, RequestInit?]) => {
    const { pathname } = new URL(String(args[0]));
    if (args[1]?.method !== "PUT" || !pathname.startsWith("/cache/keys/")) return request(...args);
    const count = asked.get(pathname) ?? 0;
    asked.set(pathname, count + 1);
    return count < refusals ? busy() : request(...args);
  }, request);
});
afterAll(() => {
  globalThis.fetch = request;
});
function refuse(times: number): void {
  asked.clear();
  refusals = times;
}

/** The id of the bundle that the Cache shows. */
async function shownOf(me: Waypost): Promise<string | null> {
  const answer = await request(`${people.at.url}/cache/keys/${me.did}`);
  return answer.status === 200 ? String((await answer.json()).key_id) : null;
}

test("a new identity whose first bundles are refused has one soon, and gets what waited for it", async () => {
  refuse(2);
  const events: WaypostEvent[] = [];
  const me = await openStored({ onEvent: (event) => events.push(event) });
  expect(await shownOf(me)).toBeNull();
  const friend = await openStored();
  await friend.send(me.did, "hello");
  const texts = await until(
    () => textsOf(me, friend.did),
    ({ length }) => length > 0,
  );
  expect(texts).toEqual(["hello"]);
  // Not one more for each further try.
  const failures = events.filter(({ type }) => type === "failed");
  expect(failures.length).toBeLessThan(3);
  expect(asked.get(`/cache/keys/${encodeURIComponent(me.did)}`)).toBe(3);
}, 60_000);

test("new keys whose bundle is refused have one soon", async () => {
  refuse(0);
  const me = await openStored();
  const before = await shownOf(me);
  refuse(2);
  await me.devices.replaceKeys();
  const isNew = (id: string | null) => id !== null && id !== before;
  expect(isNew(await until(() => shownOf(me), isNew))).toBe(true);
}, 60_000);
