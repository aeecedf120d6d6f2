/**
 * What a client makes of a Directory beyond the table of lies (`lies.test.ts`): what it asks for,
 * forgets and never signs, and what its owner learns of the own record.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ClientError } from "../../src/client/base/failure.ts";
import { change, replaceDocument } from "../../src/client/identity/change.ts";
import { nextIdentity, publishKeys } from "../../src/client/identity/new-keys.ts";
import type { WaypostOptions } from "../../src/client/identity/opening.ts";
import { rotateAgreement } from "../../src/client/identity/rotation.ts";
import { ed25519PublicKey } from "../../src/client/keys/crypto.ts";
import { type KeyStore, memoryKeys } from "../../src/client/keys/key-stores.ts";
import { type Identity, parseIdentity } from "../../src/client/keys/keys.ts";
import type { WaypostEvent } from "../../src/client/mail/message.ts";
import { lookUp } from "../../src/client/trust/client.ts";
import { Waypost } from "../../src/client/waypost.ts";
import { renderPublicKey } from "../../src/core/codec/bytes.ts";
import type { Intent } from "../../src/core/ledger/actions.ts";
import { encodeKeyProof } from "../../src/core/ledger/key-proof.ts";
import { forgeDocument } from "../support/forged-proofs.ts";
import { keyOf } from "../support/identity.ts";
import { parsedProof, proofBytes, rotateRoot, waiting } from "../support/lie-stage.ts";
import { type LyingDirectory, lyingDirectory } from "../support/lying-directory.ts";
import { startTestNodes, type TestNodes } from "../support/nodes.ts";

let nodes: TestNodes;
beforeAll(async () => {
  nodes = await startTestNodes();
});
afterAll(() => nodes.stop());

const proxies: LyingDirectory[] = [];
afterAll(() => Promise.all(proxies.map((proxy) => proxy.stop())));

function proxied(): LyingDirectory {
  const proxy = lyingDirectory(nodes.url);
  proxies.push(proxy);
  return proxy;
}

const open = (options: Partial<WaypostOptions> = {}) =>
  Waypost.open({ url: nodes.url, keys: memoryKeys(), waiting, ...options });

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "believed",
    (error: unknown) => (error instanceof ClientError ? error.code : String(error)),
  );

/** A client of the lying Directory, which delivers through the honest Relay. */
async function victimOf(proxy: LyingDirectory, keys: KeyStore = memoryKeys()): Promise<Waypost> {
  return open({ directoryUrl: proxy.url, keys, rotateMs: false });
}

/** Of an identity, the same new secrets each time. */
const renewals = new Map<string, Identity>();
function renewed({ did, identity }: Waypost): Identity {
  const next = renewals.get(did) ?? nextIdentity(identity, Date.now());
  renewals.set(did, next);
  return next;
}

const rotated = (me: Waypost, patience: typeof waiting) =>
  rotateAgreement(me.client, me.did, {
    nowMs: Date.now(),
    everyMs: 0,
    waiting: patience,
    change: async (edit) => {
      const identity = await edit(renewals.get(me.did) ?? me.identity);
      renewals.set(me.did, identity);
      return identity;
    },
  });

test("a random DID is unproven, and refused where proofs are demanded", async () => {
  const alice = await open();
  const random = await open({ directoryUrl: plain().url, allowRandom: true });
  expect(random.did).not.toStartWith("did:svc:wp");
  expect((await alice.send(random.did, "hello")).recipient.trust).toBe("unproven");
  expect(await codeOf(alice.send(random.did, "hello", { trust: "proven" }))).toBe("proof_missing");
  const strict = await open({ trust: "proven" });
  expect(await codeOf(strict.send(random.did, "hello"))).toBe("proof_missing");
  // Anyone who demands proofs of others is given an identity that has one.
  expect(await codeOf(open({ directoryUrl: plain().url, trust: "proven" }))).toBe("proof_missing");
  expect(await codeOf(strict.send(alice.did, "hello"))).toBe("believed");
});

/** A Directory that names no such form, as one on a chain. */
function plain(): LyingDirectory {
  const proxy = proxied();
  proxy.lie = {
    json: ({ path, json }) =>
      path === "/limits" ? { ...json, self_certifying_dids: false } : null,
  };
  return proxy;
}

