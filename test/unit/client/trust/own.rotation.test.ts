/**
 * Keys that others seal to, by a clock: what is published, what is still held, when a secret is
 * gone, and whose turn it is.
 */
import { describe, expect, test } from "bun:test";
import { x25519 } from "@noble/curves/ed25519.js";
import { nextIdentity, withoutNext } from "../../../../src/client/identity/new-keys.ts";
import { firstDocument } from "../../../../src/client/identity/registration.ts";
import {
  decideLacking,
  decideSealing,
  joinSecrets,
  pendingAfter,
} from "../../../../src/client/keys/agreements.ts";
import {
  createIdentity,
  freshAgreement,
  type HeldAgreement,
  type Identity,
  isRotationDue,
  nameOfSeed,
  parseIdentity,
  renderIdentity,
} from "../../../../src/client/keys/keys.ts";
import { reconcileAgreements } from "../../../../src/client/trust/own.ts";
import { renderAgreementKey } from "../../../../src/core/codec/bytes.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";

const [hour, day] = [3_600_000, 86_400_000];
const start = Date.parse("2026-07-16T12:00:00Z");
const keptMs = 2 * day;
const homes = { relayUrl: "https://r.example", cacheUrl: "https://c.example" };

/** What the ledger shows once a device has put a secret in force, its newest by default. */
async function publish(identity: Identity, at = identity.agreements.length - 1) {
  const document = await firstDocument(identity, homes);
  const [agreement] = document.keyAgreement;
  const secret = identity.agreements[at]?.secret ?? new Uint8Array(32);
  const publicKeyMultibase = renderAgreementKey(x25519.getPublicKey(secret));
  const keyAgreement = agreement === undefined ? [] : [{ ...agreement, publicKeyMultibase }];
  return { ...document, keyAgreement };
}

/** As a device stores it before it publishes it. */
function withFresh(identity: Identity, nowMs: number): Identity {
  const id = `${identity.did}#x25519-1`;
  const fresh = freshAgreement(identity, { id, nowMs, destroyAtMs: nowMs + keptMs });
  return { ...identity, agreements: [...identity.agreements, fresh] };
}

const look = async (identity: Identity, document: DidDocument, nowMs: number) =>
  (await reconcileAgreements(identity, document, { nowMs, keptMs })).identity;

const secrets = (identity: Identity) => identity.agreements.map(({ secret }) => secret.toHex());
const turn = (nowMs: number, rank = 0) => ({ nowMs, everyMs: 7 * day, rank });

describe("a rotation", () => {
  test("is due when the key is a week old, a day later for each lower DID, and when a secret has ended", async () => {
    const identity = createIdentity("a", start);
    expect(isRotationDue(identity, turn(start + 7 * day - 1))).toBe(false);
    expect(isRotationDue(identity, turn(start + 7 * day))).toBe(true);
    expect(isRotationDue(identity, turn(start + 8 * day - 1, 1))).toBe(false);
    expect(isRotationDue(identity, turn(start + 9 * day, 2))).toBe(true);
    const next = withFresh(identity, start + 7 * day);
    const rotated = await look(next, await publish(next), start + 7 * day);
    expect(isRotationDue(rotated, turn(start + 8 * day))).toBe(false);
    expect(isRotationDue(rotated, turn(start + 9 * day))).toBe(true);
  });

  test("keeps the old secret until everything sealed to it has expired, and not longer", async () => {
    const next = withFresh(createIdentity("a", start), start + 7 * day);
    const document = await publish(next);
    const after = await look(next, document, start + 7 * day);
    expect(secrets(after)).toEqual(secrets(next));
    const endMs = start + 7 * day + keptMs;
    expect(secrets(await look(after, document, endMs - 1)).length).toBe(2);
    expect(secrets(await look(after, document, endMs))).toEqual(secrets(next).slice(1));
  });

  test("that was interrupted before its key was in force goes on with the same secret", async () => {
    const identity = createIdentity("a", start);
    const pending = withFresh(identity, start + 7 * day);
    const found = await look(pending, await publish(identity), start + 7 * day);
    expect(secrets(found)).toEqual(secrets(pending));
    expect(isRotationDue(found, turn(start + 7 * day))).toBe(true);
    const [published, next] = found.agreements as [HeldAgreement, HeldAgreement];
    const under = nameOfSeed(identity.rootSeed);
    const at = (nowMs: number) =>
      pendingAfter(found.agreements, published, { under, nowMs })?.secret;
    expect(at(start + 7 * day)).toEqual(next.secret);
    // Another device may have destroyed its own by then.
    expect(at(start + 9 * day - 1)).toBeUndefined();
  });

  test("makes fresh randomness: nothing that was stored before leads to it", () => {
    const identity = createIdentity("a", start);
    const [one, other] = [withFresh(identity, start), withFresh(identity, start)];
    expect(secrets(one)[1]).not.toBe(secrets(other)[1]);
  });
});

