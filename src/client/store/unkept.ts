/**
 * Receiving without a local store: messages are in memory, and known for one run. A page that
 * only sends does not load it.
 * Source: docs/client.md "Receiving".
 */
import type { OwnIdentity } from "../mail/own-identity.ts";
import { readMessage } from "../mail/retrieve.ts";
import { Handed } from "./queue.ts";
import { type Inbox, Receiver, type ReceiverOptions } from "./receiver.ts";

export function unkeptInbox(send: Inbox["send"], handed = new Handed()): Inbox {
  return {
    isSaved: false,
    has: async () => false,
    read: readMessage,
    acked: async () => undefined,
    // Without a store, no person is a request: what the program acknowledges it has accepted.
    accepts: async () => true,
    handed,
    send,
  };
}

/** For the loops over `messages()`, one after the other: each begins where the last one ended. */
export class UnkeptLoops {
  readonly #identity: OwnIdentity;
  readonly #options: ReceiverOptions;
  readonly #handed = new Handed();

  constructor(identity: OwnIdentity, options: ReceiverOptions) {
    this.#identity = identity;
    this.#options = options;
  }

  receiver(send: Inbox["send"]): Receiver {
    return new Receiver(this.#identity, unkeptInbox(send, this.#handed), this.#options);
  }
}
