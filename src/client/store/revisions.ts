/**
 * Revisions: an author changes the text of a message for all who have it, or takes the message
 * back. A revision is a message that names another one. It stands next to that one, as a reaction
 * does, and counts from its author alone: the last one, and a deletion for good.
 * Source: docs/protocol.md ("Content").
 */
import { decodeBase64 } from "../../core/codec/bytes.ts";
import { parseUuid } from "../../core/codec/did.ts";
import { isRecord } from "../base/shapes.ts";
import { essenceOf, jsonIn } from "../mail/message.ts";
import type { Body } from "./files.ts";

export const revisionType = "application/vnd.waypost.revision+json";

/** `text` is `null` when the message is taken back. */
export type Revision = { readonly to: string; readonly text: string | null };

/** Code units of a new text: its row holds it whole. */
export const revisedTextMax = 16_000;

export function parseRevision(json: unknown): Revision | null {
  const { v, to: named, text, deleted } = isRecord(json) ? json : {};
  const to = typeof named === "string" ? parseUuid(named) : null;
  if (v !== 1 || to === null) return null;
  if (deleted === true) return { to, text: null };
  return typeof text === "string" && text.length <= revisedTextMax ? { to, text } : null;
}

type Typed = { readonly mediaType: string };

export const isRevision = (typed: Typed): boolean => essenceOf(typed) === revisionType;

export const revisionIn = (typed: Typed, content: Uint8Array): Revision | null =>
  isRevision(typed) ? parseRevision(jsonIn(content)) : null;

/** Of a row. */
export const revisionOf = (row: Typed & { readonly body: Body }): Revision | null =>
  row.body.is === "inline"
    ? revisionIn(row, decodeBase64(row.body.base64) ?? new Uint8Array(0))
    : null;
