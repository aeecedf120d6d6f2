/**
 * Sending. A plan fixes everything that determines the envelopes of a message, random values
 * included, so that each chunk can be built again with the same bytes: to repeat it after a lost
 * answer, and to resume after an interruption, also from the plan's text form (`renderPlan`).
 * Chunks are sent in order, one at a time; only the current one is in memory. After a temporary
 * failure the same bytes are posted again, so the message is delivered once.
 * Source: interface "Relay" and "DeliveryResult", rules section 2.
 */

import { encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import type { Did } from "../../core/codec/did.ts";
import type { JsonObject } from "../../core/codec/json.ts";
import { type DidDocument, sealingKeyOf } from "../../core/ledger/account.ts";
import { encodeSenderText } from "../../core/message/proof.ts";
import { chunksMax } from "../../core/schema/chunks.ts";
import {
  attempt,
  ClientError,
  checkGiven,
  localError,
  type Retrying,
  retryTemporary,
} from "../base/failure.ts";
import {
  abortSignal,
  anything,
  array,
  callable,
  custom,
  fromZero,
  isInteger,
  isRecord,
  keptBytes,
  keptBytes32,
  keptDid,
  keptVersion,
  natural,
  nullable,
  object,
  oneOf,
  optional,
  parseKept,
  renderKept,
  type Shape,
  text,
  truth,
} from "../base/shapes.ts";
import { hkdf, type Signer, signEd25519, uuidOf } from "../keys/crypto.ts";
import { type Delivered, deliveredShape } from "../net/answers.ts";
import { type Endpoint, fetchChecked, jsonBody, type NodeRequest, path } from "../net/http.ts";
import type { Author } from "../trust/client.ts";
import { type NameTrust, type TrustDemand, type TrustLevel, trustOf } from "../trust/trust.ts";
import { type ContentNames, idIn, isQuiet, type Source, withAuthor } from "./content.ts";
import {
  type FileFacts,
  keyBytes,
  type RecipientKey,
  type SealBinding,
  sealPayload,
} from "./seal.ts";

/** A plan between runs (`renderPlan`). */
export const planShape = object({
  version: keptVersion,
  plan: object({
    id: text,
    seed: keptBytes32,
    to: keptDid,
    recipient: object({ keyId: text, publicKey: keptBytes }),
    file: object({ name: text, mediaType: text, sizeBytes: natural, sha256: keptBytes32 }),
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

/** Data of one envelope: above this a file is sent as a chunk set. */
export const chunkBytesDefault = 1_048_576;
/** Room for the record around the data and for the cipher's tag. */
export const sealedBytesMargin = 4_096;

export type SendPlan = {
  /** By which the recipient knows the message: of its envelope, or of the group of its chunks. */
  readonly id: string;
  /**
   * 32 random bytes, secret until all is sent: ids of chunks, ephemeral keys and
   * nonces are derived from it.
   */
  readonly seed: Uint8Array;
  readonly to: Did;
  /** How its name was found; `null` when it was named by its DID, or before a restart. */
  readonly name: NameTrust | null;
  /** What showed its keys when the plan was made. */
  readonly trust: TrustLevel;
  readonly recipient: RecipientKey;
  readonly file: FileFacts;
  readonly chunkBytes: number;
  /** What a payload may have, to which padding keeps; none where it is not known. */
  readonly sealedBytesMax?: number | null | undefined;
  /** One text for every chunk of a file. */
  readonly timestamp: string;
  readonly ttl: string;
  readonly tag: string | null;
  /** Instead of `standard`, for a file of one chunk. */
  readonly hint: "direct" | "cache" | null;
  /** Signs every envelope as coming from this DID. */
  readonly sender: Author | null;
};

/** The key to seal to. Throws `no_key_agreement`. */
export function recipientKey(document: DidDocument): RecipientKey {
  const key = sealingKeyOf(document);
  if (key !== null) return { keyId: key.id, publicKey: key.publicKey };
  throw localError("no_key_agreement", `${document.id} publishes no X25519 key to seal to`);
}

export function chunkCount(plan: Pick<SendPlan, "file" | "chunkBytes">): number {
  const count = Math.max(1, Math.ceil(plan.file.sizeBytes / plan.chunkBytes));
  if (count > chunksMax)
    throw localError(
      "too_large",
      `the file has ${plan.file.sizeBytes} bytes: at most ${chunksMax * plan.chunkBytes} fit, in ${chunksMax} chunks`,
    );
  return count;
}

function derive(plan: Pick<SendPlan, "seed">, purpose: string, length: number): Uint8Array {
  return hkdf(plan.seed, null, utf8(`waypost:send:${purpose}`), length);
}

const messageIdOf = (plan: SendPlan, sequence: number): string =>
  groupIdOf(plan) === null ? plan.id : uuidOf(derive(plan, `message:${sequence}`, 16));

/** The id that all chunks of a chunk set share; `null` for a message in one envelope. */
const groupIdOf = (plan: SendPlan): string | null => (chunkCount(plan) === 1 ? null : plan.id);

/** One envelope of the plan. The same plan, sequence and data give the same bytes. */
export async function buildEnvelope(plan: SendPlan, sequence: number, data: Uint8Array) {
  const [messageId, groupId, total] = [
    messageIdOf(plan, sequence),
    groupIdOf(plan),
    chunkCount(plan),
  ];
  const outer: JsonObject = {
    message_id: messageId,
    to: plan.to,
    timestamp: plan.timestamp,
    ttl: plan.ttl,
    delivery_hint: groupId === null ? (plan.hint ?? "standard") : "chunked",
    ...(plan.tag === null ? {} : { tag: plan.tag }),
    ...(groupId === null
      ? {}
      : { message_group_id: groupId, sequence_number: sequence, total_chunks: total }),
  };
  const author: JsonObject =
    plan.sender === null ? {} : { from: plan.sender.did, sender_key_id: plan.sender.keyId };
  const binding: SealBinding = {
    messageId,
    to: plan.to,
    chunk: groupId === null ? null : { groupId, sequence, total },
  };
  const payload = await sealPart(plan, { binding, data, outer: { ...outer, ...author } });
  const envelope = { ...outer, payload, ...author };
  return {
    messageId,
    body: jsonBody(plan.sender === null ? envelope : await signed(envelope, plan.sender)),
  };
}

/** Before its payload is sealed. */
type UnsealedPart = {
  readonly binding: SealBinding;
  readonly data: Uint8Array;
  /** All members of its envelope but `payload` and `sender_signature`. */
  readonly outer: JsonObject;
};

/** In the second version for a recipient with a key of it. */
async function sealPart(
  plan: SendPlan,
  { binding, data, outer }: UnsealedPart,
): Promise<JsonObject> {
  const { recipient, sender } = plan;
  const sequence = binding.chunk?.sequence ?? 0;
  const mediaType = withAuthor(plan.file.mediaType, sender?.did ?? null, sender?.home);
  const file = { ...plan.file, mediaType };
  if (recipient.publicKey.length === keyBytes) {
    const entropy = {
      ephemeralSecret: derive(plan, `ephemeral:${sequence}`, 32),
      nonce: derive(plan, `nonce:${sequence}`, 12),
    };
    return sealPayload({ binding, file, data, recipient, entropy });
  }
  const { hybrid } = await import("./seal-hybrid.ts");
  return hybrid.sealPart(plan, { binding, file, data, outer }, derive);
}

async function signed(members: JsonObject, sender: Signer): Promise<JsonObject> {
  return {
    ...members,
    sender_signature: encodeBase64(await signEd25519(encodeSenderText(members), sender.seed)),
  };
}

export type ChunkProgress = SendProgress & { readonly chunk: number; readonly chunks: number };

/** The value of `Svc-Pass` for an envelope. */
export type ShowPass = (envelope: Uint8Array) => string;

type SendOptions = Retrying & {
  readonly relay: Endpoint;
  /** Shows for each envelope by what the recipient's mailbox knows the sender. */
  readonly pass?: ShowPass | null;
  /** Chunks that an earlier run has delivered. */
  readonly from?: number;
  /** Awaited after each chunk, so that progress can be stored. */
  readonly onDelivered?: (progress: ChunkProgress) => unknown;
};

export type Sent = {
  /**
   * The id by which the recipient knows the message; for a message in chunks, the id of its group.
   */
  readonly id: string;
  readonly chunks: number;
  readonly groupId: string | null;
  readonly messageIds: readonly string[];
  readonly last: DeliveryReport | null;
  /** Whom it was sealed to, and what shows that (docs/trust.md). */
  readonly recipient: {
    readonly did: Did;
    readonly trust: TrustLevel;
    readonly name: NameTrust | null;
  };
  /**
   * With a local store, `send` resolves when the message is safe there, and
   * this when the Relay has it.
   */
  readonly delivered?: Promise<Sent>;
};

/**
 * Sends the remaining chunks of a plan. Throws the first failure; delivered chunks stay
 * delivered. A plan fixes every byte: a repeat, also after a restart, sends the same ones, and
 * the recipient gets the message once.
 */
export async function sendPlan(
  plan: SendPlan,
  source: Source,
  { relay, pass = null, from: first = 0, onDelivered, ...retrying }: SendOptions,
): Promise<Sent> {
  const chunks = chunkCount(plan);
  const totalBytes = plan.file.sizeBytes;
  const messageIds: string[] = [];
  let last: DeliveryReport | null = null;
  for (let chunk = first; chunk < chunks; chunk++) {
    const from = chunk * plan.chunkBytes;
    const sentBytes = Math.min(from + plan.chunkBytes, totalBytes);
    const data = await source.read(from, sentBytes);
    const { messageId, body } = await buildEnvelope(plan, chunk, data);
    last = await retryTemporary(() => postEnvelope(relay, plan, body, pass), retrying);
    messageIds.push(messageId);
    await onDelivered?.({ chunk, chunks, sentBytes, totalBytes });
  }
  const groupId = groupIdOf(plan);
  const recipient = { did: plan.to, trust: plan.trust, name: plan.name };
  const id = idIn(plan.file.mediaType) ?? plan.id;
  return { id, chunks, groupId, messageIds, last, recipient };
}

// ----------------------------------------------------------------------------------- plans as text

/**
 * A plan between runs, and how many of its chunks were delivered. The sender's seed stays with the
 * keys; that of the message is secret until all is sent.
 */
export function keptPlan({ sender, name: _, trust: __, ...plan }: SendPlan, delivered: number) {
  return { version: 1, plan, senderKeyId: sender?.keyId ?? null, delivered } as const;
}

export function renderPlan(plan: SendPlan, delivered: number): string {
  return renderKept(keptPlan(plan, delivered));
}

/** `null` when the text is not that of a plan. */
export function parsePlan(text: string) {
  const kept = parseKept(text, planShape);
  if (kept === null || kept.plan.chunkBytes < 1) return null;
  const { plan, senderKeyId, delivered } = kept;
  return { plan: { ...plan, name: null, trust: trustOf(plan.to) }, senderKeyId, delivered };
}

// ----------------------------------------------------------------------------------------- options

export type SendProgress = { readonly sentBytes: number; readonly totalBytes: number };

export type TransferOptions = {
  /** Awaited after each chunk. */
  readonly onProgress?: (progress: SendProgress) => unknown;
  /** Retries for each envelope after a temporary failure; 3 by default. */
  readonly retries?: number;
};

export type MessageOptions = ContentNames &
  TransferOptions & {
    /** How long the message may wait: a duration such as `1d12h`, `24h` by default. */
    readonly ttl?: string;
    /** Public: selects a policy of the recipient. */
    readonly tag?: string;
    /** `direct`: never to a Cache. `cache`: straight to a Cache. For messages of one chunk. */
    readonly hint?: "direct" | "cache";
    /**
     * Data in one envelope: at most 1 MiB unless given, and never more than
     * node and recipient accept.
     */
    readonly chunkBytes?: number;
    readonly replyTo?: string | null;
    /** Who wrote that message: other people may have given one of theirs the same id. */
    readonly replyFrom?: Did | null;
    readonly group?: string | null;
    /** DIDs of members of the group whom it calls, at most 32. */
    readonly mentions?: readonly Did[];
    /** Marks somebody else's words that are passed on. */
    readonly isForwarded?: boolean;
    /** Whether to ask for a receipt; by default as the identity was opened. */
    readonly receipt?: boolean;
    /** `proven` sends only to a recipient whose keys are proven. */
    readonly trust?: TrustDemand;
    /** Signs nothing: the recipient does not learn who sent it. */
    readonly anonymous?: boolean;
    /** Ends it: nothing of it is sent from then on, and `aborted` is thrown. */
    readonly signal?: AbortSignal;
  };

const chunkBytesShape = custom((value) => isInteger(value) && value >= 1, "an integer from 1");

const messageOptions: Readonly<Record<keyof MessageOptions, Shape<unknown>>> = {
  name: text,
  mediaType: text,
  onProgress: callable,
  retries: fromZero,
  ttl: anything,
  tag: text,
  hint: oneOf("direct", "cache"),
  chunkBytes: chunkBytesShape,
  replyTo: nullable(text),
  replyFrom: nullable(text),
  group: nullable(text),
  mentions: array(text),
  isForwarded: truth,
  receipt: truth,
  trust: oneOf("proven", "logged"),
  anonymous: truth,
  signal: abortSignal,
};

/** Throws `invalid_argument` for an unknown option or value. */
export const checkMessage = (options: MessageOptions): void => checkGiven(options, messageOptions);

// ------------------------------------------------------------------------------ posting to a Relay

/** The Relay's report; further members are kept unchanged. */
type DeliveryReport = Delivered & { readonly [member: string]: unknown };

/** Posts one envelope. Throws `refused` with the Relay's code unless it reports success. */
async function postEnvelope(
  relay: Endpoint,
  { to, file }: Pick<SendPlan, "to" | "file">,
  body: Uint8Array<ArrayBuffer>,
  pass: ShowPass | null,
): Promise<DeliveryReport> {
  const headers: Record<string, string> = isQuiet(file.mediaType) ? { Urgency: "low" } : {};
  if (pass !== null) headers["Svc-Pass"] = pass(body);
  const request: NodeRequest = { method: "POST", path: path`/relay/${to}`, headers, body };
  const report = await attempt(() => fetchChecked(relay, request, deliveredShape));
  if (!(report instanceof ClientError)) {
    if (report.success) return report;
    throw new ClientError("refused", report.code, report.message, { status: 200, answer: report });
  }
  // Why the Cache refused, where the Relay only says that it did: `mailbox_full`, for example.
  const { answer } = report.extra;
  const result = isRecord(answer) ? answer["cache_result"] : null;
  const code = isRecord(result) ? result["code"] : null;
  if (report.code !== "cache_unavailable" || typeof code !== "string") throw report;
  throw new ClientError("refused", code, `${report.message}; Cache: ${code}`, report.extra);
}
