/** Text forms of public keys, keys of methods, lengths, and the bound of what is remembered. */
import { describe, expect, test } from "bun:test";
import { ed25519 } from "@noble/curves/ed25519.js";
import {
  concatBytes,
  encodeBase58,
  encodeHex,
  encodeHex0x,
  parsePublicKey,
  renderPublicKey,
  utf8,
} from "../../../../src/core/codec/bytes.ts";
import { verifyEd25519 } from "../../../../src/core/codec/crypto.ts";
import { keyOfMethod } from "../../../../src/core/ledger/document.ts";

const seed = new Uint8Array(32).fill(7);
const key = ed25519.getPublicKey(seed);
const multikey = "z6MkvDqGT54cXesYGvABpF1UapVNwjCqRcafi4Px6Thv5T3Z";
const bare = "zGmaDrppBC7P5ARKV8g3djiwP89vz1jLK23V2GBjuAEGB";

describe("public keys as text", () => {
  const readable: [string, string][] = [
    ["0x and hex", encodeHex0x(key)],
    ["hex", encodeHex(key)],
    ["upper-case hex", encodeHex(key).toUpperCase()],
    ["z and the bare key", bare],
    ["z and ed 01 and the key", multikey],
  ];
  for (const [name, text] of readable) {
    test(`${name} is read`, () => expect(parsePublicKey(text)).toEqual(key));
  }
  const refused: [string, string][] = [
    ["nothing", ""],
    ["z alone", "z"],
    ["63 hex digits", encodeHex(key).slice(1)],
    ["0x and 62 hex digits", encodeHex0x(key).slice(0, 64)],
    ["66 hex digits without 0x", `ed01${encodeHex(key)}`.slice(0, 66)],
    ["base58 without z", bare.slice(1)],
    ["another multicodec", `z${encodeBase58(concatBytes(new Uint8Array([0xec, 1]), key))}`],
    ["31 bytes", `z${encodeBase58(key.subarray(1))}`],
    ["33 bytes", `z${encodeBase58(concatBytes(new Uint8Array([1]), key))}`],
    ["a letter outside base58", `${bare.slice(0, -1)}0`],
    ["a very long text", `z${"1".repeat(1_000_000)}`],
    ["white space", ` ${multikey}`],
  ];
  for (const [name, text] of refused) {
    test(`${name} is refused`, () => expect(parsePublicKey(text)).toBeNull());
  }
  test("is rendered as z and ed 01 and the key", () => expect(renderPublicKey(key)).toBe(multikey));
});

describe("the key of a verification method", () => {
  const method = {
    id: "did:svc:1#k",
    type: "Multikey",
    controller: "did:svc:1",
    publicKeyMultibase: multikey,
  };
  test("both type names and both multibase forms name an Ed25519 key", () => {
    for (const type of ["Multikey", "Ed25519VerificationKey2020"]) {
      for (const publicKeyMultibase of [multikey, bare]) {
        expect(keyOfMethod({ ...method, type, publicKeyMultibase })).toEqual(key);
      }
    }
  });
  test("another type, hex text and an inadmissible key name none", () => {
    expect(keyOfMethod({ ...method, type: "X25519KeyAgreementKey2020" })).toBeNull();
    expect(keyOfMethod({ ...method, publicKeyMultibase: encodeHex(key) })).toBeNull();
    expect(
      keyOfMethod({ ...method, publicKeyMultibase: renderPublicKey(new Uint8Array(32)) }),
    ).toBeNull();
  });
});

describe("verifyEd25519", () => {
  const message = utf8("message");
  const signature = ed25519.sign(message, seed);
  test("accepts an honest signature again and again", () => {
    for (let i = 0; i < 3; i++) expect(verifyEd25519(signature, message, key)).toBe(true);
  });
  test("refuses wrong lengths instead of throwing", () => {
    for (const length of [0, 63, 65])
      expect(verifyEd25519(new Uint8Array(length), message, key)).toBe(false);
    for (const length of [0, 31, 33])
      expect(verifyEd25519(signature, message, new Uint8Array(length))).toBe(false);
  });
});
