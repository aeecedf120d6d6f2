/**
 * What keys sign: the table of actions against the lists of docs/ledger.md 1.5, payloads against
 * the worked vectors of its section 5, and the two versions of proof timestamps.
 */

import { describe, expect, test } from "bun:test";
import { decodeBase64, decodeHex, encodeHex, utf8 } from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import type { Did } from "../../../../src/core/codec/did.ts";
import { type ActionName, actions, type Intent } from "../../../../src/core/ledger/actions.ts";
import { callOfIntent, intentOfCall, type ProofCall } from "../../../../src/core/ledger/calls.ts";
import {
  documentMessage,
  parseProofTimestamp,
  registrationMessage,
  renderProofTimestamp,
} from "../../../../src/core/ledger/document-codec.ts";
import { isRefusal } from "../../../../src/core/ledger/refusals.ts";
import { decodePayload, encodeAuthorization } from "../../../../src/core/ledger/structures.ts";
import { cache, k1, x1 } from "../../../support/alice.ts";
import { keyPair } from "../../../support/identity.ts";

const did = "did:svc:1111111111111111111111" as Did;
const key = keyPair(new Uint8Array(32).fill(7));
const at = { nonce: 5n, validUntilMs: 1_893_456_000_000n, signerKeyId: "root" };
const method = {
  id: `${did}#k1`,
  type: "Multikey",
  controller: did,
  publicKeyMultibase: "z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z",
};

const intents: Intent[] = [
  { action: "AddVerificationMethod", did, verificationMethod: k1 },
  { action: "UpdateVerificationMethod", did, verificationMethod: k1 },
  { action: "RemoveVerificationMethod", did, id: k1.id },
  { action: "AddAuthentication", did, id: k1.id },
  { action: "RemoveAuthentication", did, id: k1.id },
  { action: "AddKeyAgreement", did, keyAgreement: x1 },
  { action: "UpdateKeyAgreement", did, keyAgreement: x1 },
  { action: "RemoveKeyAgreement", did, id: x1.id },
  { action: "AddService", did, service: cache },
  { action: "UpdateService", did, service: cache },
  { action: "RemoveService", did, id: cache.id },
  { action: "add_alias", did, alias: "a" },
  { action: "update_alias", did, oldAlias: "a", newAlias: "b" },
  { action: "remove_alias", did, alias: "a" },
  { action: "UpdateRootPubkey", did, newRootPubkey: key.publicKey },
  { action: "deactivate_did", did },
  { action: "delete_did", did },
];

describe("the table of actions", () => {
  test("has an example here for every action", () => {
    expect(intents.map(({ action }) => action).sort()).toEqual(
      (Object.keys(actions) as ActionName[]).sort(),
    );
  });

  test("names the discriminants of the runtime", () => {
    const documents = [
      "AddVerificationMethod",
      "UpdateVerificationMethod",
      "RemoveVerificationMethod",
      "AddAuthentication",
      "RemoveAuthentication",
      "AddKeyAgreement",
      "UpdateKeyAgreement",
      "RemoveKeyAgreement",
      "AddService",
      "UpdateService",
      "RemoveService",
    ] as const;
    for (const [i, action] of documents.entries())
      expect<number>(actions[action].discriminant).toBe(i);
    for (const [i, action] of (["add_alias", "update_alias", "remove_alias"] as const).entries())
      expect<number>(actions[action].discriminant).toBe(i);
    const controls = intents
      .filter((intent) => actions[intent.action].counter === "control")
      .map(({ action }) => actions[action].discriminant);
    expect(controls).toEqual([4, 7]);
  });

  for (const intent of intents) {
    test(`${intent.action}: its payload states its discriminant and terms, and its call leads back to it`, () => {
      const { counter, discriminant, call } = actions[intent.action];
      const payload = encodeAuthorization(intent, at);
      expect(decodePayload(counter, payload)).toMatchObject({ did, action: intent.action, ...at });
      if (discriminant !== null) expect(payload[1 + did.length]).toBe(discriminant);
      const carried = callOfIntent(intent, {
        signedPayload: payload,
        signature: new Uint8Array(64),
        signerKeyId: "root",
      });
      expect(carried.name).toBe(call);
      expect(intentOfCall(carried as ProofCall)).toEqual(intent);
    });
  }

  test("an alias that has no normal form has no intent", () => {
    const call = callOfIntent(
      { action: "add_alias", did, alias: "Not Good" },
      { signedPayload: utf8(""), signature: utf8(""), signerKeyId: "root" },
    );
    expect(isRefusal(intentOfCall(call as ProofCall))).toBe(true);
  });
});

