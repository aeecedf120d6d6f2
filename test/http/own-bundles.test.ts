/**
 * The key bundles of an identity over real nodes: made, given to other own devices, put at each
 * Cache, announced, renewed, and made anew when they are lost or the keys are replaced.
 */
import { expect, test } from "bun:test";
import { change } from "../../src/client/identity/change.ts";
import { inForce, nextIdentity, publishKeys } from "../../src/client/identity/new-keys.ts";
import { keepBundles } from "../../src/client/identity/own-bundles.ts";
import { alone } from "../../src/client/identity/sharing.ts";
import { ed25519PublicKey, verifySignature } from "../../src/client/keys/crypto.ts";
import { agreementSecrets, rootSignerId } from "../../src/client/keys/keys.ts";
import { changeIdentity, type EditIdentity } from "../../src/client/keys/stored.ts";
import { expandSeed } from "../../src/client/keys/xwing.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { activeDocument } from "../../src/client/trust/client.ts";
import type { Waypost } from "../../src/client/waypost.ts";
import type { JsonValue } from "../../src/core/codec/json.ts";
import { isFault } from "../../src/core/fault.ts";
import { announcesBundle, sealingKeyOf } from "../../src/core/ledger/account.ts";
import { parseBundle, verifyBundle } from "../../src/core/message/bundle.ts";
import { peopleAtNodes, waiting } from "../support/people.ts";
import { devicesAt, until } from "./own-devices.ts";

const day = 86_400_000;
const people = peopleAtNodes();
const { open } = people;
const { place, linked } = devicesAt(people);

/** What anybody gets from the Cache; `null` for nothing that counts for this person. */
async function shown(me: Waypost) {
  const answer = await fetch(`${people.at.url}/cache/keys/${me.did}`);
  if (answer.status !== 200) return null;
  const bundle = parseBundle((await answer.json()) as JsonValue);
  if (isFault(bundle)) throw new Error("the Cache shows what is no bundle");
  const document = await activeDocument(me.client, me.did);
  return (await verifyBundle(bundle, document, verifySignature)) ? bundle : null;
}

const seedOf = async (me: Waypost) => {
  const bundle = await shown(me);
  return bundle === null ? [] : agreementSecrets(me.identity, bundle.keyId);
};

/** As `open` does it, at another time of the nodes. */
const keepAt = (me: Waypost, keys: ReturnType<typeof place>["keys"], nowMs: number) =>
  keepBundles(me.client, me.did, {
    nowMs,
    devices: alone,
    waiting,
    announces: null,
    change: (edit) => changeIdentity(keys, me.identity, edit),
  });

/**
 * The bundle after `first`, of an identity whose keys are five days older than they are: the Cache
 * takes none of the future.
 */
async function renewed(me: Waypost, where: ReturnType<typeof place>, first: string) {
  await me.close();
  await changeIdentity(where.keys, me.identity, (stored) => ({
    ...stored,
    bundleKeys: stored.bundleKeys.map((one) => ({ ...one, madeMs: one.madeMs - 5 * day })),
  }));
  const aged = await open({ ...where, announce: true });
  const second = await until(
    () => shown(aged),
    (bundle) => bundle?.keyId !== first,
  );
  expect(second?.keyId).not.toBe(first);
  return { aged, second: second?.keyId as string };
}

test("a new identity announces bundles in its first document, and has one at once", async () => {
  const me = await open();
  const document = await activeDocument(me.client, me.did);
  expect([announcesBundle(document), document.keyAgreement.map(({ id }) => id)]).toEqual([
    true,
    [`${me.did}#x25519-1`, `${me.did}#bundles`],
  ]);
  // Who knows no bundles seals to the first entry.
  expect(sealingKeyOf(document)?.id).toBe(`${me.did}#x25519-1`);
  const bundle = await shown(me);
  const [seed] = await seedOf(me);
  expect(bundle?.publicKey).toEqual((await expandSeed(seed as Uint8Array)).publicKey);
  expect((bundle?.notAfterMs ?? 0) - (bundle?.issuedAtMs ?? 0)).toBe(7 * day);
  const { proof_bytes: _, ...resolved } = (await (
    await fetch(`${people.at.url}/delivery-resolution/${me.did}?keys=`)
  ).json()) as { proof_bytes?: string; key_bundle?: { key_id: string } };
  expect(resolved.key_bundle?.key_id).toBe(bundle?.keyId as string);
});

