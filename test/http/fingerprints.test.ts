/**
 * Fingerprints before a Directory that has a stolen key: they differ wherever what it shows isn't
 * what the person made, they can be compared while the person is distrusted, and the comparison
 * ends with the next change.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { change, replaceDocument } from "../../src/client/identity/change.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { memoryKeys } from "../../src/client/keys/key-stores.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { encodeKeyProof } from "../../src/core/ledger/key-proof.ts";
import { forgeDocument, seedOf } from "../support/forged-proofs.ts";
import { keyOf } from "../support/identity.ts";
import { parsedProof, proofBytes, rotateRoot, waiting } from "../support/lie-stage.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
let proxy: LyingDirectory;
beforeAll(async () => {
  nodes = await startTestNodes();
  proxy = lyingDirectory(nodes.url);
});
afterAll(() => Promise.all([proxy.stop(), nodes.stop()]));

const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, rotateMs: false, ...options });
const victim = (more: Partial<WaypostOptions> = {}) => open({ directoryUrl: proxy.url, ...more });

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "believed",
    (error: unknown) => (error instanceof ClientError ? error.code : String(error)),
  );

const isOf = async (me: Waypost, other: Waypost) => (await me.fingerprint(other.did)).is;

const signedBy = (me: Waypost, intent: Intent, keyId: string, seed: Uint8Array) =>
  change(me.client, intent, { signer: { keyId, seed }, waiting });

/** A method that the person adds to what may sign. */
async function withMethod(me: Waypost, label: string): Promise<string> {
  const { did } = me;
  const id = `${did}#${label}`;
  const verificationMethod = {
    ...{ id, type: "Multikey", controller: did },
    publicKeyMultibase: renderPublicKey(keyOf(label).publicKey),
  };
  const root = me.identity.rootSeed;
  await signedBy(me, { action: "AddVerificationMethod", did, verificationMethod }, "root", root);
  await signedBy(me, { action: "AddAuthentication", did, id }, "root", root);
  return id;
}

test("a document by the key before a rotation makes another fingerprint than the person sees", async () => {
  const bob = await open();
  const before = await parsedProof(nodes.url, bob.did);
  await rotateRoot(bob, `${bob.did} true`);
  const { rotations } = await parsedProof(nodes.url, bob.did);
  const seed = bob.identity.rootSeed;
  const forged = { ...forgeDocument(before, { seed, nonce: 70n }), rotations };
  proxy.lie = { proof: (did) => (did === bob.did ? encodeKeyProof(forged) : null) };
  const alice = await victim({ timeoutMs: 1_000 });
  // What no document by the present key follows is shown to no one: the thief of the old one may
  // have begun.
  expect(await codeOf(isOf(alice, bob))).toBe("change_pending");
  proxy.lie = {};
  expect(await isOf(alice, bob)).toBe(await isOf(bob, alice));
});

test("a fork from before a method was removed makes another one, also when the method removes itself", async () => {
  for (const isGone of [false, true]) {
    const [bob, alice] = [await open(), await victim()];
    const { did } = bob;
    const id = await withMethod(bob, "thief");
    if (isGone)
      await signedBy(bob, { action: "RemoveAuthentication", did, id }, id, seedOf("thief"));
    const branch = await proofBytes(nodes.url, did);
    proxy.lie = { proof: (asked) => (asked === did ? branch : null) };
    await replaceDocument(bob.client, did, {
      rootSeed: bob.identity.rootSeed,
      edited: (one) => ({
        ...one,
        authentication: one.authentication.filter((other) => other !== id),
        verificationMethod: one.verificationMethod.filter((other) => other.id !== id),
      }),
      waiting,
    });
    expect(await isOf(alice, bob)).not.toBe(await isOf(bob, alice));
    proxy.lie = {};
    expect(await isOf(alice, bob)).toBe(await isOf(bob, alice));
  }
});

test("while a root key was replaced and no document follows, a fingerprint waits", async () => {
  const [bob, alice] = [await open(), await open()];
  const before = await isOf(alice, bob);
  const label = `${bob.did} next`;
  await rotateRoot(bob, label, { document: false });
  const shown = isOf(alice, bob);
  await replaceDocument(bob.client, bob.did, {
    ...{ rootSeed: seedOf(label), waiting },
    edited: (one) => one,
  });
  const now = await shown;
  expect([now === before, now]).toEqual([false, await isOf(bob, alice)]);
});

test("a distrusted person's fingerprint shows what it was and is, and comparing it is the remedy", async () => {
  const [bob, keys] = [await open(), memoryKeys()];
  const alice = await victim({ keys });
  const before = await parsedProof(nodes.url, bob.did);
  await rotateRoot(bob, `${bob.did} true`);
  await alice.send(bob.did, "hello");
  const seen = await alice.fingerprint(bob.did);
  expect(seen).toMatchObject({ was: null, isCompared: false, distrusted: null });

  // The thief of the first key rotates it too.
  const seed = bob.identity.rootSeed;
  const forged = forgeDocument(before, { seed, nonce: 70n, next: keyOf("thief") });
  proxy.lie = { proof: (did) => (did === bob.did ? encodeKeyProof(forged) : null) };
  const again = await victim({ keys });
  expect(await codeOf(again.send(bob.did, "hello"))).toBe("identity_changed");
  const lied = await again.fingerprint(bob.did);
  expect(lied).toMatchObject({ was: seen.is, distrusted: "identity_changed", isCompared: false });
  expect(lied.is).not.toBe(await isOf(bob, again));
  // What the person reads out is not what the liar shows.
  expect(await codeOf(again.setCompared(bob.did, seen.is))).toBe("identity_changed");
  expect(await codeOf(again.send(bob.did, "hello"))).toBe("identity_changed");
  // Had both seen it, it would be the person's: after a loss of the ledger, say.
  await again.setCompared(bob.did, lied.is);
  expect(await codeOf(again.send(bob.did, "hello"))).toBe("believed");
  expect(await again.fingerprint(bob.did)).toMatchObject({ was: null, isCompared: true });
  proxy.lie = {};
});

test("a comparison is remembered until a key of either changes", async () => {
  const [bob, keys] = [await open(), memoryKeys()];
  const alice = await open({ keys });
  await alice.setCompared(bob.did, await isOf(bob, alice));
  const again = await open({ keys });
  expect((await again.fingerprint(bob.did)).isCompared).toBe(true);
  const before = await isOf(alice, bob);
  await rotateRoot(bob, `${bob.did} next`);
  expect(await again.fingerprint(bob.did)).toMatchObject({
    ...{ was: before, isCompared: false, distrusted: null },
    is: await isOf(bob, alice),
  });
});

test("a random DID has no fingerprint", async () => {
  proxy.lie = {
    json: ({ path, json }) =>
      path === "/limits" ? { ...json, self_certifying_dids: false } : null,
  };
  const [random, alice] = [await victim({ allowRandom: true }), await open()];
  proxy.lie = {};
  expect(await codeOf(isOf(alice, random))).toBe("proof_missing");
  expect(await codeOf(isOf(random, alice))).toBe("proof_missing");
});
