/**
 * A replacement of all keys that the network interrupts anywhere: the next start ends it, with what
 * the user has ticked. Until then who has the former keys reads and signs.
 */
import { expect, test } from "bun:test";
import { restore } from "../../src/client/identity/backup.ts";
import { change } from "../../src/client/identity/change.ts";
import { restoreFromGuardians } from "../../src/client/identity/guardians.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { freshSeed } from "../../src/client/keys/keys.ts";
import { shareType } from "../../src/client/mail/content.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { activeDocument, connect } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { leavingDirectory } from "./leaving-directory.ts";
import { devicesAt, until } from "./own-devices.ts";

const people = peopleAtNodes();
const { at, open, keep } = people;
const { place, linked } = devicesAt(people);
const passphrase = "a long passphrase";

const failing = (work: Promise<unknown>) =>
  work.then(
    () => "done",
    () => "interrupted",
  );

/** What a thief of the keys has added, and what the user will tick. */
async function withServices({ did, client, identity }: Waypost): Promise<readonly string[]> {
  const signer = { keyId: "root", seed: identity.rootSeed };
  const ids: string[] = [];
  // By another program: this one remembers the hosts of neither.
  const elsewhere = connect({ directoryUrl: at.url, relayUrl: at.url });
  elsewhere.known.ledger = client.known.ledger;
  for (const name of ["evil", "liked"]) {
    const service = {
      ...{ id: `${did}#${name}`, type: "SvcInboxService", authorization: null, priority: null },
      serviceEndpoint: [`https://${name}.example`],
    };
    await change(elsewhere, { action: "AddService", did, service }, { signer, waiting });
    ids.push(service.id);
  }
  return ids;
}

type Place = Partial<WaypostOptions> & Pick<WaypostOptions, "keys">;
type Given = {
  readonly liked: string;
  readonly directoryUrl: string;
  readonly shares: readonly string[];
};
/** How the replacement ended, and where the identity is opened again. */
type Way = (
  owner: Waypost,
  where: Place,
  given: Given,
) => Promise<{ readonly ended: string; readonly again: Place }>;

const directly = (directoryUrl: string) => ({
  directoryUrl,
  relayUrl: at.url,
  cacheUrl: at.url,
});

/** Opened again over a Directory that goes away. */
async function overLeaving({ url: _, ...where }: Place, directoryUrl: string): Promise<Waypost> {
  return keep(Waypost.open({ ...where, ...directly(directoryUrl) }));
}

const replaced: Way = async (owner, where, { liked, directoryUrl }) => {
  await owner.close();
  const me = await overLeaving(where, directoryUrl);
  const ended = await failing(me.devices.replaceKeys({ services: [liked] }));
  await me.close();
  return { ended, again: where };
};

const besideAnother: Way = async (owner, where, given) => {
  await linked(owner);
  return replaced(owner, where, given);
};

const restored =
  (store: () => Partial<WaypostOptions>): Way =>
  async (owner, _, { liked, directoryUrl }) => {
    const file = await new Response(await owner.backup({ passphrase })).bytes();
    await owner.close();
    const again = { url: at.url, keys: memoryKeys(), waiting, ...store() };
    const restoring = restore(new Response(file).body as ReadableStream<Uint8Array>, {
      ...{ passphrase, ...again, areOthersLost: true },
      ...directly(directoryUrl),
      choose: async () => ({ services: [liked] }),
    });
    return { ended: await failing(restoring), again };
  };

/** Shares of two guardians. */
async function appointed(owner: Waypost): Promise<readonly string[]> {
  const guardians = await Promise.all([open(place()), open(place()), open(place())]);
  for (const { did } of guardians) await owner.store.savePerson(did, { isKnown: true });
  for (const one of guardians) await one.store.savePerson(owner.did, { isKnown: true });
  const choices = guardians.map(async ({ did: to }) => {
    const { is } = await owner.fingerprint(to);
    return { to, fingerprint: is };
  });
  await owner.appointGuardians(await Promise.all(choices));
  const shareOf = async ({ store }: Waypost): Promise<string | null> => {
    const found = (await store.messages(owner.did)).find((one) =>
      one.mediaType.startsWith(shareType),
    );
    return found === undefined ? null : (await store.file(found)).text();
  };
  const shares: string[] = [];
  for (const one of guardians.slice(0, 2))
    shares.push(
      (await until(
        () => shareOf(one),
        (text) => text !== null,
      )) ?? "",
    );
  return shares;
}

