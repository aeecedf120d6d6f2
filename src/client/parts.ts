/** What `@waypost/client/parts` exports: identities, changes, plans, sealing and the routes, one by one. */

export { cachesOf, isComplete, listPending, liveEndpoints, versionsOf } from "./caches.ts";
export { change, changeAsOwner, rotateAgreement, signIntent } from "./change.ts";
export { activeDocument, type Client, connect, lookUp, planSend, senderOf } from "./client.ts";
export { listenLive } from "./connections.ts";
export { bytesSource } from "./content.ts";
export { settleRegistration, waitingDefault } from "./directory.ts";
export { createIdentity, type Identity } from "./keys.ts";
export { changeIdentity } from "./opening.ts";
export { firstDocument, register, signRegistration } from "./registration.ts";
export { acknowledge, openEnvelope, readMessage, recipientOf } from "./retrieve.ts";
export { sealPayload } from "./seal.ts";
export { type SendPlan, type Sent, sendPlan } from "./send.ts";
export { openPayload } from "./unseal.ts";
