/**
 * What `@waypost/client` exports. The functions below the class are `@waypost/client/parts`, so that a page
 * which only sends and receives does not load them.
 */
export type { Content, JsonContent, Reaction } from "./content.ts";
export type { Listener, WaypostEvent } from "./events.ts";
export { ClientError, type ClientErrorKind } from "./http.ts";
export { indexedDbKeys, type KeyStore, memoryKeys } from "./key-stores.ts";
export type { Identity } from "./keys.ts";
export type { Message } from "./message.ts";
export type { Outgoing, SendProgress, TransferOptions } from "./outgoing.ts";
export { exportKeys, importKeys } from "./sealed-keys.ts";
export type { Sent } from "./send.ts";
export { type Group, type GroupSent, type MessageOptions, Waypost, type WaypostOptions } from "./waypost.ts";
