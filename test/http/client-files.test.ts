/**
 * Files next to texts: no text waits for a file, a file that is larger than the mailbox flows
 * through it, what waits says why, and what can't fit is refused before anything has left.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { StoredMessage } from "../../src/client/store/shown.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";
import { waiting, waitingCount } from "../support/people.ts";
import { pause } from "../support/wait.ts";

const mailboxBytes = 4_000_000;
let nodes: TestNodes;
const opened: Waypost[] = [];
beforeAll(async () => {
  nodes = await startTestNodes({}, { cache: { recipient_bytes_max: mailboxBytes } });
});
afterAll(async () => {
  await Promise.all(opened.map((me) => me.close()));
  await nodes.stop();
});

async function open(options: Partial<WaypostOptions> = {}): Promise<Waypost> {
  const own = { url: nodes.url, keys: memoryKeys(), store: memoryStore(), waiting };
  const me = await Waypost.open({ ...own, ...options });
  opened.push(me);
  return me;
}

/** Each has written to the other. */
async function friends(): Promise<[Waypost, Waypost]> {
  const [alice, bob] = await Promise.all([open(), open()]);
  await (await alice.send(bob.did, "hello")).delivered;
  await (await bob.send(alice.did, "hello yourself")).delivered;
  while ((await alice.store.unread()) + (await bob.store.unread()) < 2) await Bun.sleep(10);
  return [alice, bob];
}

/** More than a mailbox holds, and no two chunks alike. */
const large = (bytes = mailboxBytes + 1_000_000): Uint8Array =>
  Uint8Array.from({ length: bytes }, (_, i) => (i * 31 + (i >> 8) * 17 + (i >> 16)) & 255);

async function until<T>(look: () => Promise<T | null | undefined>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== null && found !== undefined) return found;
    await Bun.sleep(10);
  }
}

const withSize = (me: Waypost, from: string, sizeBytes: number) =>
  until(
    async (): Promise<StoredMessage | undefined> =>
      (await me.store.messages(from)).find((one) => one.sizeBytes === sizeBytes),
  );

test("a file larger than the recipient's mailbox flows through it, and is whole", async () => {
  const [alice, bob] = await friends();
  const bytes = large();
  await (await alice.send(bob.did, bytes, { chunkBytes: 200_000 })).delivered;
  const message = await withSize(bob, alice.did, bytes.length);
  const got = await (await bob.store.file(message)).bytes();
  expect(Bun.SHA256.hash(got, "hex")).toBe(Bun.SHA256.hash(bytes, "hex"));
  expect([message.verified, message.from]).toEqual([true, alice.did]);
  await until(async () => ((await waitingCount(bob)) === 0 ? true : null));
}, 60_000);

test("a text does not wait for a file that has no room, which says why it waits and can be stopped", async () => {
  const [alice, bob] = await friends();
  // Nothing takes its chunks.
  await bob.close();
  const stop = new AbortController();
  const bytes = large();
  const file = await alice.send(bob.did, bytes, { chunkBytes: 200_000, signal: stop.signal });
  const waits = await until(async () => {
    const copy = (await alice.store.message(file.id))?.delivery?.to[0];
    return copy?.code === null ? null : copy;
  });
  expect([waits.state, waits.code]).toEqual(["waiting", "mailbox_full"]);
  expect(waits.reason).toContain("mailbox_full");
  const short = await alice.send(bob.did, "behind it");
  await short.delivered;
  expect((await alice.store.message(file.id))?.delivery?.state).toBe("waiting");
  stop.abort();
  expect(await file.delivered?.catch((error: ClientError) => error.code)).toBe("aborted");
  expect((await alice.store.message(file.id))?.delivery?.state).toBe("failed");
}, 60_000);

test("texts arrive while a file is still on its way", async () => {
  const [alice, bob] = await friends();
  const bytes = large();
  const order: string[] = [];
  const file = await alice.send(bob.did, bytes, { chunkBytes: 100_000 });
  void file.delivered?.then(() => order.push("file"));
  await pause(5, "texts of the same millisecond have no order");
  const texts = await Promise.all(["one", "two", "three"].map((text) => alice.send(bob.did, text)));
  await Promise.all(texts.map(({ delivered }) => delivered));
  order.push("texts");
  await file.delivered;
  expect(order[0]).toBe("texts");
  const message = await withSize(bob, alice.did, bytes.length);
  // Its time is that of its sending: it stands above what was written later.
  const page = await until(async () => {
    const all = (await bob.store.messages(alice.did)).filter(({ isOwn }) => !isOwn);
    return all.length === 5 ? all : null;
  });
  expect(page.map(({ text, key }) => (key === message.key ? "file" : text))).toEqual([
    "hello",
    "file",
    "one",
    "two",
    "three",
  ]);
}, 60_000);

test("what can never fit is refused before anything has left, with the size that fits", async () => {
  const bob = await open();
  const source = {
    file: { name: "", mediaType: "x/y", sizeBytes: 65_536, sha256: new Uint8Array(32) },
    read: () => Promise.reject(new Error("nothing is read")),
  };
  const passing = await Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting });
  opened.push(passing);
  const refused = await passing
    .send(bob.did, source, { chunkBytes: 1 })
    .catch((error: ClientError) => error);
  expect(refused).toMatchObject({ code: "too_large" });
  expect((refused as ClientError).message).toContain("at most 65535 fit");
});

test("a stranger's message is one envelope where an empty mailbox has room for it", async () => {
  const here = { url: nodes.url, waiting };
  const [alice, bob] = await Promise.all([
    Waypost.open({ ...here, keys: memoryKeys() }),
    Waypost.open({ ...here, keys: memoryKeys() }),
  ]);
  opened.push(alice, bob);
  for (const to of [bob.did, (await open()).did])
    expect(await alice.send(to, large(900_000), { hint: "cache" })).toMatchObject({ chunks: 1 });
  expect(await waitingCount(bob)).toBe(1);
});

test("a message is never larger than what an empty mailbox takes", async () => {
  const small = await startTestNodes({}, { cache: { recipient_bytes_max: 300_000 } });
  const at = { url: small.url, waiting };
  const [alice, bob] = await Promise.all([
    Waypost.open({ ...at, keys: memoryKeys() }),
    Waypost.open({ ...at, keys: memoryKeys() }),
  ]);
  // In one envelope of the usual size no mailbox of these nodes would ever take it.
  const sent = await alice
    .send(bob.did, large(215_000), { hint: "cache" })
    .catch((error: ClientError) => error);
  expect(sent).toMatchObject({ chunks: 1 });
  await Promise.all([alice.close(), bob.close()]);
  await small.stop();
});
