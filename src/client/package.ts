/**
 * What `@waypost/client` exports. The functions below the class are `@waypost/client/parts`, so that a page
 * which only sends and receives does not load them.
 */

export type { Content, JsonContent } from "./content.ts";
export { ClientError, type ClientErrorKind } from "./http.ts";
export { exportKeys, importKeys, indexedDbKeys, type KeyStore, memoryKeys } from "./key-stores.ts";
export type { Identity } from "./keys.ts";
export type { Listener, Message, Reaction, WaypostEvent } from "./message.ts";
export type { MessageOptions, Outgoing, SendProgress, Sent, TransferOptions } from "./send.ts";
export { type Group, type GroupSent, Waypost, type WaypostOptions } from "./waypost.ts";
