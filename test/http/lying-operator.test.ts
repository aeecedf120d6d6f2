/**
 * Whom a report goes to is the word of a node, which may lie: a report never goes to an author of
 * what it shows, nor to another one than before until the user has agreed to that one.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { signEd25519 } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { reportType } from "../../src/client/mail/content.ts";
import { about } from "../../src/client/net/about.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { StoredMessage } from "../../src/client/store/shown.ts";
import { senderOf } from "../../src/client/trust/client.ts";
import { noticeIn } from "../../src/client/trust/notice.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeNoticeText, type NoticeForm, renderNotice } from "../../src/core/message/notice.ts";
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
const name = (did: string | null, notice: NoticeForm | null = null) => {
  const named = { did, contact: null, rules: null, welcome: null };
  liar.lie = {
    json: ({ path, json }) => (path === "/node" ? { ...json, operator: named, notice } : null),
  };
};
const noticeOf = async (me: Waypost, text: string, issuedAtMs: number): Promise<NoticeForm> => {
  const { did, keyId: signer, seed } = await senderOf(me.client, me.identity);
  const signature = await signEd25519(encodeNoticeText({ did, text, issuedAtMs }), seed);
  return renderNotice({ did, text, issuedAtMs, signer, signature });
};
const shownNotice = async () =>
  (await noticeIn(bob.client, await about(bob.client.directory.endpoint)))?.text ?? null;
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

  test("is who speaks in notices: no other is heard, and none that is older than the last", async () => {
    await bob.forget("operator");
    const nowMs = Date.now();
    const [first, later] = [
      await noticeOf(operator, "we move on Sunday", nowMs),
      await noticeOf(operator, "we move on Monday", nowMs + 1_000),
    ];
    name(operator.did, first);
    expect(await shownNotice()).toBe("we move on Sunday");
    name(operator.did, later);
    expect([await shownNotice(), await shownNotice()]).toEqual([
      "we move on Monday",
      "we move on Monday",
    ]);
    name(operator.did, first);
    expect(await shownNotice()).toBeNull();
    name(mallory.did, await noticeOf(mallory, "send me your passphrase", nowMs + 2_000));
    expect(await shownNotice()).toBeNull();
    expect(await bob.operator()).toEqual({ did: mallory.did, before: operator.did });
    await bob.forget("operator");
    expect(await shownNotice()).toBe("send me your passphrase");
  });

  test("is none where it names none, or what is not a DID", async () => {
    for (const did of [null, "mallory"]) {
      name(did);
      expect(await bob.operator()).toBeNull();
      await expect(bob.report([message])).rejects.toMatchObject({ code: "no_operator" });
    }
  });
});
