/**
 * What `@waypost/client` exports. The functions below the class are `@waypost/client/parts`, so
 * that a page which only sends and receives does not load them.
 */

export { ClientError, type ClientErrorKind } from "./base/failure.ts";
export type { Devices } from "./devices/devices.ts";
export type { DeviceInvitation } from "./devices/inviting.ts";
export type { Device, Replacement } from "./devices/listing.ts";
export { type BackupState, type Restored, type Restoring, restore } from "./identity/backup.ts";
export {
  type Guardian,
  type GuardianChoice,
  type Restoration,
  restoreFromGuardians,
} from "./identity/guardians.ts";
export type { WaypostOptions } from "./identity/opening.ts";
export type { PushOptions, PushSubscriptionLike } from "./identity/push.ts";
export { indexedDbKeys, type KeyStore, memoryKeys } from "./keys/key-stores.ts";
export type { Identity } from "./keys/keys.ts";
export {
  type Lock,
  type LockedKeys,
  lockedKeys,
  passkeyLock,
  passphraseLock,
  recoveryCode,
} from "./keys/locks.ts";
export { type Content, type JsonContent, shareType } from "./mail/content.ts";
export type { Listener, Message, Reaction, StoreChange, WaypostEvent } from "./mail/message.ts";
export type { MessageOptions, SendProgress, Sent, TransferOptions } from "./mail/send.ts";
export {
  indexedDbStore,
  memoryStore,
  type StoreDriver,
  type StoreOptions,
} from "./store/driver.ts";
export type { GroupFacts } from "./store/group-rows.ts";
export type { Group, Groups } from "./store/groups.ts";
export type { Person } from "./store/person-shape.ts";
export type { Profile } from "./store/profiles.ts";
export type { ReportOptions } from "./store/reporting.ts";
export type { DeliveryState } from "./store/rows.ts";
export type { StoredMessage } from "./store/shown.ts";
export type { Conversation, LocalStore } from "./store/store.ts";
export type { Fingerprint } from "./trust/fingerprint.ts";
export type { Operator } from "./trust/operator.ts";
export { Waypost } from "./waypost.ts";
