/**
 * Opening what was sealed in the second version. As in the first, nothing is trusted: each
 * member is checked before and after decryption, and the envelope must be what the sender
 * wrote, member by member.
 * Source: docs/protocol.md "Sealing, second version".
 */
import { sha256 } from "#sha256";
import { decodeBase64, encodeHex } from "../../core/codec/bytes.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import {
  digestEnvelope,
  encodeSealedSenderText,
  encodeSealInfo,
  type SealedPlace,
  sealedProfile,
  unpadRecord,
} from "../../core/message/sealed.ts";
import { localError } from "../base/failure.ts";
import { isRecord, optional, parseValue, strictObject, text } from "../base/shapes.ts";
import { hpkeOpen, pageTurns, tagBytes } from "../keys/hpke.ts";
import { encapsulatedBytes, expandSeed } from "../keys/xwing.ts";
import { bytesShape, recordMembers, sha256Shape } from "../net/answers.ts";
import type { EnvelopeJson } from "../net/caches.ts";
import { encodeCborRecord, type SealBinding } from "./seal.ts";
import type { Cipher, Opened, recordReader, SecretsOf } from "./unseal.ts";

const payloadShape = strictObject({
  profile: text,
  key_id: text,
  enc_b64: text,
  ciphertext_b64: text,
});
/** With the sender's signature: all four members, or none. */
const hybridRecordShape = strictObject({
  ...recordMembers,
  from: optional(text),
  from_key: optional(text),
  proof_sha256: optional(sha256Shape),
  signature: optional(bytesShape("a byte string of 64 bytes", ({ length }) => length === 64)),
});

/** A signature inside, not verified so far. */
export type InnerSignature = {
  readonly from: string;
  readonly keyId: string;
  /** Of the proof by which the sender's key is known. */
  readonly proofSha256: Uint8Array;
  readonly signature: Uint8Array;
  /** The exact bytes that it covers. */
  readonly signedBytes: Uint8Array;
  /** For whom, and in which envelope. */
  readonly place: SealedPlace;
};

type RecordReader = typeof recordReader;

type Opening = {
  readonly binding: SealBinding;
  readonly seedsOf: SecretsOf;
  readonly reader: RecordReader;
};

export type HybridOpened = Opened & {
  readonly inner: InnerSignature | null;
  readonly cipher: Cipher;
};

/**
 * The opened payload of an envelope, in the turn of what else holds a page up. Throws a `local`
 * ClientError: `unknown_profile`, `unknown_key`, `not_authentic` or `record_unreadable`.
 */
export const openHybrid = (envelope: EnvelopeJson, opening: Opening): Promise<HybridOpened> =>
  pageTurns.run(() => openEnvelope(envelope, opening));

async function openEnvelope(
  envelope: EnvelopeJson,
  { binding, seedsOf, reader }: Opening,
): Promise<HybridOpened> {
  const { keyId, enc, ciphertext } = parseSealed(envelope["payload"], reader);
  const seeds = seedsOf(keyId);
  if (seeds.length === 0)
    throw localError("unknown_key", `sealed to ${keyId}, whose secret is not on this device`);
  const envelopeSha256 = signedDigest(envelope, reader);
  for (const seed of seeds) {
    const secret = await expandSeed(seed);
    const keySha256 = encodeHex(sha256(secret.publicKey));
    const place: SealedPlace = { to: binding.to, keySha256, envelopeSha256 };
    const found = await hpkeOpen({ enc, ciphertext }, secret, encodeSealInfo(place));
    if (found === null) continue;
    const { plain, key, nonce } = found;
    const cipher = { key, nonce, plainBytes: plain.length };
    return { ...parseHybrid(plain, place, { binding, reader }), cipher };
  }
  throw reader.notAuthentic("it can't be decrypted");
}

type HybridSealed = {
  readonly keyId: string;
  readonly enc: Uint8Array;
  readonly ciphertext: Uint8Array;
};

function parseSealed(payload: unknown, reader: RecordReader): HybridSealed {
  if (!isRecord(payload) || payload["profile"] !== sealedProfile)
    throw localError("unknown_profile", "sealed in a way that this program does not know");
  const texts = parseValue(payload, payloadShape);
  const enc = decodeBase64(texts?.enc_b64 ?? "");
  const ciphertext = decodeBase64(texts?.ciphertext_b64 ?? "");
  if (
    texts === null ||
    enc?.length !== encapsulatedBytes ||
    ciphertext === null ||
    ciphertext.length < tagBytes
  )
    throw reader.notAuthentic("its payload is malformed");
  return { keyId: texts.key_id, enc, ciphertext };
}

function signedDigest(envelope: EnvelopeJson, reader: RecordReader): string {
  try {
    return digestEnvelope(envelope as JsonObject);
  } catch {
    throw reader.notAuthentic("its envelope has no canonical form");
  }
}

function parseHybrid(
  padded: Uint8Array,
  place: SealedPlace,
  { binding, reader }: Omit<Opening, "seedsOf">,
): Omit<HybridOpened, "cipher"> {
  const plain = unpadRecord(padded);
  if (plain === null) throw reader.unreadable("nothing ends it before its padding");
  const decoded = reader.decode(plain);
  const { opened, record } = reader.openedOf(decoded, hybridRecordShape, binding);
  const { signature, ...named } = record;
  const { from, from_key: keyId, proof_sha256: proofSha256 } = named;
  const members = [from, keyId, proofSha256, signature];
  if (members.every((member) => member === undefined)) return { ...opened, inner: null };
  if (
    from === undefined ||
    keyId === undefined ||
    proofSha256 === undefined ||
    signature === undefined
  )
    throw reader.unreadable("from, from_key, proof_sha256 and signature stand together");
  const recordSha256 = encodeHex(sha256(encodeCborRecord(named)));
  const signedBytes = encodeSealedSenderText({ from, keyId }, place, recordSha256);
  return { ...opened, inner: { from, keyId, proofSha256, signature, signedBytes, place } };
}
