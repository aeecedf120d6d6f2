/**
 * What other nodes answer, read from bytes that nobody vouches for. Nothing is passed on as it came: a
 * receipt or a refusal is rebuilt from the members we know, so that a destination can't speak to the
 * sender through the Relay.
 * Source: interface "Cache store receipt" and "DeliveryResult", rules sections 3 and 5.
 */

import { type Did, parseUuid, type Uuid } from "../codec/did.ts";
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from "../codec/json.ts";
import { parseDuration, parseTimestamp } from "../codec/time.ts";
import { describeFault, type FaultCode, faultCodes, isFault } from "../fault.ts";
import type { StoreReceipt } from "./delivery.ts";

function parseMembers(bytes: Uint8Array): JsonObject | null {
  const value = parseJson(bytes);
  return isFault(value) || !isJsonObject(value) ? null : value;
}

/**
 * The receipt of a Cache for this very message, or `null` when the answer is none. It must say that the
 * envelope is accepted; of the other members those are kept that have their form.
 */
export function parseStoreReceipt(
  bytes: Uint8Array,
  asked: { readonly messageId: Uuid; readonly recipient: Did },
): StoreReceipt | null {
  const answer = parseMembers(bytes);
  if (answer === null || answer["accepted"] !== true) return null;
  const messageId = answer["message_id"];
  if (typeof messageId !== "string" || parseUuid(messageId) !== asked.messageId) return null;
  if (answer["recipient"] !== undefined && answer["recipient"] !== asked.recipient) return null;
  return {
    accepted: true,
    deduped: answer["deduped"] === true,
    message_id: asked.messageId,
    recipient: asked.recipient,
    ...kept(answer, { expires_at: isTimestamp, max_ttl: isDuration, applied_ttl: isDuration, chunked: isFlag }),
    ...(isJsonObject(answer["proof"]) ? { proof: receiptProof(answer["proof"], asked) } : {}),
  };
}

function receiptProof(proof: JsonObject, asked: { readonly messageId: Uuid; readonly recipient: Did }) {
  return {
    event_type: "delivery",
    message_id: asked.messageId,
    recipient_did: asked.recipient,
    ...kept(proof, { timestamp: isTimestamp }),
    reason: null,
    signature: isSignature(proof["signature"]) ? proof["signature"] : null,
  };
}

type Check = (value: JsonValue | undefined) => boolean;

function kept(members: JsonObject, checks: Readonly<Record<string, Check>>): Record<string, JsonValue> {
  const result: Record<string, JsonValue> = {};
  for (const [name, accepts] of Object.entries(checks)) {
    const value = members[name];
    if (value !== undefined && accepts(value)) result[name] = value;
  }
  return result;
}

const isTimestamp: Check = (value) => typeof value === "string" && parseTimestamp(value) !== null;
const isDuration: Check = (value) => typeof value === "string" && parseDuration(value) !== null;
const isFlag: Check = (value) => typeof value === "boolean";
const isSignature: Check = (value) => typeof value === "string" && /^[A-Za-z0-9+/]{86}==$/.test(value);

/** The code of a refusal, when it is one of ours, with our own words for it; `null` otherwise. */
export function parseRefusal(bytes: Uint8Array): { readonly code: FaultCode; readonly message: string } | null {
  const answer = parseMembers(bytes);
  const code = answer?.["code"] ?? answer?.["error"];
  const known = faultCodes.find((candidate) => candidate === code);
  return known === undefined ? null : { code: known, message: describeFault(known).title };
}

const successModes: Readonly<Record<string, string>> = { delivered: "direct", forwarded: "forwarded", cached: "cache" };

/** What another Relay achieved, or `null` when it does not say `success: true`. */
export function parseForwardResult(bytes: Uint8Array): { readonly deliveryMode: string; readonly code: string } | null {
  const answer = parseMembers(bytes);
  if (answer?.["success"] !== true) return null;
  const code = typeof answer["code"] === "string" ? answer["code"] : "";
  const deliveryMode = successModes[code];
  // A Relay of the family may name its success otherwise; then only the success itself is known.
  return deliveryMode === undefined ? { deliveryMode: "forwarded", code: "forwarded" } : { deliveryMode, code };
}