test("an identity that was there before announces when it is asked to, after its bundle is there", async () => {
  const where = place();
  const before = await open({ ...where, announce: false });
  expect([
    announcesBundle(await activeDocument(before.client, before.did)),
    await shown(before),
  ]).toEqual([false, null]);
  await before.close();
  const me = await open({ ...where, announce: true });
  const document = await until(
    () => activeDocument(me.client, me.did),
    (one) => announcesBundle(one),
  );
  expect(document.keyAgreement.map(({ type }) => type)).toEqual([
    "X25519KeyAgreementKey2020",
    "SvcKeyBundle2026",
  ]);
  expect((await seedOf(me)).length).toBe(1);
});

test("a document with an agreement of another program announces only what the user wants", async () => {
  const where = place();
  const me = await open({ ...where, announce: false });
  const [own] = me.identity.agreements;
  // Opened without, so that nothing is announced at the same time.
  await changeIdentity(where.keys, me.identity, (stored) => ({ ...stored, agreements: [] }));
  expect(await keepAt(await open({ ...where, announce: false }), where.keys, Date.now())).toBe(
    "none",
  );
  expect(announcesBundle(await activeDocument(me.client, me.did))).toBe(false);
  await changeIdentity(where.keys, me.identity, (stored) => ({
    ...stored,
    agreements: own === undefined ? [] : [own],
  }));
  expect(await keepAt(await open({ ...where, announce: false }), where.keys, Date.now())).toBe(
    "renewed",
  );
  expect(announcesBundle(await activeDocument(me.client, me.did))).toBe(true);
});

test("a key is used for five days, and its seed is kept until nothing sealed to it can be waiting", async () => {
  const where = place();
  const me = await open({ ...where, announce: true });
  const first = await shown(me);
  const madeMs = first?.issuedAtMs ?? 0;
  expect(await keepAt(me, where.keys, madeMs + day - 1)).toBe("kept");
  expect(await keepAt(me, where.keys, madeMs + 5 * day - 1)).toBe("kept");
  const firstId = first?.keyId as string;
  const { aged, second } = await renewed(me, where, firstId);
  expect(aged.identity.bundleKeys.map(({ id }) => id)).toEqual([firstId, second]);
  const endMs = aged.identity.bundleKeys[0]?.destroyAtMs ?? 0;
  expect(endMs).toBeGreaterThan(madeMs + 7 * day);
  await aged.close();
  // None of that time is accepted now, but the seed has gone first.
  await keepAt(aged, where.keys, endMs).catch(() => null);
  const stored = await changeIdentity(where.keys, aged.identity, (one) => one);
  expect(stored.bundleKeys.map(({ id }) => id)).not.toContain(firstId);
});

test("other devices have the seed before anybody seals to it, and one without it asks", async () => {
  const where = place();
  const phone = await open({ ...where, announce: true });
  const laptopAt = place();
  const laptop = await linked(phone, { ...laptopAt, ...{ announce: true } } as typeof laptopAt);
  expect(await seedOf(laptop)).toEqual(await seedOf(phone));
  expect((await seedOf(laptop)).length).toBe(1);
  const events: WaypostEvent[] = [];
  laptop.on((event) => events.push(event));
  await until(
    async () => laptop.devices.sync,
    (sync) => sync !== null,
  );
  // As an older copy of its keys.
  await changeIdentity(laptopAt.keys, laptop.identity, (stored) => ({
    ...stored,
    bundleKeys: [],
  }));
  await laptop.watch();
  const devices = await laptop.devices.others();
  const change = (edit: Parameters<typeof changeIdentity>[2]) =>
    changeIdentity(laptopAt.keys, laptop.identity, edit);
  const keeping = { nowMs: Date.now(), devices, waiting, change, announces: null };
  // It may have asked already.
  expect(["waits", "kept"]).toContain(await keepBundles(laptop.client, laptop.did, keeping));
  await until(
    async () => (await seedOf(laptop)).length,
    (count) => count === 1,
  );
  expect(await seedOf(laptop)).toEqual(await seedOf(phone));
  expect(events.filter(({ type }) => type === "failed")).toEqual([]);
}, 60_000);

