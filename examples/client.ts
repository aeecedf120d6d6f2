/**
 * A program on the SDK, explained step by step in docs/client.md. With the nodes of `bun run start`
 * running: `bun examples/client.ts`, or with another address in WAYPOST_URL.
 */
import { ClientError, memoryKeys, Waypost } from "waypost/client";
import { changeAsOwner, lookUp, waitingDefault } from "waypost/client/parts";

const url = process.env["WAYPOST_URL"] ?? "http://127.0.0.1:7400";

// Identities. The first `open` makes and registers one; a key store that lasts brings it back.
const [alice, bob] = await Promise.all([
  Waypost.open({ url, keys: memoryKeys() }),
  Waypost.open({ url, keys: memoryKeys() }),
]);

// A policy: what bob takes. The call is signed by bob's root key and waited for.
const policy = { effective_ttl: 1_000, max_message_bytes: 100_000, cache_eligible: true };
await changeAsOwner(
  bob.client,
  { extrinsic: "set_delivery_policy", did: bob.did, value: policy },
  { signer: { keyId: "root", seed: bob.identity.rootSeed }, waiting: waitingDefault },
);

// Sending: text, JSON, bytes, files. What is larger than one envelope may be goes out in several.
await alice.send(bob.did, "Meet me at noon.", { ttl: "1h" });
await alice.send(bob.did, { place: "harbour", seats: 3 });
const photo = new File([crypto.getRandomValues(new Uint8Array(60_000))], "photo.raw", {
  type: "image/x-raw",
});
const sent = await alice.send(bob.did, photo, { chunkBytes: 25_000 });
console.log(`sent ${photo.name} in ${sent.chunks} chunks`);

// What a stranger sends and no one can open is an event, and stops nothing.
bob.on((event) => {
  if (event.type === "unreadable") console.error(`${event.messageIds.join(", ")}: ${event.reason}`);
});

// Receiving: what waits comes first, then what arrives. An acknowledged message is gone.
let left = 3;
for await (const message of bob.messages()) {
  console.log(
    `received ${message.text ?? message.file.name} (${message.verified ? message.from : "unsigned"})`,
  );
  if (left === 3) await message.reply("I will be there.");
  await message.ack();
  if (--left === 0) break;
}

// The answer names what it answers.
for await (const message of alice.messages()) {
  console.log(`answer: ${message.text} (to ${message.replyTo === null ? "nothing" : "a message"})`);
  await message.ack();
  break;
}

// Failures are `ClientError`s: `kind` names the side, `code` is the node's own.
await lookUp(alice.client, "nobody.here").catch((error: unknown) => {
  if (!(error instanceof ClientError)) throw error;
  console.log(`${error.kind}: ${error.code}`);
});
