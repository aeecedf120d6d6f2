/** What a program may want to know besides its messages. No event needs an answer. */
import type { Did } from "../core/codec/did.ts";
import type { ClientError } from "./http.ts";

export type WaypostEvent =
  /** A message that can't be opened. It waits until it expires, or until `discard` removes it. */
  | {
      readonly type: "unreadable";
      readonly messageIds: readonly string[];
      readonly code: string;
      readonly reason: string;
      readonly discard: () => Promise<void>;
    }
  /** A recipient has what was sent to it. */
  | { readonly type: "receipt"; readonly from: Did; readonly messageIds: readonly string[] }
  | { readonly type: "connected"; readonly what: "live"; readonly url: string }
  /** Tried again by itself. `error` is `null` when the node closed in good order. */
  | {
      readonly type: "disconnected";
      readonly what: "directory" | "cache" | "stream" | "live";
      readonly url: string;
      readonly error: ClientError | null;
    }
  /** The key that others seal to was replaced. */
  | { readonly type: "rotated" }
  /** Another device published a key whose secret can't be derived here: import the identity again. */
  | { readonly type: "key_missing" }
  /** Something in the background failed and is tried again later: a receipt, a rotation. */
  | { readonly type: "failed"; readonly what: "receipt" | "rotation"; readonly error: ClientError };

export type Listener = (event: WaypostEvent) => void;