test("new keys have a new bundle, and what a removed device knew of the old one opens nothing new", async () => {
  const where = place();
  const me = await open({ ...where, announce: true });
  const before = await shown(me);
  await me.devices.replaceKeys();
  const after = await until(
    () => shown(me),
    (bundle) => bundle !== null && bundle.keyId !== before?.keyId,
  );
  expect(after?.keyId).not.toBe(before?.keyId as string);
  expect(announcesBundle(await activeDocument(me.client, me.did))).toBe(true);
  expect((await seedOf(me)).length).toBe(1);
}, 60_000);

test("a bundle that was signed while the root key was being replaced is signed again under the new document", async () => {
  const where = place();
  const me = await open({ ...where, announce: true });
  const before = await shown(me);
  const next = nextIdentity(me.identity, Date.now());
  await changeIdentity(where.keys, me.identity, () => next);
  const signer = { keyId: rootSignerId, seed: next.rootSeed };
  const newRootPubkey = await ed25519PublicKey(next.nextRootSeed as Uint8Array);
  const rootKey = { action: "UpdateRootPubkey", did: me.did, newRootPubkey } as const;
  await change(me.client, rootKey, { signer, waiting });

  // Interrupted here: the root key is new, and the document has the old method.
  const editing = (edit: EditIdentity) => changeIdentity(where.keys, me.identity, edit);
  const keeping = { nowMs: Date.now(), waiting, change: editing, announces: true };
  await keepBundles(me.client, me.did, keeping);
  const first = await until(
    () => shown(me),
    (bundle) => bundle !== null && bundle.keyId !== before?.keyId,
  );
  const held = await editing((stored) => stored);
  const published = await publishKeys(me.client, held, { waiting });
  await editing((stored) => inForce(stored, published));
  expect(await shown(me)).toBeNull();
  await me.close();

  const again = await open({ ...where, announce: true });
  const second = await until(
    () => shown(again),
    (bundle) => bundle !== null,
  );
  expect([second?.keyId, second?.notAfterMs]).toEqual([first?.keyId, first?.notAfterMs]);
  const friend = await open();
  expect((await friend.send(again.did, "hi")).recipient.trust).toBe("proven");
}, 60_000);

test.each([
  ["refuses", () => new Response(null, { status: 500 })],
  ["is silent", () => new Promise<Response>(() => undefined)],
] as const)(
  "a second Cache that %s delays no bundle at the first",
  async (_, answer) => {
    const where = { ...place(), timeoutMs: 600_000 };
    const me = await open({ ...where, announce: true });
    const first = await shown(me);
    const node = (await (await fetch(`${people.at.url}/node`)).json()) as JsonValue;
    // It has known what bundles are.
    const other = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      fetch: ({ url }) => (new URL(url).pathname === "/node" ? Response.json(node) : answer()),
    });
    const service = {
      id: `${me.did}#cache-2`,
      type: "SvcCacheService",
      serviceEndpoint: [other.url.origin],
      authorization: [`${me.did}#root`],
      priority: 1,
    };
    const signer = { keyId: rootSignerId, seed: me.identity.rootSeed };
    await change(me.client, { action: "AddService", did: me.did, service }, { signer, waiting });
    await renewed(me, where, first?.keyId as string);
    await other.stop(true);
  },
  90_000,
);