describe("worked vectors", () => {
  const head = "786469643a7376633a31313131313131313131313131313131313131313131";
  /** valid_until and the signer `root`. */
  const end = "00b4c5dab801000010726f6f74";
  const cases: readonly {
    name: string;
    intent: Intent;
    nonce: bigint;
    hex: string;
    signature?: string;
  }[] = [
    {
      name: "UpdateVerificationMethod",
      intent: { action: "UpdateVerificationMethod", did, verificationMethod: method },
      nonce: 5n,
      hex: `${head}0101846469643a7376633a31313131313131313131313131313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a0000000500000000000000${end}`,
      signature:
        "Kd1auYPwKavuUkO8ZcyRJsw6x4QJ8/mMV+Hx+f/qgKT0Z23cYj+NmLmAEhBpnv2aTT93XeZst/0CJBIk3hAqBA==",
    },
    {
      name: "RemoveKeyAgreement",
      intent: { action: "RemoveKeyAgreement", did, id: `${did}#x25519-1` },
      nonce: 5n,
      hex: `${head}07000000019c6469643a7376633a31313131313131313131313131313131313131313131237832353531392d310500000000000000${end}`,
      signature:
        "h4McUwhQ+HYGztVxfteX4EMbz7w1RraoINW/mYoJSR1BzWjLBN5ba8dzXKnLetYuZYKt/eUZ46Kibz0YF478Bg==",
    },
    {
      name: "UpdateRootPubkey",
      intent: { action: "UpdateRootPubkey", did, newRootPubkey: new Uint8Array(32).fill(0x2a) },
      nonce: 0n,
      hex: `${head}80${"2a".repeat(32)}0000000000000000${end}`,
      signature:
        "mGK9ZwQScm+ePzJuFE8cCdXIwdZ1cwZ0x0Wq7Zc4srb1HycljJIeVcJGycJ8Br+9pPITjWXHEpFwOGWPAtA9AQ==",
    },
    {
      name: "add_alias",
      intent: { action: "add_alias", did, alias: "team.one" },
      nonce: 4n,
      hex: `${head}0001207465616d2e6f6e6500000400000000000000${end}`,
      signature:
        "EUvt2OoX4w1eops8y/K7vVcjPBjtsVVL+2NgWklR2/eiHPEmHELdbjF+65dt3/Wp8nuOQd2TeWkzPwzqSxNuCg==",
    },
  ];
  for (const { name, intent, nonce, hex, signature } of cases) {
    test(`${name} has the bytes and the signature of the vector`, () => {
      const payload = encodeAuthorization(intent, { ...at, nonce });
      expect(encodeHex(payload)).toBe(hex);
      expect(
        verifyEd25519(decodeBase64(signature ?? "") as Uint8Array, payload, key.publicKey),
      ).toBe(true);
    });
  }

  test("the registration message of version 1", () => {
    const message = registrationMessage({
      did,
      alias: "ignored",
      timestamp: "2026-07-16T12:00:00Z",
      pubkey: key.publicKey,
      docBlob: utf8(""),
    });
    expect(message).toEqual(utf8(`${did}|2026-07-16T12:00:00Z`));
    const signature =
      "fJ9WFgMbg97QOBgI8kuDgjymv66HWVq3tAEcaew25dCHeFE3mqTkcPRODbU4Yln4+IwvZkEm1VJJ8kqo6PHDBg==";
    expect(
      verifyEd25519(decodeBase64(signature) as Uint8Array, message as Uint8Array, key.publicKey),
    ).toBe(true);
  });

  test("the document message of version 1", () => {
    const docBlob = decodeHex(
      "786469643a7376633a3131313131313131313131313131313131313131313104846469643a7376633a31313131313131313131313131313131313131313131236b31204d756c74696b6579786469643a7376633a31313131313131313131313131313131313131313131c07a364d6b76447147543534635865735947764142704631556170564e776a43715263616669345078365468763554335a0104846469643a7376633a31313131313131313131313131313131313131313131236b31000104906469643a7376633a313131313131313131313131313131313131313131312363616368653c537663436163686553657276696365045468747470733a2f2f63616368652e6578616d706c650104846469643a7376633a31313131313131313131313131313131313131313131236b3100",
    ) as Uint8Array;
    const message = documentMessage({
      did,
      timestamp: "2026-07-16T12:00:00Z",
      docBlob,
    }) as Uint8Array;
    expect(encodeHex(message)).toBe(
      "7376633a7365745f646f63756d656e743a76317c6469643a7376633a313131313131313131313131313131313131313131317cb3a8914b989df4c7f0478e861c6a44595bd17bb21ff4a5e6bc379077a8ef84c07c323032362d30372d31365431323a30303a30305a",
    );
  });

  test("version 2 messages are prefix and SCALE", () => {
    const docBlob = utf8("blob");
    const registration = encodeHex(
      registrationMessage({
        did,
        alias: " Bob",
        timestamp: "v2:0:1893456000000",
        pubkey: key.publicKey,
        docBlob,
      }) as Uint8Array,
    );
    const prefix = encodeHex(utf8("svc:register:v2|"));
    expect(registration.startsWith(`${prefix}${head}010c626f6280${encodeHex(key.publicKey)}`)).toBe(
      true,
    );
    expect(registration.endsWith("000000000000000000b4c5dab8010000")).toBe(true);
    expect(registration.length).toBe(prefix.length + head.length + 10 + 66 + 64 + 32);
    const document = encodeHex(
      documentMessage({ did, timestamp: "v2:5:1893456000000", docBlob }) as Uint8Array,
    );
    expect(document.startsWith(encodeHex(utf8("svc:set_document:v2|")) + head)).toBe(true);
    expect(document.endsWith("050000000000000000b4c5dab8010000")).toBe(true);
  });

  test("there is no message for a proof that nobody can have signed", () => {
    const proof = { did, alias: null, pubkey: key.publicKey, docBlob: utf8("") };
    expect(registrationMessage({ ...proof, timestamp: "now" })).toBeNull();
    expect(registrationMessage({ ...proof, timestamp: "v2:1:5" })).toBeNull();
    expect(registrationMessage({ ...proof, alias: "not good", timestamp: "v2:0:5" })).toBeNull();
    expect(documentMessage({ did, docBlob: utf8(""), timestamp: "v2:x:5" })).toBeNull();
  });
});

