/**
 * What own devices say, sealed for them alone: a head and the secrets that go with it to each
 * listed device's key, and all else under the seed of the root key. So no server reads or writes
 * between them, whatever it says of their DIDs.
 * Source: docs/trust.md ("Own devices").
 */
import { sha256 } from "#sha256";
import {
  concatBytes,
  decodeBase64,
  decodeHex,
  decodeUtf8,
  encodeBase64,
  encodeHex,
  equalBytes,
  utf8,
} from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { array, object, parseKept, parseRecord, renderKept, text } from "../base/shapes.ts";
import {
  ed25519PublicKey,
  hkdf,
  openBytes,
  sealBytes,
  signEd25519,
  verifySignature,
  x25519PublicKey,
  x25519SharedSecret,
} from "../keys/crypto.ts";
import { freshSeed, type Identity, parseIdentity } from "../keys/keys.ts";
import { type Head, headText, parseHead } from "./keyring.ts";

const [headPurpose, itemsPurpose] = ["waypost:head:v1", "waypost:devices:v1"];

/** A head, and the secrets that a device with it has. */
export type HeadWithKeys = { readonly head: Head; readonly identity: string };

const madeShape = object({ made: array(text) });

/**
 * As another device gets it, with public keys of methods that own devices have added: what is this
 * device's own is left out.
 */
export const withoutOwn = (identity: Identity, made: readonly string[] = []): string =>
  renderKept({ version: 1, ...identity, storeKey: new Uint8Array(32), made });

export const madeIn = (identity: string): readonly string[] =>
  parseKept(identity, madeShape)?.made ?? [];

const secretsDigest = (secrets: string): string => encodeHex(sha256(utf8(secrets)));

/** Of the shared secret with a fresh key, for one recipient. */
async function headKey(secret: Uint8Array, publicKey: Uint8Array, salt: Uint8Array) {
  return hkdf(await x25519SharedSecret(secret, publicKey), salt, utf8(headPurpose), 32);
}

/** To a device's key, from a fresh one; signed by the head's root key, whose seed is given. */
export async function sealHead(
  { head, identity }: HeadWithKeys,
  seed: Uint8Array,
  deviceKey: Uint8Array,
): Promise<string> {
  const signature = await signEd25519(headText(head, secretsDigest(identity)), seed);
  const plain = JSON.stringify({ head, identity, signature: encodeBase64(signature) });
  const fresh = freshSeed();
  const ephemeral = await x25519PublicKey(fresh);
  const key = await headKey(fresh, deviceKey, concatBytes(ephemeral, deviceKey));
  return encodeBase64(concatBytes(ephemeral, sealBytes(key, utf8(plain), utf8(headPurpose))));
}

/**
 * `null` unless it was sealed to this device, is signed by its root key,
 * and brings that key's seed.
 */
export async function openHead(
  sealedHead: string,
  deviceSecret: Uint8Array,
  name: string,
): Promise<HeadWithKeys | null> {
  const bytes = decodeBase64(sealedHead);
  if (bytes === null || bytes.length < 64) return null;
  const [ephemeral, sealed] = [bytes.slice(0, 32), bytes.subarray(32)];
  const own = await x25519PublicKey(deviceSecret);
  const key = await headKey(deviceSecret, ephemeral, concatBytes(ephemeral, own)).catch(() => null);
  const plain = key === null ? null : openBytes(key, sealed, utf8(headPurpose));
  const json = plain === null ? null : parseRecord(decodeUtf8(plain) ?? "");
  const head = parseHead(json?.["head"]);
  const { identity = "", signature = "" } = json ?? {};
  if (head === null || typeof identity !== "string" || typeof signature !== "string") return null;
  const given = parseIdentity(identity, name);
  const root = decodeHex(head.root) as Uint8Array;
  if (given?.did !== head.did || !equalBytes(await ed25519PublicKey(given.rootSeed), root))
    return null;
  const signed = headText(head, secretsDigest(identity));
  const isSigned = await verifySignature(
    decodeBase64(signature) ?? new Uint8Array(0),
    signed,
    root,
  );
  return isSigned ? { head, identity } : null;
}

type Way = { readonly from: Did; readonly to: Did };

const itemsKey = (seed: Uint8Array, { from, to }: Way): Uint8Array =>
  hkdf(seed, null, utf8(`${itemsPurpose}|${from}|${to}`), 32);

/** Under the seed of a root key, from one device to another. */
export const sealItems = (seed: Uint8Array, way: Way, json: unknown): string =>
  encodeBase64(
    sealBytes(itemsKey(seed, way), utf8(JSON.stringify(json)), utf8(`${way.from}|${way.to}`)),
  );

/** `null` when it was sealed under another seed or on another way. */
export function openItems(
  seed: Uint8Array,
  way: Way,
  sealedText: string,
): Record<string, unknown> | null {
  const sealed = decodeBase64(sealedText);
  const plain =
    sealed === null ? null : openBytes(itemsKey(seed, way), sealed, utf8(`${way.from}|${way.to}`));
  return plain === null ? null : parseRecord(decodeUtf8(plain) ?? "");
}
