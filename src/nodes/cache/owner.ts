/**
 * The owner of a mailbox, as a request's proof shows, and what the routes share by which it puts
 * passes and key bundles there.
 * Source: interface "Signed Cache proof".
 */
import type { Did, MailboxKey } from "../../core/codec/did.ts";
import type { Fault, FaultCode } from "../../core/fault.ts";
import type { DidDocument } from "../../core/ledger/account.ts";
import type { RetrievalProof } from "../../core/message/proof.ts";
import type { Answer, Call, Route } from "../http/route.ts";

export type ProvenOwner = {
  readonly did: Did;
  readonly proof: RetrievalProof;
  /** Of the present life of the DID. */
  readonly mailbox: MailboxKey;
  readonly document: DidDocument | null;
};

/** What routes under the proof of the owner have in common. */
export type OwnedRoute = Pick<
  Route,
  "tag" | "capacity" | "rateLimit" | "requiredHeaders" | "headers" | "credential"
> & { readonly codes: readonly FaultCode[] };

/** Runs `put` for a request whose proof covers the SHA-256 of its body, with a new nonce. */
export type ProveOwner = (
  call: Call,
  put: (owner: ProvenOwner) => Promise<Answer | Fault>,
) => Promise<Answer | Fault>;
