/**
 * What `@waypost/client` exports. The functions below the class are `@waypost/client/parts`, so that a page
 * which only sends and receives does not load them.
 */

export { type Restoring, restore } from "./backup.ts";
export type { Content, JsonContent } from "./content.ts";
export type { Device, Devices } from "./devices/devices.ts";
export { type Restoration, restoreFromGuardians, shareType } from "./guardians.ts";
export { ClientError, type ClientErrorKind } from "./http.ts";
export { indexedDbKeys, type KeyStore, memoryKeys } from "./key-stores.ts";
export type { Identity } from "./keys.ts";
export {
  type Lock,
  type LockedKeys,
  lockedKeys,
  passkeyLock,
  passphraseLock,
  recoveryCode,
} from "./locks.ts";
export type { Listener, Message, Reaction, WaypostEvent } from "./message.ts";
export type { WaypostOptions } from "./opening.ts";
export type { PushOptions, PushSubscriptionLike } from "./push.ts";
export type { MessageOptions, SendProgress, Sent, TransferOptions } from "./send.ts";
export {
  indexedDbStore,
  memoryStore,
  type StoreDriver,
  type StoreOptions,
} from "./store/driver.ts";
export type { Group, GroupFacts, Groups } from "./store/groups.ts";
export type { Profile } from "./store/profiles.ts";
export type { DeliveryState, Person, StoreChange, StoredMessage } from "./store/rows.ts";
export type { Conversation, LocalStore } from "./store/store.ts";
export { Waypost } from "./waypost.ts";