const byGuardians: Way = async (owner, _, { liked, directoryUrl, shares }) => {
  await owner.close();
  const again = { url: at.url, keys: memoryKeys(), waiting };
  const choose = async () => ({ services: [liked] });
  const restoring = restoreFromGuardians({
    ...{ shares, keys: again.keys, choose },
    ...directly(directoryUrl),
  });
  return { ended: await failing(restoring), again: { ...again, store: place().store } };
};

const ways: Readonly<Record<string, Way>> = {
  "of an only device": replaced,
  "beside another device": besideAnother,
  "of a backup whose devices are lost": restored(() => ({ store: place().store })),
  "of a backup without a store": restored(() => ({})),
  "by guardians": byGuardians,
};

const cases = Object.keys(ways).flatMap((name) =>
  ["before the root key", "before the document"].map(
    (when, writes) => [name, when, writes] as const,
  ),
);

test.each(cases)(
  "a replacement %s that is interrupted %s ends at the next start, with what was ticked",
  async (name, _, writes) => {
    const where = place();
    const owner = await open(where);
    // It replaces the keys, too.
    const shares = name === "by guardians" ? await appointed(owner) : [];
    const [evil = "", liked = ""] = await withServices(owner);
    const key = (await activeDocument(owner.client, owner.did)).verificationMethod[0];
    const directory = leavingDirectory(at, writes);
    try {
      const given = { liked, directoryUrl: directory.url, shares };
      const { ended, again } = await (ways[name] as Way)(owner, where, given);
      expect(ended).toBe("interrupted");
      const events: WaypostEvent[] = [];
      const me = await open({ ...again, onEvent: (event) => events.push(event) });
      const document = await until(
        () => activeDocument(connect({ directoryUrl: at.url, relayUrl: at.url }), owner.did),
        (shown) => shown.verificationMethod[0]?.publicKeyMultibase !== key?.publicKeyMultibase,
      );
      expect(JSON.stringify(document)).not.toContain(key?.publicKeyMultibase ?? "");
      const services = document.service.map(({ id }) => id);
      expect([evil, liked].map((id) => services.includes(id))).toEqual([false, true]);
      // It signs, and others seal to it, with the new keys.
      const friend = await open();
      await (await me.send(friend.did, "found again")).delivered;
      await until(
        async () => me.identity.nextRootSeed,
        (seed) => seed === null,
      );
      expect(me.identity.nextRootSeed).toBeNull();
      expect(events.filter(({ type }) => type === "failed")).toEqual([]);
    } finally {
      await directory.stop();
    }
  },
  60_000,
);

test("a replacement that another one has overtaken meanwhile is said to the user", async () => {
  const where = place();
  const owner = await open(where);
  const thief = owner.identity.rootSeed.slice();
  const directory = leavingDirectory(at, 0);
  const given = { liked: "", directoryUrl: directory.url, shares: [] };
  const { ended } = await replaced(owner, where, given).finally(() => directory.stop());
  expect(ended).toBe("interrupted");
  const elsewhere = connect({ directoryUrl: at.url, relayUrl: at.url });
  elsewhere.known.ledger = owner.client.known.ledger;
  const newRootPubkey = await ed25519PublicKey(freshSeed());
  await change(
    elsewhere,
    { action: "UpdateRootPubkey", did: owner.did, newRootPubkey },
    { signer: { keyId: "root", seed: thief }, waiting },
  );
  const failed: string[] = [];
  const onEvent = (event: WaypostEvent) => {
    if (event.type === "failed") failed.push(`${event.what} ${event.error.code}`);
  };
  await open({ ...where, onEvent });
  await until(
    async () => failed,
    (all) => all.includes("devices root_replaced"),
  );
  expect(failed).toContain("devices root_replaced");
}, 60_000);

