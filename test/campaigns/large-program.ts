/**
 * One of the two people of `large.ts`: `ROLE URL FOLDER BYTES`. It says its DID, reads the other's,
 * and says in milliseconds since the sending what has happened; both programs have one clock.
 */
import { createWriteStream } from "node:fs";
import { fileKeys } from "../../src/cli/files/files.ts";
import { fileSource } from "../../src/cli/files/source.ts";
import { fileStore } from "../../src/cli/files/store.ts";
import type { StoredMessage } from "../../src/client/store/shown.ts";
import { cachesOf } from "../../src/client/trust/caches.ts";
import { Waypost } from "../../src/client/waypost.ts";

const [role = "", url = "", folder = "", size = "0"] = process.argv.slice(2);
const sizeBytes = Number(size);
const store = fileStore(`${folder}/store.sqlite`);
const me = await Waypost.open({ url, keys: fileKeys(`${folder}/keys`), store });
const say = (word: string, value: string | number) => console.log(`${word} ${value}`);

const words = console[Symbol.asyncIterator]();
const next = async (): Promise<string> => (await words.next()).value ?? "";
say("did", me.did);
const other = await next();
const first = await me.send(other, `from ${role}`);
await first.delivered;
while ((await me.store.unread()) === 0) await Bun.sleep(10);
say("met", Date.now());

/** A block repeats nowhere. */
async function makeFile(path: string): Promise<string> {
  const file = createWriteStream(path);
  const hash = new Bun.CryptoHasher("sha256");
  for (let left = sizeBytes; left > 0; ) {
    const block = crypto.getRandomValues(new Uint8Array(Math.min(65_536, left)));
    hash.update(block);
    if (!file.write(block)) await new Promise((resolve) => file.once("drain", resolve));
    left -= block.length;
  }
  await new Promise<void>((resolve) => file.end(() => resolve()));
  return hash.digest("hex");
}

async function sendAll(): Promise<void> {
  const path = `${folder}/file`;
  say("digest", await makeFile(path));
  await next();
  const beganMs = Date.now();
  say("began", beganMs);
  await me.send(other, await fileSource(path, "application/octet-stream"));
  say("stored", Date.now() - beganMs);
  await me.send(other, "behind it");
}

/**
 * What `messages` hands over has its content in memory: the store is looked at, which reads it in
 * pieces.
 */
async function arrived(isIt: (message: StoredMessage) => boolean): Promise<StoredMessage> {
  for (; ; await Bun.sleep(20)) {
    const found = (await me.store.messages(other, { limit: 10 })).find(
      (one) => !one.isOwn && one.content === "whole" && isIt(one),
    );
    if (found !== undefined) return found;
  }
}

async function receiveAll(): Promise<void> {
  void arrived(({ text }) => text === "behind it").then(() => say("text", Date.now()));
  const message = await arrived((one) => one.sizeBytes === sizeBytes);
  say("whole", Date.now());
  const hash = new Bun.CryptoHasher("sha256");
  for await (const piece of me.store.pieces(message)) hash.update(piece);
  say("digest", hash.digest("hex"));
  const [cache] = await cachesOf(me.client, me.identity);
  let left = -1;
  for (let tries = 0; tries < 100 && left !== 0; tries++) {
    left = (await cache?.summary())?.count ?? -1;
    if (left !== 0) await Bun.sleep(100);
  }
  say("left", left);
}

await (role === "sender" ? sendAll() : receiveAll());
await Bun.sleep(3_600_000);
