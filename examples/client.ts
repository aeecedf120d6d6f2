/**
 * A program on the SDK, told part by part in docs/client.md. With the nodes of `bun run start` running:
 * `bun examples/client.ts`, or with another address in WAYPOST_URL.
 */

import {
  type Client,
  cachesOf,
  changeAsOwner,
  connect,
  firstDocument,
  liveEndpoints,
  lookUp,
  recipientOf,
  register,
  send,
  senderOf,
  settleRegistration,
} from "waypost/client";
import { waitingDefault } from "waypost/client/confirm";
import { ClientError } from "waypost/client/http";
import { createIdentity, type Identity } from "waypost/client/keys";
import { listenLive } from "waypost/client/live";
import { acknowledge, isComplete, listPending, openEnvelope, readMessage } from "waypost/client/retrieve";
import { bytesSource } from "waypost/client/send";

const url = process.env["WAYPOST_URL"] ?? "http://127.0.0.1:7400";
const client = connect({ directoryUrl: url, relayUrl: url });

// Identities. Keep what `createIdentity` answers (`saveNewIdentity`): the keys are nowhere else.
const [alice, bob] = await Promise.all([enrol(client, "alice"), enrol(client, "bob")]);

async function enrol(at: Client, name: string): Promise<Identity> {
  const identity = createIdentity(name);
  const document = firstDocument(identity, { relayUrl: url, cacheUrl: url });
  const registered = await register(at, identity, { document, alias: null });
  await settleRegistration(at, registered, waitingDefault);
  return identity;
}

// A policy: what bob takes. The call is signed by bob's root key and waited for.
const policy = { effective_ttl: 1_000, max_message_bytes: 100_000, cache_eligible: true };
const root = { keyId: "root", seed: bob.rootSeed };
await changeAsOwner(
  client,
  { extrinsic: "set_delivery_policy", did: bob.did, policy },
  { signer: root, waiting: waitingDefault },
);

// Sending. What is larger than one envelope may be goes out in several.
const sender = await senderOf(client, alice);
const text = (words: string) => bytesSource("note.txt", "text/plain", new TextEncoder().encode(words));
const sent = await send(client, bob.did, text("Meet me at noon."), { sender, ttl: "1h" });
console.log(`sent ${sent.messageIds.join(", ")}: ${sent.last?.code}`);

// Receiving in memory. What can't be opened throws, and stays in the Cache for a look at it.
const caches = await cachesOf(client, bob, "");
const recipient = recipientOf(client, bob);
const { pending, unreachable } = await listPending(caches);
for (const { endpoint, error } of unreachable) console.error(`${endpoint}: ${error.code}`);
for (const message of pending.filter(isComplete)) {
  const { file, data, from } = await readMessage(message, recipient);
  console.log(`received ${file.name}: ${new TextDecoder().decode(data)} (${from?.verified ? from.did : "unsigned"})`);
  // Keep `data` before this: an acknowledged message is gone.
  for (const { endpoint, error } of await acknowledge([message])) console.error(`${endpoint}: ${error.code}`);
}

// Being told: a stream of the Cache says that something is there, and what is there is read as above.
const news = new AbortController();
const told = Promise.withResolvers<void>();
const streaming = caches[0]?.stream(told.resolve, news.signal).catch(ignoreEnd);
await send(client, bob.did, text("There is news."), { sender });
await told.promise;
console.log("told of news");
news.abort();
await streaming;
await acknowledge((await listPending(caches)).pending);

// Live: envelopes come as they are sent. `true` acknowledges one, so keep it first.
const live = new AbortController();
const [post] = await liveEndpoints(client, bob, "desk");
if (post === undefined) throw new Error("bob listens nowhere");
await listenLive(
  post,
  {
    onReady: () => void send(client, bob.did, text("Live."), { sender }).catch(fail),
    onEnvelope: async ({ envelope }) => {
      const { opened } = await openEnvelope(envelope, recipient);
      console.log(`live ${opened.file.name}: ${new TextDecoder().decode(opened.data)}`);
      setTimeout(() => live.abort(), 100);
      return true;
    },
  },
  live.signal,
);

// Failures are `ClientError`s: `kind` says on whose side, `code` is the node's own.
await lookUp(client, "nobody.here").catch((error: unknown) => {
  if (!(error instanceof ClientError)) throw error;
  console.log(`${error.kind}: ${error.code}`);
});

function ignoreEnd(error: unknown): void {
  if (!news.signal.aborted) throw error;
}

function fail(error: unknown): void {
  console.error(error);
  live.abort();
}
