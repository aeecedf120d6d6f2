/** What `@waypost/client/parts` exports: identities, changes, plans, sealing and the routes, one by one. */

export type { Registered, RegistrationStatus, Resolved } from "./answers.ts";
export {
  type CacheClient,
  cacheClient,
  cachesOf,
  isComplete,
  type LiveEnvelope,
  listPending,
  liveEndpoints,
  type PendingMessage,
  type Reader,
  versionsOf,
} from "./caches.ts";
export {
  change,
  changeAsOwner,
  type OwnerUpdate,
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
  senderOf,
} from "./client.ts";
export { type LiveEvents, listenLive } from "./connections.ts";
export { bytesSource, type Source } from "./content.ts";
export type { Signer } from "./crypto.ts";
export { type DirectoryClient, identityFor, settleRegistration, type Waiting, waitingDefault } from "./directory.ts";
export { createIdentity, type Identity, parseIdentity, renderIdentity } from "./keys.ts";
export { changeIdentity } from "./opening.ts";
export { firstDocument, type Homes, register, signRegistration } from "./registration.ts";
export { acknowledge, openEnvelope, type Recipient, readMessage, recipientOf, type Sender } from "./retrieve.ts";
export { sealPayload } from "./seal.ts";
export { type SendPlan, type Sent, sendPlan } from "./send.ts";
export { openPayload } from "./unseal.ts";
