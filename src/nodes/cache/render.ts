/**
 * What the Cache answers: receipts, entries, summaries, states, and the event proofs in them. Envelopes
 * are spliced into answers as the bytes that were stored; nothing here parses them again.
 * Source: interface "Cache store receipt" and "Cached message entry", decisions sections 6 and 10.
 */
import { encodeBase64, utf8 } from "../../core/codec/bytes.ts";
import type { Did, Uuid } from "../../core/codec/did.ts";
import { renderDuration, renderTimestamp } from "../../core/codec/time.ts";
import { encodeEventProof } from "../../core/message/proof.ts";
import type { Chunk, GroupPage, HeldMessage, MessageState, MessageSummary, Page } from "../../storage/contract.ts";
import type { Answer } from "../http/route.ts";

/** How this Cache signs its events; without a key, signatures are `null`. */
export type EventSigner = {
  readonly sign: ((text: Uint8Array) => Uint8Array) | null;
  /** The endpoint that the signed text names. */
  readonly endpoint: string;
};

/** For whom, by whom and when an answer is made. */
export type AnswerContext = { readonly recipient: Did; readonly nowMs: number; readonly signer: EventSigner };

export type EventProof = {
  readonly event_type: "delivery" | "retrieval";
  readonly message_id: Uuid;
  readonly recipient_did: Did;
  readonly timestamp: string;
  readonly reason: string | null;
  readonly signature: string | null;
};

export type StoreReceipt = {
  readonly accepted: true;
  readonly deduped: boolean;
  readonly message_id: Uuid;
  readonly recipient: Did;
  readonly expires_at: string;
  readonly max_ttl: string;
  readonly applied_ttl: string;
  readonly chunked: boolean;
  readonly proof: EventProof;
};

export type ReceiptFacts = {
  readonly messageId: Uuid;
  readonly deduped: boolean;
  readonly expiresAtMs: number;
  readonly maxTtlMs: number;
  readonly appliedTtlMs: number;
  readonly chunked: boolean;
};

export function renderReceipt(facts: ReceiptFacts, context: AnswerContext): StoreReceipt {
  return {
    accepted: true,
    deduped: facts.deduped,
    message_id: facts.messageId,
    recipient: context.recipient,
    expires_at: renderTimestamp(facts.expiresAtMs),
    max_ttl: renderDuration(facts.maxTtlMs),
    applied_ttl: renderDuration(facts.appliedTtlMs),
    chunked: facts.chunked,
    proof: renderDeliveryProof(facts.messageId, context),
  };
}

function renderDeliveryProof(messageId: Uuid, context: AnswerContext): EventProof {
  const { recipient, nowMs } = context;
  const timestamp = renderTimestamp(nowMs);
  const signature = signEvent("delivery", { messageId, timestamp }, context);
  return {
    event_type: "delivery",
    message_id: messageId,
    recipient_did: recipient,
    timestamp,
    reason: null,
    signature,
  };
}

/** Base64 of the Cache's signature of one event; `null` without a key. */
function signEvent(
  eventType: EventProof["event_type"],
  event: { readonly messageId: Uuid; readonly timestamp: string },
  { recipient, signer }: AnswerContext,
): string | null {
  if (signer.sign === null) return null;
  const claims = { eventType, ...event, recipientDid: recipient, reason: null, endpoint: signer.endpoint };
  return encodeBase64(signer.sign(encodeEventProof(claims)));
}

// ----------------------------------------------------------------------------------------------- entries

export function renderMessages(page: Page<HeldMessage>, context: AnswerContext): Answer {
  const head = `{"count":${page.entries.length},"messages":[`;
  return spliced([head, ...entryParts(page.entries, context), `]${renderNext(page.next)}}`]);
}

export function renderChunks(page: GroupPage, context: AnswerContext): Answer {
  const head = `{"count":${page.entries.length},"complete":${page.complete},"total_chunks":${page.total},"chunks":[`;
  return spliced([head, ...entryParts(page.entries, context), `]${renderNext(page.next)}}`]);
}