describe("proof timestamps", () => {
  test("of version 1 are timestamps", () => {
    expect(parseProofTimestamp("2026-07-16T12:00:00Z")).toEqual({
      version: "v1",
      timestampMs: 1_784_203_200_000,
    });
    expect(parseProofTimestamp("1784203200")).toEqual({
      version: "v1",
      timestampMs: 1_784_203_200_000,
    });
  });

  test("of version 2 carry a nonce and an expiry", () => {
    expect(parseProofTimestamp(renderProofTimestamp(7n, 9n))).toEqual({
      version: "v2",
      nonce: 7n,
      expiryMs: 9n,
    });
    expect(parseProofTimestamp("v2:18446744073709551615:0")).toEqual({
      version: "v2",
      nonce: 2n ** 64n - 1n,
      expiryMs: 0n,
    });
  });

  test("of any other form are refused", () => {
    for (const text of [
      "",
      "v2",
      "v2:",
      "v2:0",
      "v2:0:",
      "v2:0:1:2",
      "v2:00:1",
      "v2:0:-1",
      "v2:0:1 ",
      "V2:0:1",
      "v4:0:1",
      "v3:0",
      "V3:0:1",
      "v2:18446744073709551616:0",
      "2026-07-16",
    ]) {
      expect(parseProofTimestamp(text)).toBeNull();
    }
  });
});
