/**
 * "Something was stored for this mailbox", from the process that stored it to those whose streams wait for
 * it. It carries no message: a stream reads the store. A signal that is lost costs a stream the time to its
 * next heartbeat and nothing else.
 */
import type { MailboxKey } from "../../core/codec/did.ts";
import type { Bus } from "../../storage/bus.ts";

export type StoredSignal = {
  readonly send: (mailbox: MailboxKey) => void;
  /** Calls back for what other processes store; resolves once it does, or when the bus is away. */
  readonly follow: (mailbox: MailboxKey, wake: () => void) => Promise<() => void>;
};

export const noSignal: StoredSignal = { send: () => {}, follow: async () => () => {} };

export function createStoredSignal(bus: Bus): StoredSignal {
  // What this process stored has woken its own streams already.
  const own = crypto.getRandomValues(new Uint8Array(8));
  const isOwn = (message: Uint8Array) => Buffer.compare(message, own) === 0;
  const subjectOf = (mailbox: MailboxKey) => `stored:${mailbox}`;
  return {
    send: (mailbox) => bus.publish(subjectOf(mailbox), own),
    async follow(mailbox, wake) {
      const receive = (message: Uint8Array): undefined => {
        if (!isOwn(message)) wake();
      };
      const subscription = bus.subscribe(subjectOf(mailbox), receive, { missed: wake });
      await subscription.ready;
      return subscription.unsubscribe;
    },
  };
}
