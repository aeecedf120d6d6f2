/**
 * Events of an identity beside its messages.
 * Source: docs/client.md "Receiving".
 */
import type { Did } from "../core/codec/did.ts";
import type { ClientError } from "./http.ts";
import type { Stranger } from "./trust/watch.ts";

type Connection = "directory" | "cache" | "stream" | "live";

/** Events other than messages. None needs a reaction. */
export type WaypostEvent =
  /** A message that can't be opened. It waits until it expires, or until `discard` removes it. */
  | {
      readonly type: "unreadable";
      readonly messageIds: readonly string[];
      readonly code: string;
      readonly reason: string;
      readonly discard: () => Promise<void>;
    }
  /** A recipient has a message of this identity. */
  | { readonly type: "receipt"; readonly from: Did; readonly messageIds: readonly string[] }
  /** A live session began, or what was lost is back. */
  | { readonly type: "connected"; readonly what: Connection; readonly url: string }
  /** The SDK reconnects by itself. `error` is `null` when the node closed the connection normally. */
  | {
      readonly type: "disconnected";
      readonly what: Connection;
      readonly url: string;
      readonly error: ClientError | null;
    }
  /** The key that others seal to was replaced. */
  | { readonly type: "rotated" }
  /** Another device published a key whose secret can't be derived here: import the identity again. */
  | { readonly type: "key_missing" }
  /** The own record has a key that this device neither holds nor derives, or the own alias is another DID's. */
  | { readonly type: "stranger_change"; readonly what: Stranger | "alias" }
  /** The own record has changed, by keys that this device holds: another device of this identity. */
  | { readonly type: "identity_updated" }
  /**
   * A receipt, a rotation or a look at the own record failed in the background; the SDK tries again later. Or the clock is
   * wrong: messages go on by the nodes' time, and changes of the identity fail.
   */
  | { readonly type: "failed"; readonly what: "receipt" | "rotation" | "watch" | "clock"; readonly error: ClientError };

export type Listener = (event: WaypostEvent) => void;
