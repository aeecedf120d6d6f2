/**
 * Messages to people who announce key bundles, over real nodes: sealed in the second version
 * whatever they are, opened and verified; they wait while no bundle can be had; and nobody else is
 * sealed to otherwise than before.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { sha256 } from "@noble/hashes/sha2.js";
import { ClientError } from "../../src/client/base/failure.ts";
import { buildEnvelope } from "../../src/client/mail/send.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import { parseAgreementKey, utf8 } from "../../src/core/codec/bytes.ts";
import { peopleAtNodes } from "../support/people.ts";
import { plan } from "../support/send-plan.ts";

const people = peopleAtNodes();
const { open, openStored } = people;
const [first, second] = [
  "svc:cbor-chunk:x25519-hkdf-sha256-chacha20poly1305:v1",
  "svc:sealed:xwing-hkdf-sha256-chacha20poly1305:v2",
];

/** Of each envelope that a Relay was sent: for whom, and how its payload is sealed. */
let posted: { readonly to: string; readonly profile: string }[] = [];
/** Whether the node says that it can get no bundle. */
let isHiding = false;
const { fetch: request } = globalThis;

beforeAll(() => {
  globalThis.fetch = Object.assign(async (...asked: [string | URL | Request, RequestInit?]) => {
    const [where, init] = asked;
    if (String(where).includes("/relay/")) {
      const { to, payload } = await new Response(init?.body).json();
      posted.push({ to, profile: payload.profile });
    }
    const answer = await request(...asked);
    if (!isHiding || !String(where).includes("/delivery-resolution/")) return answer;
    const { key_bundle: _, ...others } = await answer.json();
    const hidden = { ...others, key_bundle_sha256: null, key_bundle_missing: "unavailable" };
    return Response.json(hidden, { headers: answer.headers });
  }, request);
});
beforeEach(() => {
  posted = [];
  isHiding = false;
});
afterAll(() => {
  globalThis.fetch = request;
});

const profilesTo = ({ did }: Waypost) =>
  new Set(posted.filter(({ to }) => to === did).map(({ profile }) => profile));

async function nextOf(me: Waypost) {
  for await (const message of me.messages()) {
    await message.ack();
    return message;
  }
  throw new Error("no message came");
}

test("a text, a file in chunks and an answer are sealed so, open, and are verified", async () => {
  const [alice, bob] = [await open({ announce: true }), await open({ announce: true })];
  await alice.send(bob.did, "Meet me at noon.");
  const text = await nextOf(bob);
  expect([text.text, text.from, text.verified, text.trust]).toEqual([
    "Meet me at noon.",
    alice.did,
    true,
    "proven",
  ]);
  const file = new Uint8Array(50_000).map((_, i) => i);
  await alice.send(bob.did, file, { chunkBytes: 20_000 });
  expect((await nextOf(bob)).bytes()).toEqual(file);
  await text.reply("I will.");
  expect((await nextOf(alice)).text).toBe("I will.");
  expect([...profilesTo(bob), ...profilesTo(alice)]).toEqual([second, second]);
  expect(posted.length).toBe(5);
});

test("an unsigned message too; and who announces nothing gets the first version", async () => {
  const [alice, bob] = [await open({ announce: true }), await open({ announce: false })];
  await alice.send(bob.did, "plain");
  expect((await nextOf(bob)).verified).toBe(true);
  await bob.send(alice.did, "who am I?", { anonymous: true });
  const unsigned = await nextOf(alice);
  expect([unsigned.text, unsigned.from, unsigned.verified]).toEqual(["who am I?", null, null]);
  expect([...profilesTo(bob), ...profilesTo(alice)]).toEqual([first, second]);
});

test("a client of the first version alone writes to who announces bundles, and is read", async () => {
  const bob = await open();
  const asked = await fetch(`${people.at.url}/delivery-resolution/${bob.did}`);
  const { recipient_key_id: keyId, recipient_public_key_multibase: key } = await asked.json();
  const publicKey = parseAgreementKey(key) as Uint8Array;
  const data = utf8("I know no bundles.");
  const file = {
    name: "",
    mediaType: "text/plain;charset=utf-8",
    sizeBytes: data.length,
    sha256: sha256(data),
  };
  const sealing = { ...plan, to: bob.did, recipient: { keyId, publicKey }, file, tag: null };
  const timestamp = new Date().toISOString();
  const id = crypto.randomUUID();
  const { body } = await buildEnvelope({ ...sealing, id, timestamp, sender: null }, 0, data);
  const headers = { "content-type": "application/json" };
  const post = { method: "POST", headers, body };
  const sent = await fetch(`${people.at.url}/relay/${bob.did}`, post);
  expect(sent.status).toBeLessThan(300);
  expect((await nextOf(bob)).text).toBe("I know no bundles.");
  expect([...profilesTo(bob)]).toEqual([first]);
});

test("receipts, profiles and reactions are sealed so", async () => {
  const options = { announce: true, receipts: true } as const;
  const [alice, bob] = [await openStored(options), await openStored(options)];
  const heard = Promise.withResolvers<void>();
  alice.on(({ type }) => {
    if (type === "receipt") heard.resolve();
  });
  await (await bob.send(alice.did, "hello")).delivered;
  const sent = await alice.send(bob.did, "hello yourself");
  await sent.delivered;
  await heard.promise;
  await (await alice.react(bob.did, sent.id, "👍")).delivered;
  expect([...profilesTo(bob), ...profilesTo(alice)]).toEqual([second, second]);
  expect(posted.length).toBeGreaterThan(3);
});

test("without a bundle nothing is sealed to the other key: the call fails for now, and a store waits", async () => {
  const bob = await open({ announce: true });
  isHiding = true;
  const alice = await open({ announce: false });
  const refused = await alice.send(bob.did, "now").catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(ClientError);
  expect((refused as ClientError).code).toBe("key_bundle_missing");
  const carol = await open({ announce: false, store: memoryStore() });
  const sent = await carol.send(bob.did, "later");
  await Bun.sleep(50);
  expect(posted.filter(({ to }) => to === bob.did)).toEqual([]);
  isHiding = false;
  await sent.delivered;
  expect((await nextOf(bob)).text).toBe("later");
  expect([...profilesTo(bob)]).toEqual([second]);
});

test("a bundle that was seen counts for as long as it lasts, whatever a node hides", async () => {
  const [alice, bob] = [await open({ announce: false }), await open({ announce: true })];
  await alice.send(bob.did, "one");
  isHiding = true;
  await alice.send(bob.did, "two");
  expect([(await nextOf(bob)).text, (await nextOf(bob)).text]).toEqual(["one", "two"]);
  expect(posted.filter(({ to }) => to === bob.did).map(({ profile }) => profile)).toEqual([
    second,
    second,
  ]);
});
