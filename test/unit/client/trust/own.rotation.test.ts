/**
 * Keys that others seal to, by a clock: what is published, what is still held, and when a secret is gone;
 * and devices that follow each other without a word.
 */
import { describe, expect, test } from "bun:test";
import { x25519 } from "@noble/curves/ed25519.js";
import { firstDocument } from "../../../../src/client/identity/registration.ts";
import {
  advanceChain,
  createIdentity,
  type Identity,
  isRotationDue,
  parseIdentity,
  renderIdentity,
} from "../../../../src/client/keys/keys.ts";
import { reconcileAgreements } from "../../../../src/client/trust/own.ts";
import { renderAgreementKey } from "../../../../src/core/codec/bytes.ts";
import type { DidDocument } from "../../../../src/core/ledger/account.ts";

const day = 86_400_000;
const start = Date.parse("2026-07-16T12:00:00Z");
const keptMs = 2 * day;
const homes = { relayUrl: "https://r.example", cacheUrl: "https://c.example" };

/** What the ledger shows once a device has put its newest secret in force. */
async function publish(identity: Identity): Promise<DidDocument> {
  const document = await firstDocument(identity, homes);
  const newest = identity.agreements.at(-1);
  const [agreement] = document.keyAgreement;
  if (newest === undefined || agreement === undefined) throw new Error("no agreement");
  return {
    ...document,
    keyAgreement: [
      { ...agreement, publicKeyMultibase: renderAgreementKey(x25519.getPublicKey(newest.secret)) },
    ],
  };
}

/** One rotation of one device, as `rotateAgreement` makes it between its two writes. */
function derived(identity: Identity): Identity {
  if (identity.chain === null) throw new Error("no chain");
  const { secret, chain } = advanceChain(identity.chain, identity.chain.sinceMs);
  return {
    ...identity,
    agreements: [
      ...identity.agreements,
      { id: `${identity.did}#x25519-1`, secret, destroyAtMs: null },
    ],
    chain,
  };
}

const secrets = (identity: Identity) => identity.agreements.map(({ secret }) => secret.toHex());

describe("a rotation", () => {
  test("is due when the key is a week old, and when a secret has reached its end", async () => {
    const identity = createIdentity("a", start);
    expect(isRotationDue(identity, start + 7 * day - 1, 7 * day)).toBe(false);
    expect(isRotationDue(identity, start + 7 * day, 7 * day)).toBe(true);
    const next = derived(identity);
    const { identity: rotated } = await reconcileAgreements(next, await publish(next), {
      nowMs: start + 7 * day,
      keptMs,
    });
    expect(isRotationDue(rotated, start + 8 * day, 7 * day)).toBe(false);
    expect(isRotationDue(rotated, start + 9 * day, 7 * day)).toBe(true);
  });

  test("keeps the old secret until everything sealed to it has expired, and not longer", async () => {
    const identity = createIdentity("a", start);
    const next = derived(identity);
    const rotatedAt = start + 7 * day;
    const document = await publish(next);
    const after = await reconcileAgreements(next, document, { nowMs: rotatedAt, keptMs });
    expect(after.holdsPublished).toBe(true);
    expect(secrets(after.identity)).toEqual(secrets(next));
    const later = await reconcileAgreements(after.identity, document, {
      nowMs: rotatedAt + keptMs - 1,
      keptMs,
    });
    expect(secrets(later.identity).length).toBe(2);
    const gone = await reconcileAgreements(later.identity, document, {
      nowMs: rotatedAt + keptMs,
      keptMs,
    });
    expect(secrets(gone.identity)).toEqual(secrets(next).slice(1));
  });

  test("that was interrupted before its key was in force destroys nothing, and is still due", async () => {
    const identity = createIdentity("a", start);
    const pending = derived(identity);
    const { identity: found } = await reconcileAgreements(pending, await publish(identity), {
      nowMs: start + 7 * day,
      keptMs,
    });
    expect(found.agreements.map(({ destroyAtMs }) => destroyAtMs)).toEqual([null, null]);
    expect(isRotationDue(found, start + 7 * day, 7 * day)).toBe(true);
  });

  test("leaves nothing from which an earlier secret can be derived", async () => {
    const identity = createIdentity("a", start);
    const first = secrets(identity)[0];
    let now = identity;
    for (let week = 1; week <= 6; week++) {
      now = derived(now);
      now = (
        await reconcileAgreements(now, await publish(now), {
          nowMs: start + week * 7 * day,
          keptMs,
        })
      ).identity;
    }
    expect(renderIdentity(now)).not.toContain(first as string);
    expect(secrets(now).length).toBe(2);
  });
});

describe("devices of one identity", () => {
  test("derive the key that another device published, after weeks offline", async () => {
    const phone = createIdentity("a", start);
    const laptop = parseIdentity(renderIdentity(phone), "a");
    if (laptop === null) throw new Error("not read again");
    let ahead = phone;
    for (let i = 0; i < 5; i++) ahead = derived(ahead);
    const document = await publish(ahead);
    const nowMs = start + 40 * day;
    const { identity: followed, holdsPublished } = await reconcileAgreements(laptop, document, {
      nowMs,
      keptMs,
    });
    expect(holdsPublished).toBe(true);
    expect(secrets(followed)).toEqual(secrets(ahead));
    expect(followed.agreements.at(-1)?.destroyAtMs).toBeNull();
    expect(
      followed.agreements.slice(0, -1).every(({ destroyAtMs }) => destroyAtMs === nowMs + keptMs),
    ).toBe(true);
    expect(followed.chain.sinceMs).toBe(nowMs);
  });

  test("that rotate at the same time publish the same key", async () => {
    const phone = createIdentity("a", start);
    const laptop = parseIdentity(renderIdentity(phone), "a");
    if (laptop === null) throw new Error("not read again");
    const keyOf = (document: DidDocument) => document.keyAgreement[0]?.publicKeyMultibase ?? "";
    expect(keyOf(await publish(derived(phone)))).not.toBe(keyOf(await publish(phone)));
    expect(keyOf(await publish(derived(phone)))).toBe(keyOf(await publish(derived(laptop))));
  });

  test("report a key that they can't derive, and keep their secrets", async () => {
    const identity = createIdentity("a", start);
    const stranger = await publish({ ...createIdentity("b", start), did: identity.did });
    const found = await reconcileAgreements(
      identity,
      { ...stranger, id: identity.did },
      { nowMs: start, keptMs },
    );
    expect([found.holdsPublished, secrets(found.identity)]).toEqual([false, secrets(identity)]);
  });
});
