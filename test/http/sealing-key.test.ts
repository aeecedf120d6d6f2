/**
 * The key that others seal to, over several devices of one identity: who replaces it, what the
 * others have by then, and what happens when one meets a key whose secret it lacks. By a clock that
 * all devices share.
 */
import { expect, test } from "bun:test";
import { change } from "../../src/client/identity/change.ts";
import { ed25519PublicKey, x25519PublicKey } from "../../src/client/keys/crypto.ts";
import { changeIdentity } from "../../src/client/keys/stored.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { findOpening } from "../../src/client/trust/own.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderAgreementKey, renderPublicKey } from "../../src/core/codec/bytes.ts";
import { sealingKeyOf } from "../../src/core/ledger/account.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { devicesAt, shows, until } from "./own-devices.ts";

const [hour, day] = [3_600_000, 86_400_000];
const people = peopleAtNodes();
const elsewhere = peopleAtNodes();
const { open, keep } = people;
const { place } = devicesAt(people);

/** Two devices by one clock, the one with the lower DID first, and what each has said. */
async function pair() {
  const clock = { aheadMs: 0 };
  const nowMs = () => Date.now() + clock.aheadMs;
  const places = [place(), place()] as const;
  const first = await open({ ...places[0], nowMs });
  const linking = await Waypost.link({ ...places[1], nowMs });
  await first.devices.acceptLink(linking.code, "second");
  const second = await keep(linking.opened);
  for (const me of [first, second])
    await until(
      async () => me.devices.sync,
      (sync) => sync !== null,
    );
  const own = async (me: Waypost) =>
    (await me.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  const both = [
    { me: first, keys: places[0].keys },
    { me: second, keys: places[1].keys },
  ];
  const isSwapped = (await own(second)) < (await own(first));
  const [low, high] = (isSwapped ? both.reverse() : both) as [
    (typeof both)[number],
    (typeof both)[number],
  ];
  const said: { low: WaypostEvent[]; high: WaypostEvent[] } = { low: [], high: [] };
  low.me.on((event) => said.low.push(event));
  high.me.on((event) => said.high.push(event));
  return { clock, low, high, said };
}

const published = async ({ client, did }: Waypost) =>
  sealingKeyOf(await activeDocument(client, did)) as NonNullable<ReturnType<typeof sealingKeyOf>>;
const holds = async (me: Waypost) =>
  (await findOpening(me.identity.agreements, await published(me))) !== null;
const kinds = (events: readonly WaypostEvent[]) =>
  events.map((event) => event.type).filter((type) => type !== "changed" && type !== "leading");

test("the device with the lowest DID replaces the key first, and the other has its secret before it is published", async () => {
  const { clock, low, high, said } = await pair();
  const before = await published(low.me);
  const alice = await open(place());
  await alice.send(low.me.did, "sealed to the old one");
  clock.aheadMs = 7 * day + hour;
  await high.me.rotate();
  expect(await published(low.me)).toEqual(before);
  await low.me.rotate();
  const after = await published(low.me);
  expect(after.publicKey).not.toEqual(before.publicKey);
  // No state that was there before leads to it: it is not the same on both unless it was given.
  await until(
    () => holds(high.me),
    (is) => is,
  );
  await high.me.watch();
  await alice.send(low.me.did, "sealed to the new one");
  for (const { me } of [low, high])
    await shows(me, alice.did, ["sealed to the old one", "sealed to the new one"]);
  expect([kinds(said.low), kinds(said.high)]).toEqual([
    expect.arrayContaining(["rotated"]),
    expect.not.arrayContaining(["stranger_change", "failed"]),
  ]);
}, 60_000);

test("a day later the other one does, when the first doesn't", async () => {
  const { clock, high } = await pair();
  const before = await published(high.me);
  clock.aheadMs = 8 * day + hour;
  await high.me.rotate();
  expect((await published(high.me)).publicKey).not.toEqual(before.publicKey);
}, 60_000);

test("who meets a published key without its secret asks, and no stranger is named", async () => {
  const { clock, low, high, said } = await pair();
  clock.aheadMs = 7 * day + hour;
  await low.me.rotate();
  await until(
    () => holds(high.me),
    (is) => is,
  );
  // As an older copy of its keys would have them.
  await changeIdentity(high.keys, high.me.identity, (stored) => ({
    ...stored,
    agreements: stored.agreements.slice(0, 1),
  }));
  await high.me.watch();
  const hasIt = await until(
    () => holds(high.me),
    (is) => is,
  );
  expect([hasIt, kinds(said.high)]).toEqual([
    true,
    expect.not.arrayContaining(["stranger_change", "failed"]),
  ]);
}, 60_000);

test("after an hour without an answer it publishes another one, and says what can't be read", async () => {
  const { clock, low, high, said } = await pair();
  await low.me.close();
  // Published by a device that was lost with its secret.
  const { client, did } = high.me;
  const { id } = await published(high.me);
  const publicKeyMultibase = renderAgreementKey(await x25519PublicKey(new Uint8Array(32).fill(7)));
  const signer = { keyId: "root", seed: high.me.identity.rootSeed };
  const keyAgreement = {
    ...{ id, type: "X25519KeyAgreementKey2020", controller: did },
    publicKeyMultibase,
  };
  await change(client, { action: "UpdateKeyAgreement", did, keyAgreement }, { signer, waiting });
  await high.me.watch();
  await high.me.rotate();
  expect([await holds(high.me), kinds(said.high)]).toEqual([
    false,
    expect.not.arrayContaining(["stranger_change", "failed", "rotated"]),
  ]);
  clock.aheadMs = hour + 1;
  await high.me.watch();
  expect(await holds(high.me)).toBe(true);
  const named = said.high.filter(({ type }) =>
    ["stranger_change", "failed", "rotated"].includes(type),
  );
  expect(named).toMatchObject([
    { type: "stranger_change", what: "sealing_key" },
    { type: "failed", what: "rotation", error: { code: "key_lost" } },
    { type: "rotated" },
  ]);
}, 60_000);

test("methods that one device has added are no stranger's on the other, with their secrets", async () => {
  const { low, high, said } = await pair();
  const { client, did } = low.me;
  const secret = new Uint8Array(32).fill(3);
  const id = `${did}#k2`;
  await changeIdentity(low.keys, low.me.identity, (stored) => ({
    ...stored,
    methods: [...stored.methods, { id, secret }],
  }));
  const signer = { keyId: "root", seed: low.me.identity.rootSeed };
  // One whose secret is elsewhere, too.
  const keys = { k2: await ed25519PublicKey(secret), k3: new Uint8Array(32).fill(9) };
  for (const [fragment, key] of Object.entries(keys)) {
    const verificationMethod = {
      ...{ id: `${did}#${fragment}`, type: "Multikey", controller: did },
      publicKeyMultibase: renderPublicKey(key),
    };
    await change(
      client,
      { action: "AddVerificationMethod", did, verificationMethod },
      { signer, waiting },
    );
  }
  await low.me.watch();
  const alice = await open(place());
  await low.me.send(alice.did, "so that the other device gets a message");
  await until(
    async () => high.me.identity.methods.some((one) => one.id === id),
    (is) => is,
  );
  await until(
    async () => (await high.me.devices.methods()).length,
    (count) => count === 2,
  );
  await high.me.watch();
  expect(kinds(said.high)).not.toContain("stranger_change");
}, 60_000);

test("a device on another ledger is not linked, and gets nothing", async () => {
  const phone = await open(place());
  const linking = await Waypost.link({ ...place(), url: elsewhere.at.url });
  linking.opened.catch(() => undefined);
  const code = await phone.devices.acceptLink(linking.code).catch((error) => error.code);
  expect(code).toBe("other_ledger");
  expect((await phone.devices.list()).filter(({ isThis }) => !isThis)).toEqual([]);
  await linking.cancel();
}, 60_000);