type Component = { readonly publicKey: string; readonly url: string };

/**
 * Keys and addresses under one id of each kind: as the user has them, and as a thief of the keys
 * puts them.
 */
async function underIds(owner: Waypost) {
  const { did } = owner;
  const [work, mine] = [`${did}#work`, `${did}#mine`];
  const freshKey = async () => renderPublicKey(await ed25519PublicKey(freshSeed()));
  const own = { publicKey: await freshKey(), url: "https://work.example" };
  const evil = { publicKey: await freshKey(), url: "https://evil.example" };
  const by = ({ client, identity }: Waypost, intent: Intent) =>
    change(client, intent, { signer: { keyId: "root", seed: identity.rootSeed }, waiting });
  const method = (publicKeyMultibase: string) => ({
    ...{ id: work, type: "Multikey", controller: did, publicKeyMultibase },
  });
  const service = (url: string) => ({
    ...{ id: mine, type: "SvcCacheService", serviceEndpoint: [url] },
    ...{ authorization: null, priority: null },
  });
  const putKey = async (me: Waypost, { publicKey }: Component) => {
    const verificationMethod = method(publicKey);
    await by(me, { action: "AddVerificationMethod", did, verificationMethod });
    await by(me, { action: "AddAuthentication", did, id: work });
  };
  await putKey(owner, own);
  // By another program: this one remembers the hosts of neither.
  const elsewhere = connect({ directoryUrl: at.url, relayUrl: at.url });
  elsewhere.known.ledger = owner.client.known.ledger;
  const signer = { keyId: "root", seed: owner.identity.rootSeed };
  const intent = { action: "AddService", did, service: service(own.url) } as const;
  await change(elsewhere, intent, { signer, waiting });
  const steal = async (thief: Waypost) => {
    await by(thief, { action: "UpdateService", did, service: service(evil.url) });
    await by(thief, { action: "RemoveAuthentication", did, id: work });
    await by(thief, { action: "RemoveVerificationMethod", did, id: work });
    await putKey(thief, evil);
  };
  const found = async (): Promise<readonly boolean[]> => {
    const now = connect({ directoryUrl: at.url, relayUrl: at.url });
    const text = JSON.stringify(await activeDocument(now, did));
    return [own, evil].flatMap(({ publicKey, url }) =>
      [publicKey, url].map((one) => text.includes(one)),
    );
  };
  return { work, mine, steal, found };
}

const nothingOfEither = [false, false, false, false];

test("a removal whose device is lost between the root key and the document is ended by another one", async () => {
  const where = place();
  const phone = await open(where);
  const [tablet, thief] = [await linked(phone), await linked(phone)];
  const devicesOf = (me: Waypost) => me.devices.list();
  const isThis = ({ isThis }: { readonly isThis: boolean }) => isThis;
  await until(
    () => devicesOf(tablet),
    (all) => all.length === 3,
  );
  const [thiefDid, seed] = [
    (await devicesOf(thief)).find(isThis)?.did ?? "",
    thief.identity.rootSeed,
  ];
  await phone.close();
  const directory = leavingDirectory(at, 1);
  const away = await overLeaving(where, directory.url);
  await devicesOf(away);
  expect(await failing(away.devices.remove(thiefDid))).toBe("interrupted");
  await away.close();
  await directory.stop();
  await tablet.devices.remove(thiefDid);
  const document = await activeDocument(
    connect({ directoryUrl: at.url, relayUrl: at.url }),
    phone.did,
  );
  const former = renderPublicKey(await ed25519PublicKey(seed));
  expect(document.verificationMethod.map((one) => one.publicKeyMultibase)).not.toContain(former);
  expect(thief.identity.rootSeed).not.toEqual(tablet.identity.rootSeed);
  expect((await devicesOf(tablet)).map(({ did }) => did)).not.toContain(thiefDid);
}, 60_000);

