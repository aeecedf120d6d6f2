/**
 * Whose an envelope is, and which envelopes with one id are repeats of each other. Clients exist
 * that seal anew for each attempt, so other bytes under an id are a repeat when their author
 * sent both. Otherwise they are a conflict: someone who learns an id could put something else in
 * the place of the message.
 * Source: rules section 6 ("Repeats at the store"), D530.
 */
import { utf8 } from "../../core/codec/bytes.ts";
import { sha256 } from "../../core/codec/crypto.ts";
import type { Did } from "../../core/codec/did.ts";
import { type Fault, fault } from "../../core/fault.ts";
import type { Envelope } from "../../core/message/envelope.ts";
import type { KnownMessage } from "../../storage/contract.ts";
import { authorPrefix, shortDigest } from "../../storage/mailbox-rules.ts";

/** The label of an entry's author: of the verified sender; `null` of an unsigned envelope. */
export type EnvelopeAuthor = string | null;

/** 96 bits: another DID with the label of a given one can't be found. */
const digestChars = 24;
/** Signed, while the sender's keys could not be learnt: it may be anyone's. */
const unverified = `${authorPrefix}unverified`;

/** `sender`: the one whose signature verifies. */
export function authorOf(
  envelope: { readonly sender: unknown },
  sender: Did | null,
): EnvelopeAuthor {
  if (sender !== null) return authorLabel(sender);
  return envelope.sender === null ? null : unverified;
}

export function authorLabel(sender: Did): string {
  return `${authorPrefix}${sha256(utf8(sender)).toHex().slice(0, digestChars)}`;
}

/** Whether a label names a verified sender. */
export function isVerifiedAuthor(label: string): boolean {
  return label.startsWith(authorPrefix) && label !== unverified;
}

/**
 * What is kept of an envelope to know a repeat of it. Of an unsigned one nothing: its id belongs to
 * all unsigned ones, so no one asks for its bytes.
 */
export function contentDigest({ sender, bytes }: Pick<Envelope, "sender" | "bytes">): Uint8Array {
  return sender === null ? ofUnsigned : shortDigest(bytes);
}

const ofUnsigned = new Uint8Array(16);

/** Whether an envelope of the author repeats what is known under its id. */
export function isRepeat(
  { isSame, author }: Pick<KnownMessage, "isSame" | "author">,
  of: EnvelopeAuthor,
): boolean {
  return isSame || (author === of && of !== unverified);
}

export const otherContent: Fault = fault(
  "duplicate_conflict",
  "another envelope with this message_id was sent to this recipient",
);
