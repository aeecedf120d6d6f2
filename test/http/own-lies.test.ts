/**
 * A Directory that lies while an identity is made, linked, removed from and restored: in `/limits`,
 * in delivery resolutions, proofs and records. Each step ends as it should or says why not, and of
 * all that leaves this process a Directory can open nothing. Once it is honest, everything works.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { restore } from "../../src/client/identity/backup.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { memoryStore } from "../../src/client/store/driver.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { isSelfCertifying } from "../../src/core/ledger/names.ts";
import { type Lie, type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { type Envelope, liesOf, type OwnLie, openedBy, ownLies } from "../support/own-lies.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { until } from "./own-devices.ts";

const people = peopleAtNodes();
const { open, keep } = people;

// ------------------------------------------------------------------------------------- what leaves

let sent: Envelope[] = [];
const honestFetch = globalThis.fetch;
beforeEach(() => {
  sent = [];
  globalThis.fetch = Object.assign(
    async (...given: Parameters<typeof fetch>) => {
      const [url, { method = "GET", body = null } = {}] = given;
      if (method === "POST" && String(url).includes("/relay/"))
        sent.push(JSON.parse(await new Response(body).text()));
      return honestFetch(...given);
    },
    { preconnect: honestFetch.preconnect },
  );
});
afterEach(() => {
  globalThis.fetch = honestFetch;
});

/** How many envelopes the liar can open, to whomever they are addressed. */
async function opened(): Promise<number> {
  const tries = sent.map((envelope) => openedBy(eve, envelope));
  return (await Promise.all(tries)).filter((content) => content !== null).length;
}

// ---------------------------------------------------------------------------------------- the liar

let eve: Waypost;
let lies: Readonly<Record<OwnLie, Lie>>;
const proxies: LyingDirectory[] = [];
beforeAll(async () => {
  eve = await open();
  lies = await liesOf(people.at.url, eve);
}, 60_000);
afterAll(() => Promise.all(proxies.map((proxy) => proxy.stop())));

function liar(name: OwnLie): { readonly proxy: LyingDirectory; readonly lie: () => void } {
  const proxy = lyingDirectory(people.at.url);
  proxies.push(proxy);
  return {
    proxy,
    lie: () => {
      proxy.lie = lies[name];
    },
  };
}

const at = (proxy: LyingDirectory, keys = memoryKeys(), store = memoryStore()) => ({
  ...{ directoryUrl: proxy.url, relayUrl: people.at.url, cacheUrl: people.at.url },
  ...({ keys, store, waiting, retries: 0, rotateMs: false } as const),
});

/**
 * What a step ended with: `done`, or a code; `waits` for one that goes on when the Directory is
 * honest.
 */
async function ended(work: Promise<unknown>): Promise<string> {
  const step = work.then(
    () => "done",
    (error: unknown) => {
      if (error instanceof ClientError) return error.code;
      throw error;
    },
  );
  step.catch(() => undefined);
  return Promise.race([step, Bun.sleep(patienceMs).then(() => "waits")]);
}

const patienceMs = 1_500;

async function works(me: Waypost): Promise<void> {
  const friend = await open({ store: memoryStore() });
  await me.store.savePerson(friend.did, { isKnown: true });
  await (await me.send(friend.did, "still me")).delivered;
  const messages = await until(
    () => friend.store.messages(me.did),
    (all) => all.length === 1,
  );
  expect(messages.map(({ text, verified }) => [text, verified])).toEqual([["still me", true]]);
}

/** Named so that a DID of another form, or an error that is none of these, is found. */
const explained = [
  "done",
  "waits",
  "proof_missing",
  "proof_invalid",
  "other_ledger",
  "identity_changed",
  "record_went_back",
  "timed_out",
  "did_taken",
  "invalid_did",
  "unreadable",
  "change_pending",
  "key_bundle_missing",
];

/** Under every lie at once, each told to people of its own. */
const underEach = (work: (name: OwnLie) => Promise<void>) => async () => {
  await Promise.all(ownLies.map(work));
  expect(await opened()).toBe(0);
};

