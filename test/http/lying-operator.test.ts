/**
 * Whom a report goes to is the word of a node, which may lie: a report never goes to an author of what it shows, nor to
 * another one than before until the user has agreed to that one.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { reportType } from "../../src/client/mail/content.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { StoredMessage } from "../../src/client/store/rows.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";

const people = peopleAtNodes();
let liar: LyingDirectory;
let operator: Waypost;
let second: Waypost;
let mallory: Waypost;
let message: StoredMessage;
let bob: Waypost;
const place = { keys: memoryKeys(), store: memoryStore() };

const openBob = () => {
  const urls = { directoryUrl: liar.url, relayUrl: people.at.url, cacheUrl: people.at.url };
  return Waypost.open({ ...place, ...urls, waiting });
};
/** What `GET /node` says from now on. */
const name = (did: string | null) => {
  const named = { did, contact: null, rules: null, welcome: null };
  liar.lie = {
    json: ({ path, json }) => (path === "/node" ? { ...json, operator: named } : null),
  };
};
const reportsAt = async (me: Waypost) =>
  (await me.store.messages(bob.did)).filter(({ mediaType }) => mediaType === reportType).length;
const arrived = async (me: Waypost, count: number) => {
  while ((await reportsAt(me)) < count) await Bun.sleep(20);
};

beforeAll(async () => {
  liar = lyingDirectory(people.at.url);
  [operator, second, mallory] = [
    await people.openStored(),
    await people.openStored(),
    await people.openStored(),
  ];
  bob = await openBob();
  await mallory.send(bob.did, "an insult");
  for (;;) {
    const [found] = await bob.store.messages(mallory.did);
    if (found !== undefined) {
      message = found;
      return;
    }
    await Bun.sleep(20);
  }
}, 60_000);
afterAll(async () => {
  await bob.close();
  await liar.stop();
});

describe("the operator that a node names", () => {
  test("gets no report about itself", async () => {
    name(mallory.did);
    await expect(bob.report([message])).rejects.toMatchObject({ code: "operator_reported" });
    expect(await bob.operator()).toEqual({ did: mallory.did, before: null });
    await bob.close();
    // What was refused is not remembered as the operator of a node.
    bob = await openBob();
  });

  test("is remembered with the first report, and another one gets none unasked", async () => {
    name(operator.did);
    expect((await bob.report([message], "one")).recipient.did).toBe(operator.did);
    await arrived(operator, 1);
    name(second.did);
    const changed = { code: "identity_changed" };
    await expect(bob.report([message], "two")).rejects.toMatchObject(changed);
    await bob.close();
    bob = await openBob();
    await expect(bob.report([message], "two")).rejects.toMatchObject(changed);
    expect(await bob.operator()).toEqual({ did: second.did, before: operator.did });
    expect([await reportsAt(second), await reportsAt(mallory)]).toEqual([0, 0]);
  });

  test("gets it once the user has agreed to that one, and no other", async () => {
    name(operator.did);
    const agreed = { operator: second.did };
    const refused = bob.report([message], "two", agreed);
    await expect(refused).rejects.toMatchObject({ code: "identity_changed" });
    name(second.did);
    expect((await bob.report([message], "two", agreed)).recipient.did).toBe(second.did);
    await arrived(second, 1);
    expect(await bob.operator()).toEqual({ did: second.did, before: null });
    expect((await bob.report([message], "three")).recipient.did).toBe(second.did);
  });

  test("is none where it names none, or what is not a DID", async () => {
    for (const did of [null, "mallory"]) {
      name(did);
      expect(await bob.operator()).toBeNull();
      await expect(bob.report([message])).rejects.toMatchObject({ code: "no_operator" });
    }
  });
});
