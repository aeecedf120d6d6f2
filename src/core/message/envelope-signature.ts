/**
 * What a sender signs: the outer members of an envelope as text, one line each, with its opaque parts as
 * hashes of their JCS form (RFC 8785). The client builds the same text to sign it.
 * Source: rules sections 2 and 10.
 */
import { sha256 } from "#sha256";
import { encodeHex, utf8 } from "../codec/bytes.ts";
import { renderCanonical } from "../codec/jcs.ts";
import type { JsonObject, JsonValue } from "../codec/json.ts";

/** The member `sender_signature` is not looked at; absent members stand as empty text. */
export function encodeSenderText(members: JsonObject): Uint8Array {
  const text = (name: string) => String(members[name] ?? "");
  const count = (name: string) => (typeof members[name] === "number" ? String(members[name] + 0) : "");
  const header = headerMembers(members);
  return utf8(
    [
      "svc:envelope-signature:v1",
      `message_id=${text("message_id")}`,
      `from=${text("from")}`,
      `to=${text(members["recipient"] === undefined ? "to" : "recipient")}`,
      `timestamp=${text(members["created_at"] === undefined ? "timestamp" : "created_at")}`,
      `ttl=${text("ttl")}`,
      `delivery_hint=${text("delivery_hint")}`,
      `tag=${text("tag")}`,
      `message_group_id=${text("message_group_id")}`,
      `sequence_number=${count("sequence_number")}`,
      `total_chunks=${count("total_chunks")}`,
      `header_sha256=${Object.keys(header).length === 0 ? "" : hashCanonical(header)}`,
      `payload_sha256=${hashCanonical(members["payload"] ?? {})}`,
      `key_id=${text("sender_key_id")}`,
    ].join("\n"),
  );
}

/** Those of the four header members that were sent, flat or in `context`. */
function headerMembers(members: JsonObject): JsonObject {
  const group = (members["context"] ?? members) as JsonObject;
  const header: JsonObject = {};
  for (const name of ["encrypted_header", "header_nonce", "header_key_id", "schema_version"])
    if (group[name] !== undefined) header[name] = group[name];
  return header;
}

/** Lower hex of SHA-256 over the JCS form. Numbers are safe here: the envelope's decoder bounds them. */
function hashCanonical(value: JsonValue): string {
  return encodeHex(sha256(utf8(renderCanonical(value))));
}
