/**
 * What `@waypost/client/node` exports: keys, messages and files on disk, as the commands keep them.
 */

export {
  defaultKeysFolder,
  fileKeys,
  listIdentities,
  loadIdentity,
  stateFolder,
} from "./files.ts";
export { type ReceivedFile, receivedFiles } from "./received.ts";
export { fileSource } from "./source.ts";
export { fileStore } from "./store.ts";
