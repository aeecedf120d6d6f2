/**
 * The texts that programs keep between runs beside messages: identities, plans, what is remembered of others, locks.
 */
import * as z from "zod/mini";
import { decodeHex } from "../../core/codec/bytes.ts";
import { type Did, isDid } from "../../core/codec/did.ts";
import { decimal, integer, natural, oneOf, text } from "./shapes.ts";

const did = z.custom<Did>((value) => typeof value === "string" && isDid(value), "a DID");
const hexOf = (form: RegExp) =>
  z.custom<string>((value) => typeof value === "string" && form.test(value), "lower hex");
const toBytes = z.transform((hex: string) => decodeHex(hex) as Uint8Array);
const hex32 = hexOf(/^[0-9a-f]{64}$/);
const bytes32 = z.pipe(hex32, toBytes);
const bytes = z.pipe(hexOf(/^([0-9a-f]{2})*$/), toBytes);
const counter = z.pipe(
  decimal,
  z.transform((digits) => BigInt(digits)),
);
/** Of the form of a text. */
const version = z.custom<1>((value) => value === 1, "1");
const held = { id: text, secret: bytes32 };
export const identityShape = z.object({
  version,
  name: text,
  did,
  rootSeed: bytes32,
  nextRootSeed: z.nullable(bytes32),
  methods: z.array(z.object(held)),
  agreements: z.array(z.object({ ...held, destroyAtMs: z.nullable(integer) })),
  chain: z.object({ epoch: integer, key: bytes32, sinceMs: integer }),
  ledger: z.nullable(hex32),
  storeKey: bytes32,
});
export const planShape = z.object({
  version,
  plan: z.object({
    id: text,
    seed: bytes32,
    to: did,
    recipient: z.object({ keyId: text, publicKey: bytes32 }),
    file: z.object({ name: text, mediaType: text, sizeBytes: natural, sha256: bytes32 }),
    chunkBytes: natural,
    timestamp: text,
    ttl: text,
    tag: z.nullable(text),
    hint: z.nullable(oneOf("direct", "cache")),
  }),
  senderKeyId: z.nullable(text),
  delivered: natural,
});

export const sendingShape = z.object({ plans: z.array(planShape) });

/** How far the record of a correspondent had come, and the home that its document named then. */
export const rememberedShape = z.object({
  did,
  root: integer,
  rootKey: bytes32,
  nonce: counter,
  hash: bytes32,
  home: z.optional(text),
});
export const rememberedAliasShape = z.object({ alias: text, did });
/** Calls that were signed and may still be accepted. */
export const claimsShape = z.object({
  claims: z.array(z.object({ nonce: counter, sha256: bytes32, untilMs: integer })),
});
export const aliasesShape = z.object({ aliases: z.array(text) });
export const methodKeysShape = z.object({ keys: z.array(text) });
/** The root key of the shares that they have; `null` until all are sent. */
export const guardiansShape = z.object({ to: z.array(text), rootKey: z.nullable(bytes32) });
export const shareShape = z.object({ did, rootKey: bytes32, share: bytes });
export const headShape = z.object({ logKey: text, note: text });
/** The key of locked texts, sealed with that of a lock. */
const wrap = {
  kind: oneOf("passphrase", "passkey"),
  salt: bytes,
  credential: z.nullable(bytes),
  sealed: bytes,
};
export const locksShape = z.object({ format: text, locks: z.array(z.object(wrap)) });
export const sealedShape = z.object({ format: text, sealed: bytes });

export type Wrap = z.infer<typeof locksShape>["locks"][number];
