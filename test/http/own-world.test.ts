/**
 * What servers and thieves try with an identity's own world: its first DID, the devices that it links, and what is left of
 * a thief when keys are replaced.
 */
import { expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import { change } from "../../src/client/identity/change.ts";
import { createIdentity } from "../../src/client/keys/keys.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeHex, renderPublicKey } from "../../src/core/codec/bytes.ts";
import { isSelfCertifying } from "../../src/core/ledger/names.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open, keep } = people;
const { place, linked } = devicesAt(people);

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => null,
    (error: ClientError) => error.code,
  );

/** A Directory that calls its ledger one without self-certifying DIDs. */
async function withoutNames<T>(work: (liar: LyingDirectory) => Promise<T>): Promise<T> {
  const liar = lyingDirectory(people.at.url);
  liar.lie = {
    json: ({ path, json }) =>
      path === "/limits" ? { ...json, self_certifying_dids: false } : null,
  };
  try {
    return await work(liar);
  } finally {
    await liar.stop();
  }
}

const otherUrls = () => ({ relayUrl: people.at.url, cacheUrl: people.at.url });

test("no random DID is made unless it was asked for, whatever the Directory says of its ledger", () =>
  withoutNames(async ({ url }) => {
    const options = { ...place(), ...otherUrls(), directoryUrl: url };
    expect(await codeOf(Waypost.open(options))).toBe("proof_missing");
    expect(await codeOf(Waypost.link(options))).toBe("proof_missing");
    const asked = await keep(Waypost.open({ ...options, allowRandom: true }));
    expect(isSelfCertifying(asked.did)).toBe(false);
  }));

test("a device with a DID of another form is not linked, and gets nothing", async () => {
  const phone = await open(place());
  const { did } = createIdentity("random");
  const untilMs = (Date.now() + 60_000).toString(36);
  const code = ["waypost-link", did, "ab".repeat(32), "cd".repeat(16), untilMs].join("~");
  expect(await codeOf(phone.devices.acceptLink(code))).toBe("proof_missing");
  expect((await phone.devices.list()).length).toBeLessThan(2);
});

test("after a removal the document has no method that a thief's device had added", async () => {
  const phone = await open(place());
  const thief = await linked(phone);
  const signer = { keyId: "root", seed: thief.identity.rootSeed };
  const id = `${phone.did}#evil`;
  const verificationMethod = {
    ...{ id, type: "Multikey", controller: phone.did },
    publicKeyMultibase: renderPublicKey(new Uint8Array(32).fill(9)),
  };
  const { client, did } = thief;
  const options = { signer, waiting };
  await change(client, { action: "AddVerificationMethod", did, verificationMethod }, options);
  await change(client, { action: "AddAuthentication", did, id }, options);
  const before = await activeDocument(phone.client, did);
  expect(before.authentication).toContain(id);
  const [gone] = (await phone.devices.list()).filter(({ isThis }) => !isThis);
  await phone.devices.remove(gone?.did ?? "");
  expect(JSON.stringify(await activeDocument(phone.client, did))).not.toContain("evil");
}, 60_000);

test("after a removal the document has no service of a thief, and all of this identity's", async () => {
  const phone = await open(place());
  const own = (await activeDocument(phone.client, phone.did)).service;
  const thief = await linked(phone);
  const { client, did } = thief;
  const signer = { keyId: "root", seed: thief.identity.rootSeed };
  const add = async (name: string) => {
    const service = {
      id: `${did}#${name}`,
      type: "SvcCacheService",
      serviceEndpoint: [`https://${name}.example`],
      authorization: null,
      priority: null,
    };
    await change(client, { action: "AddService", did, service }, { signer, waiting });
    return service.id;
  };
  await add("evil");
  // One that this identity has named, and behind it one more address.
  const cache = own.find(({ type }) => type === "SvcCacheService") as (typeof own)[number];
  const serviceEndpoint = ["https://evil.example", ...cache.serviceEndpoint];
  await change(
    client,
    { action: "UpdateService", did, service: { ...cache, serviceEndpoint } },
    { signer, waiting },
  );
  const liked = await add("liked");
  const [gone] = (await phone.devices.list()).filter(({ isThis }) => !isThis);
  await phone.devices.replaceKeys({ keep: [], services: [liked] });
  expect((await phone.devices.list()).map((one) => one.did)).not.toContain(gone?.did as never);
  const { service } = await activeDocument(phone.client, did);
  expect(service.map(({ id }) => id)).toEqual([...own.map(({ id }) => id), liked]);
  expect(service.slice(0, -1)).toEqual([...own]);
  // What was ticked is the user's own from then on.
  await phone.devices.replaceKeys();
  expect((await activeDocument(phone.client, did)).service).toEqual(service);
}, 60_000);

test("who has the keys of a device's DID, as a Directory may that lies about it, reads no file of the identity", async () => {
  const where = place();
  const [alice, phone] = await Promise.all([open(), open(place())]);
  const laptop = await linked(phone, where);
  await phone.store.savePerson(alice.did, { isKnown: true });
  await until(
    () => phone.devices.list(),
    (all) => all.every(({ isCurrent }) => isCurrent),
  );
  await laptop.close();
  const secret = "what nobody else reads ".repeat(5_000);
  await alice.send(phone.did, secret, { mediaType: "application/x-secret", name: "a.bin" });
  await until(
    () => phone.store.unread(),
    (count) => count === 1,
  );
  const liar = await open({ keys: where.keys, name: "default.device" });
  for await (const message of liar.messages()) {
    const text = new TextDecoder().decode(message.bytes());
    expect(text).not.toContain("nobody else");
    if (message.sizeBytes > secret.length) break;
  }
  await liar.close();
  const again = await open(where);
  const [stored] = await until(
    () => again.store.messages(alice.did),
    (all) => all[0]?.content === "whole",
  );
  expect(await (await again.store.file(stored as NonNullable<typeof stored>)).text()).toBe(secret);
}, 60_000);

test("a device that a thief names to one device is shown to all, and gone with the thief", async () => {
  const phone = await open(place());
  const laptop = await linked(phone);
  const thief = await linked(phone);
  await until(
    () => laptop.devices.list(),
    (all) => all.length === 3,
  );
  const added: string[] = [];
  phone.on((event) => {
    if (event.type === "device_added") added.push(event.did);
  });
  const fourth = await linked(thief);
  const everywhere = await until(
    () => phone.devices.list(),
    (all) => all.length === 4,
  );
  const own = (await fourth.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  expect(everywhere.map(({ did }) => did as string)).toContain(own);
  expect(added).toEqual([own]);
  const thiefDid = (await thief.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  expect(everywhere.find(({ did }) => did === own)?.addedBy).toBe(thiefDid as never);

  // Without a word of the fourth: who is not kept is gone.
  const laptopDid = (await laptop.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  await phone.devices.replaceKeys({ keep: [laptopDid] });
  const left = await until(
    () => laptop.devices.list(),
    (all) => all.length === 2,
  );
  expect(left).toHaveLength(2);
  expect(encodeHex(laptop.identity.rootSeed)).toBe(encodeHex(phone.identity.rootSeed));
  for (const one of [thief, fourth])
    expect(encodeHex(one.identity.rootSeed)).not.toBe(encodeHex(phone.identity.rootSeed));
}, 60_000);
