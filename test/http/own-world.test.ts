/**
 * What servers and thieves try with an identity's own world: its first DID, the devices that it
 * links, and what is left of a thief when keys are replaced.
 */
import { expect, test } from "bun:test";
import type { ClientError } from "../../src/client/base/failure.ts";
import { awaitFacts } from "../../src/client/devices/facts.ts";
import { change } from "../../src/client/identity/change.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { createIdentity, freshSeed } from "../../src/client/keys/keys.ts";
import { Table } from "../../src/client/store/table.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { encodeHex, renderPublicKey } from "../../src/core/codec/bytes.ts";
import { isSelfCertifying } from "../../src/core/ledger/names.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { peopleAtNodes, waiting, waitingCount } from "../support/people.ts";
import { devicesAt, textsOf, until } from "./own-devices.ts";

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

test("before keys are replaced the user sees what would go, with who added it, and ticks what stays", async () => {
  const phone = await open(place());
  const thief = await linked(phone);
  const { client, did } = thief;
  const signer = { keyId: "root", seed: thief.identity.rootSeed };
  const add = async (by: Waypost, name: string) => {
    const id = `${did}#${name}`;
    const publicKeyMultibase = renderPublicKey(await ed25519PublicKey(freshSeed()));
    const verificationMethod = { id, type: "Multikey", controller: did, publicKeyMultibase };
    const intent = { action: "AddVerificationMethod", did, verificationMethod } as const;
    await change(by.client, intent, { signer, waiting });
    return id;
  };
  const [evil, liked] = [await add(thief, "evil"), await add(thief, "liked")];
  const own = await add(phone, "own");
  const url = "https://evil.example";
  const service = {
    ...{ id: `${did}#evil-cache`, type: "SvcCacheService", serviceEndpoint: [url] },
    ...{ authorization: null, priority: null },
  };
  await change(client, { action: "AddService", did, service }, { signer, waiting });
  const { devices, methods, agreements, services } = await phone.devices.replacement();
  const [self] = await phone.devices.list();
  expect(devices).toMatchObject([{ name: "second", isThis: false, addedBy: self?.did ?? "" }]);
  expect(devices[0]?.addedAt).toBeInstanceOf(Date);
  expect(methods.map(({ id, stays }) => [id, stays])).toEqual([
    [evil, false],
    [liked, false],
    [own, true],
  ]);
  expect(agreements).toEqual([]);
  const strange = services.filter(({ stays }) => !stays);
  expect(strange).toMatchObject([{ id: service.id, endpoints: [url] }]);
  expect(services.length).toBeGreaterThan(1);
  await phone.devices.replaceKeys({ keep: [], methods: [liked] });
  const after = await activeDocument(phone.client, did);
  const ids = after.verificationMethod.map(({ id }) => id);
  expect([evil, liked, own].map((id) => ids.includes(id))).toEqual([false, true, false]);
  expect(after.service.map(({ id }) => id)).not.toContain(service.id);
  // What was ticked is the user's own from then on.
  expect((await phone.devices.replacement()).methods).toMatchObject([{ id: liked, stays: true }]);
}, 60_000);

test("new keys whose document was not published go on at the next start, with what the user had ticked", async () => {
  const proxy = lyingDirectory(people.at.url);
  const { url: _, ...stores } = place();
  const where = { ...stores, ...otherUrls(), directoryUrl: proxy.url };
  const phone = await open(where);
  const { did } = phone;
  const add = async (name: string) => {
    const publicKeyMultibase = renderPublicKey(await ed25519PublicKey(freshSeed()));
    const id = `${did}#${name}`;
    const verificationMethod = { id, type: "Multikey", controller: did, publicKeyMultibase };
    const signer = { keyId: "root", seed: phone.identity.rootSeed };
    const intent = { action: "AddVerificationMethod", did, verificationMethod } as const;
    await change(phone.client, intent, { signer, waiting });
    return id;
  };
  const [ticked, other] = [await add("ticked"), await add("other")];
  const before = await activeDocument(phone.client, did);
  proxy.lie = { refuses: `/dids/${did}/document/proof` };
  expect(await codeOf(phone.devices.replaceKeys({ methods: [ticked] }))).toBe("chain_unavailable");
  await phone.close();
  const keyNow = async () => (await activeDocument(phone.client, did)).verificationMethod[0];
  expect(await keyNow()).toEqual(before.verificationMethod[0]);
  proxy.lie = {};
  const again = await open(where);
  const key = before.verificationMethod[0]?.publicKeyMultibase;
  await until(keyNow, (now) => now?.publicKeyMultibase !== key);
  const after = await activeDocument(again.client, did);
  const ids = after.verificationMethod.map(({ id }) => id);
  expect([ticked, other].map((id) => ids.includes(id))).toEqual([true, false]);
  expect(JSON.stringify(after)).not.toContain(key);
  await until(
    async () => again.identity.nextRootSeed,
    (seed) => seed === null,
  );
  await proxy.stop();
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
  await phone.devices.replaceKeys({ keep: [], services: [cache.id, liked] });
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

/**
 * A Relay that passes the first envelope to each recipient on, and keeps back the others while it
 * `holds`.
 */
function holdingRelay(real: string) {
  const passed = new Set<string>();
  const relay = { url: "", holds: true, held: 0, stop: async () => undefined as unknown };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      const body = method === "GET" ? null : await request.bytes();
      const { to = "" } = body === null ? {} : JSON.parse(new TextDecoder().decode(body));
      const isHeld = relay.holds && to !== "" && passed.has(to);
      passed.add(to);
      if (isHeld) relay.held++;
      if (isHeld) return Response.json({ code: "service_unavailable" }, { status: 503 });
      return fetch(`${real}${pathname}${search}`, { method, headers, body });
    },
  });
  relay.url = `http://127.0.0.1:${server.port}`;
  relay.stop = () => server.stop(true);
  return relay;
}

