/**
 * Entries of a mailbox as JSON. Envelopes are spliced in as the bytes that were stored; nothing here parses
 * them again. Ids, DIDs and times hold nothing that JSON escapes, so they are written as they are.
 * Source: interface "Cached message entry", rules section 6.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import type { Uuid } from "../../core/codec/did.ts";
import { renderTimestamp } from "../../core/codec/time.ts";
import { joinBytes } from "../../core/std/read-capped.ts";
import type { Chunk, HeldMessage, MessageSummary } from "../../storage/contract.ts";
import { type AnswerContext, signEvent } from "./store.ts";

/** JSON text around an envelope and its commas: ids, DID, times, chunk and event proof. */
export const entryOverheadBytes = 1_024;

/**
 * The entries of a list, with commas. An entry is JSON text up to its envelope, the stored bytes, and JSON
 * text after them; the text between two envelopes is one part.
 */
export function entryParts(entries: readonly HeldMessage[], context: AnswerContext): (string | Uint8Array)[] {
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

/** The JSON text of the event proof of one entry. */
function renderRetrievalProof(messageId: Uuid, timestamp: string, context: AnswerContext): string {
  const { recipient } = context;
  const signature = signEvent("retrieval", { messageId, timestamp }, context);
  const signed = signature === null ? "null" : `"${signature}"`;
  const event = `"event_type":"retrieval","message_id":"${messageId}","recipient_did":"${recipient}"`;
  return `{${event},"timestamp":"${timestamp}","reason":null,"signature":${signed}}`;
}

/** One buffer from the parts. Cost: one copy of every envelope in them. */
export function splice(parts: readonly (string | Uint8Array)[]): Uint8Array {
  const encoded = parts.map((part) => (typeof part === "string" ? utf8(part) : part));
  return joinBytes(
    encoded,
    encoded.reduce((sum, part) => sum + part.length, 0),
  );
}

/** The last members of a list that was cut: `next` continues with everything that was left out. */
export function renderMore(next: string | null): string {
  return next === null ? "" : `,"has_more":true,"next_cursor":${JSON.stringify(next)}`;
}

function renderChunk(chunk: Chunk) {
  return { message_group_id: chunk.groupId, sequence_number: chunk.sequence, total_chunks: chunk.total };
}

/** Chunk members stand flat in a summary, as in an envelope. */
export function renderSummaryEntry(entry: MessageSummary): Record<string, unknown> {
  const { messageId, chunk, expiresAtMs } = entry;
  return {
    message_id: messageId,
    expires_at: renderTimestamp(expiresAtMs),
    chunked: chunk !== null,
    ...(chunk === null ? {} : renderChunk(chunk)),
  };
}
