/**
 * Sending a file: which chunks, sealed how, in what order. A plan fixes everything that an envelope is
 * made of, randomness included, so that each chunk can be built again to the same bytes: for a repeat
 * after a lost answer, and to resume a chunk set after an interruption. Chunks go out in order, one at a
 * time; nothing of a file is held in memory but the chunk at hand.
 * Source: docs/ledger.md 3.2, rules section 2.
 */
import { sha256 } from "#sha256";
import { encodeBase64, utf8 } from "../core/codec/bytes.ts";
import type { Did } from "../core/codec/did.ts";
import type { JsonObject } from "../core/codec/json.ts";
import type { DidDocument } from "../core/ledger/document-form.ts";
import { chunksMax } from "../core/message/envelope.ts";
import { encodeSenderText } from "../core/message/envelope-signature.ts";
import type { Signer } from "./change.ts";
import { signEd25519 } from "./curves.ts";
import { hkdf } from "./hkdf.ts";
import { type Endpoint, jsonBody, localError } from "./http.ts";
import { type DeliveryReport, postEnvelope, type Retrying } from "./relay.ts";
import { type FileFacts, parseAgreementKey, type RecipientKey, sealPayload } from "./seal.ts";
import { uuidOf } from "./uuid.ts";

/** Bytes to send, readable by ranges and more than once. */
export type Source = {
  readonly file: FileFacts;
  readonly read: (from: number, to: number) => Promise<Uint8Array>;
};

/** Bytes that are at hand, under the name and media type that the recipient is to see. */
export function bytesSource(name: string, mediaType: string, bytes: Uint8Array): Source {
  const file = { name, mediaType, sizeBytes: bytes.length, sha256: sha256(bytes) };
  return { file, read: async (from, to) => bytes.subarray(from, to) };
}

/** Data of one envelope: above this a file is sent as a chunk set. */
export const chunkBytesDefault = 1_048_576;
/** Room for the record around the data and for the cipher's tag. */
export const sealedBytesMargin = 4_096;

export type SendPlan = {
  /** 32 random bytes, secret until all is sent: ids, ephemeral keys and nonces are derived from it. */
  readonly seed: Uint8Array;
  readonly to: Did;
  readonly recipient: RecipientKey;
  readonly file: FileFacts;
  readonly chunkBytes: number;
  /** One text for every chunk of a file. */
  readonly timestamp: string;
  readonly ttl: string;
  readonly tag: string | null;
  /** Instead of `standard`, for a file of one chunk. */
  readonly hint: "direct" | "cache" | null;
  /** Signs every envelope as coming from this DID. */
  readonly sender: (Signer & { readonly did: Did }) | null;
};

/** The key to seal to: the first X25519 key agreement of the document. */
export function recipientKey(document: DidDocument): RecipientKey {
  for (const agreement of document.keyAgreement) {
    const publicKey = parseAgreementKey(agreement.publicKeyMultibase);
    if (publicKey !== null) return { keyId: agreement.id, publicKey };
  }
  throw localError("no_key_agreement", `${document.id} publishes no X25519 key to seal to`);
}

export function chunkCount(plan: Pick<SendPlan, "file" | "chunkBytes">): number {
  const count = Math.max(1, Math.ceil(plan.file.sizeBytes / plan.chunkBytes));
  if (count > chunksMax) throw localError("too_large", `the file needs ${count} chunks, and ${chunksMax} are allowed`);
  return count;
}

function derive(plan: SendPlan, purpose: string, length: number): Uint8Array {
  return hkdf(plan.seed, null, utf8(`waypost:send:${purpose}`), length);
}

function deriveUuid(plan: SendPlan, purpose: string): string {
  return uuidOf(derive(plan, purpose, 16));
}

/** The id of one envelope of the plan. */
export function messageIdOf(plan: SendPlan, sequence: number): string {
  return deriveUuid(plan, `message:${sequence}`);
}

/** The id that all chunks of a chunk set share. */
export function groupIdOf(plan: SendPlan): string {
  return deriveUuid(plan, "group");
}

export type StoredEnvelope = { readonly messageId: string; readonly body: Uint8Array<ArrayBuffer> };

/** One envelope of the plan. The same plan, sequence and data give the same bytes. */
export async function buildEnvelope(plan: SendPlan, sequence: number, data: Uint8Array): Promise<StoredEnvelope> {
  const total = chunkCount(plan);
  const messageId = messageIdOf(plan, sequence);
  const chunk = total === 1 ? null : { groupId: groupIdOf(plan), sequence, total };
  const payload = await sealPayload({
    binding: { messageId, to: plan.to, chunk },
    file: plan.file,
    data,
    recipient: plan.recipient,
    entropy: {
      ephemeralSecret: derive(plan, `ephemeral:${sequence}`, 32),
      nonce: derive(plan, `nonce:${sequence}`, 12),
    },
  });
  const envelope: JsonObject = {
    message_id: messageId,
    to: plan.to,
    timestamp: plan.timestamp,
    ttl: plan.ttl,
    delivery_hint: chunk === null ? (plan.hint ?? "standard") : "chunked",
    ...(plan.tag === null ? {} : { tag: plan.tag }),
    ...(chunk === null
      ? {}
      : { message_group_id: chunk.groupId, sequence_number: chunk.sequence, total_chunks: chunk.total }),
    payload,
  };
  return { messageId, body: jsonBody(plan.sender === null ? envelope : await signed(envelope, plan.sender)) };
}

async function signed(envelope: JsonObject, sender: Signer & { readonly did: Did }): Promise<JsonObject> {
  const members = { ...envelope, from: sender.did, sender_key_id: sender.keyId };
  return { ...members, sender_signature: encodeBase64(await signEd25519(encodeSenderText(members), sender.seed)) };
}

export type SendProgress = { readonly chunk: number; readonly chunks: number; readonly report: DeliveryReport };

export type SendOptions = {
  readonly relay: Endpoint;
  readonly retrying: Retrying;
  /** LiveChunks that an earlier run has delivered. */
  readonly from: number;
  /** Awaited after each chunk, so that what was delivered can be written down. */
  readonly onDelivered: (progress: SendProgress) => Promise<void> | void;
};

export type Sent = {
  /** The id by which the recipient knows the message: that of the group, when it went out in chunks. */
  readonly id: string;
  readonly chunks: number;
  readonly groupId: string | null;
  readonly messageIds: readonly string[];
  readonly last: DeliveryReport | null;
};

/** Sends what is left of a plan. Throws the first failure; what was delivered until then stays so. */
export async function sendPlan(plan: SendPlan, source: Source, options: SendOptions): Promise<Sent> {
  const chunks = chunkCount(plan);
  const messageIds: string[] = [];
  let last: DeliveryReport | null = null;
  for (let chunk = options.from; chunk < chunks; chunk++) {
    const from = chunk * plan.chunkBytes;
    const data = await source.read(from, Math.min(from + plan.chunkBytes, plan.file.sizeBytes));
    const { messageId, body } = await buildEnvelope(plan, chunk, data);
    last = await postEnvelope(options.relay, { recipient: plan.to, body }, options.retrying);
    messageIds.push(messageId);
    await options.onDelivered({ chunk, chunks, report: last });
  }
  const groupId = chunks === 1 ? null : groupIdOf(plan);
  return { id: groupId ?? messageIdOf(plan, 0), chunks, groupId, messageIds, last };
}