test("whoever saw nothing of it can't tell a removed key's own branch: docs/trust.md \"What is left\"", async () => {
  const [proxy, bob] = [proxied(), await open()];
  const before = await parsedProof(nodes.url, bob.did);
  await rotateRoot(bob, "true");
  const branch = encodeKeyProof(forgeDocument(before, { seed: bob.identity.rootSeed, nonce: 70n }));
  proxy.lie = { proof: (did) => (did === bob.did ? branch : null) };
  expect(await codeOf((await victimOf(proxy)).send(bob.did, "hello"))).toBe("believed");
});

test("after an interrupted replacement, the sealing key is replaced with the root key that the ledger has", async () => {
  const me = await open({ rotateMs: false });
  const next = renewed(me);
  const signer = { keyId: "root", seed: me.identity.rootSeed };
  const newRootPubkey = await ed25519PublicKey(next.nextRootSeed as Uint8Array);
  await change(
    me.client,
    { action: "UpdateRootPubkey", did: me.did, newRootPubkey },
    { signer, waiting },
  );
  expect(await rotated(me, waiting)).toMatchObject({ rotated: true });
  // Nothing that was signed in vain stands in its way.
  expect(await publishKeys(me.client, renewed(me), { waiting })).toMatchObject({
    nextRootSeed: null,
  });
});

test("an alias that names nobody is not remembered, so that the true answer counts", async () => {
  const proxy = proxied();
  const alias = `bob-${crypto.randomUUID().slice(0, 8)}`;
  const bob = await open({ alias });
  const alice = await victimOf(proxy);
  const nobody = bob.did.replace(/.$/, (last) => (last === "2" ? "3" : "2"));
  proxy.lie = {
    json: ({ path, json }) => (path === `/aliases/${alias}` ? { ...json, did: nobody } : null),
  };
  expect(await codeOf(alice.send(alias, "hello"))).toBe("did_not_found");
  proxy.lie = {};
  expect((await alice.send(alias, "hello")).recipient).toEqual({
    did: bob.did,
    trust: "proven",
    name: "told",
  });
});

test("a policy that the Directory made up cuts no message into a flood of envelopes", async () => {
  const [proxy, bob] = [proxied(), await open()];
  const alice = await victimOf(proxy);
  const bound = (bytes: number) => {
    proxy.lie = {
      json: ({ path, json }) =>
        path === `/delivery-resolution/${bob.did}`
          ? { ...json, policy: { effective_constraints: { max_message_bytes: bytes } } }
          : null,
    };
  };
  bound(4_097);
  expect(await codeOf(alice.send(bob.did, new Uint8Array(9_000), { name: "a.bin" }))).toBe(
    "too_small",
  );
  expect(await codeOf(alice.send(bob.did, "x"))).toBe("believed");
  bound(8_192);
  expect((await alice.send(bob.did, new Uint8Array(9_000), { name: "a.bin" })).chunks).toBe(3);
});

test("an alias that names somebody else is refused until it is forgotten", async () => {
  const [proxy, eve] = [proxied(), await open()];
  const alias = `bob-${crypto.randomUUID().slice(0, 8)}`;
  await open({ alias });
  const alice = await victimOf(proxy);
  expect((await alice.send(alias, "hello")).recipient.name).toBe("told");
  expect((await alice.send(alias, "hello")).recipient.name).toBe("remembered");
  proxy.lie = {
    json: ({ path, json }) => (path === `/aliases/${alias}` ? { ...json, did: eve.did } : null),
  };
  expect(await codeOf(alice.send(alias, "hello"))).toBe("identity_changed");
  await alice.forget(alias);
  expect((await alice.send(alias, "hello")).recipient.name).toBe("told");
});

test("a later run remembers what an earlier one has seen", async () => {
  const [proxy, bob, keys] = [proxied(), await open(), memoryKeys()];
  const registered = await proofBytes(nodes.url, bob.did);
  await rotateRoot(bob, "after");
  await (await victimOf(proxy, keys)).send(bob.did, "seen");
  proxy.lie = { proof: (did) => (did === bob.did ? registered : null) };
  expect(await codeOf((await victimOf(proxy, keys)).send(bob.did, "hello"))).toBe(
    "record_went_back",
  );
});

test("a message whose sender can't be looked up for a moment waits, and is handed over verified", async () => {
  const [proxy, alice] = [proxied(), await open()];
  const bob = await victimOf(proxy);
  proxy.lie = { refuses: `/dids/${alice.did}/proof` };
  await alice.send(bob.did, "hello");
  const received = bob.messages();
  const first = received.next();
  while (proxy.refused === 0) await Bun.sleep(20);
  proxy.lie = {};
  const { value: message } = await first;
  expect(message).toMatchObject({ text: "hello", from: alice.did, verified: true });
  await bob.close();
}, 60_000);