test("a removal that another device has not ended is not done for one that can't ask the Directory", async () => {
  const [where, beside] = [place(), place()];
  const phone = await open(where);
  const [tablet, thief] = [await linked(phone, beside), await linked(phone)];
  await until(
    () => tablet.devices.list(),
    (all) => all.length === 3,
  );
  const thiefDid = (await thief.devices.list()).find(({ isThis }) => isThis)?.did ?? "";
  const former = renderPublicKey(await ed25519PublicKey(thief.identity.rootSeed));
  await phone.close();
  await tablet.close();
  const [leaving, reached] = [leavingDirectory(at, 1), leavingDirectory(at, Infinity)];
  try {
    const away = await overLeaving(where, leaving.url);
    await away.devices.list();
    expect(await failing(away.devices.remove(thiefDid))).toBe("interrupted");
    await away.close();
    const again = await overLeaving(beside, reached.url);
    await until(
      () => again.devices.list(),
      (all) => all.length === 2,
    );
    reached.leave();
    expect(await failing(again.devices.remove(thiefDid))).toBe("interrupted");
    reached.comeBack();
    await again.devices.remove(thiefDid);
    const { verificationMethod } = await activeDocument(again.client, again.did);
    expect(verificationMethod.map((one) => one.publicKeyMultibase)).not.toContain(former);
  } finally {
    for (const directory of [leaving, reached]) await directory.stop();
  }
}, 60_000);

test("what a thief's device puts under a ticked id between showing and new keys does not stay", async () => {
  const owner = await open(place());
  const { work, mine, steal, found } = await underIds(owner);
  const thief = await linked(owner);
  const { methods, services } = await owner.devices.replacement();
  expect([...methods, ...services].map(({ id }) => id)).toEqual(
    expect.arrayContaining([work, mine]),
  );
  await steal(thief);
  expect(await found()).toEqual([false, false, true, true]);
  await owner.devices.replaceKeys({ keep: [], methods: [work], services: [mine] });
  expect(await found()).toEqual(nothingOfEither);
  // Nor is it remembered as this identity's own.
  const after = await owner.devices.replacement();
  expect([...after.methods, ...after.services].map(({ id }) => id)).not.toContain(mine);
}, 60_000);

test("what a thief's device puts under a ticked id while new keys are interrupted does not stay", async () => {
  const where = place();
  const owner = await open(where);
  const { work, mine, steal, found } = await underIds(owner);
  const thief = await linked(owner);
  await owner.close();
  const directory = leavingDirectory(at, 0);
  try {
    const me = await overLeaving(where, directory.url);
    await me.devices.replacement();
    const ticked = { keep: [], methods: [work], services: [mine] };
    expect(await failing(me.devices.replaceKeys(ticked))).toBe("interrupted");
    await me.close();
    await steal(thief);
    const again = await open(where);
    await until(
      async () => again.identity.nextRootSeed,
      (seed) => seed === null,
    );
    await until(
      () => again.devices.list(),
      (all) => all.length === 1,
    );
    expect(await found()).toEqual(nothingOfEither);
  } finally {
    await directory.stop();
  }
}, 60_000);

