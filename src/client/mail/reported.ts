/**
 * Who wrote a reported message: the bytes that its author signed, made again from the content and
 * what was kept with it (`authorship.ts`). Nothing in a report is trusted.
 * Source: docs/protocol.md ("Reports"), D638.
 */
import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { sha256 } from "#sha256";
import { decodeBase64, encodeBase64, encodeHex } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import { parseTimestamp } from "../../core/codec/time.ts";
import { methodFor, parseMethodKey } from "../../core/ledger/account.ts";
import { recipientIn, timestampIn } from "../../core/message/proof.ts";
import { encodeSealedSenderText, padRecordTo } from "../../core/message/sealed.ts";
import { attempt, ClientError } from "../base/failure.ts";
import { isRecord } from "../base/shapes.ts";
import { verifySignature } from "../keys/crypto.ts";
import type { EnvelopeJson } from "../net/caches.ts";
import { activeDocument, type Client } from "../trust/client.ts";
import type { Authorship } from "./authorship.ts";
import { parseMediaType } from "./content.ts";
import { keptType } from "./kept-names.ts";
import type { Reported } from "./report.ts";
import {
  additionalData,
  encodeCborRecord,
  keyBytes,
  nonceBytes,
  recordOf,
  type SealBinding,
  sealProfile,
} from "./seal.ts";
import { signedTextOf } from "./senders.ts";

/**
 * Whether the named author has signed this message to the reporter. `null`: not shown, or the
 * author's keys can't be looked up now. `false` also where the author has replaced the key since.
 */
export async function verifyAuthor(
  client: Client,
  reporter: Did,
  message: Reported,
): Promise<boolean | null> {
  const { from, data, authorship } = message;
  if (from === null || data === null || authorship === null) return null;
  const signed = await attempt(async () =>
    signedIn(reporter, { ...message, from, data, authorship }),
  );
  if (signed === null || signed instanceof ClientError) return false;
  const document = await attempt(() => activeDocument(client, from));
  if (document instanceof ClientError) return document.code === "did_not_found" ? false : null;
  const method = methodFor(document, signed.keyId, "send");
  const key = method === null ? null : parseMethodKey(method);
  return key !== null && verifySignature(signed.signature, signed.bytes, key);
}

type Shown = Reported & {
  readonly from: Did;
  readonly data: Uint8Array;
  readonly authorship: Authorship;
};
type Signed = {
  readonly keyId: string;
  readonly signature: Uint8Array;
  readonly bytes: Uint8Array;
};

/**
 * The bytes that the author signed, made again; `null` for what no author can
 * have signed to the reporter.
 */
function signedIn(reporter: Did, message: Shown): Signed | null {
  const { plain } = parseMediaType(String(message.authorship.mediaType));
  if (keptType(plain) !== message.mediaType) return null;
  return message.authorship.is === "outside"
    ? signedOutside(reporter, message)
    : signedInside(reporter, message);
}

/** The record of a message in one envelope. */
function recordIn({ name, data, authorship }: Shown) {
  const { mediaType } = authorship;
  const file = { name, mediaType, sizeBytes: data.length, sha256: sha256(data) };
  const binding: SealBinding = { messageId: "", to: "", chunk: null };
  return recordOf(binding, file, data);
}

/**
 * The same key and nonce encrypt the same record to the same ciphertext,
 * which the signature covers.
 */
function signedOutside(reporter: Did, message: Shown): Signed | null {
  const { authorship, from } = message;
  if (authorship.is !== "outside" || !isRecord(authorship.envelope)) return null;
  const { envelope, plainBytes } = authorship;
  const outer = envelope as EnvelopeJson;
  const isOfBoth = recipientIn(outer) === reporter && envelope["from"] === from;
  const isOfTime = parseTimestamp(String(timestampIn(outer))) === message.sentMs;
  if (!isOfBoth || !isOfTime) return null;

  const { payload, message_id: messageId, sender_key_id: keyId } = envelope;
  if (!isRecord(payload) || typeof messageId !== "string" || typeof keyId !== "string") return null;
  const key = bytesIn(authorship.key, keyBytes);
  const nonce = bytesIn(authorship.nonce, nonceBytes);
  const signature = bytesIn(envelope["sender_signature"], 64);
  if (key === null || nonce === null || signature === null) return null;

  const record = encodeCborRecord(recordIn(message));
  // Padding adds a ninth at most.
  const isFit = Number.isSafeInteger(plainBytes) && plainBytes <= 2 * record.length;
  if (!isFit) return null;
  const isFirst = payload["profile"] === sealProfile;
  const additional = additionalData({ messageId, to: reporter, chunk: null });
  const sealed = isFirst
    ? chacha20poly1305(key, nonce, additional).encrypt(record)
    : chacha20poly1305(key, nonce).encrypt(padRecordTo(record, plainBytes));

  const whole = { ...envelope, payload: { ...payload, ciphertext_b64: encodeBase64(sealed) } };
  const bytes = signedTextOf(whole as EnvelopeJson);
  return bytes === null ? null : { keyId, signature, bytes };
}

/** The signature covers the record and the envelope's digest. */
function signedInside(reporter: Did, message: Shown): Signed | null {
  const { authorship, from } = message;
  if (authorship.is !== "inside") return null;
  const { keyId, keySha256, envelopeSha256 } = authorship;
  const proof = bytesIn(authorship.proofSha256, 32);
  const signature = bytesIn(authorship.signature, 64);
  if (proof === null || signature === null || typeof keyId !== "string") return null;
  const record = { ...recordIn(message), from, from_key: keyId, proof_sha256: proof };
  const digest = encodeHex(sha256(encodeCborRecord(record)));
  const place = {
    to: reporter,
    keySha256: String(keySha256),
    envelopeSha256: String(envelopeSha256),
  };
  return { keyId, signature, bytes: encodeSealedSenderText({ from, keyId }, place, digest) };
}

function bytesIn(text: unknown, length: number): Uint8Array | null {
  const bytes = typeof text === "string" ? decodeBase64(text) : null;
  return bytes?.length === length ? bytes : null;
}
