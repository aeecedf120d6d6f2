/**
 * Whom a node serves besides what the recipient's policy says: the operator's lists of recipients and
 * senders, and whether envelopes must be signed. Shared by the Relay and the Cache.
 * Source: interface "Errors" (403 of the Relay), decisions sections 2 and 10.
 */

import { type Fault, fault } from "../fault.ts";
import type { DidDocument } from "../ledger/document.ts";
import { type Envelope, verifySender } from "./envelope.ts";

export type AdmissionRules = {
  readonly requireSenderSignature: boolean;
  /** When not empty, only these recipients are served. */
  readonly allowRecipients: ReadonlySet<string>;
  readonly denyRecipients: ReadonlySet<string>;
  /** When not empty, only envelopes signed by one of these are taken. */
  readonly allowSenders: ReadonlySet<string>;
  readonly denySenders: ReadonlySet<string>;
};

export const admitEveryone: AdmissionRules = {
  requireSenderSignature: false,
  allowRecipients: new Set(),
  denyRecipients: new Set(),
  allowSenders: new Set(),
  denySenders: new Set(),
};

/** What is known of the sender that the envelope names; `null` when it names none or none exists. */
export type SenderFacts = { readonly document: DidDocument | null; readonly deactivated: boolean } | null;

/**
 * 403 `sender_signature_invalid` when a signature is supplied and does not verify, or is required and
 * missing; 403 `policy_denied` when a list refuses the recipient or the proven sender.
 */
export function decideAdmission(envelope: Envelope, sender: SenderFacts, rules: AdmissionRules): Fault | null {
  if (envelope.sender === null) {
    if (rules.requireSenderSignature) return fault("sender_signature_invalid", "this node takes signed envelopes only");
  } else if (sender === null || sender.deactivated || !verifySender(envelope.sender, sender.document)) {
    return fault("sender_signature_invalid", "the sender signature does not verify");
  }
  if (rules.denyRecipients.has(envelope.to)) return fault("policy_denied", "this node does not serve the recipient");
  if (rules.allowRecipients.size > 0 && !rules.allowRecipients.has(envelope.to))
    return fault("policy_denied", "this node does not serve the recipient");
  const from = envelope.sender?.from ?? null;
  if (from !== null && rules.denySenders.has(from))
    return fault("policy_denied", "this node does not serve the sender");
  if (rules.allowSenders.size > 0 && (from === null || !rules.allowSenders.has(from)))
    return fault("policy_denied", "this node does not serve the sender");
  return null;
}
