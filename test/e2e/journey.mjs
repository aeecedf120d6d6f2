/**
 * The journey of the packed SDK, in plain JavaScript for every runtime: two identities, text both
 * ways, a file in chunks, a stranger's garbage, a restart of the receiver. Prints one line of JSON.
 */
import { ClientError, memoryKeys, restore, Waypost } from "@waypost/client";

const url = globalThis.Deno?.env.get("WAYPOST_URL") ?? globalThis.process?.env.WAYPOST_URL;

// Where there is no WebSocket, nothing says that the Caches have something.
const pollMs = typeof WebSocket === "undefined" ? 200 : 30_000;
const open = () => Waypost.open({ url, keys: memoryKeys(), pollMs });
const [alice, bob] = await Promise.all([open(), open()]);
const events = [];
bob.on((event) =>
  events.push(event.type === "disconnected" ? `${event.what} ${event.error?.code}` : event.type),
);

async function take(me, count) {
  const taken = [];
  for await (const message of me.messages()) {
    taken.push(message);
    await message.ack();
    if (taken.length === count) break;
  }
  return taken;
}

const envelope = {
  message_id: crypto.randomUUID(),
  to: bob.did,
  timestamp: new Date().toISOString(),
  payload: { ciphertext_b64: "AAAA" },
};
const garbage = await fetch(`${url}/cache/store`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(envelope),
});
await alice.send(bob.did, "hello");
const bytes = crypto.getRandomValues(new Uint8Array(50_000));
const sent = await alice.send(bob.did, new Blob([bytes]), { name: "data.bin", chunkBytes: 20_000 });
const [hello, file] = await take(bob, 2);
const answer = take(alice, 1);
await hello.reply("hello yourself");
const [reply] = await answer;

// A key store that lasts: the same identity, and nothing comes twice.
const passphrase = "a long passphrase";
const elsewhere = memoryKeys();
await restore(await bob.backup({ passphrase }), { passphrase, keys: elsewhere });
const again = await Waypost.open({ url, keys: elsewhere, pollMs });
const hasSessions = typeof WebSocket !== "undefined";
const connected = () =>
  new Promise((resolve) => {
    again.on((event) => event.type === "connected" && event.what === "live" && resolve());
    if (!hasSessions) resolve();
  });
let live = false;
let json;
// On a busy machine a runtime may acknowledge one later than the node waits for it: that goes into
// the Cache.
for (let tries = 0; !live && tries < (hasSessions ? 5 : 1); tries++) {
  const listening = connected();
  const once = take(again, 1);
  await listening;
  const direct = await alice.send(again.did, { once: true });
  live = direct.last.delivery_mode === "direct";
  [json] = await once;
}
const refused = await alice.send("nobody.here", "x").catch((error) => error);

console.log(
  JSON.stringify({
    garbage: garbage.status,
    text: hello.text,
    verified: [hello.verified, hello.from === alice.did],
    chunks: sent.chunks,
    same:
      file.bytes().every((byte, i) => byte === bytes[i]) && file.bytes().length === bytes.length,
    name: file.file.name,
    reply: [reply.text, reply.replyTo === hello.id],
    json: json.json(),
    sameDid: again.did === bob.did,
    refused: [refused instanceof ClientError, refused.code],
    unreadable: events.includes("unreadable"),
    live,
  }),
);