test("keys of an earlier program are read, and their next secret is fresh", async () => {
  const identity = createIdentity("a", start);
  const { sealingSinceMs: _, bundleKeys: _none, ...kept } = JSON.parse(renderIdentity(identity));
  const [{ id, secret, destroyAtMs }] = kept.agreements;
  const chain = { epoch: 0, key: "11".repeat(32), sinceMs: start };
  const text = JSON.stringify({ ...kept, chain, agreements: [{ id, secret, destroyAtMs }] });
  const read = parseIdentity(text, "a") as Identity;
  expect([secrets(read), read.sealingSinceMs]).toEqual([secrets(identity), start]);
  const next = withFresh(read, start + 7 * day);
  const published = next.agreements[0] as HeldAgreement;
  const at = { under: nameOfSeed(identity.rootSeed), nowMs: start + 7 * day };
  expect(pendingAfter(next.agreements, published, at)?.secret).toEqual(
    next.agreements[1]?.secret as Uint8Array,
  );
});

describe("devices of one identity", () => {
  test("follow a key that another one has published when they have its secret, and else keep theirs", async () => {
    const phone = withFresh(createIdentity("a", start), start + 7 * day);
    const document = await publish(phone);
    const laptop = parseIdentity(renderIdentity(phone), "a") as Identity;
    const nowMs = start + 10 * day;
    const followed = await look(laptop, document, nowMs);
    expect(followed.sealingSinceMs).toBe(nowMs);
    expect(followed.agreements.map(({ destroyAtMs }) => destroyAtMs)).toEqual([
      nowMs + keptMs,
      null,
    ]);
    const [first] = phone.agreements as [HeldAgreement];
    const lacking = { ...laptop, agreements: [first] };
    const found = await reconcileAgreements(lacking, document, { nowMs, keptMs });
    expect([found.published, found.identity]).toEqual([null, lacking]);
  });

  test("have the same order after they have joined, and take nothing that is over", () => {
    const identity = createIdentity("a", start);
    const [phone, laptop] = [withFresh(identity, start + day), withFresh(identity, start + day)];
    const join = (a: Identity, b: Identity, nowMs: number) =>
      joinSecrets(a.agreements, b.agreements, { nowMs, nameOf: ({ secret }) => secret.toHex() });
    const nowMs = start + day;
    expect(join(phone, laptop, nowMs)).toEqual(join(laptop, phone, nowMs));
    expect(join(phone, laptop, nowMs).length).toBe(3);
    expect(join(phone, laptop, nowMs + keptMs)).toBe(phone.agreements);
  });

  test("publish no secret that was made under an earlier root key, which a removed device may have", () => {
    const late = withFresh(createIdentity("a", start), start + day);
    const next = nextIdentity(late, start);
    const under = nameOfSeed(next.nextRootSeed as Uint8Array);
    const fresh = next.agreements.at(-1) as HeldAgreement;
    expect(fresh.under).toBe(under);
    expect(fresh.madeMs).toBeGreaterThan(late.agreements.at(-1)?.madeMs as number);
    const at = { under, nowMs: start + day };
    expect(pendingAfter(late.agreements, late.agreements[0] as HeldAgreement, at)).toBeNull();
    // And what is said under the earlier one has nothing of the next.
    expect(withoutNext(next)).toEqual({ ...late, sealingSinceMs: start });
  });

  test("replace in turn, give before they publish, and wait a day for a Cache that is away", () => {
    const [pending] = withFresh(createIdentity("a", start), start).agreements;
    const base = { sinceMs: start, everyMs: 7 * day, rank: 0, others: 1, isShared: false };
    const at = (nowMs: number, more: object = {}) =>
      decideSealing({ ...base, nowMs, pending: null, ...more });
    const made = { pending: { ...(pending as HeldAgreement), madeMs: start + 7 * day } };
    expect(at(start + 7 * day - 1)).toBe("wait");
    expect(at(start + 7 * day)).toBe("make");
    expect(at(start + 7 * day, { rank: 1 })).toBe("wait");
    expect(at(start + 7 * day, made)).toBe("share");
    expect(at(start + 7 * day, { ...made, isShared: true })).toBe("publish");
    expect(at(start + 7 * day, { ...made, others: 0 })).toBe("publish");
    expect(at(start + 8 * day, made)).toBe("publish");
  });

  test("ask for an hour, then replace; one alone does so at once, and none twice within an hour", () => {
    const base = { sinceMs: start, replacedMs: 0, others: 1 };
    const at = (nowMs: number, more: object = {}) => decideLacking({ ...base, nowMs, ...more });
    expect(at(start + hour - 1)).toBe("ask");
    expect(at(start + hour)).toBe("replace");
    expect(at(start, { others: 0 })).toBe("replace");
    expect(at(start + hour, { others: 0, replacedMs: start + 1 })).toBe("wait");
  });
});