test("a new device files nothing before it knows people, blocks and groups, and shows whose it is", async () => {
  const [alice, mallory, where] = [await open(place()), await open(place()), place()];
  const before = await open(where);
  for (const one of [alice, mallory]) await before.store.savePerson(one.did, { isKnown: true });
  const group = await alice.groups.create("Hiking", [before.did]);
  await until(
    () => before.groups.list(),
    (all) => all.length === 1,
  );
  await before.store.savePerson(mallory.did, { isBlocked: true });
  // It has a DID of its own from then on.
  await (await before.backup({ passphrase: "p" })).cancel();
  await before.close();
  const relay = holdingRelay(people.at.url);
  try {
    const urls = { directoryUrl: people.at.url, cacheUrl: people.at.url, relayUrl: relay.url };
    const { url: _, ...rest } = where;
    const phone = await keep(Waypost.open({ ...rest, ...urls, pollMs: 50 }));
    const linking = await Waypost.link(place());
    await phone.devices.acceptLink(linking.code, "tablet");
    const tablet = await keep(linking.opened);
    expect(await tablet.ownFingerprint()).toBe(await phone.ownFingerprint());
    await until(
      async () => relay.held,
      (held) => held > 0,
    );
    // This device is away, and that one does not have its history.
    await phone.close();
    await Promise.all((await group.send("Where to?")).map(({ delivered }) => delivered));
    await (await mallory.send(tablet.did, "read me")).delivered;
    const look = tablet.receiveWaiting();
    expect(await Promise.race([look, Bun.sleep(300).then(() => "waits")])).toBe("waits");
    expect(await tablet.devices.isWaiting()).toBe(true);
    expect(await tablet.store.conversations()).toEqual([]);
    expect(await waitingCount(tablet)).toBe(2);

    relay.holds = false;
    const again = await keep(Waypost.open({ ...rest, ...urls, pollMs: 50 }));
    await look;
    expect(await tablet.devices.isWaiting()).toBe(false);
    const shown = await until(
      () => textsOf(tablet, group.id),
      (texts) => texts.includes("Where to?"),
    );
    expect(shown).toContain("Where to?");
    expect(await textsOf(tablet, alice.did)).toEqual([]);
    expect(await textsOf(tablet, mallory.did)).toEqual([]);
    await again.close();
  } finally {
    await relay.stop();
  }
}, 60_000);

test("after ten minutes without the history, a new device says so, and the user may go on", async () => {
  const [alice, phone] = [await open(place()), await open(place())];
  await phone.store.savePerson(alice.did, { isKnown: true });
  const where = place();
  const tablet = await linked(phone, where);
  await tablet.close();
  await phone.close();
  // As if the other device had been lost before it gave the history.
  const table = await Table.open(where.store, tablet.identity.storeKey);
  await table.change(async (batch) => awaitFacts(batch, Date.now()));
  const codes: string[] = [];
  const later = await keep(
    Waypost.open({
      ...where,
      nowMs: () => Date.now() + 11 * 60_000,
      onEvent: (event) => event.type === "failed" && codes.push(event.error.code),
    }),
  );
  await until(
    async () => codes,
    (all) => all.includes("history_missing"),
  );
  await (await alice.send(later.did, "hello")).delivered;
  expect(await later.store.conversations()).toEqual([]);
  await later.devices.goOn();
  await until(
    () => textsOf(later, alice.did),
    (texts) => texts.length === 1,
  );
  expect(await textsOf(later, alice.did)).toEqual(["hello"]);
}, 60_000);
