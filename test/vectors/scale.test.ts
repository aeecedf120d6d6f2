/**
 * The worked vectors of our SCALE layouts and of the texts that keys sign. Valid ones must encode,
 * decode and verify exactly; the @polkadot codec and @noble/curves agree. Invalid ones must be
 * refused, and where only a bound or the text is at fault, the lenient codec shows that the rest is
 * sound.
 */

import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { ed25519 } from "@noble/curves/ed25519.js";
import { concatBytes, decodeBase64, encodeBase64, utf8 } from "../../src/core/codec/bytes.ts";
import { blake2b256, verifyEd25519 } from "../../src/core/codec/crypto.ts";
import type { DidDocument } from "../../src/core/ledger/account.ts";
import * as accounts from "../../src/core/ledger/account.ts";
import * as documents from "../../src/core/ledger/document-codec.ts";
import * as scale from "../../src/core/ledger/structures.ts";
import {
  coded,
  type OracleForm,
  oracle,
  oracleEncode,
  oracleReencode,
  storageMapKey,
} from "../oracles/scale.ts";

type Vector = {
  readonly name: string;
  readonly kind: string;
  readonly bytes: string;
  readonly value?: unknown;
  readonly breach?: "bound" | "text" | "form";
  readonly signature?: string;
  readonly public_key?: string;
  readonly blake2b256?: string;
};

function load(folder: string): [file: string, vector: Vector][] {
  const root = new URL(`scale/${folder}/`, import.meta.url);
  return readdirSync(root)
    .sort()
    .map((file) => [file, JSON.parse(readFileSync(new URL(file, root), "utf8"), revive)]);
}

const integers = new Set(["nonce", "validUntilMs", "baseFee", "perKibFee"]);

function revive(name: string, value: unknown): unknown {
  if (typeof value !== "string") return value;
  if (name === "newRootPubkey") return Uint8Array.fromHex(value.slice(2));
  return integers.has(name) ? BigInt(value) : value;
}

type Kind = {
  readonly encode: (value: never) => Uint8Array;
  readonly decode: (bytes: Uint8Array) => unknown;
  readonly oracleForm: (value: never) => OracleForm;
  readonly oracleType: string;
};

const structures: Readonly<Record<string, Kind>> = {
  verification_method: {
    ...coded(accounts.verificationMethodCodec),
    oracleForm: oracle.method,
    oracleType: "Method",
  },
  service: {
    ...coded(accounts.serviceCodec),
    oracleForm: oracle.service,
    oracleType: "Service",
  },
  document: {
    encode: documents.encodeDidDocument,
    decode: documents.decodeDidDocument,
    oracleForm: oracle.document,
    oracleType: "Document",
  },
  document_payload: {
    ...coded(scale.payloadCodecs.document),
    oracleForm: oracle.documentPayload,
    oracleType: "DocumentPayload",
  },
  root_pubkey_payload: {
    ...coded(scale.payloadCodecs.rootPubkey),
    oracleForm: oracle.rootPubkeyPayload,
    oracleType: "RootPubkeyPayload",
  },
  alias_payload: {
    ...coded(scale.payloadCodecs.alias),
    oracleForm: oracle.aliasPayload,
    oracleType: "AliasPayload",
  },
  control_payload: {
    ...coded(scale.payloadCodecs.control),
    oracleForm: oracle.controlPayload,
    oracleType: "ControlPayload",
  },
  delivery_policy: {
    ...coded(accounts.deliveryPolicyCodec),
    oracleForm: oracle.deliveryPolicy,
    oracleType: "DeliveryPolicy",
  },
};

