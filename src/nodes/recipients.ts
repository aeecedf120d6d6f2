/**
 * Where Relay and Cache learn about DIDs: the ledger of this process, or a Directory over HTTP.
 * What is remembered is never older than 30 s, a failure no older than 2 s, and one request per DID is
 * in flight at a time. A source that can't be reached throws `unavailable`; `null` is known absence.
 * Source: decisions section 7.
 */
import type { Did } from "../core/did.ts";
import type { DidDocument } from "../core/document.ts";
import type { DeliveryPolicy, DeliveryPolicyLinks, PersonaPolicy } from "../core/policy.ts";

/** What delivery needs to know of a DID, as recipient or as sender. */
export type Subject = {
  readonly did: Did;
  readonly document: DidDocument | null;
  readonly deactivated: boolean;
  readonly links: DeliveryPolicyLinks | null;
};

export interface RecipientSource {
  subject(did: Did): Promise<Subject | null>;
  /** The policy of a recipient (key: its DID) or of a tag (key: the tag). */
  policy(scope: "recipient" | "tag", key: string): Promise<DeliveryPolicy | null>;
  persona(key: string): Promise<PersonaPolicy | null>;
  /** Policies count time in blocks. */
  blockTimeMs(): Promise<number>;
}
