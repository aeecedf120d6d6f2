/**
 * What `@waypost/client/parts` exports: identities, changes, plans, sealing
 * and the routes, one by one.
 */

export { change, changeAsOwner, signIntent } from "./identity/change.ts";
export { firstDocument, register, signRegistration } from "./identity/registration.ts";
export { rotateAgreement } from "./identity/rotation.ts";
export { createIdentity, type Identity } from "./keys/keys.ts";
export { changeIdentity } from "./keys/stored.ts";
export { bytesSource } from "./mail/content.ts";
export { planSend } from "./mail/plan.ts";
export { acknowledge, openEnvelope, readMessage, recipientOf } from "./mail/retrieve.ts";
export { sealPayload } from "./mail/seal.ts";
export { type SendPlan, type Sent, sendPlan } from "./mail/send.ts";
export { openPayload } from "./mail/unseal.ts";
export { isComplete, listPending, versionsOf } from "./net/caches.ts";
export { listenLive } from "./net/connections.ts";
export { settleRegistration, waitingDefault } from "./net/directory.ts";
export { cachesOf } from "./trust/caches.ts";
export { activeDocument, type Client, connect, lookUp, senderOf } from "./trust/client.ts";
export { liveEndpoints } from "./trust/readers.ts";