/** Kinds that are bytes or texts without a structure to decode. */
const messages: Readonly<Record<string, (value: never) => Uint8Array>> = {
  registration_message: (v: { did: string; timestamp: string }) => utf8(`${v.did}|${v.timestamp}`),
  set_document_message: (v: { document: DidDocument; timestamp: string }) =>
    concatBytes(
      utf8(`svc:set_document:v1|${v.document.id}|`),
      blake2b256(documents.encodeDidDocument(v.document)),
      utf8(`|${v.timestamp}`),
    ),
  // Written out field by field, so that the program's own structures are not compared with
  // themselves.
  registration_v3_message: (
    v: { document: DidDocument; alias: string } & Bound & Record<"pubkey" | "submitter", string>,
  ) =>
    concatBytes(
      utf8("svc:register:v3|"),
      compactText(v.document.id),
      Uint8Array.of(1),
      compactText(v.alias),
      Uint8Array.fromHex(`80${v.pubkey}`),
      blake2b256(documents.encodeDidDocument(v.document)),
      u64Bytes("0"),
      u64Bytes(v.expiry),
      Uint8Array.fromHex(v.genesis),
      Uint8Array.fromHex(`01${v.submitter}`),
    ),
  set_document_v3_message: (v: { document: DidDocument; counter: string } & Bound) =>
    concatBytes(
      utf8("svc:set_document:v3|"),
      compactText(v.document.id),
      blake2b256(documents.encodeDidDocument(v.document)),
      u64Bytes(v.counter),
      u64Bytes(v.expiry),
      Uint8Array.fromHex(v.genesis),
    ),
  authorization_v3_message: (v: { domain: string; payload: string; genesis: string }) =>
    concatBytes(
      utf8(`svc:authorization:v3:${v.domain}|`),
      Uint8Array.fromHex(v.genesis),
      Uint8Array.fromHex(v.payload),
    ),
  storage_key: (v: { pallet: "DidRegistry"; map: "Dids"; key: string }) =>
    storageMapKey(v.pallet, v.map, v.key),
};

type Bound = { readonly expiry: string; readonly genesis: string };

/** Of fewer than 64 bytes. */
function compactText(text: string): Uint8Array {
  return concatBytes(Uint8Array.of(text.length << 2), utf8(text));
}

function u64Bytes(text: string): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text), true);
  return bytes;
}

const valid = load("valid");
const invalid = load("invalid");

test("the fifteen worked vectors are all there", () => {
  expect(new Set(valid.map(([file]) => file.slice(0, 2))).size).toBe(15);
  expect(invalid.length).toBeGreaterThan(20);
});

for (const [file, vector] of valid) {
  test(`valid ${file}: ${vector.name}`, () => {
    const kind = structures[vector.kind];
    const value = vector.value as never;
    const bytes = Uint8Array.fromHex(vector.bytes);
    if (kind === undefined) {
      expect(messages[vector.kind]?.(value).toHex()).toBe(vector.bytes);
    } else {
      expect(kind.encode(value).toHex()).toBe(vector.bytes);
      expect(kind.decode(bytes)).toEqual(vector.value);
      expect(oracleEncode(kind.oracleForm(value)).toHex()).toBe(vector.bytes);
    }
    if (vector.blake2b256 !== undefined) expect(blake2b256(bytes).toHex()).toBe(vector.blake2b256);
    if (vector.signature !== undefined) expectSigned(vector, bytes);
  });
}

function expectSigned(vector: Vector, message: Uint8Array): void {
  const signature = decodeBase64(vector.signature ?? "");
  const key = Uint8Array.fromHex(vector.public_key ?? "");
  if (signature === null) throw new Error("the signature of the vector is not Base64");
  expect(verifyEd25519(signature, message, key)).toBe(true);
  expect(ed25519.verify(signature, message, key)).toBe(true);
  expect(encodeBase64(ed25519.sign(message, new Uint8Array(32).fill(7)))).toBe(
    vector.signature ?? "",
  );
  expect(verifyEd25519(signature, message.subarray(1), key)).toBe(false);
}

for (const [file, vector] of invalid) {
  test(`invalid ${file}: ${vector.name}`, () => {
    const kind = structures[vector.kind];
    if (kind === undefined) throw new Error(`no kind ${vector.kind}`);
    const bytes = Uint8Array.fromHex(vector.bytes);
    expect(kind.decode(bytes)).toBeNull();
    if (vector.breach !== "form")
      expect(oracleReencode(kind.oracleType, bytes).toHex()).toBe(vector.bytes);
  });
}
