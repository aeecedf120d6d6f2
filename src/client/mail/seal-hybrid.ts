/**
 * Sealing of the second version: the record, padded, under HPKE with X-Wing, bound to the
 * recipient's key and to every member of the envelope. What is recorded today stays closed when
 * X25519 falls. Loaded with the first recipient who has a bundle, as one part: of several, what
 * they share with a page that says hello would be cut into more files.
 * Source: docs/protocol.md "Sealing, second version".
 */
import { sha256 } from "#sha256";
import { encodeBase64, encodeHex } from "../../core/codec/bytes.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import {
  digestEnvelope,
  encodeSealedSenderText,
  encodeSealInfo,
  padRecord,
  type SealedPlace,
  sealedProfile,
} from "../../core/message/sealed.ts";
import { localError } from "../base/failure.ts";
import { signEd25519 } from "../keys/crypto.ts";
import { hpkeSeal, pageTurns, tagBytes } from "../keys/hpke.ts";
import { bundleKey } from "../trust/bundles.ts";
import {
  encodeCborRecord,
  type FileFacts,
  type RecipientKey,
  recordOf,
  type SealBinding,
} from "./seal.ts";
import type { SendPlan } from "./send.ts";

/** Who signs inside, and the SHA-256 of the proof of their keys. */
type InnerSigner = {
  readonly did: string;
  readonly keyId: string;
  readonly seed: Uint8Array;
  readonly proofSha256: Uint8Array;
};

type HybridPayload = Record<"profile" | "key_id" | "enc_b64" | "ciphertext_b64", string>;

type HybridInput = {
  readonly binding: SealBinding;
  readonly file: FileFacts;
  readonly data: Uint8Array;
  /** All members of the envelope but `payload` and `sender_signature`. */
  readonly outer: JsonObject;
  /** Its X-Wing key, of 1,216 bytes. */
  readonly recipient: RecipientKey;
  /** 64 random bytes for this key and payload: the same ones seal the same bytes again. */
  readonly randomness: Uint8Array;
  /**
   * How many bytes of ciphertext are accepted: so far it is padded. 0 for a
   * full chunk, which is not.
   */
  readonly payloadBytesMax: number;
  readonly signer?: InnerSigner | null;
};

/** Throws `no_key_agreement` for a recipient's key that is not one. */
export async function sealHybrid(input: HybridInput): Promise<HybridPayload> {
  const { binding, file, data, outer, recipient, randomness, signer = null } = input;
  const place: SealedPlace = {
    to: binding.to,
    keySha256: encodeHex(sha256(recipient.publicKey)),
    envelopeSha256: digestEnvelope(outer),
  };
  const members = recordOf(binding, file, data);
  const record = signer === null ? members : await signedRecord(members, place, signer);
  const padded = padRecord(encodeCborRecord(record), input.payloadBytesMax - tagBytes);
  const to = { publicKey: recipient.publicKey, randomness };
  const sealed = await hpkeSeal(to, encodeSealInfo(place), padded).catch((cause: unknown) => {
    throw localError("no_key_agreement", `${binding.to} publishes no key to seal to: ${cause}`);
  });
  const { enc, ciphertext } = sealed;
  return {
    profile: sealedProfile,
    key_id: recipient.keyId,
    enc_b64: encodeBase64(enc),
    ciphertext_b64: encodeBase64(ciphertext),
  };
}

async function signedRecord(
  members: Readonly<Record<string, unknown>>,
  place: SealedPlace,
  { did, keyId, seed, proofSha256 }: InnerSigner,
): Promise<Record<string, unknown>> {
  const named = { ...members, from: did, from_key: keyId, proof_sha256: proofSha256 };
  const recordSha256 = encodeHex(sha256(encodeCborRecord(named)));
  const text = encodeSealedSenderText({ from: did, keyId }, place, recordSha256);
  return { ...named, signature: await signEd25519(text, seed) };
}

/** Bytes for a purpose, out of the seed of a plan. */
type Derive = (plan: SendPlan, purpose: string, length: number) => Uint8Array;

/** One chunk of a plan: the same one is sealed to the same bytes. A full chunk is not padded. */
function sealPart(
  plan: SendPlan,
  part: Pick<HybridInput, "binding" | "file" | "data" | "outer">,
  derive: Derive,
): Promise<HybridPayload> {
  const { binding, data } = part;
  const { recipient, chunkBytes, sealedBytesMax } = plan;
  const isFull = binding.chunk !== null && data.length === chunkBytes;
  const key = encodeHex(sha256(recipient.publicKey));
  const randomness = derive(plan, `kem:${binding.chunk?.sequence ?? 0}:${key}`, 64);
  const payloadBytesMax = isFull ? 0 : (sealedBytesMax ?? Number.POSITIVE_INFINITY);
  return pageTurns.run(() => sealHybrid({ ...part, recipient, randomness, payloadBytesMax }));
}

export const hybrid = { sealPart, bundleKey } as const;