export function renderState(state: MessageState, messageId: Uuid, context: AnswerContext): Answer {
  switch (state.state) {
    case "active":
      return spliced(['{"state":"active","message":', ...entryParts([state.message], context), "}"]);
    case "expired": {
      const { expiresAtMs, headerPreview } = state;
      return ok({
        state: "expired",
        message: null,
        message_id: messageId,
        expires_at: renderTimestamp(expiresAtMs),
        header_preview: headerPreview === null ? null : encodeBase64(headerPreview),
      });
    }
    case "acked":
    case "absent":
      return ok({ state: state.state, message: null });
  }
}

/**
 * The entries of a list, with commas. An entry is JSON text up to its envelope, the stored bytes, and JSON
 * text after them; the text between two envelopes is one part. Ids, DIDs and times hold nothing that JSON
 * escapes, which is why they are written as they are.
 */
function entryParts(entries: readonly HeldMessage[], context: AnswerContext): (string | Uint8Array)[] {
  const timestamp = renderTimestamp(context.nowMs);
  const parts: (string | Uint8Array)[] = [];
  let before = "";
  for (const entry of entries) {
    const { messageId, chunk, expiresAtMs, envelope } = entry;
    const chunked = chunk === null ? "false" : `true,"chunk":${JSON.stringify(renderChunk(chunk))}`;
    const names = `"message_id":"${messageId}","recipient":"${context.recipient}"`;
    parts.push(`${before}{${names},"expires_at":"${renderTimestamp(expiresAtMs)}","chunked":${chunked},"envelope":`);
    parts.push(envelope);
    before = `,"proof":${renderRetrievalProof(messageId, timestamp, context)}},`;
  }
  if (before !== "") parts.push(before.slice(0, -1));
  return parts;
}

/** The JSON text of the event proof of one entry, with the members of `EventProof`. */
function renderRetrievalProof(messageId: Uuid, timestamp: string, context: AnswerContext): string {
  const { recipient } = context;
  const signature = signEvent("retrieval", { messageId, timestamp }, context);
  const signed = signature === null ? "null" : `"${signature}"`;
  const event = `"event_type":"retrieval","message_id":"${messageId}","recipient_did":"${recipient}"`;
  return `{${event},"timestamp":"${timestamp}","reason":null,"signature":${signed}}`;
}

function renderChunk(chunk: Chunk) {
  return { message_group_id: chunk.groupId, sequence_number: chunk.sequence, total_chunks: chunk.total };
}

function renderNext(next: string | null): string {
  return next === null ? "" : `,"next_cursor":${JSON.stringify(next)}`;
}

/** One buffer of known size from the parts. Cost: one copy of every envelope of the page. */
function spliced(parts: readonly (string | Uint8Array)[]): Answer {
  const pieces = parts.map((part) => (typeof part === "string" ? utf8(part) : part));
  const jsonBytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    jsonBytes.set(piece, at);
    at += piece.length;
  }
  return { status: 200, jsonBytes };
}

function ok(json: unknown): Answer {
  return { status: 200, json };
}

// ----------------------------------------------------------------------------------------------- summary

export function renderSummary(page: Page<MessageSummary>): Answer {
  const messages = page.entries.map(summaryMembers);
  return ok({
    count: messages.length,
    messages,
    ...(page.next === null ? {} : { next_cursor: page.next }),
  });
}

/** Chunk members stand flat in a summary, as in an envelope. */
export function summaryMembers(entry: MessageSummary): Record<string, unknown> {
  const { messageId, chunk, expiresAtMs } = entry;
  return {
    message_id: messageId,
    expires_at: renderTimestamp(expiresAtMs),
    chunked: chunk !== null,
    ...(chunk === null ? {} : renderChunk(chunk)),
  };
}

export function renderAck(removed: readonly Uuid[]): Answer {
  return ok({ acked: removed.length, message_ids: removed });
}
