/**
 * The texts that programs keep between runs apart from messages: identities, plans, what is remembered of others, locks.
 */

import { decodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import {
  array,
  custom,
  decimal,
  integer,
  mapped,
  natural,
  nullable,
  type Of,
  object,
  oneOf,
  optional,
  text,
  truth,
} from "./shapes.ts";

const did = custom<Did>((value) => typeof value === "string" && isDid(value), "a DID");
const hexOf = (form: RegExp) =>
  custom<string>((value) => typeof value === "string" && form.test(value), "lower hex");
const toBytes = (hex: string): Uint8Array => decodeHex(hex) as Uint8Array;
const hex32 = hexOf(/^[0-9a-f]{64}$/);
const bytes32 = mapped(hex32, toBytes);
const bytes = mapped(hexOf(/^([0-9a-f]{2})*$/), toBytes);
const counter = mapped(decimal, (digits) => BigInt(digits));
/** Of the form of a text. */
const version = custom<1>((value) => value === 1, "1");
const held = { id: text, secret: bytes32 };
export const identityShape = object({
  version,
  name: text,
  did,
  rootSeed: bytes32,
  nextRootSeed: nullable(bytes32),
  methods: array(object({ ...held, under: optional(text), isShared: optional(truth) })),
  agreements: array(
    object({
      ...held,
      under: optional(text),
      madeMs: optional(integer),
      destroyAtMs: nullable(integer),
    }),
  ),
  bundleKeys: optional(
    array(object({ ...held, under: text, madeMs: integer, destroyAtMs: integer })),
  ),
  sealingSinceMs: optional(integer),
  /** In texts of earlier programs. */
  chain: optional(object({ sinceMs: integer })),
  ledger: nullable(hex32),
  storeKey: bytes32,
});
export const planShape = object({
  version,
  plan: object({
    id: text,
    seed: bytes32,
    to: did,
    recipient: object({ keyId: text, publicKey: bytes }),
    file: object({ name: text, mediaType: text, sizeBytes: natural, sha256: bytes32 }),
    chunkBytes: natural,
    sealedBytesMax: optional(nullable(natural)),
    timestamp: text,
    ttl: text,
    tag: nullable(text),
    hint: nullable(oneOf("direct", "cache")),
  }),
  senderKeyId: nullable(text),
  delivered: natural,
});

export const sendingShape = object({ plans: array(planShape) });

/** What a program that only sends shows and gives (`store/passes.ts`). */
export const keptPassesShape = object({
  areGiven: truth,
  passes: array(object({ did, pass: text })),
});

/** How far the record of a correspondent had come, and the home that its document named then. */
export const rememberedShape = object({
  did,
  root: integer,
  rootKey: bytes32,
  nonce: counter,
  hash: bytes32,
  /** What fingerprints showed of it (`trust/print.ts`). */
  print: optional(bytes),
  home: optional(text),
  /** Another own device has proven another state. */
  isContradicted: optional(truth),
});
/** The fingerprint that the user has compared with a person. */
export const comparedShape = object({ did, text });
export const rememberedAliasShape = object({ alias: text, did });
/** The published key whose secret this device lacks, since when, and when it last published another one. */
export const lackingShape = object({ key: text, sinceMs: integer, replacedMs: integer });
/** The bundle that the own Caches have, where, under which methods, and when that was last seen. */
export const putBundleShape = object({
  keyId: text,
  methods: optional(text),
  urls: array(text),
  atMs: integer,
});
/** Calls that were signed and may still be accepted. */
export const claimsShape = object({
  claims: array(object({ nonce: counter, sha256: bytes32, untilMs: integer })),
});
export const aliasesShape = object({ aliases: array(text) });
export const methodKeysShape = object({ keys: array(text) });
/** Of the services that this identity has named: `host:port`. */
export const hostsShape = object({ hosts: array(text) });
/**
 * Guardians: the message with the share of each, and whether it was acknowledged; the root key of the shares, `null` until
 * all are sent; and the one that is to be replaced before.
 */
export const guardiansShape = object({
  to: array(object({ did, id: nullable(text), hasShare: truth })),
  before: nullable(bytes32),
  rootKey: nullable(bytes32),
});
/** A replacement of the keys that is under way: the root key that it makes, and what its user has ticked, as it was shown. */
export const replacingShape = object({
  rootKey: bytes32,
  services: array(object({ id: text, type: text, endpoints: array(text) })),
  methods: nullable(array(object({ id: text, publicKey: text }))),
});
export const replacingKey = "replacing";
/** The root key of the last backup. */
export const backupShape = object({ rootKey: bytes32 });
/** The key of a store with the history of a backup whose keys were replaced since. */
export const historyShape = object({ did, storeKey: bytes32 });
export const shareShape = object({ did, rootKey: bytes32, share: bytes });
/** Keys of the heads of logs that have begun anew. */
export const logHeadsShape = object({ heads: array(text) });
export const headShape = object({ logKey: text, note: text });
/** The key of locked texts, sealed with that of a lock. */
const wrap = {
  kind: oneOf("passphrase", "passkey"),
  salt: bytes,
  credential: nullable(bytes),
  sealed: bytes,
};
export const locksShape = object({ format: text, locks: array(object(wrap)) });
export const namesShape = object({ names: array(text) });
export const sealedShape = object({ format: text, sealed: bytes });

/** Under which is remembered that Caches are still to end pushes (`identity/push.ts`). */
export const keepingKey = "push/keeping";

export type Wrap = Of<typeof locksShape>["locks"][number];
