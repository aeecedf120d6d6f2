/**
 * Which key counts for a person who publishes bundles: the newest that a method of the document has
 * signed and whose time is now, whatever a node shows, hides or repeats. And nobody is sealed to in
 * the first version again by a node's word alone.
 */
import { afterEach, describe, expect, setSystemTime, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import { attempt, ClientError, isTemporary } from "../../../../src/client/base/failure.ts";
import { expandSeed } from "../../../../src/client/keys/xwing.ts";
import type { Resolution } from "../../../../src/client/net/answers.ts";
import { bundleKey } from "../../../../src/client/trust/bundles.ts";
import { type Client, connect } from "../../../../src/client/trust/client.ts";
import { bundleAt } from "../../../../src/client/trust/trust.ts";
import { renderPublicKey } from "../../../../src/core/codec/bytes.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { dayMs, hourMs, minuteMs } from "../../../../src/core/codec/time.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";
import { bundleAgreement } from "../../../../src/core/ledger/account.ts";
import type { KeyState } from "../../../../src/core/ledger/key-proof.ts";
import { bundleDigest, type KeyBundle, renderBundle } from "../../../../src/core/message/bundle.ts";
import { bundleOf } from "../../../support/bundles.ts";

const to = "did:svc:1111111111111111111111" as Did;
const seed = new Uint8Array(32).fill(5);
const maker = { did: to, seed, keyId: `${to}#root` };
const startMs = Date.UTC(2026, 10, 28);
const keys = await Promise.all(
  [1, 2].map(async (fill) => (await expandSeed(new Uint8Array(32).fill(fill))).publicKey),
);
const [firstKey, secondKey] = keys as [Uint8Array, Uint8Array];

function documentOf(isAnnounced: boolean, signer = seed): DidDocument {
  const method = {
    id: `${to}#root`,
    type: "Multikey",
    controller: to,
    publicKeyMultibase: renderPublicKey(ed25519.getPublicKey(signer)),
  };
  const announced = { id: `${to}#keys`, controller: to, ...bundleAgreement };
  return {
    id: to,
    verificationMethod: [method],
    authentication: [method.id],
    keyAgreement: isAnnounced ? [announced] : [],
    service: [],
  };
}

/** A proven state: only its document and its last nonce are looked at. */
function stateOf(document: DidDocument, nonce = 4n): KeyState {
  const hash = new Uint8Array(32);
  const step = { nonce, hash };
  return {
    did: to,
    genesisHash: hash,
    rootKeys: [ed25519.getPublicKey(seed)],
    baseRoot: 0,
    document,
    steps: [step],
    signatures: [],
  };
}

const answerWith = (more: Partial<Resolution>): Resolution => ({
  encryption_profile: "direct",
  recipient_key_id: `${to}#x25519-1`,
  recipient_public_key_multibase: "z",
  policy: null,
  ...more,
});
const showing = (bundle: KeyBundle): Resolution =>
  answerWith({ key_bundle_sha256: bundleDigest(bundle), key_bundle: renderBundle(bundle) });
const hiding = (key_bundle_missing = "none"): Resolution =>
  answerWith({ key_bundle_sha256: null, key_bundle_missing });

function clientAt(): { client: Client; downgraded: Did[] } {
  const url = "http://127.0.0.1:1";
  const client = connect({ directoryUrl: url, relayUrl: url });
  const downgraded: Did[] = [];
  client.known.downgraded = (did) => downgraded.push(did);
  return { client, downgraded };
}

afterEach(() => {
  setSystemTime();
});

const announced = stateOf(documentOf(true));

async function ask(client: Client, answer: Resolution, state: KeyState | null = announced) {
  const kept = await client.known.memory.load(bundleAt(to));
  return bundleKey(client, { to, state, answer, kept });
}
const isRefused = async (work: Promise<unknown>) => {
  const error = await attempt(() => work);
  if (!(error instanceof ClientError)) return { code: null, isTemporary: false };
  return { code: error.code, isTemporary: isTemporary(error) };
};
const missing = { code: "key_bundle_missing", isTemporary: true };

describe("the bundle that counts", () => {
  const first = bundleOf(maker, startMs, { publicKey: firstKey });
  const second = bundleOf(maker, startMs + hourMs, { publicKey: secondKey });

  test("is the one that the document's method has signed; it is remembered, and asked for no more", async () => {
    setSystemTime(startMs + minuteMs);
    const { client } = clientAt();
    const key = { keyId: first.keyId, publicKey: firstKey };
    expect(await ask(client, showing(first))).toEqual(key);
    expect(await client.known.memory.load(bundleAt(to))).toStartWith(`${bundleDigest(first)} 4 {`);
    expect(await ask(client, answerWith({ key_bundle_sha256: bundleDigest(first) }))).toEqual(key);
  });

  test("is the newest that was seen: neither an older one nor silence undoes it before it ends", async () => {
    setSystemTime(startMs + 2 * hourMs);
    const { client } = clientAt();
    const key = { keyId: second.keyId, publicKey: secondKey };
    expect(await ask(client, showing(first))).toMatchObject({ keyId: first.keyId });
    expect(await ask(client, showing(second))).toEqual(key);
    for (const answer of [showing(first), hiding(), hiding("rate_limited"), answerWith({})])
      expect(await ask(client, answer)).toEqual(key);
    setSystemTime(startMs + 8 * dayMs);
    expect(await isRefused(ask(client, hiding()))).toEqual(missing);
    expect(await isRefused(ask(client, showing(first)))).toEqual(missing);
  });

  test("is none that another has signed, that is of another person, or whose time is not now", async () => {
    setSystemTime(startMs + minuteMs);
    const other = "did:svc:2222222222222222222222" as Did;
    const forged = bundleOf({ ...maker, seed: new Uint8Array(32).fill(6) }, startMs);
    const wrong = [
      forged,
      bundleOf({ did: other, seed, keyId: `${other}#root` }, startMs),
      { ...first, publicKey: secondKey },
      { ...first, notAfterMs: first.notAfterMs + 1 },
      bundleOf(maker, startMs + hourMs, { publicKey: firstKey }),
      bundleOf(maker, startMs - 8 * dayMs, { publicKey: firstKey }),
    ];
    for (const bundle of wrong)
      expect(await isRefused(ask(clientAt().client, showing(bundle)))).toEqual(missing);
    expect(
      await isRefused(ask(clientAt().client, answerWith({ key_bundle: { did: to } }))),
    ).toEqual(missing);
  });

  test("counts no more when its signer has left the document", async () => {
    setSystemTime(startMs + minuteMs);
    const { client } = clientAt();
    await ask(client, showing(first));
    const replaced = stateOf(documentOf(true, new Uint8Array(32).fill(8)), 5n);
    expect(await isRefused(ask(client, hiding(), replaced))).toEqual(missing);
  });
});

describe("the first version", () => {
  const bundle = bundleOf(maker, startMs, { publicKey: firstKey });

  test("is for who has never published a bundle", async () => {
    expect(await ask(clientAt().client, answerWith({}), stateOf(documentOf(false)))).toBeNull();
  });

  test("is refused for who has, by a document that is not later", async () => {
    setSystemTime(startMs + minuteMs);
    for (const nonce of [0n, 3n, 4n]) {
      const { client, downgraded } = clientAt();
      await ask(client, showing(bundle));
      const before = stateOf(documentOf(false), nonce);
      expect(await isRefused(ask(client, hiding("not_announced"), before))).toEqual({
        code: "downgrade_refused",
        isTemporary: false,
      });
      expect(downgraded).toEqual([]);
    }
  });

  test("comes back with a later document that announces none, and an event says so once", async () => {
    setSystemTime(startMs + minuteMs);
    const { client, downgraded } = clientAt();
    await ask(client, showing(bundle));
    const later = stateOf(documentOf(false), 5n);
    for (let i = 0; i < 2; i++)
      expect(await ask(client, hiding("not_announced"), later)).toBeNull();
    expect(downgraded).toEqual([to]);
  });
});

test("of a random DID the node's word counts: nothing proves it", async () => {
  setSystemTime(startMs + minuteMs);
  const { client } = clientAt();
  const bundle = bundleOf(maker, startMs, { publicKey: firstKey });
  expect(await ask(client, showing(bundle), null)).toMatchObject({ keyId: bundle.keyId });
  setSystemTime(startMs + 8 * dayMs);
  expect(await isRefused(ask(client, hiding(), null))).toEqual(missing);
  expect(await ask(client, hiding("not_announced"), null)).toBeNull();
});
