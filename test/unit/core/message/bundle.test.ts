/** Key bundles: the form that Caches and senders accept, and the text that their owner signs. */
import { describe, expect, test } from "bun:test";
import { createHash, createPrivateKey, createPublicKey, verify as verifyNative } from "node:crypto";
import { encodeBase64 } from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import type { JsonObject } from "../../../../src/core/codec/json.ts";
import { dayMs, minuteMs } from "../../../../src/core/codec/time.ts";
import { isFault } from "../../../../src/core/fault.ts";
import { announcesBundle, bundleAgreement } from "../../../../src/core/ledger/account.ts";
import {
  bundleDigest,
  bundleTimeProblem,
  encodeBundleText,
  type KeyBundle,
  parseBundle,
  renderBundle,
  verifyBundle,
} from "../../../../src/core/message/bundle.ts";
import { bundleKey, bundleOf } from "../../../support/bundles.ts";
import { createPerson } from "../../../support/cache-node.ts";

const bob = createPerson(1);
const eve = createPerson(2);
const nowMs = Date.UTC(2026, 10, 28, 12);
const bundle = bundleOf(bob, nowMs);
const sent = renderBundle(bundle);
const sha256 = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");

/** A bundle, or where it is wrong. */
function read(value: JsonObject): KeyBundle | string {
  const parsed = parseBundle(value);
  return isFault(parsed) ? `${parsed.code} ${parsed.extra.errors?.[0]?.pointer}` : parsed;
}

test("a bundle reads back as it was sent", () => {
  expect(read(sent)).toEqual(bundle);
});

test("its text is the documented lines, signed as another implementation verifies", () => {
  const text = [
    "svc:key-bundle:v2",
    `did=${bob.did}`,
    `key_id=${sha256(bundle.publicKey).slice(0, 32)}`,
    "issued_at=2026-11-28T12:00:00.000Z",
    "not_after=2026-12-05T12:00:00.000Z",
    `key_sha256=${sha256(bundle.publicKey)}`,
  ].join("\n");
  expect(new TextDecoder().decode(encodeBundleText(bundle))).toBe(text);
  expect(bundleDigest(bundle)).toBe(sha256(text));
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), bob.seed]);
  const secret = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
  const key = createPublicKey(secret);
  expect(verifyNative(null, Buffer.from(text), key, bundle.signature)).toBe(true);
});

describe("a bundle is refused", () => {
  const key = bundleKey(7);
  /** The second coefficient is the modulus, 3,329. */
  const beyond = key.slice();
  beyond.set([0x07, 0x10, 0xd0]);
  const cases: readonly (readonly [string, JsonObject, string])[] = [
    ["without a member", without("signer"), "/signer"],
    ["with another member", { ...sent, more: "" }, ""],
    ["with a number", { ...sent, issued_at: nowMs }, "/issued_at"],
    ["of no DID", { ...sent, did: "did:web:bob" }, "/did"],
    ["with a key of another", { ...sent, signer: eve.keyId }, "/signer"],
    ["with a relative key id", { ...sent, signer: "#k1" }, "/signer"],
    [
      "with a short key",
      { ...sent, public_key_b64: encodeBase64(key.slice(1)) },
      "/public_key_b64",
    ],
    [
      "with a long key",
      { ...sent, public_key_b64: `${sent["public_key_b64"]}AAAA` },
      "/public_key_b64",
    ],
    ["with leftover bits", { ...sent, signature_b64: `${"A".repeat(85)}B==` }, "/signature_b64"],
    [
      "with a coefficient beyond the modulus",
      { ...sent, public_key_b64: encodeBase64(beyond) },
      "/public_key_b64",
    ],
    ["with an id of another key", { ...sent, key_id: "0".repeat(32) }, "/key_id"],
    ["with seconds", { ...sent, issued_at: "2026-11-28T12:00:00Z" }, "/issued_at"],
    ["with another zone", { ...sent, not_after: "2026-12-05T13:00:00.000+01:00" }, "/not_after"],
    ["for longer than a week", { ...sent, not_after: "2026-12-05T12:00:00.001Z" }, "/not_after"],
    ["that ends as it begins", { ...sent, not_after: sent["issued_at"] as string }, "/not_after"],
    ["with a short signature", { ...sent, signature_b64: "AAAA" }, "/signature_b64"],
  ];
  test.each(cases)("%s", (_, value, pointer) => {
    expect(read(value)).toBe(`invalid_request ${pointer}`);
  });

  test("that is no object", () => {
    for (const value of [null, [], "", 7, [sent]])
      expect(isFault(parseBundle(value as never))).toBe(true);
  });
});

function without(name: string): JsonObject {
  return Object.fromEntries(Object.entries(sent).filter(([key]) => key !== name));
}

describe("whose signature counts", () => {
  const verified = (one: KeyBundle, document = bob.document) =>
    verifyBundle(one, document, verifyEd25519);
  test("a method that the document's authentication lists", async () => {
    expect(await verified(bundle)).toBe(true);
    expect(await verified(bundle, { ...bob.document, authentication: [] })).toBe(false);
    expect(await verified(bundle, { ...bob.document, verificationMethod: [] })).toBe(false);
  });

  test("not another's, for another DID, time or key", async () => {
    expect(await verified(bundleOf({ ...bob, seed: eve.seed }, nowMs))).toBe(false);
    expect(await verified(bundle, eve.document)).toBe(false);
    expect(await verified({ ...bundle, notAfterMs: bundle.notAfterMs - 1 })).toBe(false);
    expect(await verified({ ...bundle, issuedAtMs: bundle.issuedAtMs + 1 })).toBe(false);
    expect(await verified({ ...bundle, publicKey: bundleKey(8) })).toBe(false);
    expect(await verified({ ...bundle, keyId: "0".repeat(32) })).toBe(false);
  });
});

test("it counts from its making, less the skew, to its end", () => {
  const problem = (atMs: number) => bundleTimeProblem(bundle, atMs, 5 * minuteMs);
  expect(problem(nowMs - 5 * minuteMs - 1)).toBe("future");
  expect(problem(nowMs - 5 * minuteMs)).toBeNull();
  expect(problem(nowMs + 7 * dayMs - 1)).toBeNull();
  expect(problem(nowMs + 7 * dayMs)).toBe("expired");
});

test("a document announces bundles by an agreement of its own type and value", () => {
  const entry = { id: `${bob.did}#v2`, controller: bob.did, ...bundleAgreement };
  expect(announcesBundle({ keyAgreement: [entry] })).toBe(true);
  expect(announcesBundle({ keyAgreement: [{ ...entry, type: "X25519KeyAgreementKey2020" }] })).toBe(
    false,
  );
  expect(announcesBundle({ keyAgreement: [{ ...entry, publicKeyMultibase: "z1" }] })).toBe(false);
  expect(bundleAgreement.publicKeyMultibase).toBe("z25vzkbCDzqroPEXLMgSxXC65");
});