test("one that lives no longer than such a wait does not wait: it comes unverified at once", async () => {
  const [proxy, alice] = [proxied(), await open()];
  const bob = await victimOf(proxy);
  proxy.lie = { refuses: `/dids/${alice.did}/proof` };
  await alice.send(bob.did, "soon over", { ttl: "4m" });
  const { value: message } = await bob.messages().next();
  expect(message).toMatchObject({ text: "soon over", from: alice.did, verified: null });
  expect(proxy.refused).toBeGreaterThan(0);
  await bob.close();
}, 60_000);

describe("the own identity", () => {
  test("a document slipped under its owner's pen is not signed, and neither is a nonce that the Directory tells", async () => {
    const [proxy, eve] = [proxied(), await open()];
    const keys = memoryKeys();
    const alice = await victimOf(proxy, keys);
    const text = await (await fetch(`${nodes.url}/resolve/${eve.did}`)).text();
    proxy.lie = {
      json: ({ path, json }) =>
        path === `/resolve/${alice.did}`
          ? {
              ...(JSON.parse(text.replaceAll(eve.did, alice.did)) as object),
              root_pubkey: json["root_pubkey"],
            }
          : path === `/dids/${alice.did}/nonces`
            ? { ...json, document_nonce: "40" }
            : null,
    };
    const before = await parsedProof(nodes.url, alice.did);
    // It waits for the proof: the nonces of this Directory say that it has settled before it has.
    await replaceDocument(alice.client, alice.did, {
      rootSeed: alice.identity.rootSeed,
      edited: (document) => ({ ...document, keyAgreement: [...document.keyAgreement] }),
      waiting,
    });
    for (let i = 0; i < 100 && (await parsedProof(nodes.url, alice.did)).base === null; i++)
      await Bun.sleep(20);
    const after = await parsedProof(nodes.url, alice.did);
    expect([after.base?.nonce, after.document.toHex()]).toEqual([0n, before.document.toHex()]);
  });

  test.each([
    [
      "all keys",
      (me: Waypost, patience: typeof waiting) =>
        publishKeys(me.client, renewed(me), { waiting: patience }),
    ],
    ["the key to seal to", (me: Waypost, patience: typeof waiting) => rotated(me, patience)],
  ])(
    "a replacement of %s that the Directory swallows is not in force, whatever it says",
    async (_, replace) => {
      const proxy = proxied();
      const alice = await victimOf(proxy);
      const accepted = {
        status: "accepted",
        did: alice.did,
        tx_hash: `0x${"11".repeat(32)}`,
        message: "so it says",
      };
      proxy.lie = {
        json: ({ path, json }) =>
          path === `/dids/${alice.did}/nonces`
            ? { ...json, document_nonce: "9", root_pubkey_nonce: "9" }
            : null,
        shows: {
          [`/submissions/${accepted.tx_hash}`]: { ...accepted, state: "finalized", reason: null },
        },
        swallows: {
          [`/dids/${alice.did}/root-pubkey`]: { ...accepted, action: "UpdateRootPubkey" },
          [`/dids/${alice.did}/document/proof`]: {
            ...accepted,
            extrinsic: "set_document_with_proof",
          },
        },
      };
      expect(await codeOf(replace(alice, { timeoutMs: 300, intervalMs: 10 }))).toBe("timed_out");
      expect(proxy.swallowed).toBe(1);
      // The same call is signed again, and is in force this time.
      proxy.lie = {};
      expect(await codeOf(replace(alice, waiting))).toBe("believed");
      expect((await parsedProof(nodes.url, alice.did)).base?.nonce).toBe(0n);
    },
  );

  test("an identity that is called missing signs no second first document until it is forgotten", async () => {
    const [proxy, keys] = [proxied(), memoryKeys()];
    const alice = await victimOf(proxy, keys);
    await alice.send(alice.did, "so that the own record is remembered");
    const missing = {
      did: alice.did,
      source: "chain",
      registered: false,
      registration_status: "missing",
    };
    proxy.lie = {
      shows: {
        [`/registration-status/${alice.did}`]: missing,
        "/node": { directory_endpoints: ["https://liar.example"] },
      },
      swallows: { "/register-did": {} },
    };
    expect(await codeOf(victimOf(proxy, keys))).toBe("record_went_back");
    expect(proxy.swallowed).toBe(0);
    await alice.forget(alice.did);
    await codeOf(victimOf(proxy, keys));
    expect(proxy.swallowed).toBe(1);
    proxy.lie = {};
    expect((await victimOf(proxy, keys)).did).toBe(alice.did);
  });

  test("a second, different document isn't signed while the first may still be accepted", async () => {
    const proxy = proxied();
    const alice = await victimOf(proxy);
    const { rootSeed } = alice.identity;
    const without = (list: "keyAgreement" | "service") =>
      codeOf(
        replaceDocument(alice.client, alice.did, {
          rootSeed,
          edited: (document) => ({ ...document, [list]: [] }),
          waiting,
        }),
      );
    proxy.lie = { refuses: `/dids/${alice.did}/document/proof` };
    expect(await without("service")).toBe("chain_unavailable");
    expect(await without("keyAgreement")).toBe("change_pending");
    expect(await without("service")).toBe("chain_unavailable");
    proxy.lie = {};
    expect(await without("service")).toBe("believed");
    expect(await without("keyAgreement")).toBe("believed");
  });

  test("neither is a second, different call for the root key", async () => {
    const proxy = proxied();
    const alice = await victimOf(proxy);
    const { did } = alice;
    const signer = { keyId: "root", seed: alice.identity.rootSeed };
    const sign = (intent: Intent) => codeOf(change(alice.client, intent, { signer, waiting }));
    const keyed = (label: string) =>
      ({ action: "UpdateRootPubkey", did, newRootPubkey: keyOf(label).publicKey }) as const;
    proxy.lie = { refuses: `/dids/${did}/root-pubkey` };
    const rotations = [
      await sign(keyed("next")),
      await sign(keyed("other")),
      await sign(keyed("next")),
    ];
    expect(rotations).toEqual(["chain_unavailable", "change_pending", "chain_unavailable"]);
  });

  test("a change that takes a while asks once what is accepted", async () => {
    const alice = await open();
    const { did, client } = alice;
    const { directory } = client;
    const asked = { limits: 0, nonces: 0 };
    const counted: typeof directory = {
      ...directory,
      limits: () => {
        asked.limits++;
        return directory.limits();
      },
      nonces: async (of) =>
        asked.nonces++ < 5
          ? { ...(await directory.nonces(of)), alias_nonce: "0" }
          : directory.nonces(of),
    };
    const signer = { keyId: "root", seed: alice.identity.rootSeed };
    const intent = {
      action: "add_alias",
      did,
      alias: `slow-${crypto.randomUUID().slice(0, 8)}`,
    } as const;
    await change({ ...client, directory: counted }, intent, { signer, waiting });
    expect([asked.limits, asked.nonces > 5]).toEqual([1, true]);
  });

  test("every alias of the own is watched, also one that the Directory hides; one that was given up is not", async () => {
    const [proxy, eve] = [proxied(), await open()];
    const keys = memoryKeys();
    const alice = await victimOf(proxy, keys);
    const signer = { keyId: "root", seed: alice.identity.rootSeed };
    const alias = `alice-${crypto.randomUUID().slice(0, 8)}`;
    await change(alice.client, { action: "add_alias", did: alice.did, alias }, { signer, waiting });
    await alice.watch();
    const again = await victimOf(proxy, keys);
    const events: WaypostEvent[] = [];
    again.on((event) => events.push(event));
    const toEve: typeof proxy.lie = {
      json: ({ path, json }) =>
        path === `/aliases/${alias}`
          ? { ...json, did: eve.did }
          : path === `/resolve/${alice.did}`
            ? { ...json, aliases: [] }
            : null,
    };
    proxy.lie = toEve;
    await again.watch();
    expect(events).toEqual([{ type: "stranger_change", what: "alias" }]);
    proxy.lie = {};
    await change(
      again.client,
      { action: "remove_alias", did: alice.did, alias },
      { signer, waiting },
    );
    // Whose it is afterwards is no stranger's change.
    proxy.lie = toEve;
    await again.watch();
    expect(events.length).toBe(1);
  });

  test("an alias that the Directory made up as an own one is watched until it is forgotten", async () => {
    const proxy = proxied();
    const alias = `bob-${crypto.randomUUID().slice(0, 8)}`;
    await open({ alias });
    const alice = await victimOf(proxy);
    const heard: string[] = [];
    alice.on(({ type }) => heard.push(type));
    proxy.lie = {
      json: ({ path, json }) =>
        path === `/resolve/${alice.did}` ? { ...json, aliases: [alias] } : null,
      shows: { [`/aliases/${alias}`]: { alias, did: alice.did } },
    };
    await alice.watch();
    proxy.lie = {};
    expect(heard).toEqual([]);
    await alice.watch();
    expect(heard).toEqual(["stranger_change"]);
    await alice.forget(alias);
    await alice.watch();
    expect(heard).toEqual(["stranger_change"]);
  });

  test("a nonce that no ledger can have is an answer that breaks the interface", async () => {
    const proxy = proxied();
    const alice = await victimOf(proxy);
    proxy.lie = {
      json: ({ path, json }) =>
        path.endsWith("/nonces") ? { ...json, alias_nonce: String(2n ** 64n) } : null,
    };
    const intent: Intent = {
      action: "add_alias",
      did: alice.did,
      alias: `a-${crypto.randomUUID().slice(0, 8)}`,
    };
    const signer = { keyId: "root", seed: alice.identity.rootSeed };
    expect(await codeOf(change(alice.client, intent, { signer, waiting }))).toBe("unreadable");
  });

  test("a stranger with a stolen root key is a stranger_change; another program over the same keys is none", async () => {
    const keys = memoryKeys();
    const alice = await open({ keys, rotateMs: false });
    const events: WaypostEvent[] = [];
    alice.on((event) => events.push(event));
    await alice.watch();
    expect(events).toEqual([]);
    const other = await open({ keys, rotateMs: 0 });
    await other.rotate();
    await alice.watch();
    expect(events).toEqual([]);
    const { rootSeed } = other.identity;
    const stranger = keyOf("stranger");
    const multibase = renderPublicKey(stranger.publicKey);
    await replaceDocument(other.client, other.did, {
      rootSeed,
      waiting,
      edited: (document) => ({
        ...document,
        verificationMethod: [
          ...document.verificationMethod,
          {
            id: `${alice.did}#x`,
            type: "Multikey",
            controller: alice.did,
            publicKeyMultibase: multibase,
          },
        ],
      }),
    });
    await alice.watch();
    expect(events).toEqual([{ type: "stranger_change", what: "method" }]);
  });

  test("that was deactivated ends messages() with did_deactivated, as a random one does", async () => {
    const alice = await open();
    const signer = { keyId: "root", seed: alice.identity.rootSeed };
    await change(alice.client, { action: "deactivate_did", did: alice.did }, { signer, waiting });
    expect(await codeOf(alice.messages().next())).toBe("did_deactivated");
  });

  test("fingerprints are the same on both sides, and another's root key makes another", async () => {
    const [alice, bob] = [await open(), await open()];
    const { is: mine } = await alice.fingerprint(bob.did);
    expect((await bob.fingerprint(alice.did)).is).toBe(mine);
    await rotateRoot(bob, "new");
    const { is: now } = await alice.fingerprint(bob.did);
    expect(now).not.toBe(mine);
    expect((await bob.fingerprint(alice.did)).is).toBe(now);
  });
});