test("what the user has un-ticked goes although nothing could be stored when the keys were to be made", async () => {
  const where = place();
  const owner = await open(where);
  const { did, client } = owner;
  const id = `${did}#old`;
  const publicKeyMultibase = renderPublicKey(await ed25519PublicKey(freshSeed()));
  const verificationMethod = { id, type: "Multikey", controller: did, publicKeyMultibase };
  // By this identity itself: it stays unless it is un-ticked.
  await change(
    client,
    { action: "AddVerificationMethod", did, verificationMethod },
    { signer: { keyId: "root", seed: owner.identity.rootSeed }, waiting },
  );
  await linked(owner);
  expect((await owner.devices.replacement()).methods).toMatchObject([{ id, stays: true }]);
  const { memory } = client.known;
  client.known.memory = {
    load: (key) => memory.load(key),
    save: async (key, text) => {
      if (key === "replacing") throw new Error("no space left on the device");
      return memory.save(key, text);
    },
  };
  expect(await failing(owner.devices.replaceKeys({ keep: [], methods: [] }))).toBe("interrupted");
  await owner.close();
  const again = await open(where);
  await until(
    () => again.devices.list(),
    (all) => all.length === 1,
  );
  const document = await activeDocument(connect({ directoryUrl: at.url, relayUrl: at.url }), did);
  expect(document.verificationMethod.map((one) => one.id)).not.toContain(id);
}, 60_000);

test("what the user ticks last counts, also of a replacement that was interrupted before", async () => {
  for (const hasOthers of [false, true]) {
    const where = place();
    const owner = await open(where);
    const [evil = "", liked = ""] = await withServices(owner);
    if (hasOthers) await linked(owner);
    await owner.close();
    const directory = leavingDirectory(at, 0);
    const away = await overLeaving(where, directory.url);
    expect(await failing(away.devices.replaceKeys({ services: [evil, liked] }))).toBe(
      "interrupted",
    );
    await away.close();
    await directory.stop();
    const stopped = leavingDirectory(at, 0);
    const me = await overLeaving(where, stopped.url);
    expect(await failing(me.devices.replaceKeys({ services: [liked] }))).toBe("interrupted");
    await me.close();
    await stopped.stop();
    const again = await open(where);
    const ids = async () => {
      const document = await activeDocument(again.client, again.did);
      return document.service.map(({ id }) => id);
    };
    expect(await until(ids, (all) => !all.includes(evil))).toContain(liked);
    await again.devices.replaceKeys({ services: [] });
    expect(await ids()).not.toContain(evil);
  }
}, 60_000);

test("a key that the user has un-ticked or taken out does not stay when a thief's device puts it there again", async () => {
  const owner = await open(place());
  const { did } = owner;
  const by = (me: Waypost, intent: Intent) =>
    change(me.client, intent, {
      signer: { keyId: "root", seed: me.identity.rootSeed },
      waiting,
    });
  const keyOf = async (name: string) => {
    const publicKeyMultibase = renderPublicKey(await ed25519PublicKey(freshSeed()));
    return { id: `${did}#${name}`, type: "Multikey", controller: did, publicKeyMultibase };
  };
  const [unticked, removed] = [await keyOf("unticked"), await keyOf("removed")];
  for (const verificationMethod of [unticked, removed])
    await by(owner, { action: "AddVerificationMethod", did, verificationMethod });
  await by(owner, { action: "RemoveVerificationMethod", did, id: removed.id });
  await owner.devices.replaceKeys({ methods: [] });
  const thief = await linked(owner);
  for (const verificationMethod of [unticked, removed])
    await by(thief, { action: "AddVerificationMethod", did, verificationMethod });
  const [gone] = (await owner.devices.list()).filter(({ isThis }) => !isThis);
  await owner.devices.remove(gone?.did ?? "");
  const document = await activeDocument(connect({ directoryUrl: at.url, relayUrl: at.url }), did);
  expect(document.verificationMethod.map(({ id }) => id)).toEqual([`${did}#root`]);
}, 60_000);

test("what was ticked once does not stay when a device is removed later", async () => {
  const owner = await open(place());
  const { work, mine, steal, found } = await underIds(owner);
  await owner.devices.replacement();
  await owner.devices.replaceKeys({ methods: [work], services: [mine] });
  expect(await found()).toEqual([true, true, false, false]);
  const thief = await linked(owner);
  await steal(thief);
  const [gone] = (await owner.devices.list()).filter(({ isThis }) => !isThis);
  await owner.devices.remove(gone?.did ?? "");
  expect(await found()).toEqual(nothingOfEither);
}, 60_000);
