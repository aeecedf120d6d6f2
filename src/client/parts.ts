/** What `@waypost/client/parts` exports: identities, changes, plans, sealing and the routes, one by one. */

export { renderAgreementKey } from "../core/codec/bytes.ts";
export type { Prepared, Registered, RegistrationStatus, Resolved, SubmissionStatus } from "./answers.ts";
export type { CachedEntry } from "./cache-answers.ts";
export {
  type Changed,
  change,
  changeAsOwner,
  type DeliveryPolicyMembers,
  type OwnerUpdate,
  type PersonaPolicyMembers,
  type PolicyLinks,
  rotateAgreement,
  signIntent,
} from "./change.ts";
export {
  activeDocument,
  type Client,
  type ClientOptions,
  connect,
  lookUp,
  planSend,
  send,
  senderOf,
} from "./client.ts";
export { isComplete, listPending, type PendingMessage, versionsOf } from "./copies.ts";
export type { Signer } from "./crypto.ts";
export { type DirectoryClient, identityFor, type Waiting, waitingDefault } from "./directory.ts";
export { createIdentity, type Identity, parseIdentity, renderIdentity } from "./keys.ts";
export { type LiveEnvelope, type LiveEvents, listenLive } from "./live.ts";
export { type CacheClient, cacheClient, type Reader } from "./reader.ts";
export { cachesOf, liveEndpoints, recipientOf } from "./recipient.ts";
export { firstDocument, type Homes, register, settleRegistration, signRegistration } from "./registration.ts";
export { acknowledge, openEnvelope, type Recipient, readMessage, type Sender } from "./retrieve.ts";
export { sealPayload } from "./seal.ts";
export { bytesSource, type SendPlan, type Sent, type Source, sendPlan } from "./send.ts";
export { openPayload } from "./unseal.ts";