test("an honest twin raises no alarm, through rotations, devices, restarts and look-ups side by side", async () => {
  const proxy = proxied();
  const [aliceKeys, bobKeys] = [memoryKeys(), memoryKeys()];
  const alarms: string[] = [];
  const listen = (me: Waypost) => {
    me.on((event) => {
      if (event.type === "stranger_change" || event.type === "failed")
        alarms.push(JSON.stringify(event));
    });
    return me;
  };
  const openBoth = async () => [
    listen(await open({ directoryUrl: proxy.url, keys: aliceKeys, rotateMs: false })),
    listen(await open({ directoryUrl: proxy.url, keys: bobKeys, rotateMs: false })),
  ];
  let [alice, bob] = (await openBoth()) as [Waypost, Waypost];
  for (let round = 0; round < 6; round++) {
    const sends = Array.from({ length: 12 }, () =>
      alice.send(bob.did, "hello").catch((e) => alarms.push(String(e))),
    );
    // Its key changes while others look it up.
    const again = await open({ directoryUrl: proxy.url, keys: bobKeys, rotateMs: 0 });
    await again.rotate();
    await Promise.all(sends);
    await Promise.all([alice.watch(), listen(again).watch(), lookUp(alice.client, bob.did)]);
    if (round % 2 === 1) [alice, bob] = (await openBoth()) as [Waypost, Waypost];
  }
  expect(alarms).toEqual([]);
  expect(parseIdentity((await bobKeys.load("default")) ?? "", "default")?.did).toBe(bob.did);
}, 60_000);
