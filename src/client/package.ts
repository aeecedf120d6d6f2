/**
 * What `@waypost/client` exports. The functions below the class are `@waypost/client/parts`, so that a page
 * which only sends and receives does not load them.
 */

export type { Content, JsonContent, MessageOptions } from "./content.ts";
export type { Listener, WaypostEvent } from "./events.ts";
export { ClientError, type ClientErrorKind } from "./http.ts";
export { exportKeys, importKeys, indexedDbKeys, type KeyStore, memoryKeys } from "./key-stores.ts";
export type { Identity } from "./keys.ts";
export type { Message, Reaction } from "./message.ts";
export type { Outgoing, SendProgress, Sent, TransferOptions } from "./send.ts";
export { type Group, type GroupSent, Waypost, type WaypostOptions } from "./waypost.ts";