describe("under each lie", () => {
  test(
    "an identity is made that proves its keys, or none",
    underEach(async (name) => {
      const { proxy, lie } = liar(name);
      lie();
      const keys = memoryKeys();
      const store = memoryStore();
      const made = Waypost.open(at(proxy, keys, store)).then((me) => me.close());
      expect(explained).toContain(await ended(made));
      proxy.lie = {};
      await made.catch(() => undefined);
      // An identity of the ledger that it was told of can't be registered anywhere: it takes
      // another name.
      const isElsewhere = name === "limits of another ledger";
      const me = await keep(
        Waypost.open({ ...at(proxy, keys, store), name: isElsewhere ? "b" : "default" }),
      );
      expect(isSelfCertifying(me.did)).toBe(true);
      await works(me);
    }),
    60_000,
  );

  test(
    "a new device that asks it is linked, or gives its code to nobody",
    underEach(async (name) => {
      const { proxy, lie } = liar(name);
      const [phone, bob] = await Promise.all([open({ store: memoryStore() }), open()]);
      await (await phone.send(bob.did, "private words")).delivered;
      lie();
      const where = at(proxy);
      const link = async () => {
        const linking = await Waypost.link(where);
        await phone.devices.acceptLink(linking.code, "laptop").catch(async (error: unknown) => {
          await linking.cancel();
          throw error;
        });
        await keep(linking.opened);
      };
      const step = link();
      expect(explained).toContain(await ended(step));
      proxy.lie = {};
      await step.catch(() => undefined);
      await works(phone);
    }),
    60_000,
  );

  test(
    "the device that accepts, and asks it, gives the keys to the new device alone",
    underEach(async (name) => {
      const { proxy, lie } = liar(name);
      const phone = await keep(Waypost.open(at(proxy)));
      const bob = await open();
      await (await phone.send(bob.did, "private words")).delivered;
      const linking = await Waypost.link({ ...at(proxy), directoryUrl: people.at.url });
      linking.opened.then(
        (me) => keep(Promise.resolve(me)),
        () => undefined,
      );
      lie();
      expect(explained).toContain(await ended(phone.devices.acceptLink(linking.code, "laptop")));
      proxy.lie = {};
      await works(phone);
      await linking.cancel();
    }),
    60_000,
  );

  test(
    "a removal gives the new keys to those that stay alone",
    underEach(async (name) => {
      const { proxy, lie } = liar(name);
      const phone = await keep(Waypost.open(at(proxy)));
      const linked = async () => {
        const linking = await Waypost.link({ ...at(proxy), directoryUrl: people.at.url });
        await phone.devices.acceptLink(linking.code, "other");
        return keep(linking.opened);
      };
      const [tablet, thief] = [await linked(), await linked()];
      const didOf = async (me: Waypost) =>
        (await me.devices.list()).find(({ isThis }) => isThis)?.did as string;
      const gone = await didOf(thief);
      lie();
      const removed = phone.devices.remove(gone);
      expect(explained).toContain(await ended(removed));
      proxy.lie = {};
      await removed.catch(() => phone.devices.remove(gone));
      const left = await until(
        () => tablet.devices.list(),
        (all) =>
          all.length === 2 && Bun.deepEquals(tablet.identity.rootSeed, phone.identity.rootSeed),
      );
      expect(left.length).toBe(2);
      expect(tablet.identity.rootSeed).toEqual(phone.identity.rootSeed);
      expect(thief.identity.rootSeed).not.toEqual(phone.identity.rootSeed);
    }),
    90_000,
  );

  test(
    "a restoration replaces the keys, or says why not",
    underEach(async (name) => {
      const { proxy, lie } = liar(name);
      const phone = await open({ store: memoryStore() });
      const saved = await new Response(await phone.backup({ passphrase: "p" })).bytes();
      await phone.close();
      lie();
      const [keys, store] = [memoryKeys(), memoryStore()];
      const options = {
        passphrase: "p",
        keys,
        store,
        areOthersLost: true,
        directoryUrl: proxy.url,
      };
      const restoring = (given: typeof options) => restore(new Blob([saved]).stream(), given);
      const step = restoring(options);
      expect(explained).toContain(await ended(step));
      proxy.lie = {};
      await step.catch(() => undefined);
      const again = { ...options, keys: memoryKeys(), store: memoryStore() };
      const isLeft = (await keys.load("default")) === null;
      if (isLeft) expect((await restoring(again)).isHistoryOnly).toBe(false);
      const me = await keep(
        Waypost.open(at(proxy, isLeft ? again.keys : keys, isLeft ? again.store : store)),
      );
      expect(me.did).toBe(phone.did);
    }),
    60_000,
  );
});

test("what is sent to a random DID whose key the Directory made up is opened: the check can fail", async () => {
  const { proxy, lie } = liar("its own key to seal to");
  const { proxy: plain } = liar("limits without self-certifying DIDs");
  plain.lie = lies["limits without self-certifying DIDs"];
  const random = await keep(Waypost.open({ ...at(plain), allowRandom: true }));
  const me = await keep(Waypost.open(at(proxy)));
  lie();
  await (await me.send(random.did, "believed")).delivered;
  expect(await opened()).toBeGreaterThan(0);
}, 60_000);
